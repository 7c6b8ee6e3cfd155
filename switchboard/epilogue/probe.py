"""The kernel against the chain it replaces, bitwise, in one attention on its real weights.

The same attention runs twice over the same filled caches: as it is, and with the kernel in its forward. Compared are
its output and every row of both buffers, at several offsets and widths, one of them where the buffers are full.
"""

from __future__ import annotations

from typing import Any

import mlx.core as mx

from switchboard import lm, parity
from switchboard.epilogue import fit
from switchboard.epilogue.kernel import Geometry
from switchboard.joined import columns

FULL = ((1, 1), (37, 1), (256, 1), (255, 2), (1000, 5), (4093, 1))
SHORT = ((37, 1), (256, 1))
CAPACITY = 256


def passes(
    attention: Any, geometry: Geometry, cases: tuple[tuple[int, int], ...], plain: bool
) -> list[mx.array]:
    """Output, keys and values of the attention for each (offset, width), evaluated; over the plain cache or another."""
    results: list[mx.array] = []
    module = fit.source(attention[fit.SIBLINGS[0]])
    dtype = module.scales.dtype if "scales" in module else module.weight.dtype
    width = columns(module)
    for offset, rows in cases:
        cache = filled(geometry, offset, dtype, plain)
        x = mx.random.normal((1, rows, width), key=mx.random.key(offset)).astype(dtype)
        mask = cache.make_mask(rows, return_array=False, window_size=None)
        out = attention(x, mask, cache)
        # Evaluated apart, as whoever fills a cache and throws the output away would do it.
        mx.eval(cache.state)
        results += [out, cache.keys[..., : cache.offset, :], cache.values[..., : cache.offset, :]]
        mx.eval(results)
    return results


def filled(geometry: Geometry, offset: int, dtype: mx.Dtype, plain: bool = True) -> Any:
    """A cache that holds `offset` random tokens; it is full where that is a multiple of the capacity's step."""
    kind = lm.caches().KVCache
    cache = kind() if plain else type("Other", (kind,), {})()
    capacity = (offset + CAPACITY - 1) // CAPACITY * CAPACITY
    shape = (1, geometry.keys, capacity, geometry.size)
    cache.keys = mx.random.normal(shape, key=mx.random.key(1)).astype(dtype)
    cache.values = mx.random.normal(shape, key=mx.random.key(2)).astype(dtype)
    cache.offset = offset
    return cache


def difference(
    plain: list[mx.array], attempt: list[mx.array] | str, cases: tuple[tuple[int, int], ...]
) -> str | None:
    """Where and by how much the kernel's passes differ from the plain ones, or None when they are the same bytes."""
    if isinstance(attempt, str):
        return attempt
    names = ("output", "keys", "values")

    def named(place: int) -> str:
        offset, rows = cases[place // len(names)]
        return f"{names[place % len(names)]} at offset {offset}, {rows} rows, plain chain beside it"

    return parity.first(plain, attempt, named)
