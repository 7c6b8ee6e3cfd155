"""The committed campaign: every figure of it can be derived again, and a changed digit is named."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from battery.analyse import findings as analysis
from battery.ledger.store import HEADER, Campaign
from battery.render import tables, workloads
from battery.render.verify import verify

ROOT = Path(__file__).parents[1]
NAME = "quality-cpu"
"""The campaign of speed and quality that the README opens with."""
SPECULATION = "speculation-cpu"
"""The campaign over several workloads that the README quotes, once it is committed."""


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A copy of the committed evidence that may be spoilt."""
    for folder in ("receipts", "charts"):
        shutil.copytree(ROOT / folder / NAME, tmp_path / folder / NAME)
    (tmp_path / "reports").mkdir()
    for path in (ROOT / "reports").glob(f"{NAME}.*"):
        shutil.copy(path, tmp_path / "reports")
    return tmp_path


def other_digit(path: Path, pattern: str) -> None:
    """Change the last digit of the first match of `pattern` in a file."""
    path.chmod(0o644)
    text = path.read_text(encoding="utf-8")
    found = re.search(pattern, text)
    assert found, f"{path}: nothing like {pattern}"
    last = found.end() - 1
    path.write_text(
        text[:last] + str((int(text[last]) + 1) % 10) + text[last + 1 :], encoding="utf-8"
    )


def test_the_committed_evidence_holds(copy: Path) -> None:
    assert verify(copy, NAME) == []


@pytest.mark.parametrize(
    ("file", "pattern"),
    [
        ("receipts/{}/0007-*.json", r'"events":\[\[\d+'),
        ("receipts/{}/0007-*.json", r'"seed":\d+'),
        ("receipts/{}/campaign.json", r'"seed": \d+'),
        ("receipts/{}/prompts.json", r'"tokens": \d+'),
        ("receipts/{}/seal.json", r'"seal": "[^"]*\d'),
        ("reports/{}.json", r'"ratio": \d\.\d'),
        ("reports/{}.md", r"\| 128 \| \d"),
        ("charts/{}/decode.svg", r'd="m\d+'),
        ("charts/{}/manifest.json", r'"bytes": \d+'),
    ],
)
def test_one_digit_changed_is_found_and_its_file_named(copy: Path, file: str, pattern: str) -> None:
    path = sorted(copy.glob(file.format(NAME)))[0]
    other_digit(path, pattern)
    problems = verify(copy, NAME)
    assert problems and any(path.name in str(problem) for problem in problems)


def test_the_readme_quotes_the_headline_of_the_committed_findings() -> None:
    found = analysis.analyse(ROOT / "receipts" / NAME)
    readme = " ".join((ROOT / "README.md").read_text(encoding="utf-8").replace("**", "").split())
    for line in tables.headline(found).splitlines():
        assert " ".join(line.split()) in readme, line


def cells(line: str) -> list[str]:
    return [cell.strip(" *") for cell in line.strip("|").split("|")]


def test_the_table_of_the_readme_is_that_of_the_report() -> None:
    """Each arm's row, figure by figure: its rate, and where there is a ratio, that and its verdict."""
    lines = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    start = lines.index("| --- | --- | --- | --- |")
    rows = [cells(line) for line in lines[start + 1 : start + 5]]
    report = (ROOT / f"reports/{NAME}.md").read_text(encoding="utf-8")
    (_, table), *_ = re.findall(r"### (1\.1 Decode by context)(.*?)### ", report, re.DOTALL)
    control, *others = (
        line for line in table.splitlines() if line.startswith(("| context", "| 512"))
    )
    heads, values = cells(control), cells(others[0])
    for arm, rate, ratio, verdict in rows:
        name = arm.split()[0].strip(",")
        (place,) = [
            n for n, head in enumerate(heads) if head.startswith((f"{name} (", f"{name}, control"))
        ]
        assert values[place] == rate
        if name == "A":
            assert (ratio, verdict) == ("", "")
            continue
        place = heads.index(f"{name} / A [95 %]")
        assert (values[place], values[place + 2]) == (ratio, verdict), name


def spoken(page: str) -> list[str]:
    """Every sentence of a page that says where speculation pays."""
    text = " ".join(page.replace("**", "").split())
    return re.findall(rf"{workloads.OPENING}, .*?\.(?=\s|$)", text)


def test_the_readme_says_where_speculation_pays_as_the_committed_findings_do() -> None:
    """Word for word what is derived from that campaign, once; without the campaign nothing of the kind."""
    folder = ROOT / "receipts" / SPECULATION
    told = workloads.sentence(analysis.analyse(folder)) if (folder / HEADER).is_file() else ""
    assert spoken((ROOT / "README.md").read_text(encoding="utf-8")) == ([told] if told else [])


def test_the_sentence_is_found_in_a_page_to_its_last_figure() -> None:
    told = (
        f"{workloads.OPENING}, by decode at 256 tokens of context against A: C pays on edit (+140.2 %"
        " [+139.1, +141.3]), costs on prose (−15.2 % [−15.6, −14.8])."
    )
    page = f"# x\n\nBefore. {told.replace(' against', chr(10) + 'against')} After 1.5 it.\n"
    assert spoken(page) == [told]
    assert spoken(page.replace("141.3", "141.4")) != [told]
    assert spoken(page.replace("Where speculation", "Speculation")) == []


def test_the_campaign_is_of_real_generations_and_large_enough_for_a_verdict() -> None:
    campaign = Campaign(ROOT / "receipts" / NAME)
    header, receipts = campaign.header(), campaign.receipts()
    assert header.plan.blocks >= 6 and len(receipts) >= 48
    assert {receipt.request.sampler["temperature"] for receipt in receipts} == {0.7}
    good = [receipt for receipt in receipts if receipt.outcome == "ok"]
    assert all(receipt.text and receipt.text.characters > 20 for receipt in good)
    assert all(receipt.model["synthetic"] is False for receipt in good)


def test_with_one_seed_every_arm_but_the_lossy_one_wrote_the_same_tokens() -> None:
    """What README says: 72 prompts at temperature 0.7, and the sentinel of every window."""
    texts: dict[tuple[int, int], set[str | None]] = {}
    for receipt in Campaign(ROOT / "receipts" / NAME).receipts():
        assert receipt.text is not None
        if receipt.cell.arm == "Q":
            continue
        texts.setdefault((receipt.cell.rung, receipt.cell.seed), set()).add(receipt.text.ids_digest)
    assert len(texts) == 72 + 1
    assert all(len(digests) == 1 and None not in digests for digests in texts.values())


def test_the_readme_says_of_the_clock_what_was_measured() -> None:
    told = json.loads((ROOT / "reports" / "client-timing.json").read_text())["headline"]
    page = (ROOT / "README.md").read_text()
    for name in ("ours", "floor", "best_peer"):
        for which in ("median", "p99"):
            assert f"{told[f'{name}_{which}_us']:.0f} µs" in page, (name, which)
    assert told["best_peer"] in page and told["events_per_s"] == 1000


def test_the_readme_says_of_large_campaigns_what_was_measured() -> None:
    told = json.loads((ROOT / "reports" / "reading.json").read_text())
    said = (
        f"{told['receipts']:,} receipts are loaded, analysed and drawn in {told['first_s']:.1f} s and"
        f" {told['peak_mb'] / 1000:.2f} GB on two cores, and in {told['second_s']:.1f} s the second time"
    )
    assert said in " ".join((ROOT / "README.md").read_text().split())


def test_an_arm_against_itself_clears_its_sealed_bars_and_is_called_nothing() -> None:
    found = analysis.analyse(ROOT / "receipts" / "aa-cpu")
    assert [(bar.outcome, bar.sealed) for bar in found.bars] == [("met", True)] * 4
    words = {one.verdict.word for one in found.comparisons}
    assert words <= {"undecided", "equivalent"}, "noise alone must make no difference"
    (primary,) = found.primary
    assert primary.estimate and primary.estimate.low and primary.estimate.high
    assert primary.estimate.low < 1 < primary.estimate.high
