"""Serve the text half of a vision-language checkpoint, without its vision parts.

The engine runs text alone, so such a checkpoint is refused unless this switch is on: it then says in /health how many
tensors, parameters and bytes were left out. They are never read from the disk, so they cost neither memory nor time.
Fits checkpoints that hold a vision tower or a projector beside a language model that mlx-lm defines (qwen3_vl,
qwen3_vl_moe, qwen3_5, gemma3 …); one without vision parts declines. A request that carries an image is refused with
an error that names the part. Exact: the language model is untouched. Killed, the checkpoint is refused as before.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from switchboard import vision
from switchboard.errors import Declined
from switchboard.registry import Counter, Kept, NoOptions, switch


@switch(stage="load", exactness="exact")
def text_only(
    weights: dict[str, Any], config: Mapping[str, Any], options: NoOptions, counter: Counter
) -> Kept:
    """Leave the vision parts of a checkpoint on the disk."""
    parts = vision.parts(weights)
    if not parts:
        raise Declined("the model has no vision parts")
    left = {name: weights[name] for name in weights if name not in parts}
    return Kept(
        left,
        {
            "tensors": len(parts),
            "parameters": vision.parameters(weights, parts, config),
            "bytes": sum(weights[name].nbytes for name in parts),
        },
    )
