"""The body of a pull request: whole tables for GitHub's Markdown, folded sections that close, a length that fits."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from calls import Said
from markdown_it import MarkdownIt
from markdown_it.token import Token
from synthetic import World, build

from battery.analyse.findings import Findings, analyse
from battery.ledger.errors import InputError
from battery.ledger.receipt import Receipt
from battery.render import pull_request, report
from battery.render.lint.check import lint

ROOT = Path(__file__).parents[2]
PIPE = re.compile(r"(?<!\\)\|")
RULER = re.compile(r"^\|( -+:? \|)+$", re.M)


def hostile(receipt: Receipt) -> Receipt:
    """One cell that failed with words that would break a table, close a fold and open a fence."""
    if (receipt.cell.arm, receipt.cell.block, receipt.cell.place) != ("C", 2, 1):
        return receipt
    words = "a | b\n\n</details>\n```\n| c | <details> \\| d"
    return msgspec.structs.replace(receipt, outcome="error", reason=words)


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Findings:
    world = World(
        arms=("A", "C", "D"),
        effect={"C": 1.05, "D": 0.9},
        speculates=("C",),
        change=hostile,
        ladder=(128, 384),
        seeds=1,
        blocks=6,
    )
    return analyse(build(tmp_path_factory.mktemp("found"), world, "wide"))


def parsed(text: str) -> list[Token]:
    """The text as GitHub's Markdown reads it: CommonMark with tables and HTML."""
    return MarkdownIt("commonmark", {"html": True}).enable("table").parse(text)


def tables(text: str) -> list[list[int]]:
    """Cells per row of every table that the renderer sees, by the pipes of its source lines, the ruler among them."""
    lines = text.split("\n")
    return [
        [
            len(PIPE.split(line.strip().strip("|").strip()))
            for line in lines[token.map[0] : token.map[1]]
        ]
        for token in parsed(text)
        if token.type == "table_open" and token.map
    ]


def check(text: str) -> None:
    """Every table is whole, no row stands outside one, and every fold closes, one inside the other at most."""
    found = tables(text)
    assert len(found) == len(RULER.findall(text)) > 3
    for rows in found:
        assert len(set(rows)) == 1 and len(rows) >= 3
    rendered = MarkdownIt("commonmark", {"html": True}).enable("table").render(text)
    for table in re.findall(r"<table>.*?</table>", rendered, re.S):
        head = len(re.findall(r"<th\b", table))
        rows = re.findall(r"<tr>.*?</tr>", table, re.S)[1:]
        assert rows and all(len(re.findall(r"<td\b", row)) == head for row in rows)
    for token in parsed(text):
        if token.type == "inline" and not _in_table(token, text):
            assert not PIPE.search(token.content), f"a pipe outside a table: {token.content[:80]}"
    depth = 0
    for tag in re.findall(
        r"</?details\b", "".join(t.content for t in parsed(text) if t.type == "html_block")
    ):
        depth += 1 if tag == "<details" else -1
        assert 0 <= depth <= 2
    assert depth == 0
    assert len(re.findall(r"<details", rendered)) == len(re.findall(r"</details>", rendered))


def _in_table(token: Token, text: str) -> bool:
    """Whether a piece of text is a cell: it has no lines of its own, or its line begins and ends with a pipe."""
    if token.map is None:
        return True
    line = text.split("\n")[token.map[0]]
    return line.startswith("|") and line.endswith("|")


def test_the_renderer_sees_what_breaks() -> None:
    """The check itself: each of these is what it must not let pass."""
    good = "| a | b |\n| --- | --- |\n| 1 | 2 |\n"
    four = "\n".join([good] * 4)
    check(f"<details><summary>x</summary>\n\n{four}\n</details>\n")
    for bad in (
        f"<details><summary>x</summary>\n{four}\n</details>\n",  # no blank line: the first table is HTML
        f"{four}\n<details>\n\nx\n",
        f"{four}\n\n</details>\n\n<details>\n",
        f"{four}\n| 3 | 4 |\n\nx | y\n",
        four.replace("| 1 | 2 |", "| 1 | 2 | 3 |", 1),
        four.replace("| 1 | 2 |", "| 1 |", 1),
    ):
        with pytest.raises(AssertionError):
            check(bad)


def test_a_whole_body(found: Findings) -> None:
    text = pull_request.body(found)
    check(text)
    assert len(text) < pull_request.LIMIT and "Left out for length" not in text
    assert lint(text, found) == []
    assert len(tables(text)) == len(tables(report.markdown(found)))
    first = text.split("\n")
    assert first[0] == "# wide" and first[2].startswith("- C against A, decode at 384 tokens")
    assert text.index("- Quality:") < text.index("<details")
    assert f"battery verify {found.campaign}" in text and found.seal and found.seal in text


def test_every_block_is_the_reports_own(found: Findings) -> None:
    """Nothing is computed apart: what is no fold, no link and no heading stands in the report."""
    page = set(report.markdown(found).split("\n"))
    own = [
        line
        for line in pull_request.body(found, base="..").split("\n")
        if line not in page and not line.startswith(("<details", "</details>"))
    ]
    assert own == ["## The evidence, section by section"]


@pytest.mark.parametrize(
    ("base", "start"),
    [
        (".", "./charts/wide/"),
        ("../..", "../../charts/wide/"),
        ("https://raw.example.org/o/r/branch/", "https://raw.example.org/o/r/branch/charts/wide/"),
    ],
)
def test_charts_are_linked_from_where_the_text_will_stand(
    found: Findings, base: str, start: str
) -> None:
    links = re.findall(r"!\[[^\]]+\]\(([^)]+)\)", pull_request.body(found, base))
    assert len(links) > 5 and all(link.startswith(start) for link in links)
    assert {link.removeprefix(start) for link in links} >= {"summary.svg", "decode.svg"}


@pytest.mark.parametrize("base", ["", "a b", "x)y", "<x>", 'a"b', "x\n"])
def test_a_base_that_would_break_a_link_is_refused(found: Findings, base: str) -> None:
    with pytest.raises(InputError, match="--base"):
        pull_request.body(found, base)


def test_what_does_not_fit_is_left_out_in_order_and_named(found: Findings) -> None:
    whole = pull_request.body(found)
    seen = []
    limit = len(whole)
    while True:
        try:
            text = pull_request.body(found, limit=limit)
        except InputError as refused:
            assert f"more than {limit:,}" in str(refused) and "reports/wide.md" in str(refused)
            break
        assert len(text) <= limit
        check(text)
        assert lint(text, found) == [], limit
        told = re.search(
            r"^Left out for length: (.+)\. They stand in `reports/wide\.md`\.$", text, re.M
        )
        seen.append(told[1].split(", ") if told else [])
        assert "- C against A" in text and "Section 5: Validity findings" in text
        assert "Section 1: Results" in text and "Seal of the receipts" in text
        limit = len(text) - 1
    assert seen == [seen[-1][:count] for count in range(len(seen))]
    assert seen[-1] == [
        "the estimates by other methods",
        "section 1.5 (The interleaved windows)",
        "section 1.6 (Speculation)",
        "section 2 (Method)",
        "section 1.4 (Long contexts and other outcomes)",
        "section 3 (Switches)",
    ]


def test_many_arms_and_contexts_still_fit(tmp_path: Path) -> None:
    world = World(
        arms=("A", "B", "C", "D", "E", "F"),
        ladder=tuple(range(128, 128 * 13, 128)),
        blocks=6,
        seeds=1,
    )
    found = analyse(build(tmp_path, world, "broad"))
    assert len(report.markdown(found)) > pull_request.LIMIT
    text = pull_request.body(found)
    assert len(text) < 60_000 and "Left out for length: " in text
    check(text)
    assert lint(text, found) == []


@pytest.mark.parametrize("name", ["speculation-cpu", "fixed-ac"])
def test_a_committed_campaign(name: str) -> None:
    found = analyse(ROOT / "receipts" / name)
    text = pull_request.body(found)
    check(text)
    assert lint(text, found) == [] and len(text) < 60_000


def test_the_verb(published: Path, tmp_path: Path, say: Callable[..., Said]) -> None:
    said = say(published, "pr", "calm")
    assert said.returncode == 0 and said.stdout.startswith("# calm\n"), said.stderr
    path = tmp_path / "body.md"
    again = say(published, "pr", "calm", "--output", str(path))
    assert again.returncode == 0 and path.read_text() == said.stdout
    assert say(published, "lint", str(path), "--campaign", "calm").returncode == 0
    assert say(published, "pr", "clam").returncode == 2
    assert say(published, "pr", "calm", "--base", "a b").returncode == 2


def test_two_campaigns_side_by_side(published: Path, say: Callable[..., Said]) -> None:
    said = say(published, "diff", "calm", "brisk")
    assert (
        said.returncode == 2
        and "calm and brisk may not be pooled: brisk: the prompts of calm again" in said.stderr
    )
    assert "What differs: nothing that is kept." in said.stdout and "brisk / calm" in said.stdout
    found = msgspec.json.decode(say(published, "diff", "calm", "brisk", "--json").stdout)
    assert found["names"] == ["calm", "brisk"] and found["pooled"] is None
    assert {row["metric"] for row in found["rows"]} >= {"decode", "prefill", "ttft"}
    assert "are one campaign" in say(published, "diff", "calm", "receipts/calm").stderr
