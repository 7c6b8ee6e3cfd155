"""Foreign findings for a terminal: one table of the comparisons, then what weakens each of them."""

from __future__ import annotations

from rich.table import Table
from rich.text import Text

from battery.analyse.foreign.estimates import Contrast
from battery.analyse.foreign.findings import Comparison, ForeignFindings
from battery.analyse.foreign.wording import difference
from battery.analyse.rows import MEASURES
from battery.analyse.stats import Estimate
from battery.render import words

_COLUMNS = (
    "metric", "context", "arms", "verdict", "ratio [95 %]", "by seed", "by round", "naive", "pairs",
)  # fmt: skip


def table(found: ForeignFindings) -> Table:
    """Every comparison in a row: verdict, the ratio it rests on, then all three estimates beside each other."""
    made = Table(box=None)
    for column in _COLUMNS:
        made.add_column(column)
    for one in found.comparisons:
        verdict = f"{one.verdict} {one.qualifier}".strip()
        row = (
            MEASURES[one.metric].title, context(one.context), f"{one.candidate} / {one.control}", verdict,
            ratio_of(one),
            ratio(one.by_seed), ratio(one.by_round), ratio(one.naive), str(one.pairs),
        )  # fmt: skip
        made.add_row(*(Text(cell) for cell in row))
    return made


def lines(found: ForeignFindings) -> list[str]:
    """Per comparison its verdict and why, its differences and its warnings; then what holds for the whole file."""
    told = []
    for one in found.comparisons:
        why = f": {one.why}" if one.why else ""
        title = MEASURES[one.metric].title
        told += [
            "",
            f"{title} at {place(one.context)}, {one.candidate} against {one.control}: {one.verdict}"
            f"{f' {one.qualifier}' if one.qualifier else ''}{why}",
            f"  method: {one.method}",
            *_differences(one),
            *(f"  ! {warning}" for warning in one.warnings),
        ]
    return [
        *told,
        "",
        *(
            f"null: {MEASURES[one.metric].title}: {one.why} ({one.format})"
            for one in found.unmeasured
        ),
        *(f"note: {note}" for note in found.notes),
    ]


def place(tokens: int | None) -> str:
    """Tokens of context as a sentence tells them."""
    return "a context that is not told" if tokens is None else f"{tokens:,} tokens"


def context(tokens: int | None) -> str:
    """Tokens of context as a table tells them."""
    return "unknown" if tokens is None else f"{tokens:,}"


def _differences(one: Comparison) -> list[str]:
    """The difference in the metric's own unit, as paired naively and as clustered."""
    named = (("naive pairing", one.naive), ("by seed", one.by_seed), ("by round", one.by_round))
    parts = [f"{name} {difference(found, MEASURES[one.metric])}" for name, found in named if found]
    return [f"  difference: {'; '.join(parts)}"] if parts else []


def ratio_of(one: Comparison) -> str:
    """The ratio that the verdict rests on."""
    if one.ratio is None:
        return "—"
    return words.interval(Estimate(blocks=one.pairs, ratio=one.ratio, low=one.low, high=one.high))


def change_of(one: Contrast | None) -> str:
    """A contrast as a change in percent with its interval."""
    if one is None:
        return "—"
    return words.interval(Estimate(blocks=one.units, ratio=one.ratio, low=one.low, high=one.high))


def ratio(one: Contrast | None) -> str:
    """The same with its units."""
    return "—" if one is None else f"{change_of(one)} n={one.units}"
