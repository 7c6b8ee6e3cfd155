"""Write a model as a checkpoint folder, multi-token heads and all: as it is converted, or as it is published.

As published: norms as offsets from one, convolutions the other way around, experts' gate and up in one, the names of
transformers. Both have a tokenizer of single bytes.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import mlx.core as mx
from mlx.utils import tree_flatten
from tokenizers import Tokenizer, models, pre_tokenizers

from switchboard.sources import tiny
from switchboard.text import byte_alphabet

OFFSETS = (
    "input_layernorm.weight", "post_attention_layernorm.weight", "model.norm.weight", "q_norm.weight",
    "k_norm.weight", "mtp.norm.weight", "pre_fc_norm_embedding.weight", "pre_fc_norm_hidden.weight",
)  # fmt: skip


def with_heads(folder: Path, family: str, kind: str = "none", *, raw: bool = False) -> Any:
    """A tiny model with random heads in a folder; the model itself, with what was written of its heads."""
    model, config = tiny.build(family, kind)
    head = tiny.heads(model, kind)
    write(folder, model, config, head, raw=raw)
    return model, head


def write(
    folder: Path, model: Any, config: dict[str, Any], head: Any = None, *, raw: bool = False
) -> None:
    """All files of a checkpoint."""
    weights = flat(model)
    if head is not None:
        weights |= {f"language_model.mtp.{name}": one for name, one in flat(head).items()}
    packed = quantisation(model) | quantisation(head, "language_model.mtp.")
    if packed:
        config = {**config, "quantization": {"group_size": 64, "bits": 4, **packed}}
    if raw:
        weights = published(weights)
    mx.save_safetensors(str(folder / "model.safetensors"), weights)
    (folder / "config.json").write_text(json.dumps(config))
    vocabulary = dict(byte_alphabet()) | {f"x{place}": place for place in range(256, 512)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.save(str(folder / "tokenizer.json"))


def flat(module: Any) -> dict[str, mx.array]:
    """All arrays of a module by their paths."""
    found: Any = tree_flatten(module.parameters())
    return dict(found)


def quantisation(module: Any, prefix: str = "") -> dict[str, Any]:
    """What config.json says of each packed matrix."""
    if module is None:
        return {}
    return {
        prefix + path: {"group_size": one.group_size, "bits": one.bits}
        for path, one in module.named_modules()
        if hasattr(one, "bits")
    }


def published(weights: dict[str, mx.array]) -> dict[str, mx.array]:
    """The same numbers as transformers stores them."""
    made: dict[str, mx.array] = {}
    for name, one in weights.items():
        name = name.replace("language_model.model.", "model.language_model.")
        name = name.removeprefix("language_model.")
        if name.endswith("conv1d.weight"):
            one = one.moveaxis(1, 2)
        elif name.endswith(OFFSETS) or name == "model.language_model.norm.weight":
            one = one - 1.0
        made[name] = one
    for name in [one for one in made if one.endswith("switch_mlp.gate_proj.weight")]:
        stem = name.removesuffix("switch_mlp.gate_proj.weight")
        gate, up, down = (
            made.pop(f"{stem}switch_mlp.{kind}_proj.weight") for kind in ("gate", "up", "down")
        )
        made[f"{stem}experts.gate_up_proj"] = mx.concatenate([gate, up], axis=-2)
        made[f"{stem}experts.down_proj"] = down
    return made
