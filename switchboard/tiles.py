"""Attention over the queries of a long pass in tiles, each with the keys that it can see and no others.

Without tiles, where MLX has no fused kernel for a pass (a CPU always, a GPU for wide heads), the scores of the whole
pass are one matrix of queries × keys for each head, half of which the mask throws away. A tile's matrix has its own
queries × the keys up to its last one.

What a tile can see:

- mask "causal": the keys up to its own last row; the flag stays and means the same for the tile, as MLX aligns it with
  the last key;
- a boolean array: looked at once a pass; keys that it hides from every row of the tile are left out, which is nothing
  to softmax (their weight is exactly 0). Where what remains is causal, number by number, the flag takes its place;
- any other array keeps all keys, and its rows are cut.

MLX allocates what an operation gives when it hands the operation out, up to a hundred of them before they ran: all
tiles of a pass would lie in memory at once. So the tiles are waited for whenever the scores that are under way would
fill more than `ahead` bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import mlx.core as mx
import numpy as np

from switchboard.registry import Counter

Attention = Callable[..., mx.array]


@dataclass(frozen=True)
class Tile:
    """Rows start to end of the queries, keys first to last, and the mask between them."""

    start: int
    end: int
    first: int
    last: int
    mask: Any
    flagged: bool = False
    """Whether the flag stands where an array was."""


@dataclass
class Cutter:
    """Attention in tiles, with what it learnt of the latest mask: all layers of a pass share one."""

    rows: int
    ahead: int
    """Bytes of scores that may be under way."""
    counter: Counter
    seen: list[tuple[mx.array, mx.array]] = field(default_factory=list)
    """Queries and keys as they came, while a probe wants to know them."""
    noting: bool = False
    _mask: mx.array | None = None
    _tiles: list[Tile] = field(default_factory=list)

    def forget(self) -> None:
        """Let the latest mask go."""
        self._mask, self._tiles = None, []

    def attend(
        self, plain: Attention, queries: Any, keys: Any, values: Any, lazy: bool = False, **how: Any
    ) -> Any:
        """What `plain` gives for all queries, tile by tile; `lazy`: nothing is waited for, as nobody may read it."""
        count, length = queries.shape[2], _length(keys)
        mask = how.pop("mask", None)
        if count <= self.rows or mask is None or _odd(mask, count, length):
            return plain(queries, keys, values, mask=mask, **how)
        if self.noting and isinstance(keys, mx.array):
            self.seen.append((queries, keys))
        tiles = self._plan(mask, count, length)
        parts: list[mx.array] = []
        waiting, size = 0, queries.shape[1] * queries.dtype.size
        for one in tiles:
            own = queries[:, :, one.start : one.end]
            parts.append(plain(own, _rows(keys, one), _rows(values, one), mask=one.mask, **how))
            waiting += size * own.shape[2] * (one.last - one.first)
            if waiting > self.ahead and not lazy:
                mx.eval(parts)
                waiting = 0
        self.counter.runs += 1
        self.counter.add("tiles", len(tiles))
        self.counter.add("masks_replaced", sum(one.flagged for one in tiles))
        return mx.concatenate(parts, axis=2)

    def _plan(self, mask: Any, count: int, length: int) -> list[Tile]:
        cuts = [(at, min(at + self.rows, count)) for at in range(0, count, self.rows)]
        if isinstance(mask, str):
            before = length - count
            return [Tile(start, end, 0, before + end, mask) for start, end in cuts]
        if mask is not self._mask:
            self._mask = mask
            whole = np.array(mask) if mask.dtype == mx.bool_ else None
            self._tiles = [_cut(mask, whole, start, end, length) for start, end in cuts]
        return self._tiles


def _cut(mask: mx.array, whole: Any, start: int, end: int, length: int) -> Tile:
    """One tile under an array; all keys where nothing is known of it, or where a row would see none."""
    if whole is None:
        return Tile(start, end, 0, length, mask[..., start:end, :])
    part = whole[..., start:end, :]
    if not part.any(axis=-1).all():
        return Tile(start, end, 0, length, mask[..., start:end, :])
    visible = np.flatnonzero(part.reshape(-1, length).any(axis=0))
    first, last = int(visible[0]), int(visible[-1]) + 1
    part = part[..., first:last]
    causal = np.tri(end - start, last - first, last - first - (end - start), dtype=bool)
    if (part == causal).all():
        return Tile(start, end, first, last, "causal", flagged=True)
    return Tile(start, end, first, last, mask[..., start:end, first:last])


def _odd(mask: Any, count: int, length: int) -> bool:
    """Whether a mask is none that can be cut: another word, or not of the form rows × keys."""
    if isinstance(mask, str):
        return mask != "causal"
    return mask.ndim < 2 or tuple(mask.shape[-2:]) != (count, length)


def _length(keys: Any) -> int:
    """Rows of keys; packed ones are several arrays."""
    return int((keys if isinstance(keys, mx.array) else keys[0]).shape[2])


def _rows(held: Any, tile: Tile) -> Any:
    if isinstance(held, mx.array):
        return held[:, :, tile.first : tile.last]
    return tuple(one[:, :, tile.first : tile.last] for one in held)
