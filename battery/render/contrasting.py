"""What `diff` prints: what differs between two campaigns, their estimates side by side, and what may be pooled."""

from __future__ import annotations

import math
from typing import Any

from battery.analyse.contrast import Contrast, Row
from battery.analyse.rows import MEASURES
from battery.render import combining, words

_LONGEST = 60


def lines(found: Contrast) -> list[str]:
    """The whole answer, a line each."""
    one, other = found.names
    told = [f"{one} and {other}, {100 * (1 - found.alpha):.3g} % intervals"]
    for name, seal in zip(found.names, found.seals, strict=True):
        told.append(f"  {name}: {f'seal {seal}' if seal else 'not sealed'}")
    told += ["", "What differs:" if found.settings else "What differs: nothing that is kept."]
    rows = [
        (each.part, each.field, _value(each.one), _value(each.other)) for each in found.settings
    ]
    told += _aligned([("part", "field", one, other), *rows]) if rows else []
    told += [f"  note: {note}" for note in found.notes]
    if found.rows:
        told += ["", f"Ratios to {found.control}, and {other} / {one} as a ratio of ratios:"]
        ordered = sorted(found.rows, key=lambda row: not row.primary)
        head = ("candidate", "metric", "context", one, other, "other / one", "p", "")
        told += _aligned([head, *map(_row, ordered)])
        told += [f"  {_what(row)}: not compared: {row.why}" for row in ordered if row.why]
        told.append(
            "  agree: inside the margin by two one-sided tests; undecided: neither shown; p after Holm"
        )
    told.append("")
    if found.refused:
        told.append("May not be pooled into one ratio:")
        return told + [f"  {why}" for why in found.refused]
    told.append("May be pooled:")
    return told + [
        f"  {line}" if line else line for line in (combining.lines(found.pooled) if found.pooled else [])
    ]  # fmt: skip


def _what(row: Row) -> str:
    """Candidate, metric and context of a row."""
    return f"{row.candidate} {MEASURES[row.metric].title} at {row.rung:,}"


def _row(row: Row) -> tuple[str, ...]:
    """One comparison as cells."""
    title = MEASURES[row.metric].title
    apart = row.apart
    between = "—"
    if apart is not None and math.isfinite(apart.high):
        between = combining.ratio_of(apart.ratio, apart.low, apart.high)
    return (
        row.candidate, f"{title} (primary)" if row.primary else title, f"{row.rung:,}",
        f"{words.interval(row.one)} {row.verdicts[0]}", f"{words.interval(row.other)} {row.verdicts[1]}",
        between, words.pvalue(row.p_corrected),
        f"{row.agreement} within {100 * row.margin:g} %" if row.agreement == "agree" else row.agreement,
    )  # fmt: skip


def _value(value: Any) -> str:
    """A setting in words, cut where it is long."""
    told = "—" if value is None else str(value)
    return told if len(told) <= _LONGEST else f"{told[: _LONGEST - 1]}…"


def _aligned(rows: list[tuple[str, ...]]) -> list[str]:
    """Rows of cells as lines with columns under each other."""
    widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]
    return [
        "  "
        + "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
