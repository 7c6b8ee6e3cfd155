"""Another extraction on the page and under verify: the tables, their reasons, and planted faults."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from beside import beside
from graded import SMALL, graded
from synthetic import build

from battery.analyse.findings import analyse
from battery.ledger.store import Campaign
from battery.render.charts import render_charts
from battery.render.lint.check import lint
from battery.render.report import markdown, write_report
from battery.render.verify import verify
from battery.render.verify_quality import problems

NAME = "2026-01-02-test"
TITLE = "### 4.4 The figures under another extraction"


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("whole")
    folder = build(root, SMALL, NAME)
    for arm, ours, theirs in (("A", "pppfffccx", "psufpecCx"), ("C", "ppp", "ppp")):
        graded(folder, arm, "humaneval" if arm == "A" else "mbpp", ours)
        beside(folder, arm, "humaneval" if arm == "A" else "mbpp", theirs)
    found = analyse(folder)
    render_charts(found, root / "charts" / NAME)
    write_report(found, root / "reports")
    return root


@pytest.fixture
def root(whole: Path, tmp_path: Path) -> Path:
    shutil.copytree(whole, tmp_path / "root")
    return tmp_path / "root"


def folder(root: Path) -> Path:
    return root / "receipts" / NAME


def test_both_figures_and_what_differs_stand_on_the_page(whole: Path) -> None:
    found = analyse(folder(whole))
    page = markdown(found)
    section = page.split(TITLE)[1].split("## 5.")[0]
    for row in (
        "| humaneval | A | 0.3333 [0.1206, 0.6458] | 3 of 9 | 0.2222 [0.0632, 0.5474] | 2 of 9 | 1 | 1 | 1 |"
        " EvalPlus 0.3.1 sanitize, Python 3.11.7, 60 s an answer |",
        "| humaneval | A | `HumanEval/1` | battery | passed | not told | syntax_error | does not parse |",
        "| humaneval | A | `HumanEval/4` | EvalPlus | failed | not told | passed | defines the entry point |",
        "| humaneval | A | `HumanEval/2` | passed | no answer in 60 s |",
        "| humaneval | A | 2 | 1 |",
    ):
        assert row in section, section
    assert [str(one) for one in lint(page, found)] == [] == [str(one) for one in lint(page)]


def test_a_page_without_it_is_as_it_was(root: Path) -> None:
    with_it = markdown(analyse(folder(root)))
    shutil.rmtree(folder(root) / "quality" / "evalplus")
    without = markdown(analyse(folder(root)))
    start, end = with_it.index(TITLE), with_it.index("## 5. Validity")
    assert without == with_it[:start] + with_it[end:]


def told(root: Path) -> str:
    """What does not hold of the quality receipts."""
    return "\n".join(": ".join(one) for one in problems(Campaign(folder(root))))


def test_a_verdict_that_was_turned_whole_moves_the_figures(root: Path) -> None:
    path = folder(root) / "quality" / "evalplus" / "C.mbpp.json"
    text = path.read_text()
    turned = text.replace("true", "false", 1).replace('"passed",\n', '"failed",\n', 2)
    assert turned.count("failed") == 2 + text.count("failed")
    path.write_text(turned)
    found = "\n".join(map(str, verify(root, NAME)))
    said = f"reports/{NAME}.json quality.extraction[1].theirs.count: says 3, the receipts give 2"
    assert said in found and f"reports/{NAME}.md:" in found
    assert {line.partition("/")[0] for line in found.splitlines()} == {"reports"}


def test_one_that_is_turned_in_part_of_other_answers_or_damaged_is_found(root: Path) -> None:
    assert told(root) == ""
    path = folder(root) / "quality" / "evalplus" / "A.humaneval.json"
    whole = path.read_bytes()
    path.write_bytes(whole.replace(b"true", b"false", 1))
    assert "A.humaneval.json: sample 0 of HumanEval/0: it is passed and not" in told(root)
    path.write_bytes(b"{")
    assert "evalplus/A.humaneval.json: cannot be read" in told(root)
    path.write_bytes(whole)
    graded(folder(root), "C", "mbpp", "ppc")
    assert "C.mbpp.json: it is of another file of answers" in told(root)
    assert "battery score CAMPAIGN --compare-evalplus" in told(root)
