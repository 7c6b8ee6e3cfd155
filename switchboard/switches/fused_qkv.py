"""Read q, k and v with one matrix product instead of three.

The weights are joined once at load, so the gain is in decode, where the launch of small kernels dominates; on a CPU
passes of several rows stay separate (joined.narrow says why). Fits every model of mlx-lm whose attention has
q_proj, k_proj and v_proj over the same input, plain or quantised, with or without bias, also where q carries a gate.
In hybrid models the linear attention's four input projections are joined in the same way. In layers of mixed
quantisation those that agree are joined (q and k beside a v of more bits), the rest stays separate; coverage tells
the classes, and the reason the first layer that is not whole. Exact: checked bitwise on the real weights at load.
Costs no memory: the originals are dropped layer by layer, unless `keep_originals=true` (for the bisect).
"""

from __future__ import annotations

from typing import Any

import msgspec

from switchboard.registry import Applied, Counter, switch
from switchboard.siblings import join

SIBLINGS = (
    ("q_proj", "k_proj", "v_proj"),
    ("in_proj_qkv", "in_proj_z", "in_proj_b", "in_proj_a"),
)


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Options of this switch."""

    keep_originals: bool = False


@switch(stage="weights", exactness="exact", options=Options)
def fused_qkv(model: Any, options: Options, counter: Counter) -> Applied:
    """Join the attention's input projections."""
    return join(model, SIBLINGS, counter, options.keep_originals)
