"""Acceptance laws: how much of a draft stands, and which token follows. Pure.

`exact` keeps the target's distribution. At temperature 0 a guess stands when it is the target's own choice. Above
it, a deterministic guess x at a place where the target has p stands with probability p(x); otherwise the token is
drawn from p with x removed and renormalised. Then P(x) = p(x), and for every other y: (1 - p(x)) * p(y) / (1 -
p(x)) = p(y). The distributions come with temperature, top-k, top-p and min-p already applied. The tests enumerate
the law over a small vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Distribution = NDArray[np.float64]


@dataclass(frozen=True)
class Verdict:
    """How many guesses stand, and the target's own token after them."""

    accepted: int
    following: int


def greedy(choices: Sequence[int], draft: Sequence[int]) -> Verdict:
    """The law at temperature 0; `choices` holds the target's choice at every place, one more than the draft."""
    for place, guess in enumerate(draft):
        if choices[place] != guess:
            return Verdict(place, choices[place])
    return Verdict(len(draft), choices[len(draft)])


def sampled(
    distributions: Distribution, draft: Sequence[int], uniforms: Sequence[float]
) -> Verdict:
    """The law above temperature 0; one row and one uniform number in [0, 1) a guess, and one more of each."""
    for place, guess in enumerate(draft):
        here = distributions[place]
        if uniforms[place] >= here[guess]:
            return Verdict(place, draw(without(here, guess), uniforms[-1]))
    return Verdict(len(draft), draw(distributions[len(draft)], uniforms[-1]))


def without(distribution: Distribution, token: int) -> Distribution:
    """The distribution given that it is not this token."""
    left = distribution.copy()
    left[token] = 0.0
    return np.asarray(left / left.sum(), dtype=np.float64)


def draw(distribution: Distribution, uniform: float) -> int:
    """The token whose stretch of the cumulative distribution holds the uniform number."""
    edges = np.cumsum(distribution)
    place = int(np.searchsorted(edges, uniform * edges[-1], side="right"))
    # Rounding may put the number on the last edge; the last token that can occur is meant.
    return min(place, int(np.flatnonzero(distribution)[-1]))
