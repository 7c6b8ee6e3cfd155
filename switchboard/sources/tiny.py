"""A model of each family with a few hundred thousand random weights, for tests of exactness.

Name: `synthetic:tiny-FAMILY` or `synthetic:tiny-FAMILY-QUANTISATION`. Everything that makes a family hard to fuse is
in it, at the least size: biases (qwen2), norms of q and k (qwen3), routed experts (qwen3_moe), linear attention in
every second layer, gated q of twice the width and shared experts (qwen3_5, qwen3_5_moe), a nested language model
(qwen3_vl, qwen3_vl_moe, whose first layer is dense) and a sliding window shorter than the tests' prompts (gemma3).

`mixed` holds the lower half of the layers in 4 bits throughout; in the upper half v, up and the two small projections
of linear attention have 8 bits, so that siblings differ there. A router is held in 8 bits wherever anything is
quantised, as mlx-lm does.
"""

from __future__ import annotations

import copy
import hashlib
import json
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import mlx.core as mx
from mlx.nn.layers.base import Module
from mlx.nn.layers.quantized import quantize
from mlx.utils import tree_flatten, tree_unflatten

from switchboard import lm
from switchboard.errors import ModelError
from switchboard.mtp.head import blank
from switchboard.registry import unknown

PREFIX = "tiny-"
LAYERS = 4
QUANTISATIONS = ("none", "q4-g32", "q4-g64", "q8-g64", "mixed")
ALIASES: Mapping[str, str] = MappingProxyType({"": "none", "q4": "q4-g32", "q8": "q8-g64"})
WIDE = ("v_proj", "up_proj", "in_proj_b", "in_proj_a")
ROUTERS = ("mlp.gate", "shared_expert_gate")
NORM_SPREAD = 0.1


def _text(model_type: str, **more: Any) -> dict[str, Any]:
    return {
        "model_type": model_type,
        "hidden_size": 64,
        "num_hidden_layers": LAYERS,
        "intermediate_size": 192,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 32,
        "rms_norm_eps": 1e-5,
        "vocab_size": 512,
        "max_position_embeddings": 2048,
        "rope_theta": 10000.0,
        "tie_word_embeddings": True,
        **more,
    }


def _nested(model_type: str, text: dict[str, Any]) -> dict[str, Any]:
    return {"model_type": model_type, "vocab_size": text["vocab_size"], "text_config": text}


EXPERTS = {
    "num_experts": 8,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 64,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
    "norm_topk_prob": True,
}
SECTIONS = {"rope_type": "default", "mrope_section": [6, 5, 5], "mrope_interleaved": True}
HYBRID = {
    "full_attention_interval": 2,
    "linear_num_value_heads": 4,
    "linear_num_key_heads": 2,
    "linear_key_head_dim": 32,
    "linear_value_head_dim": 32,
    "linear_conv_kernel_dim": 4,
    "rope_parameters": {
        "type": "default",
        "rope_theta": 10000.0,
        "partial_rotary_factor": 0.25,
        "mrope_section": [2, 1, 1],
    },
}
SHARED = {**EXPERTS, "shared_expert_intermediate_size": 128}
SLIDING = {"query_pre_attn_scalar": 32, "sliding_window": 32, "sliding_window_pattern": 2}

CONFIGS: Mapping[str, dict[str, Any]] = MappingProxyType(
    {
        "llama": _text("llama"),
        "qwen2": _text("qwen2", head_dim=16),
        "qwen3": _text("qwen3"),
        "qwen3_moe": _text("qwen3_moe", **EXPERTS),
        "qwen3_5": _nested("qwen3_5", _text("qwen3_5_text", **HYBRID)),
        "qwen3_5_moe": _nested("qwen3_5_moe", _text("qwen3_5_moe_text", **HYBRID, **SHARED)),
        "qwen3_vl": _nested("qwen3_vl", _text("qwen3_vl_text", rope_scaling=SECTIONS)),
        "qwen3_vl_moe": _nested(
            "qwen3_vl_moe",
            _text(
                "qwen3_vl_moe_text",
                **{**EXPERTS, "mlp_only_layers": [0], "tie_word_embeddings": False},
            ),
        ),
        "gemma3": _nested("gemma3", _text("gemma3_text", **SLIDING)),
    }
)
FAMILIES = tuple(CONFIGS)


def split_name(name: str) -> tuple[str, str]:
    """Family and quantisation of `tiny-FAMILY[-QUANTISATION]`; an unknown one is an error with the nearest."""
    family, _, rest = name.removeprefix(PREFIX).partition("-")
    quantisation = ALIASES.get(rest, rest)
    if family not in CONFIGS:
        raise ModelError(
            unknown("synthetic shape", PREFIX + family, [PREFIX + one for one in FAMILIES])
        )
    if quantisation not in QUANTISATIONS:
        raise ModelError(unknown(f"quantisation of {PREFIX}{family}", rest, list(QUANTISATIONS)))
    return family, quantisation


def digest(name: str, seed: int) -> str:
    """Sha256 of the recipe, which stands for weights that no file holds."""
    family, quantisation = split_name(name)
    recipe = json.dumps([CONFIGS[family], quantisation, seed], sort_keys=True)
    return hashlib.sha256(recipe.encode()).hexdigest()


def build(family: str, quantisation: str, seed: int = 0) -> tuple[Any, dict[str, Any]]:
    """The model, evaluated, and its configuration as a checkpoint would carry it."""
    config = copy.deepcopy(CONFIGS[family])
    mx.random.seed(seed)
    model = lm.build(copy.deepcopy(config))
    if family == "gemma3":
        # Its output matrix is the embedding's: mlx-lm learns that from a checkpoint that holds no other.
        model.language_model.sanitize({})
    _stir(model)
    if quantisation != "none":
        _quantise(model, quantisation)
    model.eval()
    mx.eval(model.parameters())
    return model, config


def heads(model: Any, quantisation: str, seed: int = 0) -> Any:
    """Multi-token heads of a model, of random weights and evaluated: what its checkpoint would hold under `mtp.`.

    Families without linear attention have none that is known, and decline.
    """
    mx.random.seed(seed + 1)
    made: Any = blank(model)
    _stir(made)
    if quantisation != "none":
        _quantise(made, quantisation, LAYERS)
    made.eval()
    mx.eval(made.parameters())
    return made


def _stir(model: Any) -> None:
    """Give every norm weights of its own; all ones would hide a norm that was mixed up with another."""
    flat: Any = tree_flatten(model.parameters())
    stirred = [
        (path, array + NORM_SPREAD * mx.random.normal(array.shape))
        for path, array in flat
        if path.endswith("weight") and array.ndim == 1
    ]
    model.update(tree_unflatten(stirred))


def _quantise(model: Any, quantisation: str, place: int | None = None) -> None:
    """Pack the matrices; `place` is that of a layer whose path does not tell it."""
    bits, _, group = quantisation.removeprefix("q").partition("-g")

    def choose(path: str, child: Module) -> bool | dict[str, Any]:
        if not hasattr(child, "to_quantized"):
            return False
        if path.endswith(ROUTERS):
            return {"group_size": 64, "bits": 8}
        if quantisation != "mixed":
            return {"group_size": int(group), "bits": int(bits)}
        layer = re.search(r"layers\.(\d+)\.", path)
        upper = layer is not None and (int(layer[1]) if place is None else place) >= LAYERS // 2
        return {"group_size": 32, "bits": 8 if upper and path.endswith(WIDE) else 4}

    quantize(model, class_predicate=choose)
