"""The exact law keeps the target's distribution: shown by enumeration, not by sampling."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import numpy as np
import pytest

from switchboard import accept

VOCABULARY = 4
Law = Callable[[np.ndarray, Sequence[int], Sequence[float]], accept.Verdict]


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
    """Probability of each emitted prefix, by integrating over all uniform numbers.

    The law is constant on boxes whose edges are 0, p(guess), 1 for each guess, and the edges of every cumulative
    distribution for the last draw; one evaluation in the middle of each box weighs its volume.
    """
    edges = [sorted({0.0, float(rows[i][x]), 1.0}) for i, x in enumerate(draft)]
    last = {0.0, 1.0}
    for place, row in enumerate(rows):
        kinds = [
            row,
            *(
                [accept.without(row, draft[place])]
                if place < len(draft) and row[draft[place]] < 1
                else []
            ),
        ]
        for kind in kinds:
            last |= {float(edge) for edge in np.cumsum(kind) / np.cumsum(kind)[-1]}
    edges.append(sorted(last))
    found: dict[tuple[int, ...], float] = {}
    for box in itertools.product(*[itertools.pairwise(one) for one in edges]):
        volume = float(np.prod([high - low for low, high in box]))
        if volume == 0.0:
            continue
        verdict = law(rows, draft, [(low + high) / 2 for low, high in box])
        prefix = (*draft[: verdict.accepted], verdict.following)
        found[prefix] = found.get(prefix, 0.0) + volume
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
    assert drift(accept.sampled, np.random.default_rng(seed), depth=3) < 1e-12


def test_the_enumeration_catches_a_law_that_forgets_to_remove_the_guess() -> None:
    def wrong(rows: np.ndarray, draft: Sequence[int], uniforms: Sequence[float]) -> accept.Verdict:
        verdict = accept.sampled(rows, draft, uniforms)
        return accept.Verdict(verdict.accepted, accept.draw(rows[verdict.accepted], uniforms[-1]))

    assert max(drift(wrong, np.random.default_rng(seed), depth=2) for seed in range(4)) > 1e-2


def test_greedy_takes_the_targets_own_choice_after_the_first_difference() -> None:
    assert accept.greedy([5, 6, 7], [5, 9]) == accept.Verdict(1, 6)
    assert accept.greedy([5, 6, 7], [5, 6]) == accept.Verdict(2, 7)
    assert accept.greedy([5], []) == accept.Verdict(0, 5)


def test_a_draw_never_lands_on_an_impossible_token() -> None:
    row = np.array([0.0, 0.5, 0.5, 0.0])
    assert accept.draw(row, 0.0) == 1
    assert accept.draw(row, float(np.nextafter(1.0, 0.0))) == 2
    assert accept.draw(row, 1.0) == 2
