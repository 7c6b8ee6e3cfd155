"""The receipts behind the page as one block of JSON: what a click goes down to.

Every value is a string that is shown as it stands: nothing is rounded or computed in the browser.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from battery.analyse.exhibits import Exhibit
from battery.analyse.findings import Findings
from battery.render import words
from battery.render.html.tags import Markup
from battery.render.marks import Source

MOST_RECEIPTS = 2500
"""Receipts that a page carries; of a campaign with more it shows blocks and windows, and says where the rest is."""
COLUMNS = (
    "receipt", "file", "sha256", "arm", "block", "attempt", "window", "context", "seed", "workload", "sentinel",
    "pooled", "outcome", "reason", "figures", "facts", "evidence",
)  # fmt: skip


def block(
    findings: Findings, exhibits: Sequence[Exhibit] | None, sources: Sequence[Source]
) -> Markup:
    """The JSON as a script element holds it: no text in it can end the element."""
    told = json.dumps(
        document(findings, exhibits, sources), ensure_ascii=False, separators=(",", ":")
    )
    for sign in "<>&\u2028\u2029":
        told = told.replace(sign, f"\\u{ord(sign):04x}")
    return Markup(told)


def document(
    findings: Findings, exhibits: Sequence[Exhibit] | None, sources: Sequence[Source]
) -> dict[str, Any]:
    """Columns and rows of the receipts, the words of the metrics, and what each figure rests on.

    A row's figures stand in the order of `metrics`, its facts in that of `facts`; what it has not is empty.
    """
    facts = list(dict.fromkeys(name for one in exhibits or () for name in one.facts))
    titles = {
        one.name: one.title
        + (f", {unit}" if (unit := words.unit(findings, one.name)) != "1" else "")
        for one in findings.measures
    }
    return {
        "folder": f"receipts/{findings.campaign}",
        "count": findings.receipts,
        "metrics": titles,
        "facts": facts,
        "columns": COLUMNS,
        "receipts": None if exhibits is None else [_row(one, titles, facts) for one in exhibits],
        "sources": [_source(one, exhibits) for one in sources],
    }


def _row(one: Exhibit, titles: Iterable[str], facts: Iterable[str]) -> list[Any]:
    """One receipt."""
    figures = [
        words.amount(one.figures[name], name) if name in one.figures else "" for name in titles
    ]
    told = [one.facts.get(name, "") for name in facts]
    return [
        one.sequence, one.file, one.sha256, one.arm, one.block, one.attempt, one.window, f"{one.rung:,}", one.seed,
        one.workload, int(one.sentinel), int(one.pooled), one.outcome, one.reason, figures, told, one.evidence,
    ]  # fmt: skip


def _source(one: Source, exhibits: Sequence[Exhibit] | None) -> dict[str, Any]:
    """What a figure rests on; empty parts are left out."""
    numbers = one.receipts
    if not numbers and one.where and exhibits is not None:
        numbers = tuple(
            exhibit.sequence
            for exhibit in exhibits
            if all(getattr(exhibit, column) in values for column, values in one.where)
        )
    parts = {
        "title": one.title,
        "figure": one.figure,
        "said": one.said,
        "metric": one.metric,
        "n": len(numbers),
        "receipts": ranges(numbers) if exhibits is not None else "",
        "files": [list(pair) for pair in one.files],
        "by": one.by,
        "groups": [[group.value, group.title, group.figure] for group in one.groups],
    }
    return {name: value for name, value in parts.items() if value}


def ranges(numbers: Sequence[int]) -> str:
    """Numbers with neighbours drawn together: `1-3,7`."""
    told: list[list[int]] = []
    for number in sorted(set(numbers)):
        if told and number == told[-1][1] + 1:
            told[-1][1] = number
        else:
            told.append([number, number])
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in told)
