"""One panel: a metric against context length, a line per arm, and below it a strip with what did not end ok.

The strip is the axis edge: a rung without a value breaks its arm's line, gets a ✕ on the axis, and its outcome as a
word with the count. Nothing is drawn at zero.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import PathPatch
from matplotlib.path import Path
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter, NullLocator

from battery.analyse.findings import Findings
from battery.analyse.speed import Level
from battery.render import style
from battery.render.style import Look

SCALES = {"peak_memory": (1e9, "GB (10⁹ bytes)")}
"""Metrics that are drawn in another unit than they are kept in."""


MOST_ON_ONE_LINE = 5
"""Rungs for which the strip can write an outcome and its count side by side."""
MOST_DOTS = 800
"""Single windows that one picture shows; of more than these it shows means and plain intervals alone."""


class Missing(msgspec.Struct, frozen=True):
    """A rung of an arm whose cells did not all end ok, in words."""

    arm: str
    place: int
    """Of the arm."""
    at: int
    """Of the rung."""
    word: str
    count: str
    """k/n of that outcome, and how many other outcomes there were."""
    whole: bool
    """Nothing at all could be drawn there."""


def missing(findings: Findings, metrics: Sequence[str]) -> list[Missing]:
    """Every arm and rung with something to say in the strip."""
    found = []
    for place, arm in enumerate(findings.arms):
        for at, rung in enumerate(findings.plan.ladder):
            told = findings.outcome(arm.arm.name, rung)
            levels = [findings.level(arm.arm.name, metric, rung) for metric in metrics]
            empty = [level for level in levels if level is None or level.value is None]
            if not told.ended and not empty:
                continue
            total = told.ok + sum(told.ended.values())
            whole = len(empty) == len(metrics)
            if told.ended:
                most = max(told.ended, key=lambda word: told.ended[word])
                more = f" +{len(told.ended) - 1}" if len(told.ended) > 1 else ""
                found.append(
                    Missing(
                        arm.arm.name, place, at, most, f"{told.ended[most]}/{total}{more}", whole
                    )
                )
            elif whole and empty[0]:
                found.append(Missing(arm.arm.name, place, at, empty[0].why, "", whole))
    return found


def dodge(arms: int, place: int) -> float:
    """How far an arm stands beside the rung, so that near-equal arms do not hide each other."""
    return (place - (arms - 1) / 2) * step(arms)


def step(arms: int) -> float:
    """Distance between neighbouring arms at a rung, in rungs."""
    return min(0.14, 0.7 / max(arms, 1))


def dotted(findings: Findings, metrics: Sequence[str]) -> bool:
    """Whether a picture of these metrics has room for every single window."""
    levels = (level for level in findings.levels if level.metric in metrics)
    return sum(len(level.windows) for level in levels) <= MOST_DOTS


def dots(axes: Axes, xs: Sequence[float], ys: Sequence[float], colour: str) -> None:
    """Pale dots, one per window, as strokes without length and with round ends: all of them are one short path."""
    places = [place for place in zip(xs, ys, strict=True) for _ in "ab"]
    if places:
        codes = [Path.MOVETO, Path.LINETO] * (len(places) // 2)
        axes.add_patch(
            PathPatch(
                Path(places, codes), fill=False, edgecolor=colour, alpha=0.36, linewidth=3.4, capstyle="round",
                zorder=2,
            )
        )  # fmt: skip


def panel(
    axes: Axes, findings: Findings, metric: str, log: bool = False, single: bool = True
) -> bool:
    """Draw one metric, with its `single` windows or without; whether there was anything to draw."""
    scale = SCALES.get(metric, (1.0, ""))[0]
    axes.set_xlim(-0.6, len(findings.plan.ladder) - 0.4)
    axes.set_xticks(
        range(len(findings.plan.ladder)), [f"{rung:,}" for rung in findings.plan.ladder]
    )
    axes.tick_params(length=0, pad=6)
    drawn: list[float] = []
    size = len(findings.arms)
    for place, arm in enumerate(findings.arms):
        levels = [findings.level(arm.arm.name, metric, rung) for rung in findings.plan.ladder]
        shift = dodge(size, place)
        drawn += _line(axes, levels, Look(place), shift, scale, "_" if single else "")
        if single:
            drawn += _windows(axes, levels, Look(place), shift + 0.4 * step(size), scale)
        if metric == "peak_memory":
            drawn += _bounds(axes, findings, arm.arm.name, Look(place), dodge(size, place), scale)
    if not drawn:
        axes.set_yticks([])
        axes.grid(False)
        axes.text(
            0.5, 0.5, "no value at any rung", transform=axes.transAxes, ha="center", va="center",
            color=style.QUIET,
        )  # fmt: skip
        return False
    limits(axes, drawn, log)
    for place, arm in enumerate(findings.arms):
        gone = [
            at + dodge(size, place)
            for at, rung in enumerate(findings.plan.ladder)
            if (level := findings.level(arm.arm.name, metric, rung)) is None or level.value is None
        ]
        axes.plot(
            gone, [0.0] * len(gone), linestyle="none", marker="x", markersize=8, markeredgewidth=2,
            color=Look(place).colour, transform=axes.get_xaxis_transform(), clip_on=False, zorder=5,
        )  # fmt: skip
    return True


def _bounds(
    axes: Axes, findings: Findings, arm: str, look: Look, shift: float, scale: float
) -> list[float]:
    """Where an arm ran out of memory: a hollow triangle at what it had by then, since it needed more."""
    told = [findings.outcome(arm, rung).peak_over for rung in findings.plan.ladder]
    xs = [at + shift for at, bound in enumerate(told) if bound]
    ys = [bound / scale for bound in told if bound]
    if not ys:
        return []
    axes.plot(
        xs, ys, linestyle="none", marker="^", markersize=8, markerfacecolor="none", markeredgewidth=1.6,
        markeredgecolor=look.colour, zorder=4,
    )  # fmt: skip
    return ys


def _line(
    axes: Axes, levels: Sequence[Level | None], look: Look, shift: float, scale: float, ends: str
) -> list[float]:
    """One arm: the interval as a bar with its `ends`, the mean as a marker, a line that breaks where nothing is."""
    nothing = float("nan")
    xs = [at + shift for at in range(len(levels))]
    ys = [level.value / scale if level and level.value is not None else None for level in levels]
    axes.plot(
        xs, [nothing if y is None else y for y in ys], color=look.colour, linestyle=look.line,
        marker=look.marker, markeredgecolor="white", markeredgewidth=0.8, zorder=4,
    )  # fmt: skip
    bars = [
        (x, level.low / scale, level.high / scale)
        for x, level, y in zip(xs, levels, ys, strict=True)
        if level and y is not None and level.low is not None and level.high is not None
    ]
    if bars:
        axes.plot(
            [at for x, _, _ in bars for at in (x, x, nothing)],
            [at for _, low, high in bars for at in (low, high, nothing)],
            color=look.colour, linewidth=1.6, marker=ends, markersize=9, markeredgewidth=1.6,
            solid_capstyle="butt", zorder=3,
        )  # fmt: skip
    return [y for y in ys if y is not None] + [end for _, *both in bars for end in both]


def _windows(
    axes: Axes, levels: Sequence[Level | None], look: Look, shift: float, scale: float
) -> list[float]:
    """The single windows of one arm, beside its means."""
    found = [
        (at + shift, value / scale)
        for at, level in enumerate(levels)
        if level and level.value is not None
        for _, value in level.windows
    ]
    dots(axes, [x for x, _ in found], [y for _, y in found], look.colour)
    return [y for _, y in found]


def limits(axes: Axes, drawn: Sequence[float], log: bool) -> None:
    """Limits with room around everything drawn, and ticks in plain numbers."""
    low, high = min(drawn), max(drawn)
    if log and low > 0:
        axes.set_yscale("log")
        ratio = max(high / low, 1.08)
        axes.set_ylim(low / ratio**0.12, high * ratio**0.12)
        near = high / low < 8
        axes.yaxis.set_major_locator(
            MaxNLocator(5, min_n_ticks=3) if near else LogLocator(subs=(1.0, 2.0, 5.0))
        )
        axes.yaxis.set_minor_locator(NullLocator())
        axes.yaxis.set_minor_formatter(NullFormatter())
    else:
        room = max((high - low) * 0.14, abs(high) * 0.01)
        axes.set_ylim(low - room, high + room)
        axes.yaxis.set_major_locator(MaxNLocator(5, min_n_ticks=3))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.6g}"))


def row_height(findings: Findings) -> float:
    """Height of one row of the strip in inches; many rungs need two lines for word and count."""
    return 0.24 if len(findings.plan.ladder) <= MOST_ON_ONE_LINE else 0.36


def strip(axes: Axes, findings: Findings, gone: Sequence[Missing], head: bool = False) -> None:
    """The rows below a panel: per arm, what did not end ok at each rung; `head` adds a row with the rungs."""
    arms = list(dict.fromkeys(one.place for one in gone))
    axes.set_xlim(-0.6, len(findings.plan.ladder) - 0.4)
    axes.set_ylim(len(arms) - 0.5, -0.5 - int(head))
    axes.axis("off")
    one_line = len(findings.plan.ladder) <= MOST_ON_ONE_LINE
    size = style.SMALL if one_line else style.SMALL - 2
    for one in gone:
        word = f"✕ {one.word}" if one.whole else one.word
        axes.text(
            one.at, arms.index(one.place), f"{word}{' ' if one_line else chr(10)}{one.count}".strip(),
            color=style.INK, ha="center", va="center", fontsize=size, linespacing=1.1,
        )  # fmt: skip
    for at, rung in enumerate(findings.plan.ladder if head else ()):
        axes.text(at, -1, f"{rung:,}", ha="center", va="center", fontsize=size, color=style.QUIET)
    for place in arms:
        axes.plot(
            [-0.57], [arms.index(place)], marker=Look(place).marker, color=Look(place).colour, markersize=5,
            clip_on=False,
        )  # fmt: skip


def legend_handles(findings: Findings) -> list[Line2D]:
    """One entry per arm: its line and marker with its name."""
    return [
        Line2D(
            [], [], color=Look(place).colour, linestyle=Look(place).line, marker=Look(place).marker,
            markeredgecolor="white", markeredgewidth=0.8, label=name_of(arm.arm.name, findings),
        )
        for place, arm in enumerate(findings.arms)
    ]  # fmt: skip


def name_of(arm: str, findings: Findings) -> str:
    """The arm's name with its part in the comparison."""
    return f"{arm} (control)" if arm == findings.control and findings.candidates else arm
