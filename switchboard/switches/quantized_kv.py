"""Hold the KV cache in 8 or 4 bits, through mlx-lm's own QuantizedKVCache.

Keys and values are quantised as they are written, in groups of `group` numbers, and attention multiplies with the
packed rows. Lossy: 8 bits change logits a little and 4 bits change texts, so it is off unless asked for and no arm
that claims to be exact may carry it. Fits plain KVCache entries with head widths that `group` divides and attention
that mlx-lm's quantised path computes (no sinks); a probe at load tries it and declines with what MLX said.

Memory: of a row in fp32, 8 bits keep 28 % and 4 bits 16 % (groups of 64); on a CPU a token takes longer, as MLX
unpacks on one thread. Turned off by not asking for it, or by SWITCHBOARD_QUANTIZED_KV=0. `runs` counts writes, one for
each layer and pass.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Literal

import mlx.core as mx
import msgspec

from switchboard import lm
from switchboard.cache import replaced
from switchboard.registry import CacheFactory, Counter, Recached, Room, switch


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Options of this switch."""

    bits: Literal[4, 8] = 8
    group: Literal[32, 64, 128] = 64


@cache
def counting_class() -> Any:
    """mlx-lm's class with a count of its writes; made when it is needed."""
    plain: Any = lm.caches().QuantizedKVCache

    class CountingKVCache(plain):  # type: ignore[misc]
        """Packed keys and values of one layer."""

        def __init__(self, options: Options, counter: Counter) -> None:
            super().__init__(group_size=options.group, bits=options.bits)
            self._counter = counter

        def update_and_fetch(self, keys: mx.array, values: mx.array) -> Any:
            """Pack the rows behind those so far; all packed rows."""
            self._counter.runs += 1
            return super().update_and_fetch(keys, values)

    return CountingKVCache


@switch(stage="cache", exactness="lossy", options=Options)
def quantized_kv(factory: CacheFactory, options: Options, counter: Counter) -> Recached:
    """Give every plain KVCache packed rows."""

    def packed(entry: Any, room: Room) -> Any:
        """The entry that takes the plain one's place."""
        return counting_class()(options, counter)

    return replaced(factory, "KVCache", packed, "quantised")
