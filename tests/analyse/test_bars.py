"""Bars against planted intervals, and against campaigns that carry no claim."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from synthetic import World, build, fails

from battery.analyse.bars import BarResult
from battery.analyse.findings import Findings, analyse
from battery.ledger.claims import Bar, unknown_arm
from battery.ledger.plan import Plan
from battery.render.report import markdown


def found(root: Path, *bars: Bar, **changes: Any) -> Findings:
    return analyse(build(root, World(**{"effect": {"C": 1.05}, **changes}, plan={"bars": bars})))


def only(found: Findings) -> BarResult:
    (one,) = found.bars
    return one


def near(root: Path) -> tuple[float, float]:
    """The ends of the interval that the planted effect gives, as changes."""
    (one,) = found(root / "near").primary
    assert one.estimate and one.estimate.low and one.estimate.high
    return one.estimate.low - 1, one.estimate.high - 1


def test_a_bar_just_below_and_just_above_each_end(tmp_path: Path) -> None:
    low, high = near(tmp_path)
    wide = found(tmp_path)
    hair = 1e-6
    for bar, outcome in (
        (Bar(at_least=low - hair), "met"),
        (Bar(at_least=low + hair), "undecided"),
        (Bar(at_least=high - hair), "undecided"),
        (Bar(at_least=high + hair), "failed"),
        (Bar(at_most=high + hair), "met"),
        (Bar(at_most=high - hair), "undecided"),
        (Bar(at_most=low + hair), "undecided"),
        (Bar(at_most=low - hair), "failed"),
    ):
        (one,) = wide.held_against([bar])
        assert one.outcome == outcome, (bar, one)
        assert one.low == pytest.approx(low) and one.high == pytest.approx(high)
        assert not one.sealed and one.why


def test_the_plans_bars_are_told_with_what_became_of_each(tmp_path: Path) -> None:
    bars = (
        Bar(at_least=0.03), Bar(candidate="C", metric="peak_memory", rung=128, at_least=-0.02, at_most=0.02),
        Bar(metric="ttft", at_most=-0.5), Bar(metric="seconds_per_step", at_most=0.0),
        Bar(suite="humaneval", within=0.05),
    )  # fmt: skip
    told = found(tmp_path, *bars)
    assert [(one.outcome, one.side) for one in told.bars] == [
        ("met", "at least"), ("met", "at least"), ("met", "at most"), ("failed", "at most"),
        ("undecided", "at most"), ("undecided", "within"),
    ]  # fmt: skip
    assert told.bars[0].what == "decode at 384: C over A at least +3 % (interval's lower end)"
    assert "the lower end is +4" in told.bars[0].why and "even the lower end is" in told.bars[3].why
    assert "not both arms tell it" in told.bars[4].why and told.bars[5].why == "quality was not run"
    assert all(one.sealed for one in told.bars)
    page = markdown(told)
    assert "- Bars: 3 of 6 met (section 5)." in page
    assert (
        "not worse than A by more than 5 points" in page.split("### Bars declared in the plan")[1]
    )
    assert "The plan declares none." in markdown(found(tmp_path / "none"))


def test_a_bar_without_a_candidate_is_about_each(tmp_path: Path) -> None:
    three = found(tmp_path, Bar(at_least=0.03), arms=("A", "C", "D"))
    assert [(one.candidate, one.outcome) for one in three.bars] == [("C", "met"), ("D", "failed")]


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"blocks": 4}, "pilot: 4 of the 6 blocks"),
        ({"change": lambda r: None if r.cell.block == 6 else r}, "5 of 6 blocks are complete"),
        ({"change": fails("oom", lambda r: r.cell.arm == "C" and r.cell.block < 3)}, "undecided: attrition: 4 of 12"),
        ({"change": fails("disengaged", lambda r: r.cell.arm == "C")}, "not comparable"),
        ({"arms": ("A",)}, "no such candidate"),
    ],
)  # fmt: skip
def test_without_a_claim_a_bar_is_undecided(
    tmp_path: Path, changes: dict[str, Any], why: str
) -> None:
    one = only(found(tmp_path, Bar(at_least=-0.9), **changes))
    assert one.outcome == "undecided" and why in one.why


def test_a_bar_that_was_changed_afterwards_shows(tmp_path: Path) -> None:
    assert only(found(tmp_path, Bar(at_least=0.2))).outcome == "failed"
    header = tmp_path / "receipts" / "2026-01-02-test" / "campaign.json"
    header.chmod(0o644)
    header.write_text(header.read_text().replace('"at_least": 0.2', '"at_least": 0.02'))
    one = only(analyse(header.parent))
    assert (one.bound, one.outcome, one.sealed) == (0.02, "undecided", False)
    assert "another plan than its digest names" in one.why
    unsealed = only(found(tmp_path / "b", Bar(at_least=0.03), seal=False))
    assert (
        unsealed.outcome == "undecided"
        and not unsealed.sealed
        and "declared before" in unsealed.why
    )


def test_a_bar_names_a_candidate() -> None:
    plan = Plan(ladder=(64,), blocks=6, bars=(Bar(at_least=0.1), Bar(candidate="C", at_most=0.1)))
    assert unknown_arm(plan, ["A", "C"]) is None and unknown_arm(plan, ["A", "D", "C"]) is None
    assert "bars[2].candidate: C is no candidate" in str(unknown_arm(plan, ["C", "A"]))
    assert "needs a candidate" in str(unknown_arm(plan, ["A"]))
