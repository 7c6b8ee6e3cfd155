"""The stopping rule derived from receipts: planted effects, failing arms, and somebody who measures on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from synthetic import World, build, fails

from battery.analyse import speed
from battery.analyse.findings import Findings, analyse
from battery.analyse.findings import found as together
from battery.analyse.rows import rows
from battery.analyse.stopping import enough
from battery.ledger.claims import Stopping, looks, rows_of_order, rule
from battery.ledger.plan import Plan
from battery.ledger.receipt import Receipt
from battery.ledger.store import Campaign, Screen
from battery.render.charts import draw
from battery.render.report import markdown

LOOKS = Stopping(rule="looks", looks=(6, 8, 10, 12))


def world(stopping: Stopping = LOOKS, blocks: int = 12, upto: int = 12, **changes: Any) -> World:
    """A campaign of which the blocks up to `upto` were measured."""
    inner = changes.pop("change", lambda receipt: receipt)

    def change(receipt: Receipt) -> Receipt | None:
        return inner(receipt) if receipt.cell.block <= upto else None

    plan = {"stopping": stopping}
    return World(
        blocks=blocks, seeds=1, plan=plan, change=change, **{"effect": {"C": 1.05}, **changes}
    )


def unclear(upto: int = 12, **changes: Any) -> World:
    """Nothing differs, and too noisily to say so."""
    return world(upto=upto, effect={}, noise=0.1, **changes)


def found(root: Path, made: World) -> Findings:
    return analyse(build(root, made))


def test_a_large_effect_ends_it_at_the_first_look_and_nothing_calls_it_unfinished(
    tmp_path: Path,
) -> None:
    early = found(tmp_path, world(upto=6))
    stopped = early.stopped
    assert (stopped.ended_at, stopped.early, early.status) == (6, True, "complete")
    assert [look.block for look in stopped.looks] == [6]
    assert stopped.why == "the look after 6 blocks: " + stopped.why.split(": ")[1]
    (one,) = early.primary
    assert one.verdict.word == "faster" and stopped.looks[0].seen[0].word == "faster"
    assert stopped.alpha == 0.018 and one.estimate == stopped.looks[0].seen[0].estimate
    assert not [doubt for doubt in early.doubts if "blocks" in doubt.what]
    assert early.outcome("C", 384).planned == 6 and early.ladders[0].standing == ""
    page = markdown(early)
    assert "Unfinished" not in page and "planned blocks" not in page
    assert "98.2 % interval" in page and "[95 %]" not in page
    assert "Ended early, after 6 of at most 12 blocks: the look after 6 blocks: C faster" in page
    assert "| stopping rule | looks after 6, 8, 10 and 12 blocks;" in page
    assert "| 6 | C |" in page.split("### Looks")[1]
    assert draw(early)


def test_without_a_result_it_goes_to_the_last_look(tmp_path: Path) -> None:
    last = found(tmp_path, unclear())
    assert [look.ends for look in last.stopped.looks] == [False] * 4
    assert (last.stopped.ended_at, last.stopped.early, last.status) == (12, False, "complete")
    assert "the last look: C undecided" in last.stopped.why
    assert (
        last.primary[0].verdict.word == "undecided" and "peeking" not in last.primary[0].verdict.why
    )


def test_between_looks_and_before_the_first_nothing_is_decided(tmp_path: Path) -> None:
    before = found(tmp_path / "5", world(upto=5))
    assert (before.status, before.stopped.looks) == ("incomplete", ())
    assert "the next look is after 6" in before.stopped.why
    assert "peeking" in before.primary[0].verdict.why
    between = found(tmp_path / "7", unclear(7))
    assert [look.block for look in between.stopped.looks] == [6]
    assert between.status == "incomplete" and "the next look is after 8" in between.stopped.why
    assert "peeking" in between.primary[0].verdict.why


@pytest.mark.parametrize("upto", [7, 12])
def test_who_measures_on_after_the_end_voids_it(tmp_path: Path, upto: int) -> None:
    on = found(tmp_path, world(upto=upto))
    assert on.stopped.ended_at == 6 and on.primary[0].verdict.word == "invalid"
    (void,) = [doubt for doubt in on.doubts if doubt.severity == "void"]
    assert "measured on after the stopping rule had ended it, at 6 blocks" in void.what
    assert len(void.evidence) == (upto - 6) * 6


def test_a_look_sees_the_blocks_before_it_and_nothing_else(tmp_path: Path) -> None:
    short, long = found(tmp_path / "a", unclear(8)), found(tmp_path / "b", unclear(12))
    assert short.stopped.looks == long.stopped.looks[:2]
    folder = tmp_path / "b" / "receipts" / "2026-01-02-test"
    assert [enough(folder, block) is None for block in (6, 8, 10)] == [True] * 3
    assert enough(folder, 12) == long.stopped.why


def test_a_look_waits_for_every_block_before_it(tmp_path: Path) -> None:
    hole = found(tmp_path, world(upto=6, change=lambda r: None if r.cell.block == 3 else r))
    assert hole.stopped.looks == () and hole.stopped.ended_at is None


def test_a_failing_candidate_ends_nothing(tmp_path: Path) -> None:
    never = fails("oom", lambda r: r.cell.arm == "D" and r.cell.rung == 384)
    rest = {"arms": ("A", "C", "D"), "effect": {"C": 1.05}, "change": never}
    kept = found(tmp_path, world(upto=8, **rest))
    assert [one.word for one in kept.stopped.looks[0].seen] == ["faster", "not comparable"]
    assert not any(look.ends for look in kept.stopped.looks) and kept.stopped.ended_at is None


def test_one_arm_alone_has_nothing_to_be_decided(tmp_path: Path) -> None:
    assert found(tmp_path, world(upto=8, arms=("A",))).stopped.ended_at is None


def test_precision_ends_when_the_interval_is_narrow_enough(tmp_path: Path) -> None:
    narrow = Stopping(rule="precision", half_width=0.05)
    early = found(tmp_path / "a", world(narrow, upto=6, effect={}))
    (one,) = early.stopped.looks[0].seen
    assert early.stopped.ended_at == 6 and one.half_width is not None and one.half_width <= 0.05
    assert one.estimate and one.estimate.low and one.estimate.high
    assert one.half_width == pytest.approx((one.estimate.high / one.estimate.low) ** 0.5 - 1)
    assert "97 % interval" in markdown(early) and "no wider than ±5 %" in markdown(early)
    strict = Stopping(rule="precision", half_width=0.0001)
    last = found(tmp_path / "b", world(strict, blocks=8))
    assert [look.block for look in last.stopped.looks] == [6, 8] and last.stopped.ended_at == 8
    assert not last.stopped.looks[-1].ends


def test_a_fixed_plan_has_no_looks(tmp_path: Path) -> None:
    fixed = found(tmp_path, World())
    assert (fixed.stopped.planned, fixed.stopped.looks, fixed.stopped.ended_at) == ((), (), 6)
    assert "### Looks" not in markdown(fixed) and "95 % interval" in markdown(fixed)


@pytest.mark.parametrize(
    ("arms", "blocks", "at"),
    [
        (2, 12, (6, 8, 10, 12)),
        (3, 18, (6, 12, 18)),
        (4, 10, (8, 10)),
        (5, 12, (10, 12)),
        (2, 6, (6,)),
    ],
)
def test_precision_looks_where_the_order_balances(
    arms: int, blocks: int, at: tuple[int, ...]
) -> None:
    plan = Plan(ladder=(64,), blocks=blocks, stopping=Stopping(rule="precision", half_width=0.1))
    assert looks(plan, arms) == at
    assert all(block % rows_of_order(arms) == 0 for block in at[:-1])
    assert "no wider than ±10 %; tests at .03" in rule(plan, arms)


@pytest.mark.parametrize("screen", ["", "knockout"])
def test_a_look_judges_as_the_whole_analysis_does(tmp_path: Path, screen: Screen) -> None:
    made = world(blocks=6, upto=6, stopping=Stopping(rule="looks", looks=(6,)), arms=("A", "C", "D"),
                 effect={"C": 1.012}, noise=0.02)  # fmt: skip
    campaign = Campaign(build(tmp_path, made))
    header = msgspec.structs.replace(campaign.header(), screen=screen)
    whole = together(campaign.receipts(), header)
    (look,) = whole.stopped.looks
    assert [(one.candidate, one.estimate, one.word) for one in look.seen] == [
        (one.candidate, one.estimate, one.verdict.word) for one in whole.primary
    ]
    with_frame = speed.primary(
        rows(campaign.receipts(), header),
        {receipt.sequence: receipt.trace for receipt in campaign.receipts()}, header, 6,
    )  # fmt: skip
    ps = [(one.p_corrected, one.tost_p_corrected) for one in with_frame]
    assert ps == [
        pytest.approx((one.p_corrected, one.tost_p_corrected), rel=1e-8) for one in whole.primary
    ]
