"""The text that a law writes, as chances: every draft, every outcome of every ruling, nothing sampled.

Passes follow one another until the text is whole, as in the verify loop: after the tokens that stand and the one that
follows, a new draft. The law's own functions are called, those that the sampler draws from.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from benchmarks.acceptance.worlds import Kind, Text, World
from switchboard.accept.exact import matched
from switchboard.accept.ruling import Rows, Ruling


class Ruler(Protocol):
    """What is asked of a law."""

    def rule(self, target: Rows, draft: Rows, guesses: Sequence[int]) -> Ruling:
        """The outcomes for these guesses."""


class Matched:
    """`matched` as a law: its outcomes summed over all choices that the target can make, place by place."""

    def rule(self, target: Rows, draft: Rows, guesses: Sequence[int]) -> Ruling:
        """Chances of the counts, and of the tokens after each of them."""
        shares = np.zeros((len(guesses) + 1, len(target[0])))
        for choices in itertools.product(range(len(target[0])), repeat=len(target)):
            verdict = matched(choices, guesses)
            chance = math.prod(row[one] for row, one in zip(target, choices, strict=True))
            shares[verdict.accepted, verdict.following] += chance
        return Ruling(list(shares.sum(axis=1)), lambda count: shares[count])


@dataclass(frozen=True)
class Found:
    """One law in one world: drift in total variation over whole texts, and tokens that the first pass brings."""

    drift: float
    tokens: float


def outcomes(law: Ruler, world: World, text: Text, kind: Kind) -> Iterator[tuple[Text, float]]:
    """What one pass after a text adds to it, but for the token that follows, which is left as weights."""
    for guesses, rows, chance in world.guesses(text, kind):
        target = [world.target[text + guesses[:place]] for place in range(len(guesses) + 1)]
        ruling = law.rule(target, rows, guesses)
        for count, stands in enumerate(ruling.stands):
            if stands <= 0:
                continue
            weights = np.asarray(ruling.following(count), dtype=np.float64)
            for token, share in enumerate(weights / weights.sum()):
                if share > 0:
                    yield (*guesses[:count], token), chance * float(stands) * share


def written(law: Ruler, world: World, kind: Kind) -> Mapping[Text, float]:
    """The chance of every whole text under the law."""
    mass: dict[Text, float] = {(): 1.0}
    for length in range(world.length):
        for text in [one for one in mass if len(one) == length]:
            reached = mass.pop(text)
            for added, chance in outcomes(law, world, text, kind):
                whole = text + added
                mass[whole] = mass.get(whole, 0.0) + reached * chance
    return mass


def own(world: World) -> Mapping[Text, float]:
    """The chance of every whole text with the target alone."""
    return {
        text: math.prod(float(world.target[text[:place]][one]) for place, one in enumerate(text))
        for text in itertools.product(range(world.vocabulary), repeat=world.length)
    }


def look(law: Ruler, world: World, kind: Kind) -> Found:
    """How far the law's text is from the target's own, and how much a pass brings."""
    made, wanted = written(law, world, kind), own(world)
    drift = sum(abs(made.get(text, 0.0) - chance) for text, chance in wanted.items()) / 2
    # what the law writes must be a distribution over whole texts; what it misses or has too much is drift, too
    lost = abs(sum(made.values()) - 1)
    tokens = sum(len(added) * chance for added, chance in outcomes(law, world, (), kind))
    return Found(float(max(drift, lost)), float(tokens))


def bound(law: Any, world: World, kind: Kind) -> float:
    """The most that a lossy law may drift here by its own bound: 1 - (1 - b)^n with the largest b of all places."""
    largest = 0.0
    for length in range(world.depth):
        for text in itertools.product(range(world.vocabulary), repeat=length):
            row = world.first_row(text, kind)
            largest = max(largest, float(law.most(world.target[text], row)))
    return float(1 - (1 - min(1.0, largest)) ** world.depth)
