"""The charts of quality: pass rates, and pass rates against speed; `quality_change` has the third.

A campaign in which no arm was asked has none of them. Bars begin at zero; arms are told apart by marker as well as by
colour, and solid from outlined by fill, so that grey print loses nothing.
"""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from battery.analyse.findings import Findings
from battery.analyse.quality import Row
from battery.render import layout, quality_change, style, suites
from battery.render.chart import Chart, of
from battery.render.quality import share_of
from battery.render.style import Look


def _rows(findings: Findings) -> list[tuple[int, Row]]:
    """Every row with the place of its arm, suite by suite."""
    places = {arm.arm.name: place for place, arm in enumerate(findings.arms)}
    quality = findings.graded
    return [(places[row.arm], row) for row in quality.rows] if quality else []


def charts(findings: Findings) -> dict[str, Chart]:
    """The charts that a campaign's quality has anything for, by key, in the order of the page; none without it."""
    found = [
        (_rows(findings), of(quality, _told_rows)),
        (_points(findings), of(decode_quality, _told_points)),
        (quality_change.compared(findings), of(quality_change.quality_change, quality_change.told)),
    ]
    return {one.key: one for shown, one in found if shown}


def _told_rows(findings: Findings) -> str:
    """Alternative text of the pass rates."""
    told = [
        f"{row.suite}, arm {row.arm}: strict {share_of(row.strict)}, completed-task {share_of(row.completed)},"
        f" cut off {share_of(row.truncation)}"
        for _, row in _rows(findings)
    ]
    return f"Pass@1 by suite and arm. {'; '.join(told)}."


def quality(findings: Findings) -> Figure:
    """Pass@1 by suite and arm: strict as solid bars, completed-task as outlines; beside them the share cut off.

    The line below a bar is the 95 % interval of the strict rate.
    """
    found = _rows(findings)
    at, size = suites.placed([row.suite for _, row in found])
    foot = 0.75 + layout.LEGEND_ROW * layout.legend_rows(findings)
    figure = Figure(figsize=(style.WIDTH, suites.TOP + size + foot))
    how = "solid: strict, line below: its 95 % interval; outlined: completed-task; cut off: ended at the token limit"
    layout.heading(figure, layout.titled("Tasks passed, pass@1", findings), how)
    bars = layout.axes(figure, 1.25, foot, 3.6, size)
    cut = layout.axes(figure, 6.5, foot, 1.2, size)
    for axes in (bars, cut):
        axes.set_ylim(size / suites.ROW, 0)
        axes.grid(True, axis="x")
        axes.grid(False, axis="y")
        axes.tick_params(length=0, pad=6)
        axes.set_yticks([])
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:.4g} %"))
    ends = [
        0.01,
        *(
            value
            for _, row in found
            for value in (row.strict.high, row.completed.value)
            if value is not None
        ),
    ]
    bars.set_xlim(0, min(1.0, 1.1 * max(ends)))
    cut.set_xlim(0, max(0.01, 1.15 * max((row.truncation.value or 0) for _, row in found)))
    bars.xaxis.set_major_locator(MaxNLocator(5))
    cut.xaxis.set_major_locator(MaxNLocator(2, min_n_ticks=2))
    for y, (place, row) in zip(at, found, strict=True):
        _bar(bars, cut, y, place, row)
    suites.named(bars, at, [row.suite for _, row in found])
    for axes, title in ((bars, "pass@1"), (cut, "cut off")):
        axes.set_title(title, fontsize=style.NORMAL, color=style.INK, pad=8)
    bars.text(
        1.04, 1.0, "strict · completed", transform=bars.transAxes, fontsize=style.SMALL, va="bottom", color=style.QUIET
    )  # fmt: skip
    layout.legend(figure, findings)
    return figure


def _bar(bars: Axes, cut: Axes, y: float, place: int, row: Row) -> None:
    """One arm's bars with their figures."""
    look, strict, completed = Look(place), row.strict, row.completed
    top = y - 0.08
    for axes, one in ((bars, strict), (cut, row.truncation)):
        if one.value is None:
            _gone(axes, 0.0, top, look)
        else:
            axes.barh(top, one.value, 0.5, color=look.colour, zorder=2)
    if completed.value is not None:
        bars.barh(
            top, completed.value, 0.5, fill=False, edgecolor=look.colour, linewidth=1.3, zorder=3
        )
    if strict.low is not None and strict.high is not None:
        ends = [strict.low, strict.high]
        bars.plot(
            ends, [y + 0.33] * 2, color=style.INK, linewidth=1.1, marker="|", markersize=4, zorder=4
        )
    bars.plot(
        [-0.025], [top], marker=look.marker, color=look.colour, markersize=5, clip_on=False,
        transform=bars.get_yaxis_transform(),
    )  # fmt: skip
    whole, solved = (
        "none" if one.value is None else f"{one.value:.4f}" for one in (completed, strict)
    )
    bars.text(
        1.04, y, f"{solved} · {whole}", transform=bars.get_yaxis_transform(), fontsize=style.SMALL, va="center",
        color=style.INK,
    )  # fmt: skip
    cut.text(
        1.04, y, share_of(row.truncation), transform=cut.get_yaxis_transform(), fontsize=style.SMALL, va="center",
        color=style.INK,
    )  # fmt: skip


def _gone(axes: Axes, x: float, y: float, look: Look) -> None:
    """A cross at the axis for what has no value, at a height in data and a breadth of the panel."""
    axes.plot(
        [x], [y], linestyle="none", marker="x", markersize=8, markeredgewidth=2, color=look.colour, clip_on=False,
        transform=axes.get_yaxis_transform(), zorder=5,
    )  # fmt: skip


def _points(findings: Findings) -> list[tuple[int, Row, tuple[float, float, float]]]:
    """Every row whose arm has a decode speed at the anchor: place, row, and speed with its interval."""
    found = []
    for place, row in _rows(findings):
        level = findings.level(row.arm, "decode", findings.plan.anchor)
        if level is not None and level.value is not None and row.strict.value is not None:
            ends = [level.value if end is None else end for end in (level.low, level.high)]
            found.append((place, row, (level.value, ends[0], ends[1])))
    return found


def _speedless(findings: Findings) -> list[tuple[int, Row]]:
    """Every row with a pass rate whose arm has no decode speed at the anchor."""
    there = {(row.arm, row.suite) for _, row, _ in _points(findings)}
    return [
        (place, row)
        for place, row in _rows(findings)
        if (row.arm, row.suite) not in there and row.strict.value is not None
    ]


def _told_points(findings: Findings) -> str:
    """Alternative text of speed against pass rate."""
    told = [
        f"{row.suite}, arm {row.arm}: {speed[0]:,.4g} tok/s, {share_of(row.strict)}"
        for _, row, speed in _points(findings)
    ] + [
        f"{row.suite}, arm {row.arm}: no speed, {share_of(row.strict)}"
        for _, row in _speedless(findings)
    ]
    return (
        f"Strict pass@1 against decode speed at {findings.plan.anchor:,} tokens. {'; '.join(told)}."
    )


def decode_quality(findings: Findings) -> Figure:
    """Strict pass@1 against decode speed, one point per arm; higher is better on both axes.

    The speed is that of the campaign's windows, none is read while tasks are asked.
    """
    found = _points(findings)
    names = list(dict.fromkeys(row.suite for _, row, _ in found))
    lines = -(-len(names) // 2)
    panel, gap = 2.3, 0.95
    foot = 0.85 + layout.LEGEND_ROW * layout.legend_rows(findings)
    height = suites.TOP + lines * panel + (lines - 1) * gap + foot
    figure = Figure(figsize=(style.WIDTH, height))
    title = f"Tasks passed against decode speed at {findings.plan.anchor:,} tokens"
    how = "point: strict pass@1 at the mean speed; bars: the intervals of both; ✕: no speed"
    layout.heading(figure, layout.titled(title, findings), how)
    for number, suite in enumerate(names):
        line, column = divmod(number, 2)
        width = 3.4 if len(names) > 1 else style.WIDTH - 1.3
        low = height - suites.TOP - line * (panel + gap) - panel
        axes = layout.axes(figure, 0.9 + column * 4.2, low, width, panel)
        without = [(place, row) for place, row in _speedless(findings) if row.suite == suite]
        _cross(axes, [each for each in found if each[1].suite == suite], without)
        axes.set_title(f"{suite}, pass@1", fontsize=style.NORMAL, color=style.INK, pad=8)
        if number + 2 >= len(names):
            axes.set_xlabel("decode, tok/s", labelpad=6)
    layout.legend(figure, findings)
    return figure


def _cross(
    axes: Axes,
    found: list[tuple[int, Row, tuple[float, float, float]]],
    without: list[tuple[int, Row]],
) -> None:
    """One suite: a point per arm with both intervals; at the edge, at its height, an arm `without` a speed."""
    xs: list[float] = []
    ys = [row.strict.value for _, row in without if row.strict.value is not None]
    for (place, _), y in zip(without, ys, strict=True):
        _gone(axes, 0.0, y, Look(place))
    for place, row, (speed, low, high) in found:
        look, strict = Look(place), row.strict
        value = strict.value or 0.0
        ends = [value if end is None else end for end in (strict.low, strict.high)]
        axes.plot([low, high], [value, value], color=look.colour, linewidth=1.4, zorder=3)
        axes.plot([speed, speed], ends, color=look.colour, linewidth=1.4, zorder=3)
        axes.plot(
            [speed], [value], marker=look.marker, color=look.colour, markersize=8, markeredgecolor="white",
            linestyle="none", clip_on=False, zorder=4,
        )  # fmt: skip
        xs += [low, high]
        ys += ends
    room = max(0.12 * (max(xs) - min(xs)), 0.02 * max(xs))
    axes.set_xlim(min(xs) - room, max(xs) + room)
    high = max(ys) - min(ys)
    axes.set_ylim(max(0.0, min(ys) - 0.15 * high), min(1.0, max(ys) + 0.15 * high) + 0.01)
    axes.tick_params(length=0, pad=6)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(MaxNLocator(4, min_n_ticks=2))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.6g}"))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:.4g} %"))
