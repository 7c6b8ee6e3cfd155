"""The chart of a speculative rate: tokens per step against steps per second, a panel per kind of text.

Both axes are logarithmic, so that arms of one decode rate lie on one straight line, and a gain in the one that is paid
for in full by the other moves along it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from battery.analyse.findings import Findings
from battery.analyse.mechanism import COST, GAIN
from battery.analyse.speed import Level
from battery.analyse.workloads import ByWorkload
from battery.render import ladder, layout, scales, style, words
from battery.render.chart import Chart, of
from battery.render.style import Look

_ONE = 0.0005
"""What tokens per step may differ from one by, where nothing is drafted."""


class Point(msgspec.Struct, frozen=True, kw_only=True):
    """A value with its interval, and every window's own value by its number."""

    value: float
    low: float
    high: float
    windows: dict[int, float]

    @property
    def ends(self) -> tuple[float, ...]:
        """All that must be in the picture."""
        return (self.value, self.low, self.high, *self.windows.values())


class Mark(msgspec.Struct, frozen=True, kw_only=True):
    """One arm on one kind of text."""

    arm: str
    place: int
    """Of the arm."""
    gain: Point
    """Tokens per step."""
    steps: Point
    """Steps per second."""


def _point(one: Level | None) -> Point | None:
    """A level as a point; None without a value. Without an interval its ends are the value."""
    if one is None or one.value is None:
        return None
    low, high = (one.value if end is None else end for end in (one.low, one.high))
    return Point(value=one.value, low=low, high=high, windows=dict(one.windows))


def steps_per_second(one: Level | None) -> Point | None:
    """The inverse of seconds per step: geometric means and their intervals turn over exactly."""
    seconds = _point(one)
    if seconds is None:
        return None
    return Point(
        value=1 / seconds.value, low=1 / seconds.high, high=1 / seconds.low,
        windows={number: 1 / value for number, value in seconds.windows.items()},
    )  # fmt: skip


def marks(findings: Findings, kind: ByWorkload) -> list[Mark]:
    """Every arm of which both counts are known on this kind of text, at the context of the primary endpoint."""
    rung, found = findings.plan.anchor, []
    for place, arm in enumerate(findings.arms):
        gain = _point(kind.level(arm.arm.name, GAIN, rung))
        steps = steps_per_second(kind.level(arm.arm.name, COST, rung))
        if gain and steps:
            found.append(Mark(arm=arm.arm.name, place=place, gain=gain, steps=steps))
    return found


def charts(findings: Findings) -> dict[str, Chart]:
    """The chart by its key, where a server counts steps: by kind of text, or for one kind where any arm speculates."""
    every = [one for kind in _kinds(findings) for one in marks(findings, kind)]
    if findings.by_workload:
        return {workloads.__name__: of(workloads, _told)} if every else {}
    speculates = any(abs(one.gain.value - 1) > _ONE for one in every)
    return {speculation.__name__: of(speculation, _told)} if speculates else {}


def _kinds(findings: Findings) -> tuple[ByWorkload, ...]:
    """Every kind of text; the whole campaign where there is one only."""
    whole = ByWorkload(workload=findings.plan.mix[0], levels=findings.levels, comparisons=())
    return findings.by_workload or (whole,)


def _told(findings: Findings) -> str:
    """Alternative text: every mark in words."""
    parts = []
    for kind in _kinds(findings):
        known = {one.arm: one for one in marks(findings, kind)}
        points = [
            f"arm {name} {one.gain.value:.3g} tokens per step at {one.steps.value:.3g} steps per second"
            if (one := known.get(name))
            else f"arm {name} without counts"
            for name in (arm.arm.name for arm in findings.arms)
        ]
        told = "; ".join(points) if known else "no arm counts steps"
        parts.append(f"On {kind.workload}: {told}.")
    by = ", by kind of text" if findings.by_workload else ""
    at = f"at {findings.plan.anchor:,} tokens of context"
    return f"Tokens per step against steps per second {at}{by}. {' '.join(parts)}"


def workloads(findings: Findings) -> Figure:
    """Tokens per step against steps per second, by kind of text; up and to the right more tokens come a second.

    Both axes are logarithmic and the grey lines join equal decode rates, in tok/s, the dashed one that of the control:
    an arm beyond it decodes more tokens a second, whatever its steps cost. Both counts are the servers' own.
    """
    return _drawn(findings, "by workload")


def speculation(findings: Findings) -> Figure:
    """Tokens per step against steps per second; up and to the right more tokens come a second.

    Both axes are logarithmic and the grey lines join equal decode rates, in tok/s, the dashed one that of the control:
    an arm beyond it decodes more tokens a second, whatever its steps cost. Both counts are the servers' own.
    """
    return _drawn(findings, "")


def _drawn(findings: Findings, what: str) -> Figure:
    """A panel per kind of text, all of one scale, in rows of four at most."""
    kinds = _kinds(findings)
    every = [one for kind in kinds for one in marks(findings, kind)]
    spans = (
        scales.span([end for one in every for end in one.gain.ends]),
        scales.span([end for one in every for end in one.steps.ends]),
    )
    columns = len(kinds) if len(kinds) <= 4 else 3
    rows = -(-len(kinds) // columns)
    top, plot, between = 1.3, 3.0 if rows == 1 else 2.2, 0.45
    low = 0.85 + layout.LEGEND_ROW * layout.legend_rows(findings)
    height = top + rows * plot + (rows - 1) * between + low
    figure = Figure(figsize=(style.WIDTH, height))
    title = f"Tokens per step × steps per second at {findings.plan.anchor:,} tokens"
    single = ladder.dotted(findings, (GAIN,))
    how = _how(findings, single, len(every) < len(kinds) * len(findings.arms))
    layout.heading(figure, layout.titled(f"{title}, {what}" if what else title, findings), how)
    left, gap = 0.8, 0.22
    width = (style.WIDTH - left - 0.3 - gap * (columns - 1)) / columns
    for place, kind in enumerate(kinds):
        row, column = divmod(place, columns)
        at = height - top - row * (plot + between) - plot
        axes = layout.axes(figure, left + column * (width + gap), at, width, plot)
        own = marks(findings, kind)
        _panel(axes, own, *spans, single)
        there = {one.place for one in own}
        _absent(axes, [place for place in range(len(findings.arms)) if place not in there])
        if findings.by_workload:
            axes.set_title(kind.workload, fontsize=style.NORMAL, color=style.INK, pad=8)
        axes.tick_params(labelleft=not column, labelbottom=place + columns >= len(kinds))
        if not column:
            axes.set_ylabel("steps per second", labelpad=4)
    # one title for all, in the middle of the figure's foot
    middle = left + (style.WIDTH - left - 0.3) / 2
    layout.text(
        figure, middle, low - 0.45, "tokens per step", ha="center", fontsize=style.NORMAL, color=style.INK
    )  # fmt: skip
    layout.legend(figure, findings)
    return figure


def _how(findings: Findings, single: bool, absent: bool) -> str:
    """What the marks are."""
    parts = ["point: geometric mean", f"bars: {words.confidence(findings)} t intervals"]
    parts += ["pale: single windows"] if single else []
    parts += ["grey: tok/s, dashed: the control's"]
    return "; ".join([*parts, "✕: no counts"] if absent else parts)


def _absent(axes: Axes, places: Sequence[int]) -> None:
    """A cross at the edge for every arm without counts."""
    for number, place in enumerate(places):
        axes.plot(
            [0.03 + 0.05 * number], [0.0], linestyle="none", marker="x", markersize=8, markeredgewidth=2,
            color=Look(place).colour, transform=axes.transAxes, clip_on=False, zorder=5,
        )  # fmt: skip


def _panel(
    axes: Axes, shown: Sequence[Mark], across: tuple[float, float], up: tuple[float, float],
    single: bool,
) -> None:  # fmt: skip
    """One kind of text: lines of equal rate below, then `single` windows or none, intervals and means."""
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(*across)
    axes.set_ylim(*up)
    axes.grid(False)
    for axis, (low, high) in ((axes.xaxis, across), (axes.yaxis, up)):
        axis.set_major_locator(FixedLocator(scales.ticks(low, high)))
        axis.set_minor_locator(NullLocator())
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.tick_params(length=3, pad=4)
    _rates(axes, across, up, next((one for one in shown if one.place == 0), None))
    for one in reversed(shown):  # the control last, on top of what equals it
        look = Look(one.place)
        shared = [n for n in one.gain.windows if single and n in one.steps.windows]
        ladder.dots(
            axes, [one.gain.windows[n] for n in shared], [one.steps.windows[n] for n in shared], look.colour
        )  # fmt: skip
        for ends, fixed, along in (
            ((one.gain.low, one.gain.high), one.steps.value, True),
            ((one.steps.low, one.steps.high), one.gain.value, False),
        ):
            pair = (fixed, fixed)
            axes.plot(
                *((ends, pair) if along else (pair, ends)),
                color=look.colour,
                linewidth=1.4,
                zorder=4,
            )
        axes.plot(
            [one.gain.value], [one.steps.value], marker=look.marker, markersize=8, color=look.colour,
            markeredgecolor="white", linestyle="none", zorder=5,
        )  # fmt: skip
    if not shown:
        axes.text(
            0.5, 0.5, "no arm counts steps", transform=axes.transAxes, ha="center", color=style.QUIET
        )  # fmt: skip


def _rates(
    axes: Axes, across: tuple[float, float], up: tuple[float, float], control: Mark | None
) -> None:
    """Lines of equal decode rate, each with its figure where it leaves the panel, and dashed that of the control."""
    for rate in scales.between(across[0] * up[0], across[1] * up[1]):
        x, y = _through(rate, across, up)
        axes.plot(x, y, color=style.GRID, linewidth=1.0, zorder=1)
        beside = math.log(across[1] / x[1]) / math.log(across[1] / across[0])
        above = math.log(y[1] / up[0]) / math.log(up[1] / up[0])
        if (beside < 0.01 and above < 0.07) or 0.01 <= beside < 0.12:
            continue  # in the corner there is no room
        axes.annotate(
            f"{rate:g}", (x[1], y[1]), xytext=(-2, -3) if beside < 0.01 else (3, 2), textcoords="offset points",
            fontsize=style.SMALL, color=style.QUIET, ha="right" if beside < 0.01 else "left",
            va="top" if beside < 0.01 else "bottom", zorder=2,
        )  # fmt: skip
    if control is not None:
        x, y = _through(control.gain.value * control.steps.value, across, up)
        axes.plot(x, y, color=style.QUIET, linewidth=1.1, linestyle=(0, (4, 3)), zorder=2)


def _through(
    rate: float, across: tuple[float, float], up: tuple[float, float]
) -> tuple[tuple[float, float], tuple[float, float]]:
    """Where the line of a decode rate enters and leaves a panel: both abscissae, both ordinates."""
    x = (max(across[0], rate / up[1]), min(across[1], rate / up[0]))
    return x, (rate / x[0], rate / x[1])
