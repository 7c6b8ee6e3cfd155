"""The vision parts of a checkpoint, told by the names of its tensors.

Nothing here runs them. They are looked for so that a checkpoint that has them is served knowingly or not at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

TOWERS = ("visual", "vision_tower", "vision_model", "multi_modal_projector", "vision_embed_tokens")
IMAGE_PARTS = ("image", "image_url", "input_image", "video", "video_url", "input_video")


def parts(names: Iterable[str]) -> list[str]:
    """Names of the tensors that belong to a vision tower or to its projector.

    A tower stands at the top of a checkpoint or right under `model.`.
    """
    return [name for name in names if name.removeprefix("model.").partition(".")[0] in TOWERS]


def parameters(weights: Mapping[str, Any], names: Iterable[str], config: Mapping[str, Any]) -> int:
    """Numbers in these tensors, packed ones counted as what they stand for; shapes alone are read."""
    total = 0
    for name in names:
        module, _, kind = name.rpartition(".")
        scales = weights.get(f"{module}.scales")
        if scales is None:
            total += weights[name].size
        elif kind == "weight":
            total += scales.size * _group(config, module)
        elif kind == "bias":
            total += weights[name].size
    return total


def _group(config: Mapping[str, Any], module: str) -> int:
    general = config.get("quantization") or {}
    own = general.get(module)
    return int((own if isinstance(own, dict) else general)["group_size"])
