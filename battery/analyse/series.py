"""The windows as a series in time: a steady drift of the level, and a step at one window.

Each arm's own mean is removed first, so that arms may differ. A step only points at a window; nothing is deleted.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from typing import Literal, NamedTuple

import msgspec
import numpy as np
import scipy

STEP_ALPHA = 0.05
_SPARE = 5
"""Values beyond one per removed mean that a step needs: six blocks, or seven sentinels of two arms."""


class Mean(NamedTuple):
    """One window of an arm, by what it gave."""

    window: int
    """Its number in the plan's order, which a block that was measured again later does not keep in time."""
    arm: str
    value: float
    """Mean log value."""
    place: int
    """In the order of the run, from 1."""
    after: bool = True
    """Whether it ran right after the window at the place before, with nothing between."""


Means = Sequence[Mean]
"""Windows in the order of the run."""


class Trend(msgspec.Struct, frozen=True, kw_only=True):
    """Level drift: window means with their arm's mean removed, against their place in time."""

    per_window: float | None = None
    """Theil-Sen slope, as a share per window."""
    kendall_p: float | None = None
    why: str = ""


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """The likeliest place of one lasting change of the level, by the CUSUM of the residuals.

    Of the sentinel where there is one: its prompt never changes, so what steps is the machine. Otherwise of blocks,
    since the windows of one block share their prompts and are not independent.
    """

    series: Literal["sentinel", "blocks"] | None = None
    window: int | None = None
    """The first window after it."""
    share: float | None = None
    """Mean level from there on against that before."""
    p: float | None = None
    """That the level never changed; from the limit for long series, and so too large for short ones."""
    flagged: bool = False
    why: str = ""


def residuals(means: Means) -> list[tuple[int, float]]:
    """Window number and log value with its arm's mean removed."""
    own: dict[str, list[float]] = defaultdict(list)
    for one in means:
        own[one.arm].append(one.value)
    middle = {arm: float(np.mean(values)) for arm, values in own.items()}
    return [(one.window, one.value - middle[one.arm]) for one in means]


def trend(means: Means) -> Trend:
    """Theil-Sen slope and Kendall's p of the residual window means."""
    if len(means) < 4:
        return Trend(why="fewer than four windows")
    places = np.asarray([one.place for one in means], dtype=float)
    residual = np.asarray([value for _, value in residuals(means)])
    if float(np.ptp(residual)) <= 1e-12:
        return Trend(per_window=0.0, kendall_p=1.0, why="no spread")
    slope = scipy.stats.theilslopes(residual, places).slope
    return Trend(
        per_window=math.expm1(float(slope)),
        kendall_p=float(scipy.stats.kendalltau(places, residual).pvalue),
    )


def step(sentinels: Means, means: Means, arms: int) -> Step:
    """A step in the sentinel's series, or in that of the blocks of `arms` windows."""
    from statsmodels.stats.diagnostic import breaks_cusumolsresid

    series: Literal["sentinel", "blocks"] = "sentinel" if sentinels else "blocks"
    left = residuals(sentinels) if sentinels else _blocks(residuals(means), arms)
    taken = arms if sentinels else 1
    if len(left) - taken < _SPARE:
        what = f"{len(left)} sentinels of {arms} arms" if sentinels else f"{len(left)} blocks"
        return Step(why=f"{what} are too few")
    values = np.asarray([value for _, value in left])
    if float(np.ptp(values)) <= 1e-12:
        return Step(series=series, p=1.0, why="no spread")
    p = float(breaks_cusumolsresid(values, ddof=taken)[1])
    place = int(np.argmax(np.abs(np.cumsum(values - values.mean()))[:-1])) + 1
    return Step(
        series=series, window=left[place][0],
        share=math.expm1(float(values[place:].mean() - values[:place].mean())), p=p, flagged=p < STEP_ALPHA,
    )  # fmt: skip


def _blocks(left: list[tuple[int, float]], arms: int) -> list[tuple[int, float]]:
    """First window and mean residual of every block, in the order of the run."""
    found: dict[int, list[float]] = defaultdict(list)
    for number, value in left:
        found[(number - 1) // arms].append(value)
    return [(block * arms + 1, float(np.mean(values))) for block, values in found.items()]
