"""Read q, k and v with one matrix product instead of three.

The weights are joined once at load, so the gain is in decode, where the launch of small kernels dominates; on a CPU
passes of several rows stay separate (joined.narrow says why). Fits every model of mlx-lm whose attention has
q_proj, k_proj and v_proj over the same input, plain or quantised alike, with or without bias. Exact: checked
bitwise on the real weights at load. Costs no memory: the originals are dropped layer by layer, unless
`keep_originals=true` (for the bisect).
"""

from __future__ import annotations

from typing import Any

import msgspec

from switchboard.joined import join
from switchboard.registry import Applied, Counter, switch


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Options of this switch."""

    keep_originals: bool = False


@switch(stage="weights", exactness="exact", options=Options)
def fused_qkv(model: Any, options: Options, counter: Counter) -> Applied:
    """Join the attention's three input projections."""
    return join(model, ("q_proj", "k_proj", "v_proj"), counter, options.keep_originals)
