"""Writing into a KV cache behind MLX's back, and the five rules that keep it honest.

A kernel of `mx.fast` has fresh outputs only; what it writes into an input is a write that MLX does not see, and arrays
of MLX are values. So:

- the buffers are private: before the first such write, and whenever they are full, they are copied into new ones, so
  that nobody else's array changes. Whoever keeps the arrays of a cache that goes on being used, and takes tokens back
  from it, must copy them;
- they are always as long as the plain cache's would be. On CUDA MLX picks the kernel of a one-row attention by that
  length: cuDNN's over buffers of whole steps of 256 that hold 256 tokens or more, its own over any other, and the two
  round differently. Buffers of 4,349 rows where the plain cache has 4,096 gave other bytes for that reason alone;
- whoever reads the cache afterwards depends on the kernel in the graph (`wrote`), also where q is never used;
- the attention of the pass reads q, an output of the same launch, so that the device orders the two;
- before anything else reads or moves the buffers, the writes so far are handed to the device (`settle`): the work of
  later evaluations follows them in order.
"""

from __future__ import annotations

from typing import Any

import mlx.core as mx


def own(cache: Any) -> None:
    """Remember that the buffers are this cache's alone; a copy of the cache does not inherit it."""
    cache.private = (id(cache), cache.keys)


def owned(cache: Any) -> bool:
    """Whether the buffers are those that were made for this cache."""
    mark = getattr(cache, "private", None)
    return mark is not None and mark[0] == id(cache) and mark[1] is cache.keys


def settle(cache: Any) -> None:
    """Hand the writes so far to the device, before anything that MLX cannot order after them."""
    if getattr(cache, "private", None) is not None and cache.keys is not None:
        mx.async_eval(cache.keys, cache.values)  # type: ignore[no-untyped-call]


def room(cache: Any, rows: int) -> None:
    """Private buffers with place for so many more rows, as long as mlx-lm's own cache would make them."""
    length, step = cache.keys.shape[2], cache.step
    if cache.offset + rows <= length:
        if owned(cache):
            return
        kept, more = cache.offset, length - cache.offset
    else:
        kept = cache.offset if cache.offset % step else length
        more = (rows + step - 1) // step * step
    settle(cache)
    grown = []
    for buffer in (cache.keys, cache.values):
        batch, heads, _, size = buffer.shape
        fresh = mx.zeros((batch, heads, more, size), buffer.dtype)
        grown.append(mx.concatenate([buffer[..., :kept, :], fresh], axis=2))
    cache.keys, cache.values = grown
    own(cache)


def wrote(cache: Any, rows: int, witness: mx.array) -> None:
    """Take note of new rows; whoever reads the buffers from now on waits for the launch that made `witness`."""
    cache.keys, cache.values = mx.depends([cache.keys, cache.values], [witness])
    own(cache)
    cache.offset += rows
