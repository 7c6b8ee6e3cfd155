"""Read the MLP's gate and up with one matrix product instead of two.

As fused_qkv, for every model of mlx-lm whose MLP has gate_proj and up_proj over the same input: dense layers and the
shared experts of a mixture. Routed experts are left to fused_experts. Where the two differ in quantisation the layer
stays separate; coverage tells the classes. Exact: checked bitwise on the real weights at load. Costs no memory: the
originals are dropped layer by layer, unless `keep_originals=true` (for the bisect).
"""

from __future__ import annotations

from typing import Any

import msgspec

from switchboard.registry import Applied, Counter, switch
from switchboard.siblings import join


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Options of this switch."""

    keep_originals: bool = False


@switch(stage="weights", exactness="exact", options=Options)
def fused_gate_up(model: Any, options: Options, counter: Counter) -> Applied:
    """Join the gated MLP's two input projections."""
    return join(model, (("gate_proj", "up_proj"),), counter, options.keep_originals)
