"""Real shapes with random weights: for speed, memory and exactness tests, never for answers.

A name may end in -q4 or -q8 (quantised in groups of 32) or in -mixed (4 bits, but v and up in 8, so that siblings
differ); names that begin with tiny- are read by `tiny`. The weights follow from the seed, so two servers of one shape
hold the same model.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

import mlx.core as mx
from mlx.nn.layers.base import Module
from mlx.nn.layers.quantized import quantize

from switchboard import lm
from switchboard.errors import ModelError
from switchboard.registry import unknown
from switchboard.sources import tiny

SEED = 20
GROUP = 32
SUFFIXES = ("q4", "q8", "mixed")


def _qwen2(hidden: int, layers: int, inner: int, heads: int, kv: int, tied: bool) -> dict[str, Any]:
    return {
        "model_type": "qwen2",
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "intermediate_size": inner,
        "num_attention_heads": heads,
        "num_key_value_heads": kv,
        "rms_norm_eps": 1e-6,
        "vocab_size": 151936 if tied else 152064,
        "max_position_embeddings": 32768,
        "rope_theta": 1e6,
        "tie_word_embeddings": tied,
    }


SHAPES: dict[str, dict[str, Any]] = {
    "smollm2-135m": {
        "model_type": "llama",
        "hidden_size": 576,
        "num_hidden_layers": 30,
        "intermediate_size": 1536,
        "num_attention_heads": 9,
        "num_key_value_heads": 3,
        "rms_norm_eps": 1e-5,
        "vocab_size": 49152,
        "max_position_embeddings": 8192,
        "rope_theta": 1e5,
        "tie_word_embeddings": True,
    },
    "qwen2.5-0.5b": _qwen2(896, 24, 4864, 14, 2, True),
    "qwen2.5-7b": _qwen2(3584, 28, 18944, 28, 4, False),
    "qwen2.5-14b": _qwen2(5120, 48, 13824, 40, 8, False),
}


def split_name(name: str) -> tuple[str, str | None]:
    """The shape and the suffix of a synthetic name; an unknown one is an error with the nearest."""
    shape, _, suffix = name.rpartition("-")
    if suffix not in SUFFIXES:
        shape, suffix = name, ""
    if shape not in SHAPES:
        known = [*SHAPES, *(tiny.PREFIX + family for family in tiny.FAMILIES)]
        raise ModelError(unknown("synthetic shape", shape, known))
    return shape, suffix or None


def digest(name: str) -> str:
    """Sha256 of the recipe: shape, suffix and seed stand for weights that no file holds."""
    if name.startswith(tiny.PREFIX):
        return tiny.digest(name, SEED)
    shape, suffix = split_name(name)
    recipe = json.dumps([SHAPES[shape], suffix, SEED], sort_keys=True)
    return hashlib.sha256(recipe.encode()).hexdigest()


def build(name: str) -> tuple[Module, dict[str, Any]]:
    """The model and its configuration, evaluated layer by layer so that the peak stays low."""
    if name.startswith(tiny.PREFIX):
        return tiny.build(*tiny.split_name(name), seed=SEED)
    shape, suffix = split_name(name)
    config = dict(SHAPES[shape])
    mx.random.seed(SEED)
    model = lm.build(config)
    if suffix is None:
        return model, config
    for layer in model.layers:
        _quantise(layer, suffix)
        mx.eval(layer.parameters())
    _quantise(model, suffix)
    return model, config


def _quantise(module: Module, suffix: str) -> None:
    def choose(path: str, child: Module) -> bool | dict[str, int]:
        if not hasattr(child, "to_quantized"):
            return False
        odd = suffix == "mixed" and path.endswith(("v_proj", "up_proj"))
        return {"group_size": GROUP, "bits": 8 if odd or suffix == "q8" else 4}

    quantize(module, class_predicate=choose)
