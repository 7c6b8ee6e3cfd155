from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from battery.bench import schedule
from battery.ledger.plan import Plan

PLAN = Plan(ladder=(64, 128), blocks=4, seeds=2)


def test_two_arms_run_abba() -> None:
    assert schedule.orders(["A", "C"], 4, 0) == (("A", "C"), ("C", "A"), ("A", "C"), ("C", "A"))
    assert schedule.orders(["A", "C"], 2, 1) == (("C", "A"), ("A", "C"))


@given(st.integers(2, 8))
def test_williams_rows_balance_places_and_neighbours(n: int) -> None:
    rows = schedule.williams(n)
    for place in range(n):
        assert len(set(Counter(row[place] for row in rows).values())) == 1
    follows = Counter(pair for row in rows for pair in pairwise(row))
    assert len(follows) == n * (n - 1) and len(set(follows.values())) == 1


@pytest.mark.parametrize(
    ("arms", "rows"),
    [
        (2, ["AB", "BA"]),
        (3, ["ACB", "BAC", "CBA", "BCA", "CAB", "ABC"]),
        (4, ["ADBC", "BACD", "CBDA", "DCAB"]),
    ],
)
def test_williams_squares_by_hand(arms: int, rows: list[str]) -> None:
    made = schedule.orders("ABCDEF"[:arms], len(rows), 0)
    assert ["".join(row) for row in made] == rows


@pytest.mark.parametrize(("arms", "blocks"), [(2, 8), (3, 6), (3, 12), (4, 8), (5, 10), (6, 12)])
def test_whole_campaigns_balance_places_and_followers_whatever_the_coin(
    arms: int, blocks: int
) -> None:
    names = "ABCDEF"[:arms]
    assert schedule.unbalanced(arms, blocks) is None
    for coin in range(arms):
        order = schedule.orders(names, blocks, coin)
        assert order[0][0] == names[coin]
        places = Counter((arm, place) for row in order for place, arm in enumerate(row))
        assert set(places.values()) == {blocks // arms} and len(places) == arms * arms
        follows = Counter(pair for row in order for pair in pairwise(row))
        assert len(follows) == arms * (arms - 1)
        assert set(follows.values()) == {blocks // arms}
        # one block fewer leaves them unbalanced, and is told
        assert schedule.unbalanced(arms, blocks - 1) is not None


def test_one_arm_alone_can_be_measured() -> None:
    assert schedule.orders(["A"], 3, 0) == (("A",), ("A",), ("A",))


def test_seeds_are_new_in_every_block_and_shared_by_its_arms() -> None:
    rows = schedule.windows(schedule.orders(["A", "C"], 4, 0))
    seen: set[int] = set()
    for row in rows:
        per_arm = [[(c.rung, c.seed) for c in schedule.cells(w, PLAN, 4821)] for w in row]
        assert per_arm[0] == per_arm[1]
        fresh = {c.seed for c in schedule.cells(row[0], PLAN, 4821) if not c.sentinel}
        assert not fresh & seen
        seen |= fresh


def test_a_window_ascends_the_ladder_after_the_sentinel() -> None:
    window = schedule.windows(schedule.orders(["A"], 1, 0))[0][0]
    cells = schedule.cells(window, PLAN, 7)
    assert [cell.rung for cell in cells] == [64, 64, 64, 128, 128]
    assert [cell.sentinel for cell in cells] == [True, False, False, False, False]
    assert [cell.place for cell in cells] == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("arms", [1, 2, 3])
def test_expected_cells_counts_the_schedule(arms: int) -> None:
    names = [f"a{i}" for i in range(arms)]
    rows = schedule.windows(schedule.orders(names, PLAN.blocks, 0))
    made = sum(len(schedule.cells(window, PLAN, 1)) for row in rows for window in row)
    assert made == schedule.expected_cells(PLAN, arms)


def test_every_cell_has_a_prompt() -> None:
    needed = set(schedule.prompts_needed(PLAN, 9))
    rows = schedule.windows(schedule.orders(["A", "C"], PLAN.blocks, 0))
    used = {(c.rung, c.seed) for row in rows for w in row for c in schedule.cells(w, PLAN, 9)}
    assert used == needed


@pytest.mark.parametrize(
    ("arms", "blocks", "more"),
    [(1, 5, None), (2, 6, None), (2, 5, "6 would"), (3, 6, None), (4, 6, "8 would")],
)
def test_blocks_that_leave_places_unbalanced_are_told(
    arms: int, blocks: int, more: str | None
) -> None:
    told = schedule.unbalanced(arms, blocks)
    assert told is None if more is None else more in str(told)
