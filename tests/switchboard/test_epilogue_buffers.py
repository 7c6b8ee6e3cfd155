"""The buffers the kernel writes into are as long as the plain cache's: on CUDA their length picks the attention."""

from __future__ import annotations

import random
from typing import Any

import emulated
import mlx.core as mx
import pytest

from switchboard import cache as kv
from switchboard.load import to_float32
from switchboard.registry import Counter
from switchboard.sources import synthetic
from switchboard.switches.fused_epilogue import Options, put_on


def lengths(model: Any, seed: int) -> list[int]:
    """How long the first layer's buffer is after each pass of a random walk with rewinds, past several growths."""
    chance, cache, told = random.Random(seed), kv.make(model), []
    model(mx.arange(chance.choice((1, 200, 253, 256, 300)))[None], cache=cache)
    for _ in range(90):
        model(mx.arange(chance.randint(1, 8))[None], cache=cache)
        kv.rewind(cache, chance.randint(0, 2) if cache[0].offset > 2 else 0)
        mx.eval(kv.arrays(cache))
        told.append(cache[0].keys.shape[2])
    return told


@pytest.mark.parametrize("seed", range(4))
def test_buffers_are_as_long_as_the_plain_caches(seed: int) -> None:
    model, _ = synthetic.build("tiny-llama")
    to_float32(model)
    plain = lengths(model, seed)
    assert len(set(plain)) > 1, "a walk that never grows would prove nothing"
    counter = Counter()
    put_on(model, Options(), counter, emulated.launch)
    counter.clear()
    assert lengths(model, seed) == plain
    # A first pass of one token finds no buffer to write into.
    assert counter.runs and counter.more in ({}, {"left_to_the_cache": 4})
