"""Where things stand in a figure, in inches: axes, text, heading, and the legend at the foot."""

from __future__ import annotations

from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from battery.analyse.findings import Findings
from battery.render import ladder, style

LEGEND_ROW = 0.215
"""Height of a row of the legend."""


def axes(figure: Figure, left: float, low: float, width: float, height: float) -> Axes:
    """Axes at a place given in inches."""
    w, h = figure.get_size_inches()
    return figure.add_axes((left / w, low / h, width / w, height / h))


def text(figure: Figure, x: float, y: float, words: str, **how: Any) -> None:
    """Text at a place given in inches."""
    w, h = figure.get_size_inches()
    figure.text(x / w, y / h, words, **{"fontsize": style.SMALL, "color": style.QUIET, **how})


def titled(title: str, findings: Findings) -> str:
    """The title of a campaign's picture: that of a replay says that it is one wherever it goes."""
    return f"{title}, along given texts" if findings.plan.replayed else title


def heading(figure: Figure, title: str, how: str) -> None:
    """Title, and below it what the marks mean."""
    height = figure.get_size_inches()[1]
    text(
        figure, 0.3, height - 0.42, title, fontsize=style.TITLE, color=style.INK, fontweight="bold"
    )
    text(figure, 0.3, height - 0.68, how)


def columns(findings: Findings) -> int:
    """Columns that the legend has room for."""
    longest = max(len(ladder.name_of(arm.arm.name, findings)) for arm in findings.arms)
    return max(1, min(4, int((style.WIDTH - 0.6) / (0.75 + 0.095 * longest))))


def legend_rows(findings: Findings) -> int:
    """Rows that the legend takes."""
    return -(-len(findings.arms) // columns(findings))


def legend(figure: Figure, findings: Findings) -> None:
    """The arms, at the foot."""
    w, h = figure.get_size_inches()
    figure.legend(
        handles=ladder.legend_handles(findings), loc="lower left", bbox_to_anchor=(0.2 / w, 0.08 / h),
        ncols=columns(findings), handlelength=3.2, columnspacing=1.6, borderaxespad=0.0,
    )  # fmt: skip
