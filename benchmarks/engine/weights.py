"""The arrays that switchboard loaded, as a folder that mlx_lm reads: so both engines hold the same numbers.

    python -m benchmarks.engine.weights MODEL FORMAT FOLDER

`float32` is what switchboard runs on a CPU, `quantized` what the model's file holds (its scales in fp32, which MLX's
CPU kernels like best), `bfloat16` the same numbers rounded.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from benchmarks.engine.pipes import ROOT, Failed
from benchmarks.peers.environment import HOME

READY = "config.json"


def folder(model: str, digest: str, wanted: str) -> Path:
    """The folder of a model in a format, made first where it is missing."""
    place = HOME / "engine" / f"{digest[:16]}-{wanted}"
    if not (place / READY).exists():
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        command = [sys.executable, "-m", "benchmarks.engine.weights", model, wanted, str(place)]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        if done.returncode:
            raise Failed(f"weights as {wanted}: {done.stderr.strip()[-400:]}")
    return place


def write(model: str, wanted: str, place: Path) -> None:
    """Load by switchboard's own loader and save; config.json comes last and says that the folder is whole."""
    import mlx.core as mx
    from mlx.utils import tree_flatten, tree_map

    from switchboard.board import Board
    from switchboard.load import load
    from switchboard.models import resolve

    source = resolve(model)
    loaded = load(source, "quantized" if wanted == "quantized" else "float32", Board((), {}))
    weights: Any = loaded.model.parameters()
    if wanted == "bfloat16":
        weights = tree_map(lambda array: array.astype(mx.bfloat16), weights)
    config = {
        **_config(source),
        "stored_as": loaded.format if wanted == "quantized" else wanted,
    }
    if wanted == "quantized":
        config["quantization"] = _quantisation(loaded.model)
    flat: Any = tree_flatten(weights)
    mx.save_safetensors(str(place / "model.safetensors"), dict(flat))
    (place / READY).write_text(json.dumps(config))


def _config(source: Any) -> dict[str, Any]:
    """The configuration that the model was built from."""
    if source.shape is not None:
        from switchboard.sources import synthetic

        return dict(synthetic.build(source.shape)[1])
    if source.kind == "gguf":
        from switchboard.sources import gguf

        return dict(gguf.read(source.place)[1])
    from switchboard.sources import folder as local

    return dict(local.read(source.place)[1])


def _quantisation(model: Any) -> dict[str, Any]:
    """Group and bits of every quantised module; the first one's stand for all that are not named."""
    each = {
        name: {"group_size": module.group_size, "bits": module.bits}
        for name, module in model.named_modules()
        if hasattr(module, "bits")
    }
    if not each:
        raise Failed("the model is not stored quantised")
    return {**next(iter(each.values())), **each}


if __name__ == "__main__":
    write(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
