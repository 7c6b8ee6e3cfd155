"""A tiny qwen3_5 that counts, with a multi-token head that knows what it will say: every guess of it stands.

A token is a point on a torus, its embedding the cosines and sines of 32 angles; STEP further is a rotation, a matrix.
The output matrix gives the token STEP after the one it is shown. The final norm turns every sign around, so that the
hidden state before it and the one behind it are opposites: a head that is fed the wrong one is always wrong.
"""

from __future__ import annotations

import copy
from typing import Any

import mlx.core as mx
import numpy as np

from switchboard import lm
from switchboard.sources import tiny

WORDS, PAIRS, STEP = 512, 32, 37
SHARP = 0.2
ANGLES = 2 * np.pi * np.random.default_rng(5).choice(np.arange(1, 256, 2), PAIRS, False) / WORDS


def places(tokens: np.ndarray) -> np.ndarray:
    """The embedding of tokens."""
    turned = tokens[:, None] * ANGLES
    return np.stack([np.cos(turned), np.sin(turned)], axis=-1).reshape(len(tokens), -1)


def rotation() -> np.ndarray:
    """The matrix that leads from a token's embedding to that of the token STEP further."""
    made = np.zeros((2 * PAIRS, 2 * PAIRS))
    for pair, angle in enumerate(ANGLES * STEP):
        cos, sin, at = np.cos(angle), np.sin(angle), 2 * pair
        made[at : at + 2, at : at + 2] = [[cos, -sin], [sin, cos]]
    return made


WAYS = {
    "hidden state": (0.0, 1.0),
    "embedding": (1.0, 0.0),
    "both": (0.5, 0.5),
}
"""What the head goes by: the weights of the embedding's half of `fc` and of the hidden state's."""


def counting(way: str = "hidden state", noise: float = 0.0, alive: float = 0.0) -> Any:
    """Model, configuration and head. `noise` in `fc` makes some guesses wrong; `alive` layers change the text."""
    config: dict[str, Any] = copy.deepcopy(tiny.CONFIGS["qwen3_5"])
    config["text_config"]["tie_word_embeddings"] = False
    mx.random.seed(3)
    model = lm.build(copy.deepcopy(config))
    text = model.language_model
    tokens = np.arange(WORDS)
    text.model.embed_tokens.weight = mx.array(places(tokens), mx.float32)
    text.lm_head.weight = mx.array(-SHARP * places(tokens - STEP), mx.float32)
    text.model.norm.weight = -mx.ones(2 * PAIRS)
    head = tiny.heads(model, "none")
    for layer, share in [*((one, alive) for one in text.model.layers), (head.layers[0], 0.0)]:
        mixer = layer.linear_attn.out_proj if layer.is_linear else layer.self_attn.o_proj
        for one in (mixer, layer.mlp.down_proj):
            one.weight = share * one.weight
    for norm in (head.norm, head.pre_fc_norm_embedding, head.pre_fc_norm_hidden):
        norm.weight = mx.ones(2 * PAIRS)
    embedding, hidden = WAYS[way]
    parts = [-embedding * np.eye(2 * PAIRS), hidden * rotation()]
    fc = np.concatenate(parts, axis=1) + noise * np.random.default_rng(7).normal(size=(64, 128))
    head.fc.weight = mx.array(fc, mx.float32)
    model.eval()
    mx.eval(model.parameters(), head.parameters())
    return model, config, head
