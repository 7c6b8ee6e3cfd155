"""Blocks, equivalence, the split of the spread and the time: against known answers and planted campaigns."""

from __future__ import annotations

import datetime
import json
import math
from collections.abc import Callable
from pathlib import Path

import msgspec
import numpy as np
import pytest
import synthetic
from hypothesis import given
from hypothesis import strategies as some
from scipy import stats as scipy_stats
from statsmodels.regression.mixed_linear_model import MixedLM

from battery.analyse import findings, planning, power, stats, variance
from battery.bench import schedule
from battery.ledger.errors import InputError
from battery.ledger.plan import Plan, Primary
from battery.ledger.receipt import Receipt
from battery.ledger.store import Campaign

SD = 0.03


@pytest.mark.parametrize(
    ("blocks", "sds"),
    [(3, 3.26), (4, 2.13), (6, 1.43), (8, 1.16), (10, 1.00), (12, 0.89), (16, 0.75)],
)
def test_the_difference_that_blocks_detect_is_the_published_one(blocks: int, sds: float) -> None:
    found = stats.detectable(SD, blocks)
    assert found is not None
    assert math.log1p(found) / SD == pytest.approx(sds, abs=0.01)
    assert power.difference_blocks(SD, found) == blocks
    assert power.difference_blocks(SD, found * 0.99) == blocks + 1 or blocks == 3


@pytest.mark.parametrize(
    ("blocks", "line"),
    [(4, (0.19, 0.54, 0.82)), (6, (0.41, 0.86, 0.99)), (8, (0.64, 0.97, 1)), (12, (0.89, 1, 1))],
)
def test_the_power_of_equivalence_is_the_published_one(
    blocks: int, line: tuple[float, ...]
) -> None:
    for share, wanted in zip((1, 1.5, 2), line, strict=True):
        found = power.equivalence_power(SD, math.expm1(share * SD), blocks)
        assert found == pytest.approx(wanted, abs=0.01)


def test_the_power_of_equivalence_is_that_of_the_test_which_verdicts_use() -> None:
    dice = np.random.default_rng(3)
    drawn = dice.normal(0, SD, (1500, 8))
    found = [stats.equivalence(list(d), math.expm1(1.2 * SD)) for d in drawn]
    rejected = sum(p is not None and p < 0.05 for p in found)
    told = power.equivalence_power(SD, math.expm1(1.2 * SD), 8)
    assert scipy_stats.binomtest(rejected, 1500, told).pvalue > 0.001
    blocks = power.equivalence_blocks(SD, 0.03)
    assert blocks is not None
    assert power.equivalence_power(SD, 0.03, blocks) >= power.POWER
    assert power.equivalence_power(SD, 0.03, blocks - 1) < power.POWER


def test_what_no_search_reaches_is_none_and_what_needs_nothing_is_three() -> None:
    assert power.difference_blocks(10.0, 0.001) is None
    assert power.equivalence_blocks(10.0, 0.001) is None
    assert power.difference_blocks(0.0, 0.02) == power.equivalence_blocks(0.0, 0.02) == 3
    assert power.equivalence_power(0.0, 0.02, 6) == 1.0


def test_the_upper_limit_of_a_spread_holds_the_truth_four_times_of_five() -> None:
    assert power.upper_sd(1.0, 1) is None
    assert power.upper_sd(1.0, 2) == pytest.approx(3.947, abs=0.001)
    dice = np.random.default_rng(5)
    sds = dice.normal(0, 1, (4000, 6)).std(axis=1, ddof=1)
    factor = power.upper_sd(1.0, 6)
    held = int((sds * factor >= 1).sum())
    assert scipy_stats.binomtest(held, 4000, 0.8).pvalue > 0.001


@given(some.integers(1, 60), some.integers(2, 7))
def test_recommended_blocks_balance_the_order_and_carry_a_verdict(needed: int, arms: int) -> None:
    found = power.recommended(needed, arms)
    assert schedule.unbalanced(arms, found) is None
    assert found >= stats.FEWEST_BLOCKS
    assert found >= min(needed, power.CLAIMABLE[1])
    assert found < max(min(needed, 16), 6) + power.orders(arms)


def test_recommended_blocks_by_hand() -> None:
    assert [power.recommended(n, 2) for n in (None, 1, 7, 9, 16, 400)] == [16, 6, 8, 10, 16, 16]
    assert [power.recommended(n, 3) for n in (None, 1, 7, 13)] == [18, 6, 12, 18]


def test_blocks_that_fit_are_balanced_and_pilots_are_told_as_they_are() -> None:
    assert power.fitting(1000, 100, 100, 2) == 8
    assert power.fitting(1000, 100, 100, 3) == 6
    assert power.fitting(400, 100, 100, 2) == 3
    assert power.fitting(50, 100, 100, 2) == 0


def test_the_split_by_hand() -> None:
    found = variance.split([[1, 3], [5, 7]])  # within 2; between 16; launch (16 − 2) / 2
    assert found.seed_sd == pytest.approx(math.sqrt(2))
    assert found.launch_sd == pytest.approx(math.sqrt(7))
    spread = float(np.std([2, 6], ddof=1))
    assert found.scaled(spread, 2) == pytest.approx(spread)
    assert found.scaled(spread, 1) == pytest.approx(math.sqrt(7 + 2))
    assert found.scaled(spread, 8) == pytest.approx(math.sqrt(7 + 2 / 8))


def test_the_split_is_that_of_a_mixed_model() -> None:
    dice = np.random.default_rng(11)
    d = dice.normal(0, 0.02, (30, 1)) + dice.normal(0, 0.05, (30, 8))
    found = variance.split([list(row) for row in d])
    fit = MixedLM(100 * d.ravel(), np.ones(d.size), np.repeat(np.arange(30), 8)).fit(reml=True)
    assert found.seed_sd == pytest.approx(math.sqrt(fit.scale) / 100, rel=1e-3)
    assert found.launch_sd == pytest.approx(math.sqrt(float(fit.cov_re[0, 0])) / 100, rel=1e-2)


def test_the_split_of_unequal_blocks_is_right_on_average() -> None:
    dice = np.random.default_rng(13)
    squares = []
    for _ in range(600):
        sizes = [2, 3, 3, 1, 4, 3]
        blocks = [dice.normal(0, 0.03) + dice.normal(0, 0.04, size) for size in sizes]
        found = variance.split([list(block) for block in blocks])
        assert found.seed_sd is not None
        squares.append(found.seed_sd**2)
    assert np.mean(squares) == pytest.approx(0.04**2, rel=0.08)


def test_a_negative_component_is_zero_with_its_reason() -> None:
    found = variance.split([[-1, 1], [1, -1], [-1, 1.1]])
    assert (found.launch_sd, found.launch_why) == (0.0, variance.BELOW)
    best, why = variance.best_seeds(found, 60, 30)
    assert best is None and variance.BELOW in why


def test_what_cannot_be_split_says_why() -> None:
    for blocks, why in (([[1.0], [2.0]], "one seed"), ([[1.0, 2.0]], "two blocks"), ([], "two")):
        found = variance.split(blocks)
        assert found.launch_sd is None and found.seed_sd is None
        assert why in found.launch_why and why in found.seed_why
        assert found.scaled(0.1, 4) is None
        assert variance.best_seeds(found, 60, 30) == (None, found.launch_why)
    assert variance.split([[1, 1], [1, 1]]).scaled(0.0, 4) is None


def test_seeds_that_pay_follow_costs_and_spreads() -> None:
    found = variance.Split(blocks=9, seeds=3, launch_sd=0.01, seed_sd=0.06)
    assert variance.best_seeds(found, 60, 30)[0] == pytest.approx(math.sqrt(60 / 30 * 36))
    exact = variance.Split(blocks=9, seeds=3, launch_sd=0.02, seed_sd=0.004)
    assert variance.best_seeds(exact, 60, 30) == (1.0, "")
    assert variance.best_seeds(found, 60, 0)[0] is None


def timed(
    ends: dict[str, float], launch: int = 7, seed: int = 2, first: int = 5
) -> Callable[[Receipt], Receipt]:
    """A change that gives receipts a clock: launch, sentinel of 3 s, first and further seeds of a rung."""
    clock = [0.0]

    def change(receipt: Receipt) -> Receipt:
        cell = receipt.cell
        clock[0] += launch if cell.place == 0 else 0
        started = clock[0]
        clock[0] += 3 if cell.sentinel else first if cell.seed % 100 == 1 else seed
        ends["last"] = clock[0]
        return msgspec.structs.replace(receipt, started=at(started), ended=at(clock[0]))

    return change


def at(seconds: float) -> str:
    created = datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.UTC)
    return (created + datetime.timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")


def plan(**changes: object) -> Plan:
    own = synthetic.Plan(
        name="test", ladder=(128, 384), blocks=8, seeds=2, primary=Primary(rung=384),
        sampler=synthetic.Sampler(max_tokens=synthetic.TOKENS, min_tokens=16),
    )  # fmt: skip
    return msgspec.structs.replace(own, **changes)


def test_a_plan_from_a_campaign_has_its_spread_and_its_time(tmp_path: Path) -> None:
    ends: dict[str, float] = {}
    world = synthetic.World(blocks=8, noise=0.02, change=timed(ends))
    folder = synthetic.build(tmp_path, world)
    found = planning.plan_from(folder, plan(), ("A", "C"), "named", budget_s=600)
    (main,) = found.primary
    known = findings.analyse(folder).primary[0].estimate
    assert known is not None and known.sd is not None
    assert main.sd == pytest.approx(known.sd) and main.sd_planned == pytest.approx(known.sd)
    assert main.needed == power.difference_blocks(known.sd, 0.02)
    assert main.recommended == power.recommended(main.needed, 2)
    # a window: launch 7, sentinel 3, two rungs of 5 + 2
    assert found.block.seconds == pytest.approx(2 * (7 + 3 + 2 * 7))
    assert found.costs.setup_s == 0
    assert found.planned.seconds == pytest.approx(8 * 48) == ends["last"]
    assert found.within is not None and found.within.blocks == 12
    assert found.within.detects["C"] == pytest.approx(stats.detectable(known.sd, 12))
    more = planning.plan_from(folder, plan(seeds=5), ("A", "C"), "named")
    assert more.block.seconds == pytest.approx(2 * (7 + 3 + 2 * (5 + 4 * 2)))
    assert more.primary[0].sd_planned == pytest.approx(dict(main.by_seeds)[5])
    assert any("2 seeds a window there, 5 in the plan" in said for said in more.warnings)


def test_metrics_and_rungs_beside_the_primary_are_told_too(tmp_path: Path) -> None:
    folder = synthetic.build(tmp_path, synthetic.World(arms=("A", "B", "C"), noise=0.02))
    found = planning.plan_from(folder, plan(), ("A", "B", "C"), "named", margin=0.05)
    told = {(one.candidate, one.metric, one.rung): one for one in found.endpoints}
    assert len(told) == 2 * 4 * 2 == len(found.endpoints)
    assert told["B", "decode", 384].margin == 0.05 and told["B", "decode", 128].margin == 0.02
    assert told["B", "ttft", 128].margin == 0.05
    memory = told["C", "peak_memory", 384]
    assert memory.split is None and "highest peak" in memory.best_seeds_why
    main = told["C", "decode", 384]
    assert main.needed is not None and main.needed_holm is not None
    assert main.needed_holm >= main.needed
    # the candidate of one question may be the control of another
    turned = planning.plan_from(folder, plan(), ("C", "A"), "named")
    assert turned.primary[0].sd == pytest.approx(main.sd)


def test_what_the_source_does_not_know_is_null_with_its_reason(tmp_path: Path) -> None:
    folder = synthetic.build(tmp_path, synthetic.World(blocks=4, seeds=1, change=timed({})))
    longer = plan(ladder=(128, 4096), primary=Primary(rung=4096), seeds=1)
    found = planning.plan_from(folder, longer, ("A", "C"), "named", budget_s=3600)
    assert found.block.seconds is None and "4,096" in found.block.why
    assert found.planned.seconds is None and found.planned.why == found.block.why
    assert found.within is not None and "not known" in found.within.why
    (main,) = found.primary
    assert main.source_rung == 384 and main.sd is not None
    assert main.best_seeds is None and main.by_seeds == ()
    assert any("4,096 tokens, was not measured" in said for said in found.warnings)
    assert any("a pilot" in said for said in found.warnings)
    tokens = msgspec.structs.replace(plan().sampler, max_tokens=512)
    other = planning.plan_from(folder, plan(seeds=1, sampler=tokens), ("A", "C"), "named")
    assert other.block.seconds is None and "another length" in other.block.why


def test_a_budget_below_six_blocks_brings_no_verdict(tmp_path: Path) -> None:
    folder = synthetic.build(tmp_path, synthetic.World(change=timed({})))
    found = planning.plan_from(folder, plan(), ("A", "C"), "named", budget_s=250)
    assert found.within is not None and found.within.blocks == 5
    assert "no verdict" in found.within.why


def test_a_stop_in_the_middle_is_no_launch(tmp_path: Path) -> None:
    shift = [0.0]
    steady = timed({})

    def stopped(receipt: Receipt) -> Receipt:
        found = steady(receipt)
        shift[0] = 5000.0 if receipt.cell.block >= 4 else 0.0
        started, ended = (
            datetime.datetime.fromisoformat(word) + datetime.timedelta(seconds=shift[0])
            for word in (found.started, found.ended)
        )
        words = (f"{one:%Y-%m-%dT%H:%M:%SZ}" for one in (started, ended))
        return msgspec.structs.replace(found, started=next(words), ended=next(words))

    folder = synthetic.build(tmp_path, synthetic.World(change=stopped, seal=False))
    event = {"at": at(3 * 48 + 100), "event": "resumed"}
    (folder / "journal.jsonl").write_text(json.dumps(event) + "\n")
    found = planning.plan_from(folder, plan(), ("A", "C"), "named")
    assert found.block.seconds == pytest.approx(48)


def test_sources_that_cannot_serve_are_refused(tmp_path: Path) -> None:
    one = synthetic.build(tmp_path, synthetic.World(blocks=1), name="one")
    with pytest.raises(InputError, match="1 complete blocks"):
        planning.plan_from(one, plan(), ("A", "C"), "named")
    with pytest.raises(InputError, match="no arm B"):
        planning.plan_from(one, plan(), ("A", "B"), "named")
    with pytest.raises(InputError, match="one arm"):
        planning.plan_from(one, plan(), ("A",), "named")
    unlucky = synthetic.World(change=synthetic.fails("oom", lambda r: r.cell.arm == "C"))
    failed = synthetic.build(tmp_path, unlucky, name="failed")
    (main,) = planning.plan_from(failed, plan(), ("A", "C"), "named").primary
    assert main.sd is None and "oom" in main.why
    assert Campaign(failed).exists
