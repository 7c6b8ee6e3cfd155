"""Rules about counts: equal numbers of requests side by side, and where every number of the prose comes from."""

from __future__ import annotations

import re
from collections.abc import Iterator

from battery.ledger.receipt import OUTCOMES
from battery.render.lint.numbers import Stated, numbers
from battery.render.lint.page import Table, plain
from battery.render.lint.rule import Found, Report, rule

_N = re.compile(r"\bn\s*=\s*(\d[\d,]*)(?P<of>\s+of\s+\d[\d,]*)?")
_ENDED = re.compile(rf"\b(?:{'|'.join(word for word in OUTCOMES if word != 'ok')})\b")
_K_OF_N = re.compile(r"\b[\d,]+ of [\d,]+\b")
_KEYS = ("context", "contexts", "rung", "tokens", "metric", "suite", "phase", "block", "workload")


@rule(
    "equal-n",
    "arms that a table sets side by side rest on the same number of requests, or the table says why not",
)
def equal_n(report: Report) -> Iterator[Found]:
    """Every `n=` of a row, and of rows that differ in nothing but the arm."""
    for table in report.page.tables:
        arm = table.column("arm")
        if arm is None:
            for row in table.rows:
                yield from _side_by_side(table, row.line, row.cells)
            continue
        yield from _one_above_the_other(table)


def _side_by_side(table: Table, line: int, cells: tuple[str, ...]) -> Iterator[Found]:
    """Arms in columns: unequal n need an outcome or “of m” in the row, and pairs counted as k of n."""
    counts = [match for cell in cells if (match := _N.search(cell))]
    if len({match[1] for match in counts}) < 2:
        return
    told = ", ".join(match.group() for match in counts)
    if not _ENDED.search(" ".join(cells)) and not any(match["of"] for match in counts):
        what = f"the arms rest on different numbers of requests ({told}) and nothing says why"
        yield line, what, "say how the other cells ended, as k of n"
        return
    for title, cell in zip(table.head.cells, cells, strict=False):
        if plain(title).casefold() == "pairs" and not _K_OF_N.search(cell):
            what = f"unequal numbers of requests ({told}), and the pairs are not told as k of n"
            yield line, what, "write the pairs compared of those planned"


def _one_above_the_other(table: Table) -> Iterator[Found]:
    """Arms in rows: the same column at the same context, or a column that is called n."""
    keys = [place for name in _KEYS if (place := table.column(name)) is not None]
    number = table.column("n", "n requests")
    known: dict[tuple[str, ...], dict[int, str]] = {}
    for row in table.rows:
        if len(row.cells) != len(table.head.cells):
            continue
        seen = known.setdefault(tuple(row.cells[place] for place in keys), {})
        for place, cell in enumerate(row.cells):
            match = _N.search(cell)
            count = match[1] if match else cell if place == number else None
            if count is None or (match and match["of"]) or _ENDED.search(" ".join(row.cells)):
                continue
            first = seen.setdefault(place, count)
            if first != count:
                what = f"n={count} here, n={first} in another arm's row, and nothing says why"
                yield (
                    row.line,
                    what,
                    "compare equal numbers, or say how the other cells ended, as k of n",
                )
                break


@rule("numbers-in-tables", "every number of the prose stands in a table of the same page")
def numbers_in_tables(report: Report) -> Iterator[Found]:
    """Numbers of paragraphs, lists, captions and headings that no table has."""
    cells = [
        text
        for table in report.page.tables
        for row in (table.head, *table.rows)
        for text in row.cells
    ]
    stated = Stated(cells)
    for passage in report.page.passages:
        text = passage.text
        if passage.kind == "heading":
            # a title that is one word is a campaign's name; a heading begins with its own number
            if len(text.split()) < 2 and passage.level == 1:
                continue
            text = re.sub(r"^\s*\d+(\.\d+)*\.?(?=\s)", lambda match: " " * len(match.group()), text)
        for number in numbers(text):
            if not stated.holds(number):
                told = " ".join(f"{text[number.start : number.end]} {number.unit}".split())
                what = f"{told} stands in no table"
                yield (
                    passage.at(number.start),
                    what,
                    "add it to a table, or take it out of the prose",
                )
