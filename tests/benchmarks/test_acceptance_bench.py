"""What is committed about the acceptance laws follows from its document, and a bar that fails is told."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.acceptance import __main__ as bench
from benchmarks.acceptance import report
from benchmarks.acceptance.worlds import SAMPLINGS, worlds

ROOT = Path(__file__).parents[2]


@pytest.fixture
def told() -> dict[str, Any]:
    return copy.deepcopy(json.loads((ROOT / "reports" / "acceptance.json").read_text()))


def test_the_committed_report_is_that_of_the_document(told: dict[str, Any]) -> None:
    kept = (ROOT / "reports" / "acceptance.md").read_text()
    assert kept == report.page(told), "make bench-acceptance BENCH=--derive"
    assert bench.text(told) == (ROOT / "reports" / "acceptance.json").read_text()
    for row in told["rows"]:
        (line,) = [
            one for one in kept.splitlines() if one.startswith(f"| {row['law']} | {row['draft']} |")
        ]
        assert f"{row['tokens']:.3f}" in line
        assert format(row["max_tv"], ".1e" if row["exact"] else ".3f") in line


def test_the_committed_document_is_whole_and_every_bar_holds(told: dict[str, Any]) -> None:
    assert told["worlds"] == bench.WORLDS and told["seed"] == bench.SEED
    assert told["bars"] == report.bars(told) and all(bar["holds"] for bar in told["bars"])
    laws = [(name, kind) for name, _, kinds in bench.exact_laws() for kind in kinds]
    laws += [(name, kind) for name, _, kinds in bench.lossy_laws() for kind in kinds]
    assert [(row["law"], row["draft"]) for row in told["rows"]] == laws
    assert all(
        row["exact"] == (row["law"] in ("matched", "exact", "block")) for row in told["rows"]
    )


def test_the_committed_figures_are_those_of_the_code(told: dict[str, Any]) -> None:
    """A part of the worlds, summed anew: no law may be further off there than in all of them, nor agree by chance."""
    part = list(worlds(16, bench.SEED))
    rows = {(row["law"], row["draft"]): row for row in told["rows"]}
    for name, law, kinds in (*bench.exact_laws(), *bench.lossy_laws()):
        seen = [one for one in part if one.sampling.temperature > 0]
        for kind in kinds:
            kept = rows[name, kind]
            new = bench.row(name, law, kind, seen, None if kept["exact"] else [])
            assert new["max_tv"] <= kept["max_tv"] + 1e-6
            assert kept["exact"] or new["max_tv"] > 1e-3


def test_every_sampling_meets_every_shape() -> None:
    seen = list(worlds(bench.WORLDS, bench.SEED))
    pairs = {(one.vocabulary, one.depth, SAMPLINGS.index(one.sampling)) for one in seen}
    assert len(pairs) == 3 * 3 * len(SAMPLINGS)


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (lambda told: told.update(exact_max_tv=2e-12), "exact law"),
        (lambda told: told["rows"][-1].update(over_bound=0.01), "own bound"),
        (lambda told: told["rows"][5].update(tokens=1.0), "block"),
    ],
)
def test_a_bar_that_fails_is_told(told: dict[str, Any], change: Any, what: str) -> None:
    change(told)
    told["bars"] = report.bars(told)
    (failed,) = [bar for bar in told["bars"] if not bar["holds"]]
    assert what in failed["what"] and "**fails**" in report.page(told)


def test_the_last_line_tells_what_is_known_and_why_the_rest_is_not(
    tmp_path: Path, told: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "reports").mkdir()
    (tmp_path / "reports" / "acceptance.json").write_text(bench.text(told))
    assert bench.main(["--derive", "--out", str(tmp_path)]) == 0
    assert (tmp_path / "reports" / "acceptance.md").read_text() == report.page(told)
    last = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert set(last) == {"exact_max_tv", "laws", "adaptive_worst_slowdown", "reasons"}
    assert last["exact_max_tv"] < 1e-12 and len(last["laws"]) == len(told["rows"])
    assert last["adaptive_worst_slowdown"] == told["adaptive_worst_slowdown"]
    assert last["reasons"] == told["reasons"]
    for why in told["reasons"].values():
        assert why in report.page(told)
