"""Write the rows of the KV cache into one buffer that is allocated once, for the prompt and the answer.

mlx-lm's cache grows by 256 rows at a time, each time into a new buffer, with the old one alive beside it until it is
copied. Here the first write allocates the room that the request can come to need, and prefill, decode and verify put
their rows into it. MLX writes a slice in place when nothing else holds the buffer, and copies all of it otherwise; so
nothing here keeps a second reference, and no view of the rows outlives the pass that reads it.

What that spares: a CPU works through the layers in order, so a growing cache is double in about one layer at a time. A
decode step at 8,192 rows of SmolLM2's shape (30 layers, 377 MB of cache) allocates 13.3 MB beside it when it grows and
0.3 MB in place (`python -m benchmarks.cache_memory --shape smollm2 --rows 8192`); with few layers it is a large share
of the cache (arms K and L). A GPU is handed passes ahead of time and may hold many old buffers at once; there a step
that is started before the last one ended may also make MLX copy after all. Neither was measured.

Fits every entry that is mlx-lm's plain KVCache; rotating caches and the states of linear attention stay as they are,
and are told. Exact: the rows are the same, and a probe at load compares the logits bitwise, over a rewind and over
growing too.

Memory: the room of the whole answer from the first token on, at most `ahead` rows of it; an answer that goes on
beyond them grows the buffer by as many again, one copy each time (`grown` counts them, in layers). Turned off by not
asking for it, or by SWITCHBOARD_IN_PLACE_KV=0. `runs` counts writes, one for each layer and pass.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import mlx.core as mx
import msgspec

from switchboard import lm
from switchboard.cache import replaced
from switchboard.registry import CacheFactory, Counter, Recached, Room, switch

SPARE = 256


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Options of this switch."""

    ahead: int = 4096

    def __post_init__(self) -> None:
        """Refuse a step that would copy the buffer for every few tokens."""
        if self.ahead < SPARE:
            raise ValueError(f"ahead must be {SPARE} rows or more")


@cache
def in_place_class() -> Any:
    """The cache's class; made when it is needed, because it stands on mlx-lm's."""
    plain: Any = lm.caches().KVCache

    class InPlaceKVCache(plain):  # type: ignore[misc]
        """Keys and values of one layer in buffers of a fixed capacity, in rows."""

        keys: Any
        values: Any
        offset: int

        def __init__(self, room: Room, ahead: int, counter: Counter) -> None:
            super().__init__()
            self.capacity = room.prompt + min(room.answer, ahead)
            self._room = room
            self._ahead = ahead
            self._counter = counter

        def update_and_fetch(self, keys: mx.array, values: mx.array) -> Any:
            """Put the rows behind those so far; the filled part of both buffers."""
            start, self.offset = self.offset, self.offset + keys.shape[2]
            if self.keys is None:
                self.capacity = max(self.capacity, self.offset)
                self.keys, self.values = self._empty(keys), self._empty(values)
            elif self.offset > self.capacity:
                # A request stays within its room; whoever goes on beyond it gets a few rows at a time.
                most = max(self._room.whole, self.offset + SPARE)
                self.capacity = max(self.offset, min(self.capacity + self._ahead, most))
                self._grow()
            self.keys[..., start : self.offset, :] = keys
            self.values[..., start : self.offset, :] = values
            self._counter.runs += 1
            return self.keys_and_values()

        def _empty(self, rows: mx.array) -> mx.array:
            return mx.zeros((*rows.shape[:2], self.capacity, rows.shape[3]), rows.dtype)

        def _grow(self) -> None:
            # One at a time and at once, so that no more than one old buffer is alive beside its successor.
            for name in ("keys", "values"):
                rows = getattr(self, name)
                more = (*rows.shape[:2], self.capacity - rows.shape[2], rows.shape[3])
                grown = mx.concatenate([rows, mx.zeros(more, rows.dtype)], axis=2)
                del rows
                setattr(self, name, grown)
                mx.eval(grown)
            self._counter.add("grown")

    return InPlaceKVCache


@switch(stage="cache", exactness="exact", options=Options)
def in_place_kv(factory: CacheFactory, options: Options, counter: Counter) -> Recached:
    """Give every plain KVCache a buffer of its final size."""

    def roomy(layer: int, room: Room) -> Any:
        """The entry that takes the plain one's place."""
        return in_place_class()(room, options.ahead, counter)

    return replaced(factory, "KVCache", roomy, "written in place")
