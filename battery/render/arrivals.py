"""Section 1.1.1: how long a reader waited between two pieces of text, as a chart and a table.

Known as inter-token latency, which it is only where every piece is one token; so tokens per piece stand beside it.
"""

from __future__ import annotations

import math
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from battery.analyse.findings import Findings
from battery.analyse.within import Gaps, known
from battery.render import layout, scales, sources, style, words
from battery.render.chart import Chart, embedded, of
from battery.render.marks import cited
from battery.render.style import Look
from battery.render.words import table

_SHARES = (1, 10, 100, 250, 500, 750, 900, 990, 999)
"""Per mille with a line of their own."""
_ROW = 0.235
"""Inches: a line of the figures beside the panel."""


def _found(findings: Findings) -> list[tuple[int, str, Gaps | None]]:
    """Place, name and gaps of every arm at the context of the primary endpoint."""
    within, rung = known(findings.within), findings.plan.anchor
    names = [arm.arm.name for arm in findings.arms]
    return [(place, name, within.gaps_of(name, rung)) for place, name in enumerate(names)]


def charts(findings: Findings) -> dict[str, Chart]:
    """The chart by its key, where any arm has gaps at the context of the primary endpoint; else none."""
    any_gaps = any(one is not None for _, _, one in _found(findings))
    return {itl.__name__: of(itl, _told)} if any_gaps else {}


def section(findings: Findings) -> str:
    """The chart and the table of every context; empty where no answer came in parts."""
    found = known(findings.within).gaps
    if not found:
        return ""
    rows = [
        (
            one.arm, f"{one.rung:,}", one.requests, f"{one.gaps:,}",
            cited(_milliseconds(one.median), sources.pooled(one.arm, one.rung)), _milliseconds(one.p99),
            _milliseconds(one.longest), words.figure(one.tokens, 3),
        )
        for one in found
    ]  # fmt: skip
    head = [
        "arm", "context", "requests", "gaps", "median, ms", "99th percentile, ms", "longest, ms",
        "tokens per arrival",
    ]  # fmt: skip
    how = (
        "Gaps between arrivals of text at the client, over the pooled cells; text that was read at one instant is one"
        " arrival. A gap is latency per token only where an arrival is one token. They describe; no verdict rests on"
        " them."
    )
    pictures = [embedded(findings, one) for one in charts(findings).values()]
    return "\n\n".join(["#### Gaps between arrivals", *pictures, how, table(head, rows)])


def _milliseconds(seconds: float | None) -> str:
    """Seconds as milliseconds."""
    return words.figure(None if seconds is None else 1e3 * seconds, 4)


def _told(findings: Findings) -> str:
    """Alternative text: median, 99th percentile and tokens per arrival of every arm."""
    parts = []
    for _, name, one in _found(findings):
        if one is None:
            parts.append(f"arm {name} {_why(findings, name)}")
            continue
        p99 = (
            "too few for a 99th percentile"
            if one.p99 is None
            else f"99th percentile {_milliseconds(one.p99)}"
        )
        tokens = (
            "tokens unknown"
            if one.tokens is None
            else f"{words.figure(one.tokens, 3)} tokens per arrival"
        )
        parts.append(f"arm {name} median {_milliseconds(one.median)}, {p99}, {tokens}")
    at = f"{findings.plan.anchor:,} tokens of context"
    return f"Gaps between arrivals of text at {at}, in milliseconds: {'; '.join(parts)}."


def _why(findings: Findings, arm: str) -> str:
    """Why an arm has no gap: how its cells ended, where they did not end well."""
    ended = findings.outcome(arm, findings.plan.anchor).ended
    return max(ended, key=lambda word: ended[word]) if ended else "no gap"


def itl(findings: Findings) -> Figure:
    """Gaps between arrivals of text at the primary context (ITL): the share of gaps that are no longer than that.

    To the left is better. A gap is what a reader waits; it is no latency per token where an arrival carries several
    tokens, as after a draft that was accepted.
    """
    found = _found(findings)
    rows = len(found) + 2
    top, plot, low = (
        1.3,
        max(2.9, rows * _ROW + 0.2),
        0.85 + layout.LEGEND_ROW * layout.legend_rows(findings),
    )
    figure = Figure(figsize=(style.WIDTH, top + plot + low))
    title = f"Gaps between arrivals of text at {findings.plan.anchor:,} tokens (ITL)"
    how = "marks: median and 99th percentile; both scales are stretched, so that rare long gaps are seen"
    layout.heading(figure, layout.titled(title, findings), how)
    wide = 4.9
    axes = layout.axes(figure, 0.9, low, wide, plot)
    _panel(axes, [(place, one) for place, _, one in found if one is not None])
    axes.set_title("share of gaps up to this long", fontsize=style.NORMAL, color=style.INK, pad=10)
    axes.set_xlabel("gap, ms", labelpad=6)
    beside = layout.axes(figure, 0.9 + wide + 0.25, low, style.WIDTH - wide - 1.35, plot)
    _figures(beside, findings, found, plot / _ROW)
    layout.legend(figure, findings)
    return figure


def _stretched(share: int) -> float:
    """Where a share in per mille stands: on the logarithm of its odds, which opens both ends."""
    return math.log(share / (1000 - share))


def _panel(axes: Axes, found: list[tuple[int, Gaps]]) -> None:
    """One rising line per arm."""
    values = [1e3 * gap for _, one in found for _, gap in one.curve] or [
        1e3 * one.median for _, one in found
    ]
    low, high = scales.span(values)
    axes.set_xscale("log")
    axes.set_xlim(low, high)
    axes.xaxis.set_major_locator(FixedLocator(scales.ticks(low, high, 6)))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.6g}"))
    shares = [share for _, one in found for share, _ in one.curve] or [500]
    ends = min([100, *shares]), max([900, *shares])
    axes.set_ylim(_stretched(ends[0]) - 0.35, _stretched(ends[1]) + 0.35)
    marked = [share for share in _SHARES if ends[0] <= share <= ends[1]]
    axes.set_yticks(
        [_stretched(share) for share in marked], [f"{share / 10:g} %" for share in marked]
    )
    axes.tick_params(length=0, pad=6)
    axes.grid(True, axis="x")
    for place, one in reversed(found):  # the control last, on top of what equals it
        look = Look(place)
        axes.plot(
            [1e3 * gap for _, gap in one.curve], [_stretched(share) for share, _ in one.curve],
            color=look.colour, linestyle=look.line, zorder=3,
        )  # fmt: skip
        marks = [(500, one.median), *([(990, one.p99)] if one.p99 is not None else [])]
        axes.plot(
            [1e3 * gap for _, gap in marks], [_stretched(share) for share, _ in marks], linestyle="none",
            marker=look.marker, color=look.colour, markeredgecolor="white", markersize=7.5, zorder=4,
        )  # fmt: skip


def _figures(
    axes: Axes, findings: Findings, found: list[tuple[int, str, Gaps | None]], rows: float
) -> None:
    """Median, 99th percentile and tokens per arrival, a line per arm, at the right of the panel."""
    axes.set_xlim(0, 1)
    axes.set_ylim(rows, 0)
    axes.axis("off")
    columns = ((0.4, "median\nms"), (0.7, "99 %\nms"), (1.0, "tokens at\nonce"))
    quiet: dict[str, Any] = {"fontsize": style.SMALL, "ha": "right", "va": "center"}
    for x, title in columns:
        axes.text(x, 0.9, title, color=style.QUIET, **quiet)
    for place, name, one in found:
        y, look = place + 2.5, Look(place)
        axes.plot([0.04], [y], marker=look.marker, color=look.colour, markersize=5.5, clip_on=False)
        if one is None:
            axes.text(
                0.14, y, f"✕ {_why(findings, name)}", color=style.INK, **{**quiet, "ha": "left"}
            )
            continue
        told = (_milliseconds(one.median), _milliseconds(one.p99), words.figure(one.tokens, 3))
        for (x, _), value in zip(columns, told, strict=True):
            axes.text(x, y, value, color=style.INK, **quiet)
