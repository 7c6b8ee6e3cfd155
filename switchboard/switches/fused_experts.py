"""Read the routed experts' gate and up with one gathered product instead of two.

Fits mixtures built on mlx-lm's SwitchGLU, plain or quantised; where gate and up differ in quantisation the layer
stays separate. A dense model declines. Exact: checked bitwise on the real weights at load, with experts drawn at
random, sorted and not.

The experts are nearly all of such a model, so memory decides: they are joined layer by layer and the originals are
dropped at once. Needs one layer's copy beside the model and declines before it changes anything when that would pass
the limit (--memory-limit, else the device's). With `keep_originals=true` (for the bisect) it needs a copy of all.
"""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import msgspec

from switchboard import memory
from switchboard.errors import Declined
from switchboard.registry import Applied, Counter, switch
from switchboard.siblings import join


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Options of this switch."""

    keep_originals: bool = False


@switch(stage="weights", exactness="exact", options=Options)
def fused_experts(model: Any, options: Options, counter: Counter) -> Applied:
    """Join the routed experts' two input projections."""
    return join(
        model,
        (("gate_proj", "up_proj"),),
        counter,
        options.keep_originals,
        experts=True,
        afford=within_limit,
    )


def within_limit(needed: int, layer: str) -> None:
    """Decline when what is in use and the copy that joining needs would pass the limit."""
    active, limit = mx.get_active_memory(), memory.limit()
    if active + needed > limit:
        raise Declined(
            f"{layer}: joining needs {needed} bytes beside the {active} in use, the limit is {limit}"
        )
