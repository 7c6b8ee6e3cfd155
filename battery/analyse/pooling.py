"""Several campaigns' estimates of one ratio as one: random effects, fixed effect beside them, and their disagreement.

The unit is the campaign. Each gives a log ratio and its variance sd²/K; where campaigns disagree by more than that, the
between-campaign spread τ (Paule and Mandel, iterated) widens the interval.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec
import numpy as np
import scipy

from battery.analyse import stats

_ITERATIONS = 1000


class Pooled(msgspec.Struct, frozen=True, kw_only=True):
    """The ratio over campaigns with its interval, and how much they disagree."""

    campaigns: int
    ratio: float
    low: float
    high: float
    p: float
    """Of no difference: t with as many degrees of freedom as campaigns, less one."""
    se: float
    """Of the mean log ratio."""
    tau: float
    """Spread between campaigns beyond their own noise, in logarithms."""
    q: float
    q_p: float
    """Of as large a Q where the campaigns have one true ratio."""
    i2: float
    """Share of the disagreement that is more than noise, 0 to 1."""
    fixed_ratio: float
    fixed_low: float
    fixed_high: float
    """If the campaigns have one true ratio: an interval about these campaigns alone, no machine or session beyond."""


def pool(
    logs: Sequence[float], variances: Sequence[float], blocks: Sequence[int],
    alpha: float = stats.ALPHA,
) -> Pooled:  # fmt: skip
    """Two or more log ratios with the variances of their means, pooled; ValueError for fewer, or a variance of zero.

    Random effects: statsmodels' combine_effects, method "iterated". The interval is Hartung and Knapp's with t on k − 1
    degrees of freedom, its scale never below 1, so that agreement by luck does not narrow it. Fixed effect: the inverse
    variance mean with Meier's variance (Biometrics 1953), (1 + 4 Σ p(1 − p)/(K − 1)) / Σw with p = w/Σw, and t on Welch
    and Satterthwaite's degrees of freedom, because each weight is itself an estimate from few `blocks`.
    """
    from statsmodels.stats.meta_analysis import combine_effects

    effects, spread = np.asarray(logs, dtype=float), np.asarray(variances, dtype=float)
    if effects.size < 2 or not (spread > 0).all():
        raise ValueError("give two campaigns or more, each with a variance above zero")
    with np.errstate(
        divide="ignore", over="ignore"
    ):  # I² of campaigns that agree to the last bit is 0, and asked for below
        found = combine_effects(effects, spread, method_re="iterated", maxiter=_ITERATIONS)
    df = effects.size - 1
    mean, se = float(found.mean_effect_re), float(found.sd_eff_w_re)
    low, high = found.conf_int(alpha=alpha, use_t=True)[1]
    share = found.weights_rel_fe
    own_df = np.asarray(blocks, dtype=float) - 1
    fixed_df = 1 / float((share**2 / own_df).sum())
    wider = math.sqrt(1 + 4 * float((share * (1 - share) / own_df).sum()))
    reach = float(scipy.stats.t.ppf(1 - alpha / 2, fixed_df)) * wider * float(found.sd_eff_w_fe)
    fixed = float(found.mean_effect_fe)
    # from residuals: the difference of sums that statsmodels takes loses all digits where one variance is tiny
    q = float(((effects - fixed) ** 2 / spread).sum())
    return Pooled(
        campaigns=effects.size, ratio=math.exp(mean), low=math.exp(low), high=math.exp(high),
        p=float(2 * scipy.stats.t.sf(abs(mean) / se, df)), se=se, tau=math.sqrt(float(found.tau2)),
        q=q, q_p=float(scipy.stats.chi2.sf(q, df)), i2=max(0.0, 1 - df / q) if q > 0 else 0.0,
        fixed_ratio=math.exp(fixed), fixed_low=math.exp(fixed - reach), fixed_high=math.exp(fixed + reach),
    )  # fmt: skip


def equivalence(found: Pooled, margin: float) -> float:
    """TOST p: the larger of two one-sided t tests of the pooled log ratio against ± log(1 + margin)."""
    room = math.log1p(margin) - abs(math.log(found.ratio))
    return float(scipy.stats.t.sf(room / found.se, found.campaigns - 1))
