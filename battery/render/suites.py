"""Rows of a picture grouped by suite: where each stands, and the suites' names beside them."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes

from battery.ledger.claims import POOL
from battery.render import style

ROW, _GAP, TOP = 0.25, 0.22, 1.3
"""Inches: a bar's row, between suites, above the panels."""


def placed(suites: Sequence[str]) -> tuple[list[float], float]:
    """The middle of every row in rows, counted from the top, and the panel's height in inches."""
    at, now = [], 0.3
    for place, suite in enumerate(suites):
        if place and suite != suites[place - 1]:
            now += _GAP / ROW
        at.append(now + 0.5)
        now += 1
    return at, (now + 0.3) * ROW


def named(axes: Axes, at: Sequence[float], suites: Sequence[str]) -> None:
    """The suites' names beside the middle of their rows."""
    for suite in dict.fromkeys(suites):
        own = [y for y, name in zip(at, suites, strict=True) if name == suite]
        axes.text(
            -0.06, sum(own) / len(own), "all suites" if suite == POOL else suite, ha="right", va="center",
            transform=axes.get_yaxis_transform(), color=style.INK,
        )  # fmt: skip
