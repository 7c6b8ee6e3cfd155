"""The simulated batteries have the spreads they are said to have, and the estimator keeps its promises on them."""

from __future__ import annotations

import math

import numpy as np
import pytest

from battery.analyse import self_test
from benchmarks.statistics import intervals, rules
from benchmarks.statistics.simulate import (
    CARRY,
    LAUNCH,
    REQUEST,
    SEEDS,
    WALK,
    Drawn,
    World,
    draw,
    order,
)

COUNT = 10_000


def drawn(count: int = COUNT, **world: object) -> Drawn:
    return draw(World().but(**world), count, np.random.default_rng(1))


@pytest.mark.parametrize(("arms", "seeds"), intervals.ROWS)
def test_the_spread_of_a_block_is_what_its_parts_add_up_to(arms: str, seeds: int) -> None:
    own = SEEDS[arms][1]  # type: ignore[index]
    wanted = math.sqrt(2 * LAUNCH**2 + 2 * (REQUEST**2 + own**2) / seeds + WALK**2)
    assert intervals.spread(drawn(arms=arms, seeds=seeds).blocks) == pytest.approx(wanted, rel=0.02)


def test_exact_arms_share_what_a_seed_does_and_rounding_arms_do_not() -> None:
    for arms, common in (("exact", 0.99), ("rounding", 0.25)):
        logs = drawn(arms=arms, drift="none").logs[:, 0, :, 0, 0]
        assert np.corrcoef(logs.T)[0, 1] == pytest.approx(common, abs=0.03)


def test_the_same_seeds_return_or_do_not() -> None:
    for same in (True, False):
        logs = drawn(drift="none", same_seeds=same).logs[:, :2, 0, 0, 0]
        assert (np.corrcoef(logs.T)[0, 1] > 0.9) == same


def test_the_order_is_batterys_own_and_both_faces_of_the_coin_come() -> None:
    assert order(World(blocks=3), 0) == (("A", "C"), ("C", "A"), ("A", "C"))
    assert order(World(blocks=2), 1) == (("C", "A"), ("A", "C"))
    assert order(World(blocks=2, alternating=True), 1) == (("A", "C"), ("A", "C"))
    assert drawn().coins.mean() == pytest.approx(0.5, abs=0.02)


@pytest.mark.parametrize(
    ("alternating", "blocks", "bias"), [(False, 6, 0.0), (True, 3, -0.012), (True, 6, -0.06 / 11)]
)
def test_linear_drift_cancels_in_our_order_alone(
    alternating: bool, blocks: int, bias: float
) -> None:
    one = drawn(drift="linear", alternating=alternating, blocks=blocks, arms="exact")
    assert one.blocks.mean() == pytest.approx(bias, abs=5e-4)


def test_carry_over_cancels_in_our_order_but_for_its_first_window() -> None:
    ours = drawn(drift="none", carry=True)
    # one window of all has none before it; where that is the candidate's, the control is slowed once more than it
    assert ours.blocks.mean() == pytest.approx(CARRY / 12, abs=3e-4)
    other = drawn(drift="none", carry=True, alternating=True)
    # the control follows the candidate in every block but the first
    assert other.blocks.mean() == pytest.approx(CARRY * 5 / 6, abs=5e-4)


def test_every_cell_of_the_power_table_is_within_three_points() -> None:
    rows = intervals.power(COUNT, 2)
    assert {(row["arms"], row["seeds"], row["blocks"]) for row in rows} == set(intervals.DESIGNED)
    assert max(row["off"] for row in rows) <= intervals.TOLERANCE
    assert all(0.04 < row["false_positives"] < 0.06 for row in rows)


def test_a_wrong_analysis_would_leave_the_power_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """A z test in place of the t: too ready to call."""
    monkeypatch.setattr(
        intervals,
        "t_test",
        lambda d: np.abs(d.mean(axis=1)) > 1.96 * d.std(axis=1, ddof=1) / math.sqrt(d.shape[1]),
    )
    assert max(row["off"] for row in intervals.power(COUNT, 2)) > intervals.TOLERANCE


def test_what_is_detected_and_proven_equivalent_is_what_theory_says() -> None:
    told = intervals.found_by(COUNT, 3)
    for row in told["detectable"]:
        assert row["theory"] == pytest.approx(row["designed"], abs=0.006)
        assert row["power"] == pytest.approx(0.8, abs=0.02)
    for row in told["equivalence"]:
        assert row["power"] == pytest.approx(row["designed"], abs=0.02)


def test_the_tables_p_is_batterys_own() -> None:
    assert intervals.agreement(50, 4) < 1e-12


def test_the_interval_holds_the_truth_nineteen_times_in_twenty() -> None:
    told = intervals.coverage(2000, 5)
    assert told["batteries"] == 2000 and 0.93 <= told["coverage"] <= 0.97
    assert told["covered"] == round(2000 * told["coverage"])


def test_an_interval_of_single_requests_would_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted fault: requests as units, as if those of one block were independent."""
    monkeypatch.setattr(
        intervals.Pairs, "by_block", lambda self: {n: pair.log for n, pair in enumerate(self.kept)}
    )
    assert intervals.coverage(240, 5)["coverage"] < 0.93


def test_only_the_t_over_blocks_keeps_five_per_cent_everywhere() -> None:
    told = rules.contrast(2000, 6)
    worst = {
        rule.key: max(s[rule.key] for s in told["ours"].values() if rule.key in s)
        for rule in rules.RULES
        if rule.key != "seed_level"
    }
    assert worst["block_level"] < 0.065
    assert all(worst[key] > 0.10 for key in ("fastest_2", "fastest_5", "per_seed", "bootstrap"))
    fixed = told["fixed"]
    assert fixed["rounding none"]["fastest_2"] == pytest.approx(0.73, abs=0.03)
    assert fixed["rounding none"]["pooled_welch"] == pytest.approx(0.28, abs=0.03)
    assert fixed["rounding none"]["per_seed"] == pytest.approx(0.36, abs=0.03)
    assert fixed["exact none"]["per_seed"] == pytest.approx(0.23, abs=0.03)
    assert fixed["rounding none"]["seed_level"] == pytest.approx(0.05, abs=0.02)
    assert fixed["exact none"]["block_level"] == pytest.approx(0.05, abs=0.02)


def test_looking_early_costs_what_it_is_said_to_cost() -> None:
    told = {row["key"]: row for row in intervals.stopping(COUNT, 7)}
    for row in told.values():
        if row["designed"] is not None:
            assert row["share"] == pytest.approx(row["designed"], abs=0.012)
    assert told["looks"]["share"] < 0.055 < 0.15 < told["peeking"]["share"]


def test_arms_against_themselves_hardly_ever_void_an_honest_battery() -> None:
    told = rules.self_tests(COUNT, 8)
    assert all(share["ours"] < 0.005 for share in told.values())
    assert told["exact"]["alternating"] > 2 * told["exact"]["ours"]


def test_the_signs_let_neither_drift_nor_carry_over_nor_prompts_add_up() -> None:
    for pairs in range(4, 12):
        turns = np.array([self_test.TURNS[n % 4] for n in range(pairs)])
        arms = np.array([(-1) ** n for n in range(pairs)])
        assert abs(turns.sum()) <= 2 and abs((turns * arms).sum()) <= 2
        assert abs((turns[1:] * turns[:-1]).sum()) <= 1
