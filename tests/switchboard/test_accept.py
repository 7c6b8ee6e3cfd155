"""The exact law keeps the target's distribution: shown by enumeration, not by sampling."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import numpy as np
import pytest

from switchboard import accept

VOCABULARY = 4
Law = Callable[[Sequence[int], Sequence[int]], accept.Verdict]


def targets(rng: np.random.Generator, depth: int) -> dict[tuple[int, ...], np.ndarray]:
    """A random distribution after every prefix; some tokens impossible, as after top-k."""
    made = {}
    for length in range(depth + 1):
        for prefix in itertools.product(range(VOCABULARY), repeat=length):
            weights = rng.gamma(0.5, size=VOCABULARY) + 1e-9
            weights[rng.random(VOCABULARY) < 0.25] = 0.0
            weights[rng.integers(VOCABULARY)] += 0.1
            made[prefix] = weights / weights.sum()
    return made


def outcomes(law: Law, rows: np.ndarray, draft: list[int]) -> dict[tuple[int, ...], float]:
    """Probability of each emitted prefix, summed over every choice that the target can make at every place."""
    found: dict[tuple[int, ...], float] = {}
    for choices in itertools.product(range(VOCABULARY), repeat=len(rows)):
        share = float(np.prod([row[choice] for row, choice in zip(rows, choices, strict=True)]))
        verdict = law(choices, draft)
        prefix = (*draft[: verdict.accepted], verdict.following)
        found[prefix] = found.get(prefix, 0.0) + share
    return found


def drift(law: Law, rng: np.random.Generator, depth: int) -> float:
    """Total variation between the text under the law and the target's own, over depth + 1 tokens."""
    target = targets(rng, depth)
    draft = [int(token) for token in rng.integers(VOCABULARY, size=depth)]
    rows = np.array([target[tuple(draft[:place])] for place in range(depth + 1)])
    found = outcomes(law, rows, draft)
    difference = 0.0
    for text in itertools.product(range(VOCABULARY), repeat=depth + 1):

        def chance(start: int, text: tuple[int, ...] = text) -> float:
            return float(np.prod([target[text[:i]][text[i]] for i in range(start, depth + 1)]))

        made = sum(
            share * chance(len(prefix))
            for prefix, share in found.items()
            if text[: len(prefix)] == prefix
        )
        difference += abs(made - chance(0))
    return difference / 2


@pytest.mark.parametrize("seed", range(12))
def test_the_exact_law_keeps_the_distribution(seed: int) -> None:
    assert drift(accept.matched, np.random.default_rng(seed), depth=3) < 1e-12


def keep_one(choices: Sequence[int], draft: Sequence[int]) -> accept.Verdict:
    """A wrong law: the first guess always stands."""
    after = accept.matched(choices[1:], draft[1:])
    return accept.Verdict(after.accepted + 1, after.following)


def late(choices: Sequence[int], draft: Sequence[int]) -> accept.Verdict:
    """A wrong law: after a refusal it takes the choice of the next place, which was made for another text."""
    verdict = accept.matched(choices, draft)
    return accept.Verdict(verdict.accepted, choices[min(verdict.accepted + 1, len(draft))])


@pytest.mark.parametrize("wrong", [keep_one, late])
def test_the_enumeration_catches_a_wrong_law(wrong: Law) -> None:
    assert max(drift(wrong, np.random.default_rng(seed), depth=2) for seed in range(4)) > 1e-2


def test_the_targets_own_choice_follows_the_first_difference() -> None:
    assert accept.matched([5, 6, 7], [5, 9]) == accept.Verdict(1, 6)
    assert accept.matched([5, 6, 7], [5, 6]) == accept.Verdict(2, 7)
    assert accept.matched([5], []) == accept.Verdict(0, 5)
