"""What is committed about the statistics follows from its document, and a bar that fails is told."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from battery.analyse import findings as analysis
from benchmarks.statistics import __main__ as bench
from benchmarks.statistics import floor, report

ROOT = Path(__file__).parents[2]


@pytest.fixture
def told() -> dict[str, Any]:
    return copy.deepcopy(json.loads((ROOT / "reports" / "statistics.json").read_text()))


def test_the_committed_report_and_charts_are_those_of_the_document(told: dict[str, Any]) -> None:
    files = bench.derived(told)
    assert set(files) == {
        "reports/statistics.md",
        "charts/statistics/false-positives.svg",
        "charts/statistics/power.svg",
    }
    for name, data in files.items():
        assert (ROOT / name).read_bytes() == data, f"{name}: make bench-stats BENCH=--derive"
    assert bench.text(told) == (ROOT / "reports" / "statistics.json").read_text()


def test_the_committed_document_is_whole_and_every_bar_holds(told: dict[str, Any]) -> None:
    assert told["command"] == "make bench-stats"
    assert told["bars"] == report.bars(told) and all(bar["holds"] for bar in told["bars"])
    assert bench.headline(told)["null_batteries"] == 200
    assert told["coverage"]["batteries"] == 2000 and told["power"]["batteries"] >= 20_000
    assert len(told["nulls"]["each"]) == 200


def test_the_committed_noise_floor_is_that_of_the_committed_campaign(told: dict[str, Any]) -> None:
    assert told["noise_floor"] == bench.plain(floor.noise_floor(ROOT / "reports"))


@pytest.mark.parametrize(
    ("where", "value", "what"),
    [
        (("nulls", "rejections"), 19, "null batteries"),
        (("coverage", "coverage"), 0.925, "coverage"),
        (("power", "rows", 3, "off"), 0.031, "power"),
        (("power", "agreement"), 1e-3, "own p"),
        (("contrast", "shares", "ours", "exact walk", "block_level"), 0.07, "t over blocks"),
        (("self_tests", "shares", "exact", "ours"), 0.05, "void themselves"),
        (("stopping", "rows", 3, "share"), 0.06, "looks"),
        (("positive_control", "found"), False, "control"),
        (("noise_floor", "rows"), [], "against itself"),
    ],
)
def test_a_bar_that_fails_is_told(
    told: dict[str, Any], where: tuple[Any, ...], value: object, what: str
) -> None:
    *path, last = where
    place = told
    for key in path:
        place = place[key]
    place[last] = value
    told["bars"] = report.bars(told)
    (failed,) = [bar for bar in told["bars"] if not bar["holds"]]
    assert what in failed["what"]
    assert "**fails**" in report.page(told)


def test_writing_again_changes_nothing(told: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "reports").mkdir()
    (tmp_path / "reports" / "statistics.json").write_text(bench.text(told))
    for path in (ROOT / "reports").glob(f"{floor.CAMPAIGN}.json"):
        (tmp_path / "reports" / path.name).write_bytes(path.read_bytes())
    assert bench.main(["--derive", "--out", str(tmp_path)]) == 0
    for name in ("reports/statistics.json", *bench.derived(told)):
        assert (tmp_path / name).read_bytes() == (ROOT / name).read_bytes()


def test_the_noise_floor_is_read_from_a_campaigns_findings(
    told: dict[str, Any], tmp_path: Path
) -> None:
    absent = floor.noise_floor(tmp_path)
    assert absent["rows"] == [] and "not there" in absent["why"]
    assert "Not measured yet" in report.page({**told, "noise_floor": absent})
    found = analysis.analyse(ROOT / "receipts" / "reference-cpu")
    analysis.write(found, tmp_path / f"{floor.CAMPAIGN}.json")
    there = floor.noise_floor(tmp_path)
    primary = next(row for row in there["rows"] if row["primary"])
    assert primary["half_width"] > 0 and primary["low"] < primary["ratio"] < primary["high"]
    assert there["seal"] == found.seal
    page = report.page({**told, "noise_floor": there})
    assert f"±{100 * primary['half_width']:.2f} %" in page


def test_the_readme_says_what_was_measured(told: dict[str, Any]) -> None:
    page = " ".join((ROOT / "README.md").read_text().split())
    nulls = told["nulls"]
    fastest = round(nulls["rules"]["fastest_2"] * nulls["batteries"])
    assert f"Over {nulls['batteries']} simulated batteries in which nothing differs" in page
    assert f"{nulls['rejections']} came out other than undecided or equivalent" in page
    assert f"calls {fastest} of them different" in page
