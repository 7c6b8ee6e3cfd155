"""What a campaign of some size can tell, given the spread of block differences of an earlier one.

The unit is the block, as in every verdict. A difference is found when the t test on block differences rejects; the two
arms are found equivalent when both one-sided tests do. All figures are for four times out of five.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import scipy

from battery.analyse import stats

POWER = 0.8
CLAIMABLE = (stats.FEWEST_BLOCKS, 16)
"""Fewest and most blocks that are recommended: fewer carry no verdict, more buy little for their time."""
SURE = 0.8
"""How sure the upper limit of a spread is."""
MOST_BLOCKS = 100_000
"""Where the search for blocks gives up."""
_LEAST = 3
_SOLVER = 1e-4
"""Blocks by which the solver's root may be off; a whole number must not be rounded up for it."""


def upper_sd(sd: float, blocks: int) -> float | None:
    """The value that the true spread is below, 80 times of 100: sd · √((K−1) / χ²(.2, K−1)); None below two blocks."""
    if blocks < 2:
        return None
    return sd * math.sqrt((blocks - 1) / float(scipy.stats.chi2.ppf(1 - SURE, blocks - 1)))


def difference_blocks(sd: float, margin: float, alpha: float = stats.ALPHA) -> int | None:
    """Blocks that find a difference of `margin` (a share), neither clipped nor rounded up to a balanced order.

    At least three; None above MOST_BLOCKS. Formula: the noncentral t of TTestPower with effect log(1 + margin) / sd.
    """
    from statsmodels.stats.power import TTestPower

    least = stats.detectable(sd, _LEAST, alpha)
    if least is not None and least <= margin:
        return _LEAST
    found = TTestPower().solve_power(
        effect_size=math.log1p(margin) / sd, alpha=alpha, power=POWER, alternative="two-sided"
    )
    blocks = math.ceil(float(np.squeeze(found)) - _SOLVER)
    return blocks if blocks <= MOST_BLOCKS else None


def equivalence_power(sd: float, margin: float, blocks: int, alpha: float = stats.ALPHA) -> float:
    """How often `blocks` blocks find two arms equivalent within ± log(1 + margin) when their ratio is exactly 1.

    With V = s²/σ² ~ χ²(K−1)/(K−1), both one-sided tests reject when |D̄| < δ − t(1−α, K−1)·s/√K, so the power is
    E[max(0, 2Φ(√K·δ/σ − t·√V) − 1)]: exact, integrated over V's quantiles. Source: Phillips, J. Pharmacokin. Biopharm.
    1990.
    """
    if sd <= 0:
        return 1.0
    df = blocks - 1
    critical = float(scipy.stats.t.ppf(1 - alpha, df))
    reach = math.sqrt(blocks) * math.log1p(margin) / sd
    law = scipy.stats.chi2(df)
    top = float(law.cdf(df * (reach / critical) ** 2))

    def rejects(u: np.ndarray) -> np.ndarray:
        inside = reach - critical * np.sqrt(law.ppf(u) / df)
        return np.asarray(2 * scipy.stats.norm.cdf(inside) - 1)

    return float(scipy.integrate.fixed_quad(rejects, 0.0, top, n=60)[0])


def equivalence_blocks(sd: float, margin: float, alpha: float = stats.ALPHA) -> int | None:
    """Blocks that find two arms of ratio 1 equivalent within `margin`; at least three, None above MOST_BLOCKS."""
    return _first(lambda blocks: equivalence_power(sd, margin, blocks, alpha) >= POWER)


def _first(holds: Callable[[int], bool]) -> int | None:
    """The smallest number of blocks for which `holds`, which stays true once it is."""
    low, high = _LEAST, _LEAST
    while not holds(high):
        low, high = high + 1, 2 * high
        if high > MOST_BLOCKS:
            return None
    while low < high:
        middle = (low + high) // 2
        if holds(middle):
            high = middle
        else:
            low = middle + 1
    return low


def orders(arms: int) -> int:
    """Different orders of a block that balance places and neighbours: as many as arms, twice that for an odd number."""
    return arms if arms % 2 == 0 or arms == 1 else 2 * arms


def balanced(blocks: int, arms: int) -> int:
    """`blocks` rounded up to a number in which every order of the arms comes equally often."""
    rows = orders(arms)
    return math.ceil(blocks / rows) * rows


def recommended(needed: int | None, arms: int) -> int:
    """The blocks to plan: `needed` brought inside 6…16, then up to a balanced number."""
    fewest, most = CLAIMABLE
    return balanced(min(max(needed or most, fewest), most), arms)


def fitting(seconds: float, setup: float, block: float, arms: int) -> int:
    """The balanced number of blocks that fit into `seconds`; an unbalanced one only where no balanced one of six fits.

    0 where not one block fits.
    """
    blocks = max(0, math.floor((seconds - setup) / block)) if block > 0 else 0
    even = blocks // orders(arms) * orders(arms)
    return even if even >= stats.FEWEST_BLOCKS else blocks
