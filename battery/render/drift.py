"""The drift diagnostics of section 1.5, one per row: their numbers stand nowhere else."""

from __future__ import annotations

from collections.abc import Iterator

from battery.analyse.drift import Sentinel
from battery.analyse.findings import Findings
from battery.analyse.order import Order
from battery.render import sources, words
from battery.render.marks import cited
from battery.render.words import change, pvalue, table

Row = tuple[str, str]


def section(findings: Findings) -> str:
    """The diagnostics, and the readings that block ratios may go with."""
    rows = [
        *_orders(findings),
        *_sentinels(findings),
        *_level(findings),
        *_warm_ups(findings),
        *_self(findings),
    ]
    parts = [
        "Was the machine steady? Shown and flagged; no estimate is adjusted, and nothing is left out. Intervals are at"
        f" {words.confidence(findings)}.",
        table(["diagnostic", "value"], rows),
    ]
    return "\n\n".join(part for part in (*parts, _covariates(findings)) if part)  # fmt: skip


def _range(ratio: float | None, low: float | None, high: float | None, fine: bool = True) -> str:
    """A ratio with its interval."""
    return f"{change(ratio, fine)} ({change(low, fine)} to {change(high, fine)})"


def _flag(flagged: bool, told: str) -> str:
    """What a flag says, behind a figure."""
    return f", flagged: {told}" if flagged else ""


def _orders(findings: Findings) -> Iterator[Row]:
    """Per candidate the order effect, the ratio without it, and the independence of blocks."""
    for one in findings.drift.order:
        yield f"order effect, {one.candidate} (ratio when it runs second)", _order(one)
        if one.adjusted is not None:
            told = _range(one.adjusted, one.adjusted_low, one.adjusted_high)
            yield (
                f"ratio of {one.candidate} without the order effect",
                f"{told}; no verdict uses it",
            )
        if one.durbin_watson is not None:
            told = f"Durbin-Watson {one.durbin_watson:.2f}, Ljung-Box p {pvalue(one.ljung_box_p)}"
            yield f"blocks of {one.candidate} one after another", told


def _order(one: Order) -> str:
    """The order effect in words."""
    if one.ratio is None:
        return f"not computed: {one.why}"
    return _range(one.ratio, one.low, one.high) + _flag(one.flagged, "the interval excludes 0")


def _sentinels(findings: Findings) -> Iterator[Row]:
    """Per arm its sentinel; per candidate whether its text is the control's."""
    for one in findings.drift.sentinels:
        yield cited(f"sentinel of {one.arm}", sources.sentinels(findings, one.arm)), _sentinel(one)
    texts = {one.arm: one.digest for one in findings.drift.sentinels}
    for candidate in findings.candidates:
        if texts.get(candidate) and texts.get(findings.control):
            same = "the" if texts[candidate] == texts[findings.control] else "not the"
            yield f"sentinel text of {candidate}", f"{same} same as {findings.control}'s"


def _sentinel(one: Sentinel) -> str:
    """One sentinel in words."""
    told = (
        f"not computed: {one.why}"
        if one.bracket is None or one.last_first is None
        else f"bracket (largest against smallest) {change(1 + one.bracket)}, last against first"
        f" {change(1 + one.last_first)}"
    )
    texts = "text" if one.texts == 1 else "different texts"
    return f"{told}; {one.texts} {texts} in {one.windows} windows"


def _level(findings: Findings) -> Iterator[Row]:
    """The level in time: drift and step."""
    trend, step = findings.drift.trend, findings.drift.step
    yield (
        "level drift",
        (
            f"not computed: {trend.why}"
            if trend.per_window is None
            else f"{change(1 + trend.per_window, True)} per window, Kendall p {pvalue(trend.kendall_p)}"
        ),
    )
    if step.window is None or step.share is None:
        yield "step of the level", f"not computed: {step.why}"
        return
    of = "the sentinels" if step.series == "sentinel" else "block means"
    told = f"likeliest at window {step.window} ({change(1 + step.share, True)}), CUSUM of {of} p {pvalue(step.p)}"
    yield "step of the level", told + _flag(step.flagged, "the level changed there")


def _warm_ups(findings: Findings) -> Iterator[Row]:
    """Per arm and metric the first seed against the rest."""
    for one in findings.drift.warm_ups:
        what = f"first seed against the rest, {one.arm}, {findings.measure(one.metric).title}"
        if one.ratio is None:
            yield what, f"not computed: {one.why}"
            continue
        told = f"{_range(one.ratio, one.low, one.high)}, p after Holm {pvalue(one.p_corrected)}, {one.windows} windows"
        yield what, told + _flag(one.flagged, "raise warm_up_tokens")


def _self(findings: Findings) -> Iterator[Row]:
    """The arms against themselves."""
    test = findings.drift.self_test
    yield (
        f"arms against themselves, {test.pairs} neighbouring pairs",
        (
            f"not computed: {test.why}"
            if test.low is None or test.high is None
            else f"{_range(test.ratio, test.low, test.high, False)}, p {pvalue(test.p)} (the change of prompts between"
            " blocks is in it)"
        ),
    )


def _covariates(findings: Findings) -> str:
    """Readings against block ratios, with how many were looked at; empty where none varies."""
    found = findings.drift.covariates
    if not found:
        return ""
    rows = [
        (one.candidate, one.reading, one.blocks, f"{one.rho:+.2f}".replace("-", "−"), pvalue(one.p)) for one in found
    ]  # fmt: skip
    how = (
        "Does the ratio of a block go with how the machine was? Spearman's rank correlation with each reading before"
        " the cells, candidate minus control; p is for one look, and every row below is a look."
    )
    head = ["arm", "reading", "blocks", "rho", f"p (one of {len(found)})"]
    return f"{how}\n\n{table(head, rows)}"
