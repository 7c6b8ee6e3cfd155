"""Numbers, verdicts and Markdown cells in words: rounding, units and escapes, each in one place."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from battery.analyse.findings import Findings
from battery.analyse.numerals import figure as figure
from battery.analyse.numerals import percent as percent
from battery.analyse.speed import Comparison, Level
from battery.analyse.stats import Estimate
from battery.render.marks import bare

_GIGA = 1e9
_NUMBER = re.compile(r"^(&lt; |> )?[+−]?[\d.,]+( (%|s|GB))?$|^—$")


def cell(text: object) -> str:
    """Text as one cell of a GitHub table: pipes escaped, no line breaks, no markup of its own."""
    told = " ".join(str(text).split())
    return told.replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;") or "—"


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A GitHub table; columns of nothing but numbers stand to the right."""
    body = [[cell(text) for text in row] for row in rows]
    rule = [
        "---:"
        if set(column) - {"—"} and all(_NUMBER.match(bare(text)) for text in column)
        else "---"
        for column in ([row[place] for row in body] for place in range(len(head)))
    ]
    lines = [[cell(text) for text in head], rule, *body]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def amount(value: float | None, metric: str) -> str:
    """A metric's value in the unit that tables use."""
    if value is not None and metric == "peak_memory":
        return figure(value / _GIGA)
    return figure(value)


def unit(findings: Findings, metric: str) -> str:
    """That unit."""
    return "GB" if metric == "peak_memory" else findings.measure(metric).unit


def change(ratio: float | None, fine: bool = False) -> str:
    """A ratio as a signed change in percent; what rounds to zero has no sign."""
    if ratio is None:
        return "—"
    told = f"{100 * (ratio - 1):+.{2 if fine else 1}f}"
    if not told.strip("+-0."):
        told = told[1:]
    return f"{told} %".replace("-", "−")


def confidence(findings: Findings) -> str:
    """The level of every interval, which the plan's stopping rule sets: `95 %`, or `98.2 %` with four close looks."""
    return f"{100 * (1 - findings.plan.stopping.alpha):.3g} %"


def interval(estimate: Estimate | None) -> str:
    """Ratio and its interval, as changes in percent; finer where one decimal would blur an end."""
    if estimate is None:
        return "—"
    if estimate.low is None or estimate.high is None:
        return f"{change(estimate.ratio)} [no interval]"
    ends = (estimate.low, estimate.high)
    fine = ends[1] - ends[0] < 0.005 or any(abs(end - 1) < 0.0005 for end in ends)
    low, high = (change(end, fine).removesuffix(" %") for end in ends)
    return f"{change(estimate.ratio, fine)} [{low}, {high}]"


def verdict(one: Comparison) -> str:
    """The verdict as a table prints it; a pilot prints none, and a screen's are marked."""
    if one.verdict.word == "pilot":
        return "none (pilot)"
    told = f"{one.verdict.word} {one.verdict.qualifier}".strip()
    if not one.exploratory or one.verdict.word in ("not comparable", "invalid"):
        return told
    return f"{told} (exploratory: {one.correction or 'one comparison'})"


def level(one: Level | None, of: int | None = None) -> str:
    """An arm's own value: geometric mean, range of single requests, and their number `of` all, where some have none."""
    if one is None or one.value is None:
        return one.why if one and one.why else "—"
    low, high = amount(one.smallest, one.metric), amount(one.largest, one.metric)
    return f"{amount(one.value, one.metric)} ({low}–{high}) n={one.n}{f' of {of}' if of and one.n < of else ''}"


def requests(findings: Findings) -> int:
    """How many timed requests every arm has at a rung, however they ended."""
    return findings.blocks_complete * findings.plan.seeds


def titled(text: str) -> str:
    """A metric's title as the beginning of a line; abbreviations stay as they are."""
    return text[:1].upper() + text[1:]


def seconds(value: float | None) -> str:
    """A duration."""
    return "—" if value is None else f"{value:,.1f} s"


def gigabytes(value: float | None) -> str:
    """Bytes as GB (10⁹)."""
    return "—" if value is None else f"{value / _GIGA:,.2f} GB"


def counts(found: dict[str, int]) -> str:
    """Words with how often they came."""
    return ", ".join(f"{word} {count}" for word, count in found.items()) or "—"


def pvalue(p: float | None) -> str:
    """A probability; what is below .0001 is said to be."""
    if p is None:
        return "—"
    return "< .0001" if p < 1e-4 else f"{p:.4f}".lstrip("0") if p < 1 else "1"


def flat(table: dict[str, object], at: str = "") -> list[tuple[str, str]]:
    """A nested table as dotted paths with their values in words."""
    found: list[tuple[str, str]] = []
    for key, value in table.items():
        path = f"{at}.{key}" if at else str(key)
        if isinstance(value, dict):
            found += flat(value, path)
        else:
            found.append((path, "—" if value is None else str(value)))
    return found
