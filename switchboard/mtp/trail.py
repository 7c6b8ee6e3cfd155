"""The hidden states behind a model's passes, by their place in the text.

A tap is a subclass of the model's inner class by the same name, so that no line of any forward is copied: it hands on
what the pass returns, and says where it began by what its cache held before. Nothing is evaluated for it, and logits
stay bitwise what they were.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mlx.core as mx

from switchboard import cache as kv

Heard = Callable[[int, mx.array, mx.array], None]
"""Told of a pass: the place of its first token, its tokens, and their hidden states (a batch of one, a row each)."""


def tap(inner: Any, heard: Heard) -> Callable[[], None]:
    """Tell `heard` of every pass of one sequence through this module that has a cache; the way back."""
    original: Any = type(inner)

    class Tapped(original):  # type: ignore[misc]
        """The module's own class; what it returns is seen by another."""

        def __call__(self, inputs: mx.array, cache: Any = None, *more: Any, **named: Any) -> Any:
            place = None if cache is None else held(cache)
            out = super().__call__(inputs, cache, *more, **named)
            if place is not None and inputs.ndim == 2 and inputs.shape[0] == 1:
                heard(place, inputs[0], out)
            return out

    Tapped.__name__, Tapped.__module__ = original.__name__, original.__module__
    inner.__class__ = Tapped

    def undo() -> None:
        inner.__class__ = original

    return undo


def held(cache: list[Any]) -> int | None:
    """Tokens that a cache has read, by the first entry that counts them; None where none does."""
    for entry in kv.parts(cache):
        offset = getattr(entry, "offset", None)
        if isinstance(offset, int):
            return offset
    return None


class Trail:
    """Hidden states and tokens in a row of places without a gap, those at the front let go as they are done with."""

    def __init__(self) -> None:
        self.first = self.end = 0
        self._pieces: list[tuple[int, mx.array, mx.array]] = []

    def __len__(self) -> int:
        return self.end - self.first

    def restart(self, place: int) -> None:
        """Hold nothing, and go on from a place."""
        self.first = self.end = place
        self._pieces.clear()

    def note(self, place: int, ids: mx.array, hidden: mx.array) -> bool:
        """Take a pass in, in the place of what was there; False when it does not join on, so that all else fell."""
        joins = self.first <= place <= self.end
        if joins:
            self.cut(place)
        else:
            self.restart(place)
        self._pieces.append((place, ids, hidden))
        self.end = place + int(ids.shape[0])
        return joins

    def cut(self, end: int) -> None:
        """Let go what lies at this place and behind it."""
        self._keep(self.first, min(self.end, max(end, self.first)))

    def drop(self, first: int) -> None:
        """Let go what lies before this place."""
        self._keep(max(self.first, min(first, self.end)), self.end)

    def ids(self, first: int, end: int) -> mx.array:
        """The tokens at these places."""
        return mx.concatenate([ids for _, ids, _ in self._between(first, end)])

    def hidden(self, first: int, end: int) -> mx.array:
        """The hidden states at these places, as a batch of one."""
        return mx.concatenate([rows for _, _, rows in self._between(first, end)], axis=1)

    def _keep(self, first: int, end: int) -> None:
        self._pieces = self._between(first, end)
        self.first, self.end = first, end

    def _between(self, first: int, end: int) -> list[tuple[int, mx.array, mx.array]]:
        found = []
        for place, ids, rows in self._pieces:
            low, high = max(first - place, 0), min(end - place, int(ids.shape[0]))
            if low == 0 and high == ids.shape[0]:
                found.append((place, ids, rows))
            elif low < high:
                found.append((place + low, ids[low:high], rows[:, low:high]))
        return found
