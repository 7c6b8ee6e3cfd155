"""The HTML page without a browser: the text of the Markdown, nothing obeyed, the same bytes, sources that are right."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import os
import re
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from graded import graded, line
from planted_pages import LOG, REASON, SCRIPT, Page, campaign
from synthetic import World, build

from battery.analyse.exhibits import exhibits
from battery.analyse.findings import Findings, analyse
from battery.analyse.rows import values
from battery.ledger.store import Campaign
from battery.render import style, words
from battery.render.charts import render_charts
from battery.render.html import data
from battery.render.html.cells import tone
from battery.render.html.data import ranges
from battery.render.html.page import page_of, write_page
from battery.render.marks import Source, bare, cited, citing
from battery.render.report import markdown, write_report
from battery.render.verify import verify

NAME = "2026-01-02-test"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = campaign(tmp_path_factory.mktemp("planted"), NAME)
    graded(made, "A", "humaneval", line(20, 2, 40))
    graded(made, "C", "humaneval", line(18, 2, 40))
    return made


@pytest.fixture(scope="module")
def found(folder: Path) -> Findings:
    return analyse(folder)


@pytest.fixture(scope="module")
def text(folder: Path, found: Findings) -> str:
    return page_of(folder, found)


@pytest.fixture(scope="module")
def told(text: str) -> dict[str, Any]:
    document = json.loads(Page(text).scripts[0])
    assert isinstance(document, dict)
    return document


def rows_of(page: str) -> list[list[list[str]]]:
    """Every table of a Markdown page, as a reader sees its cells."""
    tables: list[list[list[str]]] = []
    before = ""
    for row in page.splitlines():
        if row.startswith("|"):
            if not before.startswith("|"):
                tables.append([])
            if not re.fullmatch(r"\|( -+:? \|)+", row):
                tables[-1].append([seen(cell) for cell in re.split(r"(?<!\\)\|", row)[1:-1]])
        before = row
    return tables


def seen(cell: str) -> str:
    """A cell of Markdown as it is read: escapes undone, signs of emphasis and code away, images and links as text."""
    told = re.sub(r"!\[([^\]]*)\]\([^)]*\)", r"\1", cell)
    return html.unescape(re.sub(r"\\([\\|])", r"\1", told)).replace("`", "").replace("**", "").strip()  # fmt: skip


def test_every_cell_of_the_markdown_stands_in_the_page(text: str, found: Findings) -> None:
    shown = [[[cell.strip() for cell in row] for row in table] for table in Page(text).tables]
    wanted = [
        [[cell.replace("\ue000", "\ufffd").replace("\ue001", "\ufffd").replace("\ue002", "\ufffd") for cell in row]
         for row in table]
        for table in rows_of(markdown(found))
    ]  # fmt: skip
    assert len(shown) == len(wanted) > 15
    for mine, theirs in zip(shown, wanted, strict=True):
        assert mine == theirs


def test_every_line_of_prose_and_every_number_stands_in_the_page(
    text: str, found: Findings
) -> None:
    said = " ".join("".join(Page(text).prose).split())
    page = markdown(found)
    for row in page.splitlines():
        if row and not row.startswith(("|", "![", "<", "```", "#")):
            told = re.sub(r"^- |[*`]", "", html.unescape(row))
            assert "�" in told or "\ue000" in told or " ".join(told.split()) in said, row


def test_marks_leave_no_trace_in_the_markdown(found: Findings, text: str) -> None:
    with citing() as sources:
        marked = markdown(found)
    plain = markdown(found)
    assert len(sources) > 30 and len(marked) > len(plain)
    assert marked != plain
    clean = plain.replace("\ue0000\ue001forged\ue002", "forged")
    assert bare(marked) == clean, "the planted mark goes with ours; every other byte stays"
    assert cited("7", Source(title="x")) == "7"
    assert not re.search("[\ue000-\ue002]", text.split('<script type="application/json"')[0])


def test_it_is_well_formed(text: str) -> None:
    page = Page(text)
    assert page.faults == []
    ids = [attrs["id"] for _, attrs in page.elements if "id" in attrs]
    assert len(ids) == len(set(ids))
    assert page.headings[0] == 1 and page.headings.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(page.headings))
    names = {attrs["href"] for name, attrs in page.elements if name in ("a", "use")}
    assert {f"#{one}" for one in ids} >= names
    assert ("html", {"lang": "en"}) in page.elements and "<title>" in text
    charts = [attrs for name, attrs in page.elements if name == "svg" and attrs.get("role") == "img"]  # fmt: skip
    told = dict(re.findall(r'<desc id="([^"]+)">([^<]{40,})</desc>', text))
    assert len(charts) >= 7 and {one["aria-labelledby"] for one in charts} == set(told)
    assert not {"width", "height"} & {name for one in charts for name in one}
    assert style.LIGHT.keys() == style.DARK.keys()
    assert text.count("--chart-paper:") == 1, "one rule gives every chart its colours"


def test_nothing_that_an_engine_said_is_obeyed(text: str, told: dict[str, Any]) -> None:
    page = Page(text)
    names = [name for name, _ in page.elements]
    assert names.count("script") == 2 and "img" not in names and "iframe" not in names
    for _, attrs in page.elements:
        assert not [key for key in attrs if key.startswith("on")]
        link = attrs.get("href") or attrs.get("src") or ""
        assert link.startswith(("#", "data:,")) or not link
    policy = next(attrs["content"] for name, attrs in page.elements if "http-equiv" in attrs) or ""
    digest = base64.b64encode(hashlib.sha256(page.scripts[1].encode()).digest()).decode()
    assert "default-src 'none'" in policy and f"script-src 'sha256-{digest}'" in policy
    assert html.escape(SCRIPT) in text
    columns = told["columns"]
    failed = next(row for row in told["receipts"] if row[columns.index("outcome")] == "oom")
    assert failed[columns.index("evidence")]["log_tail"] == LOG
    assert failed[columns.index("reason")] == REASON
    buttons = {int(attrs["data-source"] or -1) for _, attrs in page.elements if "data-source" in attrs}  # fmt: skip
    assert buttons <= set(range(len(told["sources"]))) and "forged" in text


def test_a_figure_leads_to_the_receipts_that_the_findings_name(
    found: Findings, told: dict[str, Any]
) -> None:
    titles = {one["title"]: one for one in told["sources"]}
    for level in found.levels:
        if level.value is None or level.metric not in ("decode", "prefill", "ttft", "peak_memory"):
            continue
        metric = found.measure(level.metric).title
        one = titles[f"{level.arm}, {metric} at {level.rung:,} tokens of context"]
        assert one["receipts"] == ranges(level.receipts) and one["n"] == len(level.receipts)
        assert [group[0] for group in one["groups"]] == [number for number, _ in level.windows]
    for one in found.comparisons:
        metric = found.measure(one.metric).title
        title = f"{one.candidate} against {one.control}, {metric} at {one.rung:,} tokens of context"
        source = titles[title]
        if one.receipts:
            assert source["receipts"] == ranges(one.receipts)
            assert [(group[0], group[2]) for group in source["groups"]] == [
                (block, words.change(ratio, fine=True)) for block, ratio in one.by_block
            ]
        else:
            assert source["n"] == 24, "both arms, two seeds, six blocks"


def test_every_receipt_is_there_with_its_digest_and_its_own_figures(
    folder: Path, told: dict[str, Any]
) -> None:
    store = Campaign(folder)
    at = {name: place for place, name in enumerate(told["columns"])}
    shown = {row[at["receipt"]]: row for row in told["receipts"]}
    assert sorted(shown) == sorted(store.numbers())
    for path, receipt in zip(store.paths(), store.receipts(), strict=True):
        row = shown[receipt.sequence]
        assert row[at["file"]] == path.name
        assert row[at["sha256"]] == hashlib.sha256(path.read_bytes()).hexdigest()
        assert row[at["outcome"]] == receipt.outcome and row[at["seed"]] == receipt.cell.seed
        known = {
            name: words.amount(value, name) for name, value in values(receipt).items() if value is not None
        }  # fmt: skip
        figures = dict(zip(told["metrics"], row[at["figures"]], strict=True))
        assert {name: figure for name, figure in figures.items() if figure} == known
        facts = dict(zip(told["facts"], row[at["facts"]], strict=True))
        assert facts["prompt tokens"] == str(receipt.trace.prompt_tokens)
    assert {one.sequence for one in exhibits(folder) if one.pooled} == {
        row[at["receipt"]] for row in told["receipts"] if row[at["pooled"]]
    }


def test_gaps_lead_to_the_cells_that_are_pooled(told: dict[str, Any]) -> None:
    one = next(
        x for x in told["sources"] if x["title"] == "C at 128 tokens of context: pooled cells"
    )
    column = {name: place for place, name in enumerate(told["columns"])}
    wanted = [
        row[column["receipt"]]
        for row in told["receipts"]
        if (row[column["arm"]], row[column["context"]]) == ("C", "128")
        and row[column["pooled"]]
        and not row[column["sentinel"]]
    ]
    assert one["n"] == len(wanted) == 12 and one["receipts"] == ranges(wanted)


def test_the_answers_of_a_quality_figure_are_named_with_their_digests(
    folder: Path, told: dict[str, Any]
) -> None:
    titles = {source["title"]: source for source in told["sources"]}
    alone = next(
        one["files"] for title, one in titles.items() if title.startswith("A on humaneval")
    )
    both = titles["C against A, pass@1 on humaneval"]["files"]
    assert len(alone) == 2 and len(both) == 4 and alone == both[:2]
    for name, digest in both:
        assert hashlib.sha256((folder / name).read_bytes()).hexdigest() == digest


def test_the_verdict_stands_first(text: str, found: Findings) -> None:
    head = text.split("<h2>Verdicts</h2>")[1].split("</ul>")[0]
    assert '<span class="badge">not comparable</span>' in head
    assert '<span class="who">Quality: C against A</span>' in head
    assert re.search(r'<span class="figure"><b>−[\d.]+ points</b> <small>\[', head)
    assert tone("faster by at least 2 %") == "good" and tone("slower") == "bad"
    assert tone("undecided") == "open" and tone("equivalent within 2 %") == "same"
    assert tone("quality: not run") == "warn" and tone("quality, digest 12ab") is None
    assert tone("fast") is None and tone("lower is better; " * 20) is None


def test_the_same_receipts_give_the_same_bytes_in_any_process(folder: Path, text: str) -> None:
    code = (
        "import sys, hashlib\nfrom pathlib import Path\nfrom battery.analyse.findings import analyse\n"
        "from battery.render.html.page import page_of\nfolder = Path(sys.argv[1])\n"
        "print(hashlib.sha256(page_of(folder, analyse(folder)).encode()).hexdigest())"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(folder)], capture_output=True, text=True, check=True,
        env={**os.environ, "PYTHONHASHSEED": "77", "TZ": "Asia/Tokyo", "LC_ALL": "C"},
    )  # fmt: skip
    assert done.stdout.strip() == hashlib.sha256(text.encode()).hexdigest()


def test_400_receipts_fit_into_a_page_that_mails_well(tmp_path: Path) -> None:
    arms = ("A", "B", "C")
    world = World(arms=arms, ladder=(128, 384, 1024), blocks=6, seeds=7, speculates=arms)
    folder = build(tmp_path, world, "large")
    found = analyse(folder)
    assert found.receipts == 396
    assert len(page_of(folder, found).encode()) < 1_500_000


def test_above_the_limit_it_carries_blocks_and_says_so(
    folder: Path, found: Findings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(data, "MOST_RECEIPTS", found.receipts - 1)
    text = page_of(folder, found)
    told = json.loads(Page(text).scripts[0])
    assert told["receipts"] is None and not any("receipts" in one for one in told["sources"])
    assert any(one.get("groups") for one in told["sources"])
    assert f"The {found.receipts} receipts are too many for one page" in text


def test_verify_holds_the_page_against_the_receipts(folder: Path, found: Findings) -> None:
    root = folder.parents[1]
    render_charts(found, root / "charts" / NAME)
    write_report(found, root / "reports")
    assert verify(root, NAME) == [], "a page that is not there says nothing wrong"
    path = write_page(folder, found, root / "reports")
    assert verify(root, NAME) == []
    whole = path.read_text()
    place = whole.index("<td", whole.index("1.2 Prefill"))
    digit = place + re.search(r"\d", whole[place:]).start()  # type: ignore[union-attr]
    path.write_text(f"{whole[:digit]}{(int(whole[digit]) + 1) % 10}{whole[digit + 1 :]}")
    (problem,) = verify(root, NAME)
    assert problem.place.startswith(f"reports/{NAME}.html:") and "the receipts give" in problem.what
    path.write_text(whole.replace('"oom"', '"ok"', 1))
    (problem,) = verify(root, NAME)
    assert problem.place.startswith(f"reports/{NAME}.html:")


@pytest.mark.parametrize(
    "world",
    [
        World(arms=("A",), ladder=(128,), blocks=1, seeds=1),
        World(blocks=2),
        World(change=lambda receipt: None, seal=False),
        World(arms=tuple("ABCDEFGH"), blocks=8, seeds=1),
    ],
    ids=["one arm", "pilot", "nothing", "eight"],
)
def test_every_kind_of_campaign_has_a_page(world: World, tmp_path: Path) -> None:
    folder = build(tmp_path, world, NAME)
    found = analyse(folder)
    text = page_of(folder, found)
    page = Page(text)
    assert page.faults == []
    assert len(page.tables) == len(rows_of(markdown(found)))
    assert not re.search(r"\b(nan|None|undefined)\b", "".join(page.prose))
