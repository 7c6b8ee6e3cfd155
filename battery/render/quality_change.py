"""The chart of what changed from the control to each arm, task by task."""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from battery.analyse.findings import Findings
from battery.analyse.quality import Change
from battery.analyse.tasks_changed import STRICT_ONLY, Paired
from battery.ledger.claims import POOL
from battery.render import layout, style
from battery.render.quality import change_of
from battery.render.style import Look
from battery.render.suites import ROW, TOP, named, placed


def compared(findings: Findings) -> list[tuple[int, Change, Paired]]:
    """Every comparison with the place of its candidate, suite by suite, the pool last."""
    places = {arm.arm.name: place for place, arm in enumerate(findings.arms)}
    quality = findings.graded
    found = [
        (places[one.candidate], one, one.paired)
        for one in (quality.changes if quality else ())
        if one.paired is not None
    ]
    order = [*(quality.suites if quality else ()), POOL]
    return sorted(found, key=lambda each: (order.index(each[1].suite), each[0]))


def told(findings: Findings) -> str:
    """Alternative text of the changes."""
    parts = [
        f"{one.suite}, arm {one.candidate}: {change_of(one)}, {len(pair.lost)} passed by the control only,"
        f" {len(pair.gained)} by the arm only"
        for _, one, pair in compared(findings)
    ]
    return f"Change of strict pass@1 against {findings.control}, by task. {'; '.join(parts)}."


def quality_change(findings: Findings) -> Figure:
    """Change of strict pass@1 against the control, by task: mean with its interval, and tasks that changed each way.

    Left of the dashed line the arm is worse by more than the margin.
    """
    found = compared(findings)
    suites = [one.suite for _, one, _ in found]
    at, size = placed(suites)
    foot = 0.8 + layout.LEGEND_ROW * layout.legend_rows(findings)
    figure = Figure(figsize=(style.WIDTH, TOP + size + foot))
    how = f"thin: 95 % interval, thick: 90 %; dashed: minus the margin; hollow: undecided, or {STRICT_ONLY}"
    layout.heading(figure, layout.titled("Change by task against the control", findings), how)
    forest = layout.axes(figure, 1.25, foot, 3.4, size)
    counts = layout.axes(figure, 5.3, foot, 2.8, size)
    for axes in (forest, counts):
        axes.set_ylim(size / ROW, 0)
        axes.set_yticks([])
        axes.grid(axes is forest, axis="x")
        axes.grid(False, axis="y")
        axes.tick_params(length=0, pad=6)
    most = max(1, *(max(len(pair.lost), len(pair.gained)) for _, _, pair in found))
    counts.set_xlim(-1.35 * most, 1.35 * most)
    counts.set_xticks([])
    counts.spines[["left", "bottom"]].set_visible(False)
    counts.axvline(0, color=style.QUIET, linewidth=0.9, zorder=1)
    ends: list[float] = []
    for y, each in zip(at, found, strict=True):
        ends += _row(forest, counts, y, *each)
    room = 0.06 * (max(ends) - min(ends))
    forest.set_xlim(min(ends) - room, max(ends) + room)
    forest.axvline(0, color=style.QUIET, linewidth=0.9, zorder=1)
    forest.xaxis.set_major_locator(MaxNLocator(5, min_n_ticks=3))
    forest.xaxis.set_major_formatter(
        FuncFormatter(lambda value, _: f"{value:+.6g}".replace("-", "−") if value else "0")
    )
    forest.set_xlabel("points", labelpad=2)
    named(forest, at, suites)
    forest.set_title("change of pass@1", fontsize=style.NORMAL, color=style.INK, pad=8)
    for x, side, title in ((0.49, "right", "control only"), (0.51, "left", "arm only")):
        counts.text(
            x, 1.0, f"passed by {title}", transform=counts.transAxes, ha=side, va="bottom", fontsize=style.SMALL,
            color=style.QUIET,
        )  # fmt: skip
    layout.legend(figure, findings)
    return figure


def _row(
    forest: Axes, counts: Axes, y: float, place: int, one: Change, pair: Paired
) -> tuple[float, float, float, float]:
    """One comparison in both panels; what must be inside the first."""
    look, strict = Look(place), pair.strict
    at, low, high = 100 * strict.difference, 100 * pair.low, 100 * pair.high
    bound = -100 * one.margin
    forest.plot(
        [bound, bound],
        [y - 0.5, y + 0.5],
        color=style.INK,
        linewidth=1.2,
        linestyle=(0, (3, 1.5)),
        zorder=2,
    )
    forest.plot(
        [low, high], [y, y], color=look.colour, linewidth=1.2, marker="|", markersize=7, zorder=3
    )
    forest.plot(
        [100 * strict.low, 100 * strict.high], [y, y], color=look.colour, linewidth=3.2, zorder=3, solid_capstyle="butt"
    )  # fmt: skip
    sure = one.verdict.word != "undecided" and STRICT_ONLY not in one.verdict.qualifier
    forest.plot(
        [at], [y], marker=look.marker, color=look.colour, markerfacecolor=look.colour if sure else "white",
        markeredgecolor="white" if sure else look.colour, markersize=8, linestyle="none", zorder=4,
    )  # fmt: skip
    forest.plot(
        [-0.025], [y], marker=look.marker, color=look.colour, markersize=5, clip_on=False,
        transform=forest.get_yaxis_transform(),
    )  # fmt: skip
    room = 0.03 * counts.get_xlim()[1]
    for sign, tasks in ((-1, pair.lost), (1, pair.gained)):
        solid = sign < 0
        counts.barh(
            y, sign * len(tasks), 0.62, color=look.colour if solid else "white", edgecolor=look.colour, linewidth=1.3,
            zorder=2,
        )  # fmt: skip
        counts.text(
            sign * (len(tasks) + room), y, str(len(tasks)), ha="right" if solid else "left", va="center",
            fontsize=style.SMALL, color=style.INK,
        )  # fmt: skip
    return at, low, high, bound
