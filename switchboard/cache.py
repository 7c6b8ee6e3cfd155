"""The KV cache of one request, the way to take tokens back from it, and the check of another kind of cache.

A factory makes the cache for the room that a request needs. The plain one is the model's own; `cache` switches give
others, by putting something else in the place of some entries (`replaced`).

Tokens are taken back after a verify pass (`Checkpoint`). What that takes is a matter of the entry's kind:

- rows by their place (plain, in place, quantised): the count of rows goes back, and the next pass writes over them;
- rows in a window that rotates: a pass of several rows lays them out in order, the oldest first, so that those of the
  rejected tokens are cut off at the end, also when the window is full;
- a state that sums up all tokens (linear attention, convolutions): nothing can be cut off. References to the arrays
  from before the pass are kept, put back, and the accepted tokens are read once more, which costs one pass.
"""

from __future__ import annotations

import copy
from collections import Counter as Classes
from collections.abc import Callable, Iterator, Sequence
from functools import cache as once
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
    before = Checkpoint(cache)
    logits.append(model(mx.array([list(DRAFT)]), cache=cache))
    mx.eval(logits)
    if cannot_rewind(cache) is None:
        before.keep(model, DRAFT, len(DRAFT) - TAKEN_BACK)
    logits += [model(mx.array([[token]]), cache=cache) for token in AFTER]
    mx.eval(logits)
    return logits


def parts(cache: Sequence[Any]) -> Iterator[Any]:
    """Every cache in a list of them, with those that are made of several taken apart."""
    for entry in cache:
        inner = getattr(entry, "caches", None)
        if inner is None:
            yield entry
        else:
            yield from parts(inner)


def is_state(entry: Any) -> bool:
    """Whether an entry sums up its tokens instead of holding a row for each."""
    return isinstance(entry, _kinds()[0])


def rotates(entry: Any) -> bool:
    """Whether an entry holds the rows of a window and writes over its oldest."""
    return isinstance(entry, _kinds()[1])


@once
def _kinds() -> tuple[type, type]:
    return lm.caches().ArraysCache, lm.caches().RotatingKVCache


def cannot_rewind(cache: list[Any]) -> str | None:
    """Why a cache cannot give tokens back, or None when it can; the kinds that can are named at the top."""
    for entry in parts(cache):
        if is_state(entry) or rotates(entry):
            continue
        if not entry.is_trimmable() or hasattr(entry, "max_size"):
            return f"the model's {type(entry).__name__} cannot give rejected tokens back"
    return None


def cannot_step_back(cache: list[Any]) -> str | None:
    """Why a cache cannot give back tokens that it read one at a time, without a Checkpoint; or None when it can."""
    for entry in parts(cache):
        if is_state(entry) or rotates(entry):
            return f"the model's {type(entry).__name__} cannot give tokens back that it read one by one"
    return cannot_rewind(cache)


def rewind(cache: list[Any], count: int) -> None:
    """Take the last `count` tokens back from rows; a state needs the Checkpoint from before them.

    A window must have read them in one pass, together with a token that stays.
    """
    if count == 0:
        return
    for entry in parts(cache):
        if is_state(entry):
            raise RuntimeError(f"{type(entry).__name__} gives no token back without a checkpoint")
        taken = _cut(entry, count) if rotates(entry) else entry.trim(count)
        if taken != count:
            raise RuntimeError(f"{type(entry).__name__} gave back {taken} of {count} tokens")


def _cut(entry: Any, count: int) -> int:
    """Cut the last rows off a window; how many could be."""
    if entry._idx == entry.keys.shape[2]:
        # mlx-lm's own trim leaves the rows where they are, and once the window is full the next pass would keep them.
        end = entry.keys.shape[2] - count
        entry.keys, entry.values = entry.keys[..., :end, :], entry.values[..., :end, :]
    elif entry._idx != entry.offset:
        return 0
    entry.offset -= count
    entry._idx -= count
    return count


def alias(value: Any) -> Any:
    """The same arrays under other names: a later write into the originals does not change them.

    No number is copied, until one of the two is written into.
    """
    if isinstance(value, list | tuple):
        return type(value)(alias(one) for one in value)
    return copy.copy(value) if isinstance(value, mx.array) else value


class Checkpoint:
    """A cache as it is before a pass, from which any part of that pass can be taken back.

    Costs references to the arrays of windows and states, no copies of them: under a microsecond an array.
    """

    def __init__(self, cache: list[Any]) -> None:
        self._cache = cache
        self._held = [
            (entry, alias(entry.state))
            for entry in parts(cache)
            if is_state(entry) or rotates(entry)
        ]
        self._replays = any(is_state(entry) for entry, _ in self._held)

    def keep(self, model: Any, fed: Sequence[int], count: int) -> None:
        """Leave the first `count` of the tokens that the pass read; nothing is evaluated here.

        With a state among the entries everything goes back, and those tokens are read again: the cache is then bitwise
        what one pass over them alone leaves. Without, their rows stay as the pass of all of them rounded them.
        """
        if count == len(fed):
            return
        if count and not self._replays:
            rewind(self._cache, len(fed) - count)
            return
        held = {id(entry) for entry, _ in self._held}
        rewind([entry for entry in parts(self._cache) if id(entry) not in held], len(fed))
        for entry, state in self._held:
            entry.state = alias(state)
        if count:
            model(mx.array([list(fed[:count])]), cache=self._cache)


def arrays(cache: list[Any]) -> list[Any]:
    """Everything that has to be evaluated for the cache to be filled."""
    return [entry.state for entry in cache]
