"""The worst slowdown is what the receipts say, and null with the reason where they say nothing."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from battery.analyse.findings import analyse
from battery.ledger.arm import load_arm
from battery.ledger.plan import load_plan
from benchmarks.acceptance import report, slowdown

sys.path.insert(0, str(Path(__file__).parents[1] / "analyse"))
from synthetic import World, build, fails

ROOT = Path(__file__).parents[2]
ARMS = ("A", "P")


def told(root: Path, **world: Any) -> dict[str, Any]:
    build(root, World(arms=ARMS, **world), slowdown.CAMPAIGN)
    return slowdown.told(root)


def page(found: dict[str, Any]) -> str:
    kept = json.loads((ROOT / "reports" / "acceptance.json").read_text())
    return report.page({**kept, **found})


def test_it_is_the_largest_over_the_rungs_with_its_interval(tmp_path: Path) -> None:
    found = told(tmp_path, effect={"P": 0.985})
    findings = analyse(tmp_path / "receipts" / slowdown.CAMPAIGN)
    ratios = {}
    for rung in (128, 384):
        one = findings.comparison("P", "decode", rung)
        assert one is not None and one.estimate is not None
        ratios[rung] = one.estimate
    worst = min(ratios.values(), key=lambda one: one.ratio)
    assert found[slowdown.KEY] == 1 - worst.ratio == pytest.approx(0.015, abs=0.008)
    assert found["reasons"] == {} and [row["rung"] for row in found["adaptive"]["rungs"]] == [
        128,
        384,
    ]
    row = max(found["adaptive"]["rungs"], key=lambda one: one["slowdown"])
    assert worst.low is not None and worst.high is not None
    assert (row["at_least"], row["at_most"]) == (1 - worst.high, 1 - worst.low)
    assert row["at_least"] < row["slowdown"] < row["at_most"]
    words = page(found)
    assert f"{found[slowdown.KEY]:+.2%} [{row['at_least']:+.2%}, {row['at_most']:+.2%}]" in words


def test_an_arm_that_is_faster_everywhere_has_a_negative_one(tmp_path: Path) -> None:
    found = told(tmp_path, effect={"P": 1.05}, seal=True)
    assert found[slowdown.KEY] == pytest.approx(-0.05, abs=0.01)
    assert "below 0 it is faster" in page(found)


def test_without_receipts_it_is_null_and_says_so(tmp_path: Path) -> None:
    found = slowdown.told(tmp_path)
    assert found[slowdown.KEY] is None and found["adaptive"] is None
    assert "no campaign" in found["reasons"][slowdown.KEY] and "no campaign" in page(found)


@pytest.mark.parametrize(
    ("world", "why"),
    [
        (
            {"change": lambda one: None if one.cell.block > 3 else one, "seal": False},
            "not finished",
        ),
        ({"change": fails("oom", lambda one: one.cell.arm == "P")}, "tokens: "),
    ],
)
def test_what_is_unfinished_or_void_gives_no_figure(
    tmp_path: Path, world: dict[str, Any], why: str
) -> None:
    found = told(tmp_path, **world)
    assert found[slowdown.KEY] is None and why in found["reasons"][slowdown.KEY]


def test_other_arms_and_broken_headers_give_no_figure(tmp_path: Path) -> None:
    build(tmp_path, World(), slowdown.CAMPAIGN)
    assert "no arm P" in slowdown.told(tmp_path)["reasons"][slowdown.KEY]
    header = tmp_path / "receipts" / slowdown.CAMPAIGN / "campaign.json"
    header.chmod(0o644)
    header.write_text("{")
    assert "cannot be read" in slowdown.told(tmp_path)["reasons"][slowdown.KEY]


def test_the_plan_measures_what_the_figure_is_about() -> None:
    plan = load_plan("adaptive", ROOT / "plans")
    assert plan.workload == "prose" and plan.sampler.temperature == 0.7
    plain, paced = (load_arm(name, ROOT / "arms") for name in ARMS)
    assert plain.asked == {} and set(paced.asked) == {"prompt_lookup", "adaptive_depth"}
    (bar,) = plan.bars
    assert (bar.metric, bar.at_least) == (slowdown.METRIC, -0.02)


def test_the_committed_document_is_up_to_date_with_the_receipts() -> None:
    kept = json.loads((ROOT / "reports" / "acceptance.json").read_text())
    now = json.loads(json.dumps(slowdown.told(ROOT)))
    assert kept["adaptive"] == (None if now["adaptive"] is None else kept["adaptive"])
    assert kept[slowdown.KEY] == (
        None if now[slowdown.KEY] is None else pytest.approx(now[slowdown.KEY], rel=1e-6)
    ), "make bench-acceptance BENCH=--derive"
