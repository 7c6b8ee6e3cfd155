"""The multi-token heads of a checkpoint, as mlx-lm would hold them: the `mtp.*` tensors that it drops at load.

They lie in *.safetensors, under `mtp.` or a prefix before it. Published and converted checkpoints differ in what they
store, and both are read:

- norms: published ones of qwen3_next and qwen3_5 hold offsets from one, converted ones the whole weight. mlx-lm tells
  by the convolutions of linear attention, which only a converted checkpoint has turned around, and so does this: a
  guess from the norms' own sizes goes wrong, as those before `fc` are small in either form. Heads that lie apart from
  any convolution have to say it (`offset` or `whole`): read the wrong way, they guess fluently and are hardly ever
  right;
- experts: one matrix for each, or gate and up of all of them in one; here they are stacked, gate and up apart.

Nothing is computed before it is asked for: what is not taken stays on the disk.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Literal, cast

import mlx.core as mx

from switchboard.errors import Declined

Norms = Literal["auto", "offset", "whole"]
NAMED = re.compile(r"(?:^|\.)mtp\.(.+)$")
EXPERT = re.compile(r"(.+\.mlp)\.experts\.(\d+)\.(gate|up|down)_proj\.(weight|scales|biases)$")
JOINT = ".experts.gate_up_proj"


def read(place: Path | None, norms: Norms) -> dict[str, mx.array]:
    """The tensors by their names behind `mtp.`; Declined where there are none, or what they hold cannot be told."""
    if place is None:
        raise Declined("the weights are random: there is no checkpoint with mtp.* tensors")
    everything = _stored(place)
    found = {named[1]: one for name, one in everything.items() if (named := NAMED.search(name))}
    if not found:
        raise Declined(f"the checkpoint has no multi-token heads: no mtp.* tensors in {place}")
    if norms == "auto":
        norms = _told(everything, place)
    if norms == "offset":
        found = {
            name: one + 1.0 if one.ndim == 1 and "norm" in name else one
            for name, one in found.items()
        }
    return _experts(found)


def mode(place: Path) -> str:
    """How packed matrices are to be read, by config.json beside them: MLX's `affine` where nothing else is said."""
    path = place / "config.json" if place.is_dir() else place.with_name("config.json")
    general = json.loads(path.read_text()).get("quantization") if path.exists() else None
    return str((general or {}).get("mode", "affine"))


def _stored(place: Path) -> dict[str, mx.array]:
    if not place.exists():
        raise Declined(f"{place}: there is no such file or folder")
    files = sorted(place.glob("*.safetensors")) if place.is_dir() else [place]
    if not files:
        raise Declined(f"no *.safetensors in {place}")
    if place.suffix == ".gguf":
        # What a GGUF file holds of heads has other names, and its own order of rows.
        return {}
    everything: dict[str, mx.array] = {}
    for path in files:
        try:
            everything.update(cast(dict[str, mx.array], mx.load(str(path))))
        except (RuntimeError, ValueError) as error:
            raise Declined(f"{path} cannot be read as *.safetensors: {error}") from error
    return everything


def _told(everything: Mapping[str, mx.array], place: Path) -> Norms:
    """Whether norms are offsets from one, by the rule that mlx-lm 0.32 goes by."""
    turned = [
        one.shape[-1] == 1 for name, one in everything.items() if name.endswith("conv1d.weight")
    ]
    if not turned:
        raise Declined(
            f"nothing in {place} tells whether norms are stored as offsets from one; say it: norms=offset for heads as "
            "they were published, norms=whole for converted ones"
        )
    return "whole" if all(turned) else "offset"


def _experts(found: dict[str, mx.array]) -> dict[str, mx.array]:
    """Routed experts in the form of mlx-lm, however they were stored."""
    made: dict[str, mx.array] = {}
    apart: dict[str, dict[int, mx.array]] = {}
    for name, one in found.items():
        single = EXPERT.match(name)
        if single:
            path, place, kind, array = single.groups()
            apart.setdefault(f"{path}.switch_mlp.{kind}_proj.{array}", {})[int(place)] = one
        elif name.endswith(JOINT):
            stem, half = name.removesuffix(JOINT) + ".switch_mlp", one.shape[-2] // 2
            made[f"{stem}.gate_proj.weight"] = one[..., :half, :]
            made[f"{stem}.up_proj.weight"] = one[..., half:, :]
        elif name.endswith(".experts.down_proj"):
            made[name.replace(".experts.", ".switch_mlp.") + ".weight"] = one
        else:
            made[name] = one
    for name, parts in apart.items():
        made[name] = mx.stack([parts[place] for place in sorted(parts)])
    return made
