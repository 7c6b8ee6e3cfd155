from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from battery.analyse import findings
from battery.ledger import index
from battery.ledger.store import Campaign
from battery.render import charts, report
from battery.render.lint.check import lint
from battery.render.verify import verify
from benchmarks import campaigns, reading


def test_a_shape_comes_near_to_the_number_that_is_asked_for() -> None:
    assert campaigns.shape(100_000).receipts == 100_000
    for asked in (600, 1_000, 10_000, 50_000):
        assert campaigns.shape(asked).receipts == pytest.approx(asked, rel=0.15)
    assert campaigns.shape(10**7).seeds == 99  # the most that a plan may ask for


def test_a_made_campaign_is_one_that_verify_accepts(tmp_path: Path) -> None:
    size = campaigns.Shape(blocks=8, seeds=1)
    made = campaigns.make(tmp_path / "receipts" / "many", size)
    assert len(made.names()) == size.receipts == 288
    found = findings.analyse(made.folder)
    charts.render_charts(found, tmp_path / "charts" / "many")
    report.write_report(found, tmp_path / "reports")
    assert verify(tmp_path, "many") == []
    assert lint((tmp_path / "reports" / "many.md").read_text(encoding="utf-8"), found) == []
    assert not [doubt for doubt in found.doubts if doubt.severity == "void"]
    told = found.comparison("C", "decode", 512)
    assert told and told.estimate and told.estimate.ratio == pytest.approx(24 / 22.5, rel=0.01)
    assert {one.metric for one in found.comparisons} >= {"decode", "prefill", "ttft", "peak_memory"}
    assert sum(one.ended.get("short", 0) for one in found.outcomes) == 2


def test_the_same_seed_makes_the_same_campaign(tmp_path: Path) -> None:
    size = campaigns.Shape(blocks=1, seeds=1)
    seals = [
        campaigns.make(tmp_path / place / "many", size, seed).chain()
        for place, seed in (("one", 1), ("two", 1), ("three", 2))
    ]
    files = [
        {name: digest for name, digest in seal.files.items() if "-b" in name} for seal in seals
    ]
    assert files[0] == files[1] != files[2]


def test_every_way_is_told_and_the_last_line_is_json(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("pyarrow")

    def here(way: str, folder: Path, out: Path) -> dict[str, object]:
        if way == "first":
            for name in reading.KEPT:
                (folder / name).unlink(missing_ok=True)
        return {**reading.worker(way, folder, out), "process_s": 1.0}

    monkeypatch.setattr(reading, "measured", here)
    monkeypatch.setattr(reading, "SETTLED_NS", 0)
    monkeypatch.setattr(index, "SETTLED_NS", 0)
    monkeypatch.setattr(index, "FEWEST", 1)
    monkeypatch.setattr(campaigns, "LADDER", (48, 64))
    line = [
        "reading",
        "--receipts",
        "80",
        "--small",
        "0",
        "--rounds",
        "1",
        "--folder",
        str(tmp_path),
    ]
    monkeypatch.setattr(sys, "argv", line)
    reading.main()
    last = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert list(last) == ["receipts", "first_s", "second_s", "peak_mb", "naive_s"]
    assert last["receipts"] == 96 and all(value > 0 for value in last.values())


def test_the_naive_way_finds_what_the_findings_do(tmp_path: Path) -> None:
    import pandas

    made: Campaign = campaigns.make(tmp_path / "many", campaigns.Shape(blocks=2, seeds=2))
    ratios, found = reading.naive(made.folder, pandas), findings.analyse(made.folder)
    assert len(ratios) == 3 * len(reading.METRICS) * len(campaigns.LADDER)
    for (arm, metric, rung), ratio in ratios.items():
        told = found.comparison(arm, metric, rung)
        assert told and told.estimate and told.estimate.ratio == pytest.approx(ratio, rel=1e-8)
    assert ratios["C", "decode", 48] == pytest.approx(24 / 22.5, rel=0.02)
