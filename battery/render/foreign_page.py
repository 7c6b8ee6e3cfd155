"""Foreign findings as a Markdown page that the report linter accepts: verdicts first, then what weakens each of them.

Every figure stands in a table. The prose claims nothing: what an import shows is in the verdict column, with the reason
where there is none, and nothing of it is campaign evidence.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from battery.analyse.foreign.findings import Comparison, ForeignFindings
from battery.analyse.foreign.levels import Level
from battery.analyse.rows import MEASURES
from battery.render import words
from battery.render.foreign import change_of, context, ratio_of

_SHORT = 12
"""Digits of a digest that are shown."""


def page(found: ForeignFindings) -> str:
    """The whole page, the same text for the same findings."""
    parts = [
        f"# Imported values: {', '.join(found.candidates)} against {found.control}",
        "Measured by other tools and analysed by battery's rules. No order, cold prefill, quiet machine or engagement"
        " of switches is proved by such files, so these verdicts are weaker than those of a campaign; what weakens each"
        " of them is listed below it.",
        "## Verdicts",
        _verdicts(found.comparisons),
        "## What weakens them",
        _weaknesses(found.comparisons),
        "## What was measured",
        _levels(found.levels),
        *_unmeasured(found),
        "## Files",
        _files(found),
        "## What holds for all of it",
        words.table(("note",), [(note,) for note in found.notes]),
    ]
    return "\n\n".join(parts) + "\n"


def _verdicts(comparisons: Sequence[Comparison]) -> str:
    """Every comparison with its verdict, the ratio it rests on and both intervals."""
    head = (
        "metric",
        "context",
        "candidate",
        "verdict",
        "ratio [95 %]",
        "by seed",
        "by round",
        "pairs",
        "reason",
    )
    rows = [
        (
            MEASURES[one.metric].title, context(one.context), one.candidate, f"{one.verdict} {one.qualifier}".strip(),
            ratio_of(one), change_of(one.by_seed), change_of(one.by_round), one.pairs, one.why,
        )
        for one in comparisons
    ]  # fmt: skip
    return words.table(head, rows)


def _weaknesses(comparisons: Sequence[Comparison]) -> str:
    """A row for every weakness of a candidate, with the metrics and contexts that it is of."""
    found: dict[tuple[str, str], dict[str, list[str]]] = {}
    for one in comparisons:
        for told in (f"method: {one.method}", *one.warnings):
            places = found.setdefault((one.candidate, told), {})
            places.setdefault(MEASURES[one.metric].title, []).append(context(one.context))
    rows = [
        (candidate, "; ".join(f"{title} {' · '.join(at)}" for title, at in places.items()), told)
        for (candidate, told), places in found.items()
    ]
    return words.table(("candidate", "where", "reason"), rows)


def _levels(levels: Sequence[Level]) -> str:
    """Every arm's own values."""
    head = (
        "metric",
        "context",
        "arm",
        "unit",
        "geometric mean",
        "smallest",
        "largest",
        "rounds",
        "prompts",
        "values behind it",
    )
    return words.table(head, [_level(one) for one in levels])


def _level(one: Level) -> tuple[object, ...]:
    """One arm's row."""
    metric = MEASURES[one.metric]
    return (
        metric.title, context(one.context), one.arm, "GB" if one.metric == "peak_memory" else metric.unit,
        *(words.amount(value, one.metric) for value in (one.value, one.low, one.high)),
        "—" if one.rounds is None else one.rounds, "—" if one.seeds is None else one.seeds, one.behind,
    )  # fmt: skip


def _unmeasured(found: ForeignFindings) -> Iterator[str]:
    """The metrics that are null, if any."""
    if found.unmeasured:
        yield "## What was not measured"
        rows = [(MEASURES[one.metric].title, one.format, one.why) for one in found.unmeasured]
        yield words.table(("metric", "format", "reason"), rows)


def _files(found: ForeignFindings) -> str:
    """Every file with what it says of itself."""
    head = ("file", "sha256", "format", "version", "arms", "started", "load", "requests", "failed")
    rows = [
        (
            one.name, one.sha256[:_SHORT], one.format, one.version or "—", ", ".join(one.arms) or "—",
            one.started or "—", one.load or "—", *("—" if n is None else n for n in (one.requests, one.failed)),
        )
        for one in found.sources
    ]  # fmt: skip
    return words.table(head, rows)
