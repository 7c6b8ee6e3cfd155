"""Hold the KV cache in 8 or 4 bits, through mlx-lm's own QuantizedKVCache.

Keys and values are quantised as they are written, in groups of `group` numbers, and attention multiplies with the
packed rows. Lossy: 8 bits change logits a little and 4 bits change texts, so it is off unless asked for and no arm
that claims to be exact may carry it. Fits plain KVCache entries with head widths that `group` divides and attention
that mlx-lm's quantised path computes. A probe at load tries it; it declines with the layer whose heads no group fits,
or with what the model's attention made of packed rows (sinks, or a reshape of its own as in gemma2).

Memory: a number takes bits + 64 / group bits, as each group has a scale and a bias of its own: 9 of 32 at 8 bits in
groups of 64, 5 at 4 bits, for a model in fp32. On a CPU a token takes longer, as MLX unpacks on one thread. Turned off
by not asking for it, or by SWITCHBOARD_QUANTIZED_KV=0. `runs` counts writes, one for each layer and pass.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Literal

import mlx.core as mx
import msgspec

from switchboard import lm
from switchboard.cache import replaced
from switchboard.errors import Declined
from switchboard.registry import CacheFactory, Counter, Recached, Room, switch

GROUPS = (32, 64, 128)


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

        def __init__(self, layer: int, options: Options, counter: Counter) -> None:
            super().__init__(group_size=options.group, bits=options.bits)
            self._layer = layer
            self._counter = counter

        def update_and_fetch(self, keys: mx.array, values: mx.array) -> Any:
            """Pack the rows behind those so far; all packed rows. Declined where the group does not fit the heads."""
            if not self.offset:
                wrong = misfit((keys.shape[-1], values.shape[-1]), self.group_size)
                if wrong is not None:
                    raise Declined(f"layer {self._layer} {wrong}")
            self._counter.runs += 1
            return super().update_and_fetch(keys, values)

    return CountingKVCache


def misfit(widths: tuple[int, int], group: int) -> str | None:
    """Why groups of this size do not fit heads of these widths (of keys and of values), and what to do; or None."""
    if not any(width % group for width in widths):
        return None
    told = " and ".join(str(width) for width in sorted(set(widths)))
    fitting = [one for one in GROUPS if not any(width % one for width in widths)]
    todo = (
        f"ask for quantized_kv:group={fitting[-1]}"
        if fitting
        else f"no group of {', '.join(map(str, GROUPS))} does, so leave quantized_kv off for this model"
    )
    return f"has heads of {told} numbers, which groups of {group} do not divide: {todo}"


@switch(stage="cache", exactness="lossy", options=Options)
def quantized_kv(factory: CacheFactory, options: Options, counter: Counter) -> Recached:
    """Give every plain KVCache packed rows."""

    def packed(layer: int, room: Room) -> Any:
        """The entry that takes the plain one's place."""
        return counting_class()(layer, options, counter)

    return replaced(factory, "KVCache", packed, "quantised")
