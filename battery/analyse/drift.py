"""Did the machine stand still? Order effect, level drift, the sentinel, and the arms against themselves.

These are printed and may cast doubt on a verdict; none of them adjusts an estimate.
"""

from __future__ import annotations

import itertools
import math

import msgspec
import numpy as np
import pandas as pd
from scipy import stats as scipy_stats
from statsmodels.regression.linear_model import OLS
from statsmodels.stats.stattools import durbin_watson

from battery.analyse import stats
from battery.analyse.speed import Comparison
from battery.ledger.store import Header

SELF_TEST_ALPHA = 0.01
"""At which the arms-against-themselves test voids the verdicts: one honest battery in a hundred."""
_FEWEST_SELF_PAIRS = 4
_TURNS = (1, -1, -1, 1)
"""Signs of neighbouring same-arm pairs. A steady drift cancels over them, and so does carry-over, which speeds one
arm's pairs up and slows the other's down. Two pairs in succession share a block, and with it the luck of that block's
prompts; their signs are as often alike as not, so that it does not add up. Signs that merely alternate let it: they
void one honest battery in twenty instead of one in a hundred (reports/statistics.md).
"""


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """What going second is worth: OLS of the block differences on order (+1 candidate second, −1 first), as a ratio."""

    candidate: str
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    durbin_watson: float | None = None
    """About 2 where neighbouring blocks are independent."""
    flagged: bool = False
    why: str = ""


class Sentinel(msgspec.Struct, frozen=True, kw_only=True):
    """The prompt that returns in every window of one arm: how far its rate wandered, and whether its text stayed."""

    arm: str
    windows: int
    bracket: float | None
    """exp(max − min of the log rate) − 1: the widest drift, as a share."""
    last_first: float | None
    """Last window against the first, as a share."""
    texts: int
    """Different texts among the windows; 1 is deterministic."""
    digest: str | None
    """Of the text, where it is always the same."""
    why: str = ""


class SelfTest(msgspec.Struct, frozen=True, kw_only=True):
    """Adjacent windows of one arm, later minus earlier, signed in turn: the method where nothing differs."""

    pairs: int
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    p: float | None = None
    failed: bool = False
    why: str = ""


class Trend(msgspec.Struct, frozen=True, kw_only=True):
    """Level drift: window means with their arm's mean removed, against their place in time."""

    per_window: float | None = None
    """Theil-Sen slope, as a share per window."""
    kendall_p: float | None = None
    why: str = ""


class Drift(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that is known about the steadiness of the campaign, at the primary endpoint."""

    metric: str
    rung: int
    order: tuple[Order, ...]
    sentinels: tuple[Sentinel, ...]
    self_test: SelfTest
    trend: Trend


def drift(frame: pd.DataFrame, comparisons: tuple[Comparison, ...], header: Header) -> Drift:
    """All diagnostics at the primary endpoint."""
    metric, rung = header.plan.primary.metric, header.plan.anchor
    means = _window_means(frame, metric, rung)
    return Drift(
        metric=metric, rung=rung,
        order=tuple(_order(one, header) for one in comparisons if one.primary),
        sentinels=tuple(_sentinel(frame, arm.name, metric) for arm in header.arms),
        self_test=_self_test(means),
        trend=_trend(means),
    )  # fmt: skip


def _window_means(frame: pd.DataFrame, metric: str, rung: int) -> list[tuple[int, str, float]]:
    """Window number, arm and mean log value of the pooled requests at the rung, in run order."""
    here = frame[frame["pooled"].astype(bool) & (frame["rung"] == rung) & frame[metric].notna()]
    here = here[here[metric] > 0]
    return [
        (int(str(number)), str(group["arm"].iloc[0]), float(np.log(group[metric].to_numpy(dtype=float)).mean()))
        for number, group in here.groupby("window", sort=True)
    ]  # fmt: skip


def _order(one: Comparison, header: Header) -> Order:
    """The order effect of one comparison."""
    blocks = [(block, math.log(ratio)) for block, ratio in one.by_block]
    signs = [
        1.0 if order.index(one.candidate) > order.index(one.control) else -1.0
        for order in (header.order[block - 1] for block, _ in blocks)
    ]
    if len(blocks) < 4 or len(set(signs)) < 2:
        return Order(candidate=one.candidate, why="needs four blocks, and both orders among them")
    d = np.asarray([value for _, value in blocks])
    if float(np.ptp(d)) <= 1e-12:
        return Order(candidate=one.candidate, ratio=1.0, low=1.0, high=1.0, why="no spread")
    fit = OLS(d, np.column_stack([np.ones(len(signs)), signs])).fit()
    low, high = (float(x) for x in fit.conf_int(stats.ALPHA)[1])
    return Order(
        candidate=one.candidate, ratio=math.exp(fit.params[1]), low=math.exp(low), high=math.exp(high),
        durbin_watson=float(durbin_watson(d - d.mean())), flagged=low > 0 or high < 0,
    )  # fmt: skip


def _sentinel(frame: pd.DataFrame, arm: str, metric: str) -> Sentinel:
    """One arm's sentinel over the windows, every attempt included: drift does not ask whether a block was finished."""
    here = frame[
        (frame["arm"] == arm) & frame["sentinel"].astype(bool) & (frame["outcome"] == "ok")
    ]
    # Not by window: an abandoned attempt and the one that replaced it share their windows' numbers.
    here = here.sort_values("sequence")
    texts = sorted({str(text) for text in here["text_digest"].dropna()})
    rates = np.log(here[metric].dropna().to_numpy(dtype=float))
    few = len(rates) < 2
    return Sentinel(
        arm=arm, windows=len(here),
        bracket=None if few else math.expm1(float(np.ptp(rates))),
        last_first=None if few else math.expm1(float(rates[-1] - rates[0])),
        texts=len(texts),
        digest=texts[0] if len(texts) == 1 else None,
        why="fewer than two sentinel cells ended ok" if few else "",
    )  # fmt: skip


def _self_test(means: list[tuple[int, str, float]]) -> SelfTest:
    """Same-arm neighbours in run order, later minus earlier, with the signs of `_TURNS`."""
    neighbours = [
        later[2] - earlier[2]
        for earlier, later in itertools.pairwise(means)
        if later[0] == earlier[0] + 1 and later[1] == earlier[1]
    ]
    if len(neighbours) < _FEWEST_SELF_PAIRS:
        return SelfTest(
            pairs=len(neighbours),
            why=f"needs {_FEWEST_SELF_PAIRS} pairs of neighbouring windows of one arm",
        )
    found = stats.paired([_TURNS[place % 4] * d for place, d in enumerate(neighbours)])
    if found is None or found.p is None:
        return SelfTest(pairs=len(neighbours), why="no interval can be computed")
    return SelfTest(
        pairs=len(neighbours), ratio=found.ratio, low=found.low, high=found.high, p=found.p,
        failed=found.p < SELF_TEST_ALPHA and found.sd != 0.0,
    )  # fmt: skip


def _trend(means: list[tuple[int, str, float]]) -> Trend:
    """Theil-Sen slope and Kendall's p of the residual window means."""
    if len(means) < 4:
        return Trend(why="fewer than four windows")
    own = {arm: np.mean([m for _, a, m in means if a == arm]) for arm in {a for _, a, _ in means}}
    numbers = np.asarray([number for number, _, _ in means], dtype=float)
    residual = np.asarray([m - own[arm] for _, arm, m in means])
    if float(np.ptp(residual)) <= 1e-12:
        return Trend(per_window=0.0, kendall_p=1.0, why="no spread")
    slope = scipy_stats.theilslopes(residual, numbers).slope
    return Trend(
        per_window=math.expm1(float(slope)),
        kendall_p=float(scipy_stats.kendalltau(numbers, residual).pvalue),
    )
