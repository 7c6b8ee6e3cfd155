"""Prompts that were read before, so that a new one is read only from where it differs.

A slot holds the tokens of one text and what the cache kept of them. A request takes the slot with the longest common
prefix; never its last token, whose logits it needs. What it takes is copied into a cache of its own: a slot changes
never, so that a request that fails or is cancelled cannot spoil one. When a request is over, its own cache becomes a
slot, in the place of those whose texts it goes on from.

Rows (plain, in place, quantised) can be taken up to any token. A window that is full and a state (linear attention)
can be taken only where they were marked: at the end of a prompt, at the end of its text, and where it parts from an
earlier one; so the third conversation that begins alike is the first that gains by it. A mark holds references.

Exactness. Rows are the numbers that were computed, but the rest of the prompt is then read in chunks with other borders
than a cold prefill has, and the rows of an answer were read one by one: sums are taken in another order (`rounding`).
With `exact` only whole chunks are taken, each of which a cold prefill would read with the same borders: bitwise the
cold logits. A chunk has 128 tokens on a CPU and 2,048 elsewhere.

Bounds: `limit` bytes and `most` slots; the least recently used goes first, a pinned one (prewarm) last of all.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import mlx.core as mx
import numpy as np
from mlx.utils import tree_flatten, tree_map

from switchboard import cache as kv
from switchboard import lm
from switchboard.decode import Tally, prefill
from switchboard.registry import Counter

SPARE = 256
"""Rows of room behind the text that a slot may keep; more is given back by copying the rest."""
MARKS = 4


def cannot_hold(cache: Sequence[Any]) -> str | None:
    """Why a cache cannot be kept for another request, or None."""
    rows = (lm.caches().KVCache, lm.caches().QuantizedKVCache)
    for entry in kv.parts(cache):
        if not (isinstance(entry, rows) or kv.is_state(entry) or kv.rotates(entry)):
            return f"the model's {type(entry).__name__} cannot be kept for another request"
    return None


@dataclass(frozen=True)
class Rows:
    """Keys and values of one layer, a row for each token from the first on; packed ones are several arrays."""

    keys: Any
    values: Any

    @staticmethod
    def of(entry: Any, held: int) -> Rows | None:
        """The rows of an entry that has one for every token in order; None for a state and a window that is full."""
        if kv.is_state(entry) or (kv.rotates(entry) and entry._idx != entry.offset):
            return None

        def fitted(array: mx.array) -> mx.array:
            if array.shape[2] <= held + SPARE:
                return array
            return mx.contiguous(array[..., :held, :])

        made = Rows(tree_map(fitted, entry.keys), tree_map(fitted, entry.values))
        mx.eval(made.keys, made.values)
        return Rows(kv.alias(made.keys), kv.alias(made.values))

    def into(self, entry: Any, count: int) -> None:
        """Fill a fresh entry with the first rows."""
        keys, values = (
            tree_map(lambda array: array[..., :count, :], one) for one in (self.keys, self.values)
        )
        if kv.rotates(entry):
            entry.keys, entry.values, entry.offset, entry._idx = keys, values, count, count
        elif isinstance(keys, mx.array):
            entry.update_and_fetch(keys, values)
        else:
            entry.keys, entry.values, entry.offset = keys, values, count


@dataclass(frozen=True)
class Mark:
    """The windows and states of a cache when so many tokens had been read; None in the places of rows."""

    length: int
    states: tuple[Any, ...]

    @staticmethod
    def of(cache: Sequence[Any], length: int) -> Mark:
        """What the cache holds now."""
        entries = list(kv.parts(cache))
        return Mark(
            length,
            tuple(
                kv.alias(one.state) if kv.is_state(one) or kv.rotates(one) else None
                for one in entries
            ),
        )


@dataclass(eq=False)
class Slot:
    """One text, and what is kept of it."""

    tokens: np.ndarray
    rows: list[Rows | None]
    marks: dict[int, Mark]
    chunked: int
    """Tokens from the first on that were read in whole chunks."""
    pinned: bool = False
    used: int = 0

    @property
    def whole(self) -> bool:
        """Whether every layer has its rows, so that any token can be the last."""
        return all(one is not None for one in self.rows)

    def reach(self, limit: int, chunk: int | None) -> int:
        """The most tokens that can be taken, up to the limit; with a chunk, whole ones only."""
        if chunk is not None:
            limit = min(limit, self.chunked) // chunk * chunk
        if self.whole:
            return limit
        fitting = [one for one in self.marks if one <= limit and one % (chunk or 1) == 0]
        return max(fitting, default=0)

    def fill(self, cache: Sequence[Any], count: int) -> None:
        """Put the first so many tokens into a fresh cache."""
        mark = self.marks.get(count)
        for place, entry in enumerate(kv.parts(cache)):
            state = None if mark is None else mark.states[place]
            rows = self.rows[place]
            if state is not None:
                entry.state = kv.alias(state)
            elif rows is not None:
                rows.into(entry, count)


@dataclass
class Turn:
    """One request and its cache; `reused` tokens of the prompt were in it from the start."""

    prompt: Sequence[int]
    cache: list[Any]
    epoch: int = 0
    reused: int = 0
    stops: list[int] = field(default_factory=list)
    """Where a window or a state is marked while the prompt is read."""
    marks: dict[int, Mark] = field(default_factory=dict)


class Pool:
    """The slots; used by the one thread that generates, cleared and counted from others."""

    def __init__(
        self, *, chunk: int, exact: bool, most: int, limit: int, least: int, counter: Counter
    ) -> None:
        self.chunk, self.exact, self.most, self.limit = chunk, exact, most, limit
        self.pinned_counter = Counter()
        self.least, self._counter = least, counter
        self._slots: list[Slot] = []
        self._lock = threading.Lock()
        self._clock = self._epoch = 0

    def begin(self, prompt: Sequence[int], cache: list[Any]) -> Turn:
        """The turn of a prompt whose fresh cache was filled with what is known of it."""
        ids, step = np.asarray(prompt, dtype=np.int64), self.chunk if self.exact else None
        with self._lock:
            turn = Turn(prompt, cache, self._epoch)
            self._counter.runs += 1
            self._counter.add("asked", len(prompt))
            shared = [(one, min(common(one.tokens, ids), len(ids) - 1)) for one in self._slots]
            ranked = [
                (one.reach(limit, step), one.pinned, at) for at, (one, limit) in enumerate(shared)
            ]
            reused, pinned, at = max(ranked, default=(0, False, 0))
            if reused >= self.least:
                slot = shared[at][0]
                slot.used = self._clock = self._clock + 1
                turn.reused = reused
                turn.marks = {place: one for place, one in slot.marks.items() if place <= reused}
                self._counted(reused, pinned)
        if turn.reused:
            slot.fill(cache, turn.reused)
            mx.eval(kv.arrays(cache))
        if any(kv.is_state(one) or kv.rotates(one) for one in kv.parts(cache)):
            parting = max((limit for _, limit in shared), default=0)
            wanted = {parting if parting >= self.least else 0, len(ids) - 1}
            wanted = {one // step * step for one in wanted} if step else wanted
            turn.stops = sorted(one for one in wanted if one > turn.reused)
        return turn

    def _counted(self, reused: int, pinned: bool) -> None:
        for counter in (self._counter, *([self.pinned_counter] if pinned else [])):
            counter.add("hits")
            counter.add("reused", reused)
        self.pinned_counter.runs += pinned

    def read(self, model: Any, turn: Turn, tally: Tally, guard: Callable[[], None]) -> None:
        """Read what is new of the prompt, all but its last token, and mark where that is wanted."""
        at, end = turn.reused, len(turn.prompt) - 1
        for stop in sorted({*turn.stops, end}):
            prefill(model, turn.cache, turn.prompt[at : stop + 1], self.chunk, tally, guard)
            if stop in turn.stops:
                turn.marks[stop] = Mark.of(turn.cache, stop)
            at = stop

    def keep(self, turn: Turn, made: Sequence[int], pinned: bool = False) -> None:
        """Make a slot of a turn that is over, between two passes; what cannot be evaluated is given up."""
        held = _held(turn.cache)
        if not held or turn.epoch != self._epoch:
            return
        try:
            mx.eval(kv.arrays(turn.cache))
            rows = [Rows.of(entry, held) for entry in kv.parts(turn.cache)]
        except (RuntimeError, MemoryError):
            self._counter.add("lost")
            return
        tokens = np.asarray([*turn.prompt, *made], dtype=np.int64)[:held]
        chunked = (len(turn.prompt) - (not pinned)) // self.chunk * self.chunk
        # A state that decode made is not the one that whole chunks make, and would pass for it in a longer slot.
        if not all(one is not None for one in rows) and not (self.exact and held > chunked):
            turn.marks[held] = Mark.of(turn.cache, held)
        slot = Slot(tokens, rows, _few(turn.marks), min(held, chunked), pinned)
        with self._lock:
            # Whoever cleared the pool meanwhile wants nothing from before.
            if turn.epoch == self._epoch:
                kept = [one for one in self._slots if one.pinned]
                if held_bytes([*kept, slot]) > self.limit:
                    self._counter.add(
                        "too_large"
                    )  # it would drive out all others, then fall itself
                else:
                    self._insert(slot)

    def _insert(self, slot: Slot) -> None:
        slot.used = self._clock = self._clock + 1
        for other in list(self._slots):
            shared = common(other.tokens, slot.tokens)
            known = shared == len(slot.tokens) and not slot.pinned
            if known and (slot.chunked <= other.chunked or not self.exact):
                # The text is the beginning of one that is known; only its marks may be new.
                other.used = slot.used
                other.marks = _few({**slot.marks, **other.marks})
                break
            if shared == len(other.tokens) and not other.pinned:
                slot.marks = _few({**other.marks, **slot.marks})
                self._slots.remove(other)
        else:
            self._slots.append(slot)
            self._counter.add("stored")
        while len(self._slots) > self.most or self._bytes() > self.limit:
            self._drop()

    def _drop(self) -> None:
        oldest = min(self._slots, key=lambda one: (one.pinned, one.used))
        self._slots.remove(oldest)
        self._counter.add("evicted")
        self._lost(oldest)

    def _lost(self, slot: Slot) -> None:
        """Tell the switch whose slot it was: it says armed, and has nothing left."""
        if slot.pinned:
            self.pinned_counter.add("given_up")

    def shed(self) -> bool:
        """Give up the slot that is worth least, where memory is short; False when there was none."""
        with self._lock:
            if not self._slots:
                return False
            self._drop()
            return True

    def clear(self) -> dict[str, int]:
        """Give up all slots, the pinned ones too, and what the request in hand would leave; how much it was."""
        with self._lock:
            gone = {"slots": len(self._slots), "bytes": self._bytes()}
            for slot in self._slots:
                self._lost(slot)
            self._slots.clear()
            self._epoch += 1
        return gone

    def told(self) -> dict[str, Any]:
        """Slots, bytes and the share of prompt tokens that were not read again, for /health."""
        with self._lock:
            asked, reused = (self._counter.more.get(one, 0) for one in ("asked", "reused"))
            return {
                "slots": len(self._slots),
                "pinned": sum(one.pinned for one in self._slots),
                "tokens": sum(len(one.tokens) for one in self._slots),
                "bytes": self._bytes(),
                "limit": self.limit,
                "hit_ratio": round(reused / asked, 4) if asked else None,
            }

    def _bytes(self) -> int:
        return held_bytes(self._slots)


def held_bytes(slots: Sequence[Slot]) -> int:
    """Bytes of all rows and marks; marks are handed on from text to text, and each counts once."""
    rows = [one for slot in slots for one in slot.rows if one is not None]
    marks = {id(one): one for slot in slots for one in slot.marks.values()}
    return sum(size([one.keys, one.values]) for one in rows) + sum(
        size(list(one.states)) for one in marks.values()
    )


def size(tree: Any) -> int:
    """Bytes of all arrays in a tree."""
    leaves: Any = tree_flatten(tree)
    return sum(one.nbytes for _, one in leaves if isinstance(one, mx.array))


def common(one: np.ndarray, other: np.ndarray) -> int:
    """Tokens at the beginning of both."""
    least = min(len(one), len(other))
    differs = np.flatnonzero(one[:least] != other[:least])
    return int(differs[0]) if len(differs) else least


def _held(cache: Sequence[Any]) -> int:
    """Tokens that a cache has read; 0 where its layers disagree or none of them counts."""
    counts = {entry.offset for entry in kv.parts(cache) if hasattr(entry, "offset")}
    return counts.pop() if len(counts) == 1 else 0


def _few(marks: dict[int, Mark]) -> dict[int, Mark]:
    """The first mark, which the most texts share, and the last ones."""
    lengths = sorted(marks)
    if len(lengths) > MARKS:
        lengths = [lengths[0], *lengths[1 - MARKS :]]
    return {length: marks[length] for length in lengths}
