"""The same block differences by other methods: shown beside every estimate of a main metric, used by no verdict.

Where they disagree with the t test, a few blocks decide the result. The bootstrap is anti-conservative up to twelve
blocks at least; below twelve it is not shown.
"""

from __future__ import annotations

import math

import msgspec
import numpy as np
import scipy

from battery.analyse import stats
from battery.analyse.pairs import Pairs

FEWEST_BOOTSTRAP = 12
_RESAMPLES = 1999
_NO_SPREAD = 1e-12


class Sensitivity(msgspec.Struct, frozen=True, kw_only=True):
    """One comparison by other methods; what cannot be computed is None. The sign-flip p is in the estimate."""

    wilcoxon_p: float | None = None
    """Signed-rank test of no difference; below six blocks it cannot reject at .05."""
    bca_low: float | None = None
    bca_high: float | None = None
    """Bootstrap interval (bias-corrected, accelerated) at the level of all intervals, from twelve blocks on."""
    median_ratio: float | None = None
    """From within-window medians of the requests instead of means."""
    median_p: float | None = None


def sensitivity(pairs: Pairs, alpha: float) -> Sensitivity:
    """All of them; the bootstrap's resamples come from a fixed seed."""
    d = np.asarray(list(pairs.by_block().values()), dtype=float)
    low, high = _bca(d, alpha)
    median = stats.paired(list(pairs.by_block_medians().values()), alpha, flip=False)
    return Sensitivity(
        wilcoxon_p=_wilcoxon(d), bca_low=low, bca_high=high,
        median_ratio=median.ratio if median else None, median_p=median.p if median else None,
    )  # fmt: skip


def _wilcoxon(d: np.ndarray) -> float | None:
    """The signed-rank p, exact but for ties and zeros; 1 where no block differs at all."""
    if d.size < 2:
        return None
    sizes = np.abs(d)
    if float(sizes.max()) <= _NO_SPREAD:
        return 1.0
    plain = bool(sizes.all()) and len(np.unique(sizes)) == d.size
    # scipy's own choice for ties, resampling, took longer than the rest of the analysis
    return float(
        scipy.stats.wilcoxon(d, method="exact" if plain and d.size <= 50 else "asymptotic").pvalue
    )


def _bca(d: np.ndarray, alpha: float) -> tuple[float | None, float | None]:
    """The interval of the ratio; None below twelve blocks, and without spread to resample."""
    if d.size < FEWEST_BOOTSTRAP or float(np.ptp(d)) <= _NO_SPREAD:
        return None, None
    found = scipy.stats.bootstrap(
        (d,), np.mean, confidence_level=1 - alpha, n_resamples=_RESAMPLES, method="BCa", vectorized=True,
        rng=np.random.default_rng(1),
    ).confidence_interval  # fmt: skip
    return math.exp(float(found.low)), math.exp(float(found.high))
