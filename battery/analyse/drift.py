"""Did the machine stand still? The sentinel, and every other diagnostic of steadiness, gathered.

These are printed and may cast doubt on a verdict; none of them adjusts an estimate.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from operator import itemgetter

import msgspec
import numpy as np
import pandas as pd

from battery.analyse.covariates import Covariate, covariates
from battery.analyse.order import Order, order_effect
from battery.analyse.self_test import SelfTest, self_test
from battery.analyse.series import Mean, Step, Trend, step, trend
from battery.analyse.speed import Comparison
from battery.analyse.warming import WarmUp, warm_ups
from battery.ledger.receipt import Receipt
from battery.ledger.store import Header


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


class Drift(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that is known about the steadiness of the campaign, at the primary endpoint unless said otherwise."""

    metric: str
    rung: int
    order: tuple[Order, ...]
    sentinels: tuple[Sentinel, ...]
    """At the lowest rung."""
    self_test: SelfTest
    trend: Trend
    step: Step
    warm_ups: tuple[WarmUp, ...]
    """Decode and TTFT, over all rungs."""
    covariates: tuple[Covariate, ...]


def drift(
    frame: pd.DataFrame,
    comparisons: tuple[Comparison, ...],
    header: Header,
    receipts: Sequence[Receipt],
) -> Drift:
    """All diagnostics: at the primary endpoint, the sentinel at the lowest rung, warm-ups over all rungs."""
    metric, rung = header.plan.primary.metric, header.plan.anchor
    means = _window_means(frame, metric, rung)
    primary = [one for one in comparisons if one.primary]
    alpha = header.plan.stopping.alpha
    return Drift(
        metric=metric, rung=rung,
        order=tuple(order_effect(one, header, _run(frame)) for one in primary),
        sentinels=tuple(_sentinel(frame, arm.name, metric) for arm in header.arms),
        self_test=self_test(means, header),
        trend=trend(means),
        step=step(_sentinel_series(frame, metric), means, len(header.arms)),
        warm_ups=warm_ups(frame, header, alpha),
        covariates=covariates(frame, primary, receipts),
    )  # fmt: skip


def _run(frame: pd.DataFrame) -> list[int]:
    """The complete blocks in the order in which they ran."""
    counted = frame[frame["counted"].astype(bool)].sort_values("sequence")
    return list(dict.fromkeys(int(block) for block in counted["block"]))


def _window_means(frame: pd.DataFrame, metric: str, rung: int) -> list[Mean]:
    """The counted windows by their pooled requests at the rung, in the order of the run.

    A window without a request there has no mean, and yet its place. An attempt that was given up has neither, but
    stands between the windows before and after it.
    """
    here = frame[frame["pooled"].astype(bool) & (frame["rung"] == rung) & frame[metric].notna()]
    here = here[here[metric] > 0]
    values = {
        int(str(number)): float(np.log(group[metric].to_numpy(dtype=float)).mean())
        for number, group in here.groupby("window")
    }
    found, ended = [], 0
    counted = frame[frame["counted"].astype(bool)]
    spans = counted.groupby("window").agg({"sequence": ["min", "max"], "arm": ["first"]})
    run = sorted(zip(spans.index.tolist(), *(spans[c].tolist() for c in spans.columns), strict=True),
                 key=itemgetter(1))  # fmt: skip
    for place, (window, first, last, arm) in enumerate(run, start=1):
        if window in values:
            found.append(Mean(int(window), str(arm), values[window], place, first == ended + 1))
        ended = last
    return found


def _sentinel_series(frame: pd.DataFrame, metric: str) -> list[Mean]:
    """Log value of every sentinel that ended ok, in the order of the run."""
    here = frame[
        frame["sentinel"].astype(bool) & (frame["outcome"] == "ok") & frame[metric].notna()
    ]
    here = here[here[metric] > 0].sort_values("sequence")
    logs = np.log(here[metric].to_numpy(dtype=float)).tolist()
    windows = [int(number) for number in here["window"]]
    places = range(1, len(logs) + 1)
    return list(map(Mean, windows, map(str, here["arm"]), logs, places))


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
