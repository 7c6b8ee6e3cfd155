"""The first measured seed of a context against the rest: where they differ, the warm-up was too short.

Windows hold too few requests to look for a change point; the position effect over windows can be tested.
"""

from __future__ import annotations

import math
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
    effects = {metric: _effects(frame, metric) for metric in METRICS}
    found, ps = [], []
    for arm in header.arms:
        for metric in METRICS:
            one, p = _warm_up(effects[metric].get(arm.name, []), header, arm.name, metric, alpha)
            found.append(one)
            ps.append(p)
    return tuple(
        msgspec.structs.replace(one, p_corrected=p, flagged=p is not None and p < alpha)
        for one, p in zip(found, stats.holm(ps), strict=True)
    )


def _effects(frame: pd.DataFrame, metric: str) -> dict[str, list[float]]:
    """Per arm and window: log of the first seed's value minus the mean of the rest, averaged over rungs.

    A rung whose first seed did not end ok is left out, as one that has no rest.
    """
    own = frame[frame["counted"].astype(bool) & ~frame["sentinel"].astype(bool)].sort_values("sequence")  # fmt: skip
    cells: dict[tuple[str, int, int], list[float | None]] = defaultdict(list)
    columns = (own[name].tolist() for name in ("arm", "window", "rung", "outcome", metric))
    for arm, window, rung, outcome, value in zip(*columns, strict=True):
        good = outcome == "ok" and value is not None and value > 0
        cells[arm, window, rung].append(math.log(value) if good else None)
    per_window: dict[tuple[str, int], list[float]] = defaultdict(list)
    for (arm, window, _), (first, *others) in cells.items():
        rest = [value for value in others if value is not None]
        if first is not None and rest:
            per_window[arm, window].append(first - float(np.mean(rest)))
    found: dict[str, list[float]] = defaultdict(list)
    for (arm, _), here in per_window.items():
        found[arm].append(float(np.mean(here)))
    return found


def _warm_up(
    means: list[float], header: Header, arm: str, metric: str, alpha: float
) -> tuple[WarmUp, float | None]:
    """One arm and metric, and its p before correction."""
    one = WarmUp(arm=arm, metric=metric, windows=len(means))
    if header.plan.seeds < 2:
        return msgspec.structs.replace(one, why="one seed has no rest"), None
    found = stats.paired(means, alpha, flip=False)
    if len(means) < _FEWEST or found is None:
        return msgspec.structs.replace(one, why="fewer than four windows"), None
    return msgspec.structs.replace(one, ratio=found.ratio, low=found.low, high=found.high), found.p
