from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from synthetic import World, build

from battery.analyse.findings import analyse
from battery.ledger.store import Campaign
from battery.render.charts import render_charts
from battery.render.report import write_report
from battery.render.verify import differing, verify

NAME = "2026-01-02-test"


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("whole")
    found = analyse(build(root, World(effect={"C": 1.05}), NAME))
    render_charts(found, root / "charts" / NAME)
    write_report(found, root / "reports")
    return root


@pytest.fixture
def root(whole: Path, tmp_path: Path) -> Path:
    shutil.copytree(whole, tmp_path / "root")
    return tmp_path / "root"


def change(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.chmod(0o644)
    path.write_text(text.replace(old, new, 1))


def places(root: Path) -> str:
    return "\n".join(str(problem) for problem in verify(root, NAME))


def test_an_untouched_campaign_holds(root: Path) -> None:
    assert verify(root, NAME) == []


def test_one_digit_in_a_receipt(root: Path) -> None:
    victim = Campaign(root / "receipts" / NAME).paths()[10]
    number = re.search(r'"events":\[\[(\d{9,})', victim.read_text())
    assert number
    old = number.group(1)
    change(victim, old, f"{old[:-1]}{(int(old[-1]) + 1) % 10}")
    told = places(root)
    assert f"receipts/{NAME}/{victim.name}: its bytes changed" in told


def test_one_digit_in_a_figure_of_the_receipt_moves_the_report(root: Path) -> None:
    victim = next(p for p in Campaign(root / "receipts" / NAME).paths() if "-C-r384-" in p.name)
    change(victim, '"peak":3', '"peak":4')
    told = places(root)
    assert victim.name in told and f"reports/{NAME}.json comparisons" in told
    assert f"reports/{NAME}.md:" in told


def test_one_digit_in_the_page(root: Path) -> None:
    page = root / "reports" / f"{NAME}.md"
    line = next(i for i, x in enumerate(page.read_text().split("\n"), 1) if x.startswith("| 384"))
    old = page.read_text().split("\n")[line - 1]
    change(page, old, old.replace("+5", "+6", 1))
    (problem,) = verify(root, NAME)
    assert problem.place == f"reports/{NAME}.md:{line}"
    assert "+6" in problem.what and "+5" in problem.what


def test_a_line_more_on_the_page(root: Path) -> None:
    page = root / "reports" / f"{NAME}.md"
    page.write_text(page.read_text() + "And it is exact.\n")
    (problem,) = verify(root, NAME)
    assert "And it is exact." in problem.what


def test_one_digit_in_the_findings(root: Path) -> None:
    path = root / "reports" / f"{NAME}.json"
    ratio = analyse(root / "receipts" / NAME).primary[0].estimate
    assert ratio
    change(path, f'"ratio": {ratio.ratio}', f'"ratio": {ratio.ratio + 0.01:.9g}')
    (problem,) = verify(root, NAME)
    assert problem.place.startswith(f"reports/{NAME}.json comparisons[")
    assert problem.place.endswith(".estimate.ratio")
    assert str(ratio.ratio) in problem.what


def test_the_last_digit_of_any_figure_in_the_findings(root: Path) -> None:
    path = root / "reports" / f"{NAME}.json"
    whole = path.read_text()
    digits = [m.end() - 1 for m in re.finditer(r"\d+\.\d{6,}", whole)]
    assert len(digits) > 100
    place = digits[len(digits) // 2]
    path.write_text(f"{whole[:place]}{(int(whole[place]) + 5) % 10}{whole[place + 1 :]}")
    (problem,) = verify(root, NAME)
    assert problem.place.startswith(f"reports/{NAME}.json ") and "the receipts give" in problem.what


@pytest.mark.parametrize(
    "old, new", [('"blocks": 6', '"blocks":  6'), ('"schema": 1,', '"schema": 9,\n "schema": 1,')]
)
def test_findings_that_say_the_same_in_other_bytes(root: Path, old: str, new: str) -> None:
    change(root / "reports" / f"{NAME}.json", old, new)
    (problem,) = verify(root, NAME)
    assert "its bytes are not those" in problem.what
    assert re.fullmatch(rf"reports/{NAME}\.json:\d+", problem.place)


@pytest.mark.parametrize("name", [f"reports/{NAME}.md", f"reports/{NAME}.json"])
def test_other_ends_of_lines(root: Path, name: str) -> None:
    path = root / name
    whole = path.read_bytes()
    path.write_bytes(whole + b"\n")
    (problem,) = verify(root, NAME)
    assert problem.place.startswith(name) and "its bytes are not those" in problem.what
    path.write_bytes(whole.replace(b"\n", b"\r\n", 1))
    (problem,) = verify(root, NAME)
    assert problem.place.startswith(name)


def test_findings_that_are_no_json(root: Path) -> None:
    (root / "reports" / f"{NAME}.json").write_text("{")
    (problem,) = verify(root, NAME)
    assert "cannot be read" in problem.what


def test_a_byte_of_a_chart(root: Path) -> None:
    change(root / "charts" / NAME / "decode.svg", "Decode speed", "Decode Speed")
    (problem,) = verify(root, NAME)
    assert problem.place == f"charts/{NAME}/decode.svg"


def test_a_chart_or_its_manifest_is_missing(root: Path) -> None:
    (root / "charts" / NAME / "ttft.svg").unlink()
    (root / "charts" / NAME / "manifest.json").unlink()
    told = places(root)
    assert "ttft.svg: the chart is missing" in told and "manifest.json: " in told


def test_a_chart_that_nobody_draws(root: Path) -> None:
    shutil.copy(root / "charts" / NAME / "ttft.svg", root / "charts" / NAME / "best.svg")
    (problem,) = verify(root, NAME)
    assert problem.place.endswith("best.svg")


def test_a_digit_in_the_manifest(root: Path) -> None:
    change(root / "charts" / NAME / "manifest.json", '"bytes": ', '"bytes": 1')
    (problem,) = verify(root, NAME)
    assert problem.place == f"charts/{NAME}/manifest.json charts[0].bytes"


@pytest.mark.parametrize(
    "old, new", [("{", '{\n "schema": 2,'), ('"key": ', '"by": "hand", "key": ')]
)
def test_a_key_more_in_the_manifest(root: Path, old: str, new: str) -> None:
    change(root / "charts" / NAME / "manifest.json", old, new)
    (problem,) = verify(root, NAME)
    assert problem.place.startswith(f"charts/{NAME}/manifest.json ") and "nothing" in problem.what


def test_a_missing_receipt(root: Path) -> None:
    victim = Campaign(root / "receipts" / NAME).paths()[20]
    victim.unlink()
    told = places(root)
    assert f"{victim.name}: sealed, but the file is missing" in told
    assert "block(s) 3 of the plan are not complete" in told


def test_an_extra_receipt(root: Path) -> None:
    folder = root / "receipts" / NAME
    first = Campaign(folder).paths()[0]
    shutil.copy(first, folder / "0999-b1-A-r128-s1.json")
    told = places(root)
    assert "0999-b1-A-r128-s1.json: this file is not in the seal" in told
    assert "the same cell as receipt" in told


def test_a_corrupt_receipt(root: Path) -> None:
    victim = Campaign(root / "receipts" / NAME).paths()[0]
    victim.chmod(0o644)
    victim.write_bytes(victim.read_bytes()[:200])
    told = places(root)
    assert victim.name in told and "cannot be read" in told


def test_a_seal_that_does_not_follow(root: Path) -> None:
    path = root / "receipts" / NAME / "seal.json"
    seal = Campaign(root / "receipts" / NAME).sealed()
    assert seal
    change(path, f'"seal": "{seal.seal}"', f'"seal": "{seal.seal[::-1]}"')
    assert "the chain ends in" in places(root)


@pytest.mark.parametrize(
    "old, new, told",
    [
        ('"schema": 1', '"schema": 2', "it is not the seal that these files give"),
        ('"schema": 1', '"schema":  1', "it is not the seal that these files give"),
        ("{", '{\n "note": "mine",', "cannot be read"),
    ],
)
def test_a_seal_that_says_more_or_other(root: Path, old: str, new: str, told: str) -> None:
    change(root / "receipts" / NAME / "seal.json", old, new)
    (problem,) = verify(root, NAME)
    assert "seal.json" in str(problem) and told in problem.what


@pytest.mark.parametrize("line", [b'{"at":"x","event":"resumed"}\n', b'{"at":'])
def test_a_journal_that_was_edited_or_torn(root: Path, line: bytes) -> None:
    store = Campaign(root / "receipts" / NAME)
    store.note("started")
    store.seal()
    found = analyse(store.folder)
    render_charts(found, root / "charts" / NAME)
    write_report(found, root / "reports")
    assert verify(root, NAME) == []
    journal = store.folder / "journal.jsonl"
    journal.write_bytes(journal.read_bytes() + line)
    assert "journal.jsonl: its bytes changed" in places(root)


def test_a_plan_changed_afterwards(root: Path) -> None:
    change(root / "receipts" / NAME / "campaign.json", '"decode": 0.02', '"decode": 0.001')
    told = places(root)
    assert "campaign.json: its bytes changed" in told and "the plan is not the one" in told


def test_reports_that_were_never_written(root: Path) -> None:
    shutil.rmtree(root / "reports")
    assert [p.what for p in verify(root, NAME)] == ["there is no such file"] * 2


def test_no_campaign_and_no_seal(root: Path) -> None:
    assert [p.what for p in verify(root, "other")] == ["no campaign is here"]
    (root / "receipts" / NAME / "seal.json").unlink()
    assert "the campaign is not sealed" in places(root)


def test_differences_are_found_by_path_and_without_tolerance() -> None:
    left = {"a": [1.0, {"b": 2.0}], "c": 1, "d": True, "e": 0.1}
    right = {"a": [1.0 + 1e-15, {"b": 2.0}, 3], "c": 1.0, "d": 1, "e": 0.1}
    assert [where for where, _, _ in differing(left, right)] == ["a[0]", "a[2]", "c", "d"]
