"""The first measured seed of a context against the rest: where they differ, the warm-up was too short.

Windows hold too few requests to look for a change point; the position effect over windows can be tested.
"""

from __future__ import annotations

from collections import defaultdict

import msgspec
import numpy as np
import pandas as pd

from battery.analyse import stats
from battery.ledger.store import Header

METRICS = ("decode", "ttft")
_FEWEST = 4


class WarmUp(msgspec.Struct, frozen=True, kw_only=True):
    """One arm's first seed against the rest of its rung, over windows, as a ratio.

    Per arm, because the arms of a block share their prompts: over all windows every prompt's luck would count twice.
    """

    arm: str
    metric: str
    windows: int
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    p_corrected: float | None = None
    """That the first seed is like the rest, after Holm over arms and both metrics."""
    flagged: bool = False
    why: str = ""


def warm_ups(frame: pd.DataFrame, header: Header, alpha: float) -> tuple[WarmUp, ...]:
    """Every arm's decode and TTFT; a window counts with the mean over its rungs."""
    found, ps = [], []
    for arm in header.arms:
        for metric in METRICS:
            one, p = _warm_up(frame, header, arm.name, metric, alpha)
            found.append(one)
            ps.append(p)
    return tuple(
        msgspec.structs.replace(one, p_corrected=p, flagged=p is not None and p < alpha)
        for one, p in zip(found, stats.holm(ps), strict=True)
    )


def _warm_up(
    frame: pd.DataFrame, header: Header, arm: str, metric: str, alpha: float
) -> tuple[WarmUp, float | None]:
    """One arm and metric, and its p before correction."""
    if header.plan.seeds < 2:
        return WarmUp(arm=arm, metric=metric, windows=0, why="one seed has no rest"), None
    own = frame[
        (frame["arm"] == arm) & frame["counted"].astype(bool) & ~frame["sentinel"].astype(bool)
    ]
    effects: dict[int, list[float]] = defaultdict(list)
    for _, cells in own.groupby(["window", "rung"], sort=True):
        cells = cells.sort_values("place")
        good = (cells["outcome"] == "ok") & (cells[metric] > 0)
        logs = np.log(cells[metric][good].to_numpy(dtype=float))
        if bool(good.iloc[0]) and len(logs) > 1:
            effects[int(cells["window"].iloc[0])].append(float(logs[0] - logs[1:].mean()))
    means = [float(np.mean(here)) for here in effects.values()]
    if len(means) < _FEWEST:
        return WarmUp(
            arm=arm, metric=metric, windows=len(means), why="fewer than four windows"
        ), None
    found = stats.paired(means, alpha)
    if found is None or found.sd is None:
        return WarmUp(arm=arm, metric=metric, windows=len(means), why="no interval"), None
    return WarmUp(
        arm=arm, metric=metric, windows=len(means), ratio=found.ratio, low=found.low, high=found.high
    ), found.p  # fmt: skip
