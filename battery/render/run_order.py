"""Panels against the order of the run: every window at its number, over bands of blocks.

A thousand windows are drawn as dots and told by their range: neither the picture nor its words may grow without end.
"""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, MaxNLocator

from battery.analyse.findings import Findings
from battery.render import ladder, style
from battery.render.style import Look

MOST_MARKED = 240
"""Windows that are drawn with their arm's marker and told one by one."""
_MOST_BANDS = 60
"""Blocks that are told apart by bands."""
Window = tuple[int, str, float | None]
"""Number, arm and value."""


def windows(findings: Findings) -> list[Window]:
    """Window number, arm, and its own mean at the primary endpoint, for every counted window."""
    metric, rung = findings.plan.primary.metric, findings.plan.anchor
    known = {
        number: value
        for arm in findings.arms
        if (level := findings.level(arm.arm.name, metric, rung))
        for number, value in level.windows
    }
    return [
        (window.number, window.arm, known.get(window.number))
        for window in findings.windows
        if window.counted
    ]


def told(findings: Findings) -> str:
    """Alternative text of the windows in order."""
    metric, rung = findings.plan.primary.metric, findings.plan.anchor
    found = windows(findings)
    if len(found) <= MOST_MARKED:
        points = [
            f"window {number} arm {arm} " + (f"{value:,.4g}" if value is not None else "no value")
            for number, arm, value in found
        ]
    else:
        points = [
            _range(arm.arm.name, [value for _, name, value in found if name == arm.arm.name])
            for arm in findings.arms
        ]
    title, unit = findings.measure(metric).title, findings.measure(metric).unit
    return f"{title} in {unit} at {rung:,} tokens, in the order of the run: {'; '.join(points)}."


def _range(arm: str, values: Sequence[float | None]) -> str:
    """One arm's windows by their number and range."""
    known = [value for value in values if value is not None]
    if not known:
        return f"arm {arm} no value in {len(values):,} windows"
    return f"arm {arm} {min(known):,.4g} to {max(known):,.4g} in {len(known):,} of {len(values):,} windows"


def how(findings: Findings) -> str:
    """What the marks of the windows chart are."""
    ratio = "; percentages: ratio within the block" if _ratios_fit(findings) else ""
    shaded = "; shaded: every other block" if findings.asked <= _MOST_BANDS else ""
    return f"point: geometric mean of the window's requests{shaded}{ratio}; ✕: no value"


def _ratios_fit(findings: Findings) -> bool:
    """Whether every block has room for its own ratio: one candidate, few blocks."""
    return len(findings.primary) == 1 and findings.asked <= 12


def lay(axes: Axes, findings: Findings) -> None:
    """The axis of window numbers, and a band under every other block."""
    size = len(findings.arms)
    for block in range(1, findings.asked + 1, 2) if findings.asked <= _MOST_BANDS else ():
        axes.axvspan((block - 1) * size + 0.5, block * size + 0.5, color=style.BAND, zorder=0)
    numbers = [window.number for window in findings.windows if window.counted]
    axes.set_xlim(0.5, max([*numbers, findings.asked * size, 1]) + 0.5)
    axes.tick_params(length=0, pad=6)
    axes.xaxis.set_major_locator(MaxNLocator(16, integer=True, min_n_ticks=1))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))


def gone(axes: Axes, numbers: Sequence[int], look: Look) -> None:
    """A cross at the edge for every window without a value."""
    axes.plot(
        numbers, [0.0] * len(numbers), linestyle="none", marker="x", markersize=8, markeredgewidth=2,
        color=look.colour, transform=axes.get_xaxis_transform(), clip_on=False, zorder=5,
    )  # fmt: skip


def empty(axes: Axes, words: str) -> None:
    """A panel with nothing but words."""
    axes.set_yticks([])
    axes.text(0.5, 0.5, words, transform=axes.transAxes, ha="center", color=style.QUIET)


def panel(axes: Axes, findings: Findings, metric: str) -> None:
    """Points in run order over bands of blocks."""
    scale = ladder.SCALES.get(metric, (1.0, ""))[0]
    found = windows(findings)
    lay(axes, findings)
    drawn = []
    for place, arm in enumerate(findings.arms):
        own = [(number, value) for number, name, value in found if name == arm.arm.name]
        good = [(number, value / scale) for number, value in own if value is not None]
        look = Look(place)
        numbers, values = [n for n, _ in good], [y for _, y in good]
        if len(found) <= MOST_MARKED:
            axes.plot(
                numbers, values, color=look.colour, linestyle=look.line, linewidth=1.0, marker=look.marker,
                markeredgecolor="white", zorder=3,
            )  # fmt: skip
        else:
            ladder.dots(axes, numbers, values, look.colour)
        gone(axes, [number for number, value in own if value is None], look)
        drawn += values
    if not drawn:
        empty(axes, "no value in any window")
        return
    ladder.limits(axes, drawn, log=False)
    size = len(findings.arms)
    for block, ratio in findings.primary[0].by_block if _ratios_fit(findings) else ():
        axes.text(
            (block - 0.5) * size + 0.5, 0.985, f"{100 * (ratio - 1):+.1f} %", fontsize=style.SMALL,
            transform=axes.get_xaxis_transform(), ha="center", va="top", color=style.QUIET,
        )  # fmt: skip
