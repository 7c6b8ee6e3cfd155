"""The kernel against the chain it replaces, bitwise, in one attention on its real weights.

The same attention runs twice over the same filled caches: as it is, and with the kernel in its forward. Compared are
its output and every row of both buffers, at several offsets and widths, one of them where the buffers are full.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mlx.core as mx

from switchboard import lm
from switchboard.epilogue import fit
from switchboard.epilogue.kernel import Geometry
from switchboard.joined import Part

FULL = ((1, 1), (37, 1), (256, 1), (255, 2), (1000, 5), (4093, 1))
SHORT = ((37, 1), (256, 1))
CAPACITY = 256


def passes(
    attention: Any, geometry: Geometry, cases: tuple[tuple[int, int], ...]
) -> list[mx.array]:
    """Output, keys and values of the attention for each (offset, width), evaluated."""
    results: list[mx.array] = []
    part = attention[fit.SIBLINGS[0]]
    module = part._joint.product if isinstance(part, Part) else part
    quantised = "scales" in module
    dtype = module.scales.dtype if quantised else module.weight.dtype
    columns = module.weight.shape[-1] * (32 // module.bits if quantised else 1)
    for offset, rows in cases:
        cache = filled(geometry, offset, dtype)
        x = mx.random.normal((1, rows, columns), key=mx.random.key(offset)).astype(dtype)
        mask = cache.make_mask(rows, return_array=False, window_size=None)
        out = attention(x, mask, cache)
        # Evaluated apart, as whoever fills a cache and throws the output away would do it.
        mx.eval(cache.state)
        results += [out, cache.keys[..., : cache.offset, :], cache.values[..., : cache.offset, :]]
        mx.eval(results)
    return results


def filled(geometry: Geometry, offset: int, dtype: mx.Dtype) -> Any:
    """A cache that holds `offset` random tokens; it is full where that is a multiple of the capacity's step."""
    cache = lm.caches().KVCache()
    capacity = (offset + CAPACITY - 1) // CAPACITY * CAPACITY
    shape = (1, geometry.keys, capacity, geometry.size)
    cache.keys = mx.random.normal(shape, key=mx.random.key(1)).astype(dtype)
    cache.values = mx.random.normal(shape, key=mx.random.key(2)).astype(dtype)
    cache.offset = offset
    return cache


def difference(
    plain: list[mx.array], attempt: Callable[[], list[mx.array]], cases: tuple[tuple[int, int], ...]
) -> str | None:
    """Where and by how much the kernel's passes differ from the plain ones, or None when they are the same bytes."""
    names = ("output", "keys", "values")
    try:
        results = attempt()
    except (RuntimeError, ValueError, TypeError, AttributeError, KeyError, IndexError) as error:
        return f"{type(error).__name__}: {error}"
    for place, (old, new) in enumerate(zip(plain, results, strict=True)):
        if old.dtype != new.dtype or not mx.array_equal(old, new).item():
            offset, rows = cases[place // len(names)]
            worst = mx.abs(old.astype(mx.float32) - new.astype(mx.float32)).max().item()
            return (
                f"{names[place % len(names)]} at offset {offset}, {rows} rows, "
                f"differ from the plain chain by up to {worst:.3g}"
            )
    return None
