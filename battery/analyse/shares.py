"""Shares of answers with their intervals, and pass@k: pure functions of numbers.

Answers to different tasks are taken for independent, answers to one task (more than one sample) for a cluster.
"""

from __future__ import annotations

import warnings
from collections.abc import Hashable, Sequence

import msgspec
import numpy as np
import scipy

LEVEL = 0.95
"""Of every interval of a share or of a change; that of non-inferiority is 90 %, one-sided 95 %."""
_SAMPLES = (2, 5, 10, 20, 50, 100)
"""Values of k that pass@k is told for, and the number of samples itself."""


class Share(msgspec.Struct, frozen=True, kw_only=True):
    """A share with its 95 % interval; all None where there is nothing to take it of."""

    count: int
    of: int
    value: float | None = None
    low: float | None = None
    high: float | None = None


class PassAt(msgspec.Struct, frozen=True, kw_only=True):
    """Pass@k: how likely at least one of k answers passes, averaged over tasks."""

    k: int
    value: float
    low: float | None
    high: float | None


def share(hits: Sequence[bool], tasks: Sequence[Hashable]) -> Share:
    """The share of answers that hit; `tasks` names the task of each.

    With one answer a task the interval is Wilson's. With more it is mean ± t · SE over tasks as clusters, cut to
    [0, 1]; where all agree that has no width, and Wilson's interval over as many answers as tasks stands in for it.
    """
    from statsmodels.stats.proportion import proportion_confint

    count, of = sum(hits), len(hits)
    if not of:
        return Share(count=0, of=0)
    clusters = len(set(tasks))
    value = count / of
    if clusters < of:
        _, se, df = mean(np.asarray(hits, dtype=float), tasks)
        if se > 0:
            reach = float(scipy.stats.t.ppf((1 + LEVEL) / 2, df)) * se
            low, high = max(0.0, value - reach), min(1.0, value + reach)
            return Share(count=count, of=of, value=value, low=low, high=high)
    low, high = proportion_confint(value * clusters, clusters, alpha=1 - LEVEL, method="wilson")
    # an end that is 0 or 1 comes out a last bit off, and which one hangs on the machine
    ends = (round(float(end), 12) for end in (low, high))
    return Share(count=count, of=of, value=value, low=next(ends), high=next(ends))


def mean(values: np.ndarray, clusters: Sequence[Hashable]) -> tuple[float, float, int]:
    """Mean, its standard error and degrees of freedom (clusters − 1), for values that are alike within a cluster.

    Where every cluster is one value this is the plain mean with sd/√n; else OLS on a constant with the sandwich of
    Liang and Zeger over clusters, and statsmodels' small-sample factor. With one cluster the error is nan.
    """
    from statsmodels.regression.linear_model import OLS

    kinds = {name: place for place, name in enumerate(dict.fromkeys(clusters))}
    at, df = float(values.mean()), len(kinds) - 1
    if df < 1 or float(np.ptp(values)) == 0.0:
        return at, 0.0 if df >= 1 else float("nan"), df
    if len(kinds) == len(values):
        return at, float(values.std(ddof=1)) / len(values) ** 0.5, df
    groups = np.array([kinds[name] for name in clusters])
    with warnings.catch_warnings():
        # a single regressor: the rank of the sandwich is no concern
        warnings.simplefilter("ignore")
        fit = OLS(values, np.ones(len(values))).fit(
            cov_type="cluster", cov_kwds={"groups": groups}, use_t=True
        )
    return at, float(fit.bse[0]), df


def pass_at(passes: Sequence[int], samples: int) -> tuple[PassAt, ...]:
    """Pass@k for the usual k up to `samples`; `passes` are the answers that passed, per task. None for one sample.

    Unbiased: per task 1 − C(n−c, k) / C(n, k), the chance that k of its n answers, drawn without return, hold one of
    the c that passed. The interval is t over tasks, cut to [0, 1].
    """
    wanted = [k for k in _SAMPLES if k < samples] + ([samples] if samples > 1 else [])
    found = []
    for k in wanted if passes else ():
        values = scipy.stats.hypergeom.sf(0, samples, np.asarray(passes, dtype=int), k)
        at, se, df = mean(values, range(len(passes)))
        ends: tuple[float | None, float | None] = (None, None)
        if df >= 1 and se > 0:
            reach = float(scipy.stats.t.ppf((1 + LEVEL) / 2, df)) * se
            ends = max(0.0, at - reach), min(1.0, at + reach)
        found.append(PassAt(k=k, value=at, low=ends[0], high=ends[1]))
    return tuple(found)
