"""One panel: each candidate's ratio to the control by rung, with its interval, and the margin declared in advance."""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, MaxNLocator

from battery.analyse.findings import Findings
from battery.analyse.speed import Comparison
from battery.render import style
from battery.render.style import Look


def row_height(findings: Findings) -> float:
    """Inches that one rung takes."""
    return max(0.36, 0.15 * len(findings.candidates) + 0.12)


def panel(axes: Axes, findings: Findings, metric: str) -> None:
    """Draw one metric, rungs from top to bottom; with one candidate the verdict stands beside its row."""
    ladder = findings.plan.ladder
    axes.set_ylim(len(ladder) - 0.5, -0.5)
    axes.set_yticks(range(len(ladder)), [f"{rung:,}" for rung in ladder])
    axes.tick_params(length=0, pad=9)
    axes.grid(True, axis="x")
    axes.grid(False, axis="y")
    found = [
        (row, place, one)
        for place, candidate in enumerate(findings.candidates)
        for row, rung in enumerate(ladder)
        if (one := findings.comparison(candidate, metric, rung)) is not None
    ]
    if not findings.candidates:
        axes.set_xticks([])
        axes.text(
            0.5, 0.5, "one arm: nothing to compare", transform=axes.transAxes, ha="center", va="center",
            color=style.QUIET, fontsize=style.SMALL,
        )  # fmt: skip
        return
    margin = 100 * findings.plan.margins.of(metric)
    axes.axvspan(-margin, margin, color=style.BAND, zorder=0)
    axes.axvline(0, color=style.QUIET, linewidth=0.9, zorder=1)
    ends = [-margin, margin]
    step = 0.7 / max(len(findings.candidates), 1)
    for row, place, one in found:
        y = row + (place - (len(findings.candidates) - 1) / 2) * step
        # Looks go by the arm's place among all arms, where the control is the first.
        ends += _one(axes, one, Look(place + 1), y, findings.status == "complete")
        if len(findings.candidates) == 1:
            axes.text(
                1.03, y, _word(one), transform=axes.get_yaxis_transform(), fontsize=style.SMALL, va="center",
                color=style.INK if one.primary else style.QUIET,
                fontweight="bold" if one.primary else "normal",
            )  # fmt: skip
    room = 0.08 * (max(ends) - min(ends))
    axes.set_xlim(min(ends) - room, max(ends) + room)
    axes.xaxis.set_major_locator(MaxNLocator(5, min_n_ticks=3))
    axes.xaxis.set_major_formatter(
        FuncFormatter(lambda value, _: f"{value:+.6g}".replace("-", "−") if value else "0")
    )


def _one(axes: Axes, one: Comparison, look: Look, y: float, complete: bool) -> list[float]:
    """One ratio with its interval; the ends that must be in the picture."""
    estimate = one.estimate
    if estimate is None:
        axes.plot(
            [0.0], [y], marker="x", markersize=7, markeredgewidth=2, color=look.colour, clip_on=False,
            transform=axes.get_yaxis_transform(),
        )  # fmt: skip
        return []
    sure = complete and one.verdict.word not in ("pilot", "invalid", "not comparable")
    at = 100 * (estimate.ratio - 1)
    low, high = (
        100 * (end - 1) if end is not None else at for end in (estimate.low, estimate.high)
    )
    axes.plot(
        [low, high], [y, y], color=look.colour, linewidth=1.6, marker="|", markersize=7, markeredgewidth=1.6,
        solid_capstyle="butt",
    )  # fmt: skip
    axes.plot(
        [at], [y], marker=look.marker, color=look.colour, markerfacecolor=look.colour if sure else "white",
        markeredgecolor="white" if sure else look.colour, linestyle="none", zorder=4,
    )  # fmt: skip
    return [at, low, high]


def _word(one: Comparison) -> str:
    """The verdict's word, as short as the margin of the picture."""
    return "no verdict" if one.verdict.word == "pilot" else one.verdict.word
