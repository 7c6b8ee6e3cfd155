"""The depth that pays, by hand-made tables and for any table; what is followed, and what an account lets through."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from switchboard.depth import Acceptance, Allowance, Costs, best, gain, hopeful, tokens

CPU = Costs((1, 2, 4, 6), (1.0, 1.7, 1.8, 2.3), (1, 3, 5), (0.0, 0.0, 0.0))
FLAT = Costs((1, 2, 4, 8, 9), (1.0, 1.02, 1.04, 1.08, 1.09), (1, 3, 7, 8), (0.0,) * 4)
STEEP = Costs((1, 2, 4, 6), (1.0, 2.0, 4.0, 6.0), (1, 3, 5), (0.0,) * 3)
DEAR = Costs((1, 2, 4), (1.0, 1.1, 1.2), (1, 3), (0.5, 1.5), reading=0.01)
STATE = Costs((1, 2, 4), (1.0, 1.1, 1.2), (1, 3), (0.0, 0.0), replays=True)


@pytest.mark.parametrize(
    ("costs", "chance", "depth"),
    [
        (CPU, 0.3, 0), (CPU, 0.6, 3), (CPU, 0.9, 5),
        (FLAT, 0.02, 0), (FLAT, 0.3, 3), (FLAT, 0.95, 8),
        (STEEP, 0.5, 0), (STEEP, 1.0, 0),
        (DEAR, 0.5, 0), (DEAR, 0.95, 3),
        (STATE, 0.4, 0), (STATE, 0.95, 3),
    ],
)  # fmt: skip
def test_the_depth_that_pays_is_the_one_that_a_table_of_all_says(
    costs: Costs, chance: float, depth: int
) -> None:
    chances = [chance] * costs.deepest
    assert best(costs, chances, costs.deepest, 0.05) == depth
    gains = {one: gain(costs, chances, one) for one in range(costs.deepest + 1)}
    if depth:
        assert gains[depth] == max(gains.values()) > 1.05
    else:
        assert max(gains.values()) <= 1.05


def test_the_figures_are_those_that_one_finds_by_hand() -> None:
    assert tokens([]) == 1 and tokens([0.5, 0.5]) == pytest.approx(1.75)
    assert CPU.verify(3) == pytest.approx(1.75) and CPU.verify(5) == pytest.approx(2.05)
    assert CPU.verify(8) == pytest.approx(2.8), "as steep as before"
    assert CPU.deepest == 5 and CPU.break_even(5) == pytest.approx(2.3)
    falling = Costs((1, 2, 4), (1.0, 1.7, 1.5), (1, 3), (0.0, 0.0))
    assert falling.verify(9) == 1.5, "nothing says that wider passes get cheaper still"
    assert DEAR.break_even(2) == pytest.approx(1.0 + 1.15)
    assert DEAR.of(1, [1.0], behind=10) == pytest.approx(0.5 + 0.1 + 1.1)
    # half of the drafts are read again: their first token alone
    assert STATE.of(1, [0.5]) == pytest.approx(1.1 + 0.5 * 1.0)
    # a quarter stands whole, half not at all, a quarter with one guess
    assert STATE.of(2, [0.5, 0.5]) == pytest.approx(1.15 + 0.5 * 1.0 + 0.25 * 1.1)
    assert STATE.worst(2) == pytest.approx(1.15 + 1.0 - 1)
    assert gain(CPU, [0.9] * 5, 5) == pytest.approx(sum(0.9**i for i in range(6)) / 2.3)


def test_a_try_is_as_shallow_as_may_pay_and_none_is_made_where_nothing_can() -> None:
    assert hopeful(CPU, 5, 0.05) == 1
    assert hopeful(Costs((1, 2, 4), (1.0, 2.1, 2.2), (1, 3), (0.0, 0.0)), 3, 0.05) == 2
    assert hopeful(STEEP, 5, 0.05) == 0


shares = st.floats(0, 1)
rising = st.lists(st.floats(0, 3), min_size=3, max_size=3).map(
    lambda steps: tuple(itertools.accumulate(steps, initial=1.0))
)


@given(rising, st.tuples(*[st.floats(0, 2)] * 3), st.lists(shares, min_size=7, max_size=7),
       st.integers(0, 9), st.booleans(), st.floats(0, 0.5), st.integers(0, 50))  # fmt: skip
def test_never_a_depth_that_is_not_expected_to_gain(
    ratios: tuple[float, ...], guessing: tuple[float, ...], chances: list[float],
    most: int, replays: bool, margin: float, behind: int,
) -> None:  # fmt: skip
    costs = Costs((1, 2, 4, 8), ratios, (1, 3, 7), guessing, 0.01, replays)
    depth = best(costs, chances, most, margin, behind)
    assert 0 <= depth <= min(most, 7)
    told = [gain(costs, chances, one, behind) for one in range(min(most, 7) + 1)]
    assert depth == 0 or told[depth] > 1 + margin
    assert told[depth] >= max(told) or max(told) <= 1 + margin


@given(st.lists(st.tuples(st.integers(1, 4), st.booleans()), max_size=60))
def test_chances_are_chances_whatever_was_seen(seen: list[tuple[int, bool]]) -> None:
    followed = Acceptance(4)
    for one in seen:
        followed.saw(*one)
    told = followed.chances()
    assert len(told) == 4 and all(0 <= one <= 1 for one in told)
    followed.forget()
    assert followed.chances() == Acceptance(4).chances()


def test_a_run_of_hits_and_a_run_of_misses_are_followed_within_a_few_guesses() -> None:
    followed = Acceptance(3)
    for _ in range(40):
        for depth in (1, 2, 3):
            followed.saw(depth, True)
    assert min(followed.chances()) > 0.95
    misses = 0
    while followed.chances()[0] > 0.5:
        followed.saw(1, False)
        misses += 1
    assert misses == 4
    hits = 0
    while followed.chances()[0] < 0.75:
        followed.saw(1, True)
        hits += 1
    assert hits <= 8
    other = Acceptance(3)
    for _ in range(12):
        other.saw(1, True)
    first, *deeper = other.chances()
    assert deeper == [first, first], "what was never reached is like the depth before it"


@given(st.lists(st.tuples(st.integers(1, 6), st.floats(1.0, 6.0)), max_size=200))
def test_an_account_never_goes_below_nothing_and_bounds_what_is_lost(
    drafts: list[tuple[int, float]],
) -> None:
    account, lost, earned = Allowance(3.0, 0.01, 8.0), 0.0, 0.0
    for brought, cost in drafts:
        account.earn(brought)
        earned += 0.01 * brought
        if account.bears(cost - 1):
            account.settle(brought, cost)
            lost += cost - brought
        assert -1e-9 <= account.held <= 8.0
    assert lost <= 3.0 + earned + 1e-9
