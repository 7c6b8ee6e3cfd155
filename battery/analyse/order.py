"""Whether it matters which arm runs second, and whether block differences follow each other.

Shown beside the estimate and used by no verdict.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec
import numpy as np

from battery.analyse.speed import Comparison
from battery.ledger.store import Header

_FEWEST = 4


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """What going second is worth: OLS of the block differences on order (+1 candidate second, −1 first), as a ratio."""

    candidate: str
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    adjusted: float | None = None
    """The candidate's ratio with the order effect taken out (the intercept): admissible beside the estimate, and
    narrower where drift is linear."""
    adjusted_low: float | None = None
    adjusted_high: float | None = None
    durbin_watson: float | None = None
    """About 2 where neighbouring blocks are independent."""
    ljung_box_p: float | None = None
    """That neighbouring blocks are independent (lag 1)."""
    flagged: bool = False
    """Whether the interval of the order effect excludes 1."""
    why: str = ""


def order_effect(one: Comparison, header: Header, run: Sequence[int]) -> Order:
    """The order effect of one comparison; needs four blocks, and both orders among them.

    `run` are the blocks in the order in which they ran: that they follow each other is a question of time.
    """
    from statsmodels.regression.linear_model import OLS
    from statsmodels.stats.diagnostic import acorr_ljungbox
    from statsmodels.stats.stattools import durbin_watson

    known = dict(one.by_block)
    blocks = [(block, math.log(known[block])) for block in run if block in known]
    signs = [
        1.0 if order.index(one.candidate) > order.index(one.control) else -1.0
        for order in (header.order[block - 1] for block, _ in blocks)
    ]
    if len(blocks) < _FEWEST or len(set(signs)) < 2:
        return Order(candidate=one.candidate, why="needs four blocks, and both orders among them")
    d = np.asarray([value for _, value in blocks])
    if float(np.ptp(d)) <= 1e-12:
        ratio = math.exp(float(d.mean()))
        return Order(
            candidate=one.candidate, ratio=1.0, low=1.0, high=1.0, adjusted=ratio, adjusted_low=ratio,
            adjusted_high=ratio, why="no spread",
        )  # fmt: skip
    fit = OLS(d, np.column_stack([np.ones(len(signs)), signs])).fit()
    (own_low, own_high), (low, high) = fit.conf_int(header.plan.stopping.alpha)
    centred = d - d.mean()
    return Order(
        candidate=one.candidate, ratio=math.exp(fit.params[1]), low=math.exp(low), high=math.exp(high),
        adjusted=math.exp(fit.params[0]), adjusted_low=math.exp(own_low), adjusted_high=math.exp(own_high),
        durbin_watson=float(durbin_watson(centred)),
        ljung_box_p=float(acorr_ljungbox(centred, lags=[1])["lb_pvalue"].iloc[0]),
        flagged=bool(low > 0 or high < 0),
    )  # fmt: skip
