"""What a law says of one draft: how likely it is that so many guesses stand, and what is drawn after them.

A law knows nothing of random numbers. It takes the rows of chances that the target draws from (after temperature,
top-k, top-p and min-p), the rows that the guesses were drawn from, and the guesses; it gives the chance of every
outcome. The sampler draws one outcome from that, and an oracle sums over all of them: what is proved is what is served.

Rows are NumPy's or MLX's: laws use only what both have, in the precision of the rows that they are given.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from switchboard.registry import Counter

Rows = Any
"""Chances, a row a place; a row is an array over the vocabulary that sums to 1."""


@dataclass(frozen=True)
class Verdict:
    """How many guesses stand, and the target's own token after them."""

    accepted: int
    following: int


@dataclass(frozen=True)
class Ruling:
    """Every outcome of one draft of d guesses with its chance.

    stands[k] is the chance that exactly k guesses stand, k from 0 to d; following(k) are the weights, not normalised,
    of the token that comes after them.
    """

    stands: Sequence[Any]
    following: Callable[[int], Any]


class Law(Protocol):
    """An acceptance law."""

    @property
    def name(self) -> str:
        """The word that stands in /health."""

    @property
    def needs_chances(self) -> bool:
        """Whether guesses that were not drawn from chances gain nothing by it, or make no sense of it."""

    def rule(self, target: Rows, draft: Rows, guesses: Sequence[int]) -> Ruling:
        """The outcomes for d guesses: d + 1 rows of the target, d of the draft.

        A guess that was not drawn counts as drawn from a row that has all its weight on it.
        """


class Drawn(list[int]):
    """Guesses that were drawn, with the chances of each draw: a row a guess."""

    def __init__(self, guesses: Sequence[int], chances: Rows) -> None:
        super().__init__(guesses)
        self.chances = chances


@dataclass(frozen=True)
class Counted:
    """A law that counts its rulings where it makes them."""

    law: Law
    counter: Counter

    @property
    def name(self) -> str:
        """The law's own."""
        return self.law.name

    @property
    def needs_chances(self) -> bool:
        """The law's own."""
        return self.law.needs_chances

    def rule(self, target: Rows, draft: Rows, guesses: Sequence[int]) -> Ruling:
        """The law's ruling, counted."""
        self.counter.runs += 1
        return self.law.rule(target, draft, guesses)


def positive(row: Any) -> Any:
    """The row with 0 in the place of what is negative."""
    return row * (row > 0)


def capped(number: Any) -> Any:
    """The number, or 1 where it is more."""
    over = number > 1
    return number * (1 - over) + over


def leftover(kept: Any, drawn: Any, instead: Any) -> Any:
    """What `kept` has above `drawn`; `instead` where that is nothing, which has no chance but by rounding."""
    rest = positive(kept - drawn)
    return rest + (rest.sum() <= 0) * instead
