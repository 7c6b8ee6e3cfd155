"""What the tables of a page decided: one ruling per candidate, metric and context that has a verdict."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import get_args

import msgspec

from battery.analyse.rows import MEASURES
from battery.analyse.stats import Word
from battery.render.lint.numbers import numbers
from battery.render.lint.page import Table, plain
from battery.render.lint.rule import Report

_VERDICTS = (*get_args(Word), "none (pilot)")
_METRICS = {
    "decode": r"decod\w*|generation speed",
    "prefill": r"prefill\w*|prompt processing",
    "ttft": r"TTFT|time to (?:the )?first token",
    "peak_memory": r"memory",
}
"""Words for a metric beside its title."""


class Ruling(msgspec.Struct, frozen=True):
    """What a table (or the findings) decided of a candidate, metric and context; empty where it does not say which."""

    candidate: str
    metric: str
    context: str
    word: str


def metrics(text: str) -> tuple[str, ...]:
    """The metrics that a text names."""
    names = {
        name: "|".join(filter(None, (re.escape(one.title), _METRICS.get(name))))
        for name, one in MEASURES.items()
    }
    return tuple(
        name for name, words in names.items() if re.search(rf"(?<!\w)(?:{words})(?!\w)", text, re.I)
    )


def rulings(report: Report) -> tuple[Ruling, ...]:
    """Every verdict on the page; where findings have decided the same, theirs alone."""
    decided = {
        (one.candidate, one.metric, str(one.rung)): one.verdict.word
        for one in (report.findings.comparisons if report.findings else ())
    }
    told = [
        one
        for table in report.page.tables
        for one in _of_table(table)
        if (one.candidate, one.metric, one.context) not in decided
    ]
    return (*told, *(Ruling(*key, word) for key, word in decided.items()))


def _of_table(table: Table) -> Iterator[Ruling]:
    """The verdicts in columns of that title; candidate and metric from their columns, else from what leads there."""
    titles = [plain(title).casefold() for title in table.head.cells]
    context = table.column("context", "contexts", "rung", "tokens")
    named, metric = table.column("arm", "candidate"), table.column("metric", "endpoint")
    led = next((found[0] for text in table.lead if (found := metrics(text))), "")
    for place, title in enumerate(titles):
        if title != "verdict":
            continue
        ratio = next(
            (m[1] for head in reversed(table.head.cells[:place]) if (m := re.match(r"(\S+)\s*/\s*\S+", plain(head)))),
            "",
        )  # fmt: skip
        for row in table.rows:
            if len(row.cells) != len(titles):
                continue
            said = plain(row.cells[place]).casefold()
            word = next((one for one in _VERDICTS if said.startswith(one)), "")
            if word:
                own = metrics(plain(row.cells[metric])) if metric is not None else ()
                yield Ruling(
                    plain(row.cells[named]) if named is not None else ratio,
                    own[0] if own else led,
                    _tokens(plain(row.cells[context])) if context is not None else "",
                    word,
                )


def _tokens(text: str) -> str:
    """A context as a plain number; as written where it is none."""
    found = numbers(text)
    return str(int(found[0].value)) if found and not found[0].decimals else text


def title(metric: str) -> str:
    """A metric as tables call it."""
    return MEASURES[metric].title if metric else ""
