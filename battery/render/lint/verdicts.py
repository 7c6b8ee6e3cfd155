"""What was decided of each candidate, metric and context: by the findings, else by the tables of the page.

Findings outrank the page. With them the page's own verdicts on the campaign's arms decide nothing, and a verdict cell
that says something else than they do is a violation itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from decimal import Decimal
from typing import get_args

import msgspec

from battery.analyse.findings import Findings
from battery.analyse.rows import MEASURES
from battery.analyse.speed import Comparison
from battery.analyse.stats import Word
from battery.render import words
from battery.render.lint.figures import Change
from battery.render.lint.numbers import intervals, numbers, value
from battery.render.lint.page import Row, Table, plain
from battery.render.lint.rule import Report

_VERDICTS = {**{word: word for word in get_args(Word)}, "none (pilot)": "pilot"}
_METRICS = {
    "decode": r"decod\w*|generation speed",
    "prefill": r"prefill\w*|prompt processing",
    "ttft": r"TTFT|time to (?:the )?first token",
    "peak_memory": r"memory",
}
"""Words for a metric beside its title."""
_BOUND = re.compile(r"\bat least (\d+(?:\.\d+)?) ?%")


class Ruling(msgspec.Struct, frozen=True):
    """What a table (or the findings) decided of a candidate, metric and context; empty where it does not say which."""

    candidate: str
    metric: str
    context: str
    word: str
    change: Change | None = None
    """The figure behind it; None where it is not told beside the verdict."""
    workload: str = ""
    """The kind of text that it is of alone; empty for all that the campaign measured."""


class Told(msgspec.Struct, frozen=True):
    """A verdict as a table tells it: the ruling, the cell's words, and its row."""

    ruling: Ruling
    text: str
    row: Row
    place: int


def metrics(text: str) -> tuple[str, ...]:
    """The metrics that a text names, the first named first."""
    found = []
    for name, one in MEASURES.items():
        told = "|".join(filter(None, (re.escape(one.title), _METRICS.get(name))))
        if match := re.search(rf"(?<!\w)(?:{told})(?!\w)", text, re.I):
            found.append((match.start(), -len(match.group()), name))
    return tuple(name for *_, name in sorted(found))


def rulings(report: Report) -> tuple[Ruling, ...]:
    """The verdicts that count: with findings theirs, and the page's only on arms that they do not know."""
    own = [told.ruling for table in report.page.tables for told in verdict_cells(table)]
    if report.findings is None:
        return tuple(own)
    known = {"", report.findings.control, *report.findings.candidates}
    strangers = [one for one in own if one.candidate not in known]
    metric = report.findings.plan.primary.metric
    looks = [
        Ruling(seen.candidate, metric, look_at(look.block), seen.word)
        for look in report.findings.stopped.looks
        for seen in look.seen
    ]
    return (*strangers, *looks, *map(_found, report.findings.comparisons))


def look_at(blocks: object) -> str:
    """What stands for the context in a ruling that is an interim look's: it supports a claim about that look alone."""
    return f"look after {blocks} blocks"


def _found(one: Comparison) -> Ruling:
    """A comparison of the findings."""
    change = None
    if one.estimate is not None:
        share, low, high = (
            None if ratio is None else Decimal(repr(ratio)) * 100 - 100
            for ratio in (one.estimate.ratio, one.estimate.low, one.estimate.high)
        )
        change = Change(share or Decimal(0), low, high, Decimal(repr(one.margin)) * 100)
    return Ruling(one.candidate, one.metric, str(one.rung), one.verdict.word, change)


def verdict_cells(table: Table) -> Iterator[Told]:
    """The verdicts in columns of that title; candidate and metric from their columns, else from what leads there."""
    titles = [plain(title).casefold() for title in table.head.cells]
    for place, head in enumerate(titles):
        if head != "verdict":
            continue
        ratio = next((at for at in range(place - 1, -1, -1) if _of(table.head.cells[at])), None)
        for row in table.rows:
            if len(row.cells) != len(titles):
                continue
            said = plain(row.cells[place])
            word = next((one for one in _VERDICTS if said.casefold().startswith(one)), "")
            if word:
                candidate, metric, context = subject(table, row)
                if not candidate and ratio is not None:
                    candidate = _of(table.head.cells[ratio])
                change = _change(row.cells[ratio], said) if ratio is not None else None
                kind = table.column("workload")
                workload = plain(row.cells[kind]) if kind is not None else ""
                told = Ruling(candidate, metric, context, _VERDICTS[word], change, workload)
                yield Told(told, said, row, place)


def subject(table: Table, row: Row) -> tuple[str, str, str]:
    """Candidate, metric and context of a row, from the columns of that title; the metric else from what leads there."""
    context = table.column("context", "contexts", "rung", "tokens")
    named, metric = table.column("arm", "candidate"), table.column("metric", "endpoint")
    cells = dict(enumerate(row.cells))
    own = metrics(plain(cells.get(metric, ""))) if metric is not None else ()
    led = next((found[0] for text in table.lead if (found := metrics(text))), "")
    at = _tokens(plain(cells.get(context, ""))) if context is not None else ""
    blocks = table.column("blocks")
    if blocks is not None and table.column("half width") is not None:
        at = look_at(plain(cells.get(blocks, "")))
    return plain(cells.get(named, "")) if named is not None else "", own[0] if own else led, at


def _of(title: str) -> str:
    """The candidate of a title such as “C / A [95 %]”; empty where it is none."""
    found = re.match(r"(\S+)\s*/\s*\S+", plain(title))
    return found[1] if found else ""


def _change(cell: str, said: str) -> Change | None:
    """The estimate and its interval as a ratio's cell tells them."""
    text = plain(cell)
    stated = numbers(text)
    if not stated or stated[0].unit != "%":
        return None
    between = next(iter(intervals(text)), None)
    low, high = (value(between.low), value(between.high)) if between else (None, None)
    margin = _BOUND.search(said)
    return Change(stated[0].signed, low, high, Decimal(margin[1]) if margin else None)


def contradictions(report: Report) -> Iterator[tuple[int, str]]:
    """Verdict cells that are not what the findings decided: line and what is wrong; none without findings."""
    findings = report.findings
    if findings is None:
        return
    known = {"", findings.control, *findings.candidates}
    for table in report.page.tables:
        for told in verdict_cells(table):
            one = told.ruling
            if one.candidate not in known:
                continue
            if _looked(findings, one):
                continue
            wrong = [x for x in _meant(findings, one) if not _same(x, told)]
            if wrong or not _meant(findings, one):
                found = ", ".join(dict.fromkeys(words.verdict(x) for x in wrong))
                of = name(one.candidate, one.metric, one.context) or "every row"
                yield (
                    told.row.line,
                    (
                        f"the table says “{told.text}” of {of}, and the findings say {found or 'nothing'}"
                    ),
                )


def _meant(findings: Findings, one: Ruling) -> list[Comparison]:
    """The comparisons that a ruling speaks of: all that what it leaves out may be."""
    kinds = (kind.comparisons for kind in findings.by_workload if kind.workload == one.workload)
    pool = next(kinds, ()) if one.workload else findings.comparisons
    return [
        x for x in pool
        if one.candidate in ("", x.candidate) and one.metric in ("", x.metric) and one.context in ("", str(x.rung))
    ]  # fmt: skip


def _same(one: Comparison, told: Told) -> bool:
    """Whether a cell says the comparison's verdict, and no bound that it does not have."""
    bound = "at least" in told.text
    return one.verdict.word == told.ruling.word and (
        not bound or told.text.startswith(f"{one.verdict.word} {one.verdict.qualifier}")
    )


def _looked(findings: Findings, one: Ruling) -> bool:
    """Whether a verdict is that of an interim look after so many blocks."""
    return any(
        (look_at(look.block), seen.candidate, seen.word) == (one.context, one.candidate, one.word)
        for look in findings.stopped.looks
        for seen in look.seen
    )


def _tokens(text: str) -> str:
    """A context as a plain number; as written where it is none."""
    found = numbers(text)
    return str(int(found[0].value)) if found and not found[0].decimals else text


def name(arm: str, metric: str, context: str) -> str:
    """A candidate, a metric and a context as tables call them, without those that are empty."""
    parts = (
        arm,
        MEASURES[metric].title if metric else "",
        f"at {int(context):,}" if context.isdecimal() else context,
    )
    return " ".join(part for part in parts if part)
