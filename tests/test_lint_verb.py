"""`battery lint` as a script sees it, and what `report` and `verify` make of a page that breaks a rule."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from battery.cli import main
from battery.render.lint.check import RULES
from battery.render.verify import verify

sys.path.insert(0, str(Path(__file__).parent / "analyse"))
from synthetic import World, build

BROKEN = "# mine\n\nThe best run of arm C is\n18 tok/s.\n"


def said(capfd: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    capfd.readouterr()
    with pytest.raises(SystemExit) as ended:
        main(words)
    told = capfd.readouterr()
    return int(ended.value.code or 0), told.out, told.err


@pytest.fixture
def pages(tmp_path: Path) -> tuple[Path, Path]:
    clean, broken = tmp_path / "clean.md", tmp_path / "broken.md"
    clean.write_text("# mine\n\nNothing is claimed.\n")
    broken.write_text(BROKEN)
    return clean, broken


def test_every_violation_is_a_line_with_file_and_place(
    pages: tuple[Path, Path], capfd: pytest.CaptureFixture[str]
) -> None:
    clean, broken = pages
    assert said(capfd, "lint", str(clean)) == (0, "", "")
    code, out, err = said(capfd, "lint", str(clean), str(broken))
    lines = err.splitlines()
    assert (code, out) == (8, "")
    assert lines[0].startswith(
        f"{broken}:3: best-of: “best run” is one chosen value, not an estimate; state"
    )
    assert lines[1].startswith(
        f"{broken}:4: numbers-in-tables: 18 tok/s stands in no table; add it"
    )
    assert lines[2:] == [
        "battery: 2 violations of the report's rules; each is named above (battery lint --rules)"
    ]


def test_json_rules_and_wrong_input(
    pages: tuple[Path, Path], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    clean, broken = pages
    code, out, _ = said(capfd, "lint", "--json", str(clean), str(broken))
    rows = json.loads(out)
    assert code == 8 and [(row["line"], row["rule"]) for row in rows] == [
        (3, "best-of"),
        (4, "numbers-in-tables"),
    ]
    assert {row["file"] for row in rows} == {str(broken)}
    assert set(rows[0]) == {"file", "line", "rule", "what", "remedy"}
    assert said(capfd, "lint", "--json", str(clean))[:2] == (0, "[]\n")
    code, out, _ = said(capfd, "lint", "--rules")
    assert code == 0 and [line.split(":")[0] for line in out.splitlines()] == list(RULES)
    assert said(capfd, "lint")[0] == 2
    code, _, err = said(capfd, "lint", str(tmp_path / "none.md"))
    assert code == 2 and "none.md cannot be read" in err and "name a Markdown file" in err


def test_a_generated_page_is_held_against_its_campaign(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    name, page = "2026-01-02-test", tmp_path / "reports" / "2026-01-02-test.md"
    build(tmp_path, World(effect={"C": 1.05}), name)
    root = ("--root", str(tmp_path))
    assert said(capfd, "report", name, *root)[0] == 0
    assert said(capfd, "lint", str(page), "--campaign", name, *root)[0] == 0
    text = page.read_text()
    page.write_text(text.replace("; 6 blocks, 12 pairs", "; 12 blocks, 12 pairs", 1))
    code, _, err = said(capfd, "lint", str(page), "--campaign", name, *root)
    assert code == 8 and f"{page}:3: blocks-stated: the headline of C says 12 blocks" in err
    assert said(capfd, "lint", str(page))[0] == 0


def test_a_report_that_breaks_a_rule_is_written_and_refused(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    name = "2026-01-02-test"
    header = build(tmp_path, World(effect={"C": 1.05}, seal=False), name) / "campaign.json"
    arms = json.loads(header.read_text())
    arms["arms"][1]["why"] = "The exact arm."
    header.chmod(0o644)
    header.write_text(json.dumps(arms))
    code, out, err = said(capfd, "report", name, "--root", str(tmp_path))
    page = tmp_path / "reports" / f"{name}.md"
    line = page.read_text().split("The exact arm.")[0].count("\n") + 1
    assert code == 8 and str(page) in out
    assert f"{page}:{line}: exact-word: “exact” stands in a table" in err
    places = {problem.place for problem in verify(tmp_path, name)}
    assert f"reports/{name}.md:{line}" in places
