"""Parts of a joined product are views with an offset and wide strides; MLX's Python API reads them rightly.

An engine in another language lost its text to such views: parts of a split product, reshaped and transposed (views
again), read by RoPE with a cache offset above 0. Here every step of that way is held bitwise against the same way from
parts that were copied out into memory of their own.
"""

from __future__ import annotations

from itertools import pairwise

import mlx.core as mx
import numpy as np
import pytest

HEADS, GROUPS, WIDTH = 4, 2, 32
SIZES = (HEADS * WIDTH, GROUPS * WIDTH, GROUPS * WIDTH)
CUTS = [sum(SIZES[:1]), sum(SIZES[:2])]
TYPES = [mx.float32, mx.float16, mx.bfloat16]


def own(part: mx.array) -> mx.array:
    """The same numbers in fresh memory of their own, by way of NumPy."""
    copied = np.array(part.astype(mx.float32), copy=True, order="C")
    fresh = mx.array(copied).astype(part.dtype)
    mx.eval(fresh)
    return fresh


def heads(part: mx.array, count: int) -> mx.array:
    return part.reshape(*part.shape[:2], count, -1).transpose(0, 2, 1, 3)


def product(length: int, dtype: mx.Dtype, batch: int = 1) -> mx.array:
    x = mx.random.normal((batch, length, 64), key=mx.random.key(length)).astype(dtype)
    weight = mx.random.normal((sum(SIZES), 64), key=mx.random.key(9)).astype(dtype)
    return x @ weight.T


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("traditional", [False, True])
@pytest.mark.parametrize("length", [1, 2, 5, 64])
@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("offset", [0, 1, 37, 4095])
def test_rope_reads_split_views_as_it_reads_copies(
    dtype: mx.Dtype, traditional: bool, length: int, batch: int, offset: int
) -> None:
    parts = mx.split(product(length, dtype, batch), CUTS, axis=-1)
    for part, count in zip(parts, (HEADS, GROUPS, GROUPS), strict=True):
        turned = [
            mx.fast.rope(
                heads(one, count),
                WIDTH,
                traditional=traditional,
                base=1e4,
                scale=1.0,
                offset=offset,
            )
            for one in (part, own(part))
        ]
        assert mx.array_equal(*turned).item()


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("length", [1, 5])
def test_the_parts_are_views_and_evaluating_them_first_changes_nothing(
    dtype: mx.Dtype, length: int
) -> None:
    whole = product(length, dtype)
    mx.eval(whole)
    before = mx.get_active_memory()
    parts = mx.split(whole, CUTS, axis=-1)
    mx.eval(parts)
    assert mx.get_active_memory() == before, "a split that copies would prove nothing here"
    for (start, end), part in zip(pairwise([0, *CUTS, sum(SIZES)]), parts, strict=True):
        assert mx.array_equal(part, own(whole)[..., start:end]).item()


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_the_whole_way_over_a_filled_cache(dtype: mx.Dtype) -> None:
    """Split, RoPE, write into the cache, attention: 20 steps after a prefill, views against copies."""
    filled = 37
    outputs = []
    for change in (lambda part: part, own):
        keys = mx.zeros((1, GROUPS, 64, WIDTH), dtype)
        values = mx.zeros((1, GROUPS, 64, WIDTH), dtype)
        offset = 0
        for length in (filled, *[1] * 20):
            parts = mx.split(product(length, dtype) * (1 + offset / 100), CUTS, axis=-1)
            q, k, v = (
                heads(change(part), count)
                for part, count in zip(parts, (HEADS, GROUPS, GROUPS), strict=True)
            )
            q, k = (
                mx.fast.rope(one, WIDTH, traditional=False, base=1e4, scale=1.0, offset=offset)
                for one in (q, k)
            )
            end = offset + length
            keys[..., offset:end, :], values[..., offset:end, :] = k, v
            outputs.append(
                mx.fast.scaled_dot_product_attention(
                    q,
                    keys[..., :end, :],
                    values[..., :end, :],
                    scale=WIDTH**-0.5,
                    mask="causal" if length > 1 else None,
                )
            )
            mx.eval(outputs[-1], keys, values)
            offset = end
    views, copies = outputs[:21], outputs[21:]
    assert all(mx.array_equal(*pair).item() for pair in zip(views, copies, strict=True))
