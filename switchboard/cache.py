"""The KV cache of one request, the way to take tokens back from it, and the check of another kind of cache.

A factory makes the cache for the room that a request needs. The plain one is the model's own; `cache` switches give
others, by putting something else in the place of some entries (`replaced`).
"""

from __future__ import annotations

from collections import Counter as Classes
from collections.abc import Callable
from functools import partial
from typing import Any

import mlx.core as mx

from switchboard import lm, parity
from switchboard.errors import Declined
from switchboard.registry import CacheFactory, Exactness, Recached, Room

PREFILL = (5, 11, 3, 250, 7)
STEPS = (42, 9)
DRAFT = (8, 21, 4)
TAKEN_BACK = 2
AFTER = (17, 2)
ROOMS = (Room(len(PREFILL), 16), Room(len(PREFILL), 1))
"""Enough for all of a probe's passes, and so little that the buffer has to grow."""


def make(model: Any) -> list[Any]:
    """A fresh cache, one entry a layer, as the model itself wants it."""
    return list(lm.caches().make_prompt_cache(model))


def factory(model: Any) -> CacheFactory:
    """The plain factory: mlx-lm's caches, which grow as they are filled."""

    def fresh(room: Room) -> list[Any]:
        """The model's own cache; it needs no room in advance."""
        return make(model)

    return fresh


def replaced(
    plain: CacheFactory, kind: str, instead: Callable[[int, Room], Any], counted: str
) -> Recached:
    """The factory whose entries of exactly this class are replaced, by their layer; Declined when there is none.

    Entries of other classes stay: a rotating one overwrites its own oldest rows, and a state is no rows at all. The
    note names their classes; `counted` is the word for a replaced layer.
    """
    kinds = [type(entry).__name__ for entry in plain(Room(1, 1))]
    others = {name: kinds.index(name) for name in kinds if name != kind}
    named = ", ".join(f"{name} from layer {place}" for name, place in others.items())
    if kind not in kinds:
        raise Declined(f"no layer has a plain {kind}: {named}")
    note = f"{len(kinds) - kinds.count(kind)} of {len(kinds)} layers are not {counted}: {named}"

    def fresh(room: Room) -> list[Any]:
        """The plain cache with its entries of the one kind replaced."""
        return [
            instead(layer, room) if type(entry).__name__ == kind else entry
            for layer, entry in enumerate(plain(room))
        ]

    return Recached(fresh, kind, dict(Classes(kinds)), note if others else None)


def check(model: Any, plain: CacheFactory) -> Callable[[CacheFactory, Exactness], str | None]:
    """A parity probe on the real weights: what is wrong with another factory beside the plain one, or None.

    A prefill, two steps, a pass of three with two taken back, two steps; once with room for all of it and once with
    room for half, so that growing is crossed. `exact` means bitwise the same logits; a lossy cache must give numbers.
    """
    wanted: list[mx.array] = []

    def wrong(other: CacheFactory, exactness: Exactness) -> str | None:
        """The first difference, as a sentence."""
        if not wanted:
            seen = parity.attempted(partial(passes, model, plain, ROOMS[0]))
            if isinstance(seen, parity.Broken):
                return f"a pass over the plain cache broke off: {seen}"
            wanted.extend(seen)
        for room in ROOMS:
            seen = parity.attempted(partial(passes, model, other, room))
            if isinstance(seen, parity.Broken):
                return f"a pass over it broke off: {seen}"
            if exactness == "exact":
                found = parity.first(
                    wanted, seen, "logits of pass {}, plain cache beside it".format
                )
                if found is not None:
                    return found
            for place, logits in enumerate(seen):
                if not mx.isfinite(logits).all().item():
                    return f"logits of pass {place} are not numbers"
        return None

    return wrong


def passes(model: Any, factory: CacheFactory, room: Room) -> list[mx.array]:
    """Logits of a prefill, steps, a verify pass and the steps after its rewind."""
    cache = factory(room)
    logits = [model(mx.array([list(PREFILL)]), cache=cache)]
    logits += [model(mx.array([[token]]), cache=cache) for token in STEPS]
    logits.append(model(mx.array([list(DRAFT)]), cache=cache))
    mx.eval(logits)
    if cannot_rewind(cache) is None:
        rewind(cache, TAKEN_BACK)
    logits += [model(mx.array([[token]]), cache=cache) for token in AFTER]
    mx.eval(logits)
    return logits


def cannot_rewind(cache: list[Any]) -> str | None:
    """Why a cache cannot give tokens back, or None when it can.

    A rotating cache can until it is full; speculation over it would fail in the middle of a text, so it counts as
    one that cannot.
    """
    for entry in cache:
        if not entry.is_trimmable() or hasattr(entry, "max_size"):
            return f"the model's {type(entry).__name__} cannot give rejected tokens back"
    return None


def rewind(cache: list[Any], count: int) -> None:
    """Take the last `count` tokens back."""
    if count == 0:
        return
    for entry in cache:
        taken = entry.trim(count)
        if taken != count:
            raise RuntimeError(f"{type(entry).__name__} gave back {taken} of {count} tokens")


def arrays(cache: list[Any]) -> list[Any]:
    """Everything that has to be evaluated for the cache to be filled."""
    return [entry.state for entry in cache]
