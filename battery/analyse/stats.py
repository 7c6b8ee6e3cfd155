"""Paired estimates, equivalence, corrections, power and the verdict: pure functions of numbers.

The unit is the block. Every lower source of noise (window, seed, request) is inside the spread of block differences,
because seeds are fresh in every block; a plain t interval on them is therefore the whole interval. Tests and
power are scipy's and statsmodels' own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache, lru_cache
from typing import Literal

import msgspec
import numpy as np
import scipy

from battery.analyse.numerals import figure, percent
from battery.ledger.claims import FEWEST_BLOCKS as FEWEST_BLOCKS

ALPHA = 0.05
MOST_LOST = 0.10
"""Share of pairs that may be missing before nothing can be decided: failures are no random sample."""
MOST_BLOCKS = 100
"""Where the search for the number of blocks needed gives up."""
_NO_SPREAD = 1e-12
_ENUMERATED = 14
"""Blocks up to which a sign-flip test goes through every flip."""

Word = Literal[
    "faster", "slower", "smaller", "larger", "higher", "lower", "equivalent", "undecided", "pilot", "not comparable",
    "invalid",
]  # fmt: skip


class Estimate(msgspec.Struct, frozen=True, kw_only=True):
    """A ratio from block differences of logarithms, with its interval at 1 − α; what needs more blocks is None."""

    blocks: int
    ratio: float
    low: float | None = None
    high: float | None = None
    sd: float | None = None
    """Spread of the block differences, in logarithms."""
    p: float | None = None
    """Two-sided t test of no difference."""
    sign_flip_p: float | None = None
    """Sign-flip permutation p, exact up to 14 blocks: shown beside p as sensitivity, never used for a verdict."""
    note: str = ""


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """One word from the closed set, what qualifies it, and why it is no stronger one."""

    word: Word
    qualifier: str = ""
    why: str = ""


def paired(
    differences: Sequence[float], alpha: float = ALPHA, flip: bool = True
) -> Estimate | None:
    """The ratio exp(mean D) with exp(mean D ± t(1−α/2, K−1) · sd(D)/√K); None without a block.

    `flip` False leaves out the sign-flip p, which takes most of the time.
    With one block there is a ratio and no interval. Where all blocks agree to the last bit the interval has no width, t
    is infinite, and p is its limit: 0 for a difference, 1 for none; the note says so.
    """
    d = np.asarray(differences, dtype=float)
    if d.size == 0:
        return None
    mean = float(d.mean())
    if d.size == 1:
        return Estimate(
            blocks=1, ratio=math.exp(mean), note="one block: no interval can be computed"
        )
    flip_p = sign_flip(d) if flip else None
    if float(np.ptp(d)) <= _NO_SPREAD:
        ratio = 1.0 if abs(mean) <= _NO_SPREAD else math.exp(mean)
        return Estimate(
            blocks=d.size, ratio=ratio, low=ratio, high=ratio, sd=0.0, p=float(ratio == 1.0), sign_flip_p=flip_p,
            note="every block gave the same ratio: the interval has no width",
        )  # fmt: skip
    test = scipy.stats.ttest_1samp(d, 0.0)
    interval = test.confidence_interval(1 - alpha)
    return Estimate(
        blocks=d.size, ratio=math.exp(mean), low=math.exp(interval.low), high=math.exp(interval.high),
        sd=float(d.std(ddof=1)), p=float(test.pvalue), sign_flip_p=flip_p,
    )  # fmt: skip


def sign_flip(d: np.ndarray) -> float | None:
    """Sign-flip permutation p of the mean: exact up to 14 blocks, by 9,999 seeded resamples above; None below two.

    Twice the smaller share of flipped means on either side of the observed one, those within 100 ε of it on both. To
    the last bit what scipy.stats.permutation_test gives; the flips are scipy's own, drawn once per number of blocks,
    for drawing them took most of the time of an analysis.
    """
    if d.size < 2:
        return None
    signs = _flips(d.size)
    observed = d.mean(axis=-1)
    means = (signs * d).mean(axis=-1)
    near = abs(100 * np.finfo(means.dtype).eps * observed)
    # a resample that was drawn by chance counts itself; where all are enumerated it is among them
    drawn = int(d.size > _ENUMERATED)
    sides = (means <= observed + near, means >= observed - near)
    ps = [(int(np.count_nonzero(side)) + drawn) / (len(means) + drawn) for side in sides]
    return min(1.0, 2 * min(ps))


@lru_cache(maxsize=16)
def _flips(blocks: int) -> np.ndarray:
    """The signs of every resample: (resamples × blocks) of 1 and −1."""
    kept: list[np.ndarray] = []

    def seen(values: np.ndarray, axis: int) -> np.ndarray:
        kept.append(values)
        means: np.ndarray = values.mean(axis=axis)
        return means

    scipy.stats.permutation_test(
        (np.ones(blocks),), seen, permutation_type="samples", vectorized=True,
        n_resamples=2**_ENUMERATED if blocks <= _ENUMERATED else 9999, rng=np.random.default_rng(1),
    )  # fmt: skip
    # in the order of memory in which scipy holds them: sums then come out the same to the last bit
    return kept[-1].astype(np.int8, order="K")


def equivalence(differences: Sequence[float], margin: float) -> float | None:
    """TOST p: two one-sided t tests of the block differences against ±log(1 + margin); None below two blocks."""
    from statsmodels.stats.weightstats import DescrStatsW

    d = np.asarray(differences, dtype=float)
    if d.size < 2:
        return None
    bound = math.log1p(margin)
    if float(np.ptp(d)) <= _NO_SPREAD:
        return 0.0 if abs(float(d.mean())) < bound else 1.0
    return float(DescrStatsW(d).ttost_mean(-bound, bound)[0])


def beyond(estimate: Estimate | None, margin: float, alpha: float = ALPHA) -> float | None:
    """P of a ratio that differs by the margin or less: below α exactly where the interval clears the margin.

    Twice the one-sided t test of the mean log ratio against ±log(1 + margin) on its own side, from the interval at
    1 − α and its K − 1 degrees of freedom; 1 where the estimate itself is inside; None without an interval.
    """
    if estimate is None or estimate.low is None or estimate.high is None:
        return None
    room = abs(math.log(estimate.ratio)) - math.log1p(margin)
    half = (math.log(estimate.high) - math.log(estimate.low)) / 2
    if room <= 0:
        return 1.0
    if half <= _NO_SPREAD:
        return 0.0
    df = estimate.blocks - 1
    return float(2 * scipy.stats.t.sf(room / half * scipy.stats.t.ppf(1 - alpha / 2, df), df))


def holm(ps: Sequence[float | None]) -> list[float | None]:
    """Holm-adjusted p-values in the same order: max over smaller ones of (m − rank) · p, at most 1; None stays None.

    Written out because statsmodels' multipletests collects garbage at every call, which was most of an analysis.
    """
    known = sorted((p, place) for place, p in enumerate(ps) if p is not None)
    adjusted: list[float | None] = [None] * len(ps)
    running = 0.0
    for rank, (p, place) in enumerate(known):
        running = max(running, min(1.0, (len(known) - rank) * p))
        adjusted[place] = running
    return adjusted


def false_discovery(ps: Sequence[float | None]) -> list[float | None]:
    """Benjamini-Hochberg-adjusted p-values in the same order; None stays None.

    Among the differences called at level α, a share of α is expected to be none: right for a screen, weaker than Holm.
    """
    known = [p for p in ps if p is not None]
    adjusted = iter(scipy.stats.false_discovery_control(known).tolist() if known else ())
    return [None if p is None else float(next(adjusted)) for p in ps]


@cache
def _effect(blocks: int, alpha: float) -> float:
    """Difference, in spreads of the block differences, that `blocks` blocks find four times out of five."""
    from statsmodels.stats.power import TTestPower

    found = TTestPower().solve_power(nobs=blocks, alpha=alpha, power=0.8, alternative="two-sided")
    return float(np.squeeze(found))


def detectable(sd: float | None, blocks: int, alpha: float = ALPHA) -> float | None:
    """Smallest difference, as a share, that `blocks` blocks of this spread would find four times out of five."""
    return None if sd is None or blocks < 3 else math.expm1(_effect(blocks, alpha) * sd)


def blocks_needed(sd: float | None, margin: float, alpha: float = ALPHA) -> int | None:
    """Fewest blocks, even and at least six, that find a difference of `margin` four times out of five at this spread.

    None where there is no spread to plan from, or above MOST_BLOCKS.
    """
    if sd is None:
        return None
    for blocks in range(FEWEST_BLOCKS, MOST_BLOCKS + 1, 2):
        if _effect(blocks, alpha) * sd <= math.log1p(margin):
            return blocks
    return None


def judge(
    estimate: Estimate,
    p: float | None,
    tost_p: float | None,
    margin: float,
    words: tuple[Word, Word],
    alpha: float = ALPHA,
    fewest: int = FEWEST_BLOCKS,
    correction: str = "Holm",
    beyond_p: float | None = None,
) -> Verdict:
    """The verdict; `words` are for a ratio above and below 1, and all p-values are already corrected.

    `alpha` is the level of every test and of the interval, `fewest` the units below which there is no verdict;
    `correction` names what the p-values went through. `beyond_p` is of `beyond`: "by at least" the margin is a claim of
    its own, and in many contexts the correction of p would not cover it.
    A difference needs p < α and the interval on that side of 1. Equivalence needs its own test: a difference that was
    not found is `undecided`, never equal.
    """
    if estimate.blocks < fewest or p is None or estimate.low is None or estimate.high is None:
        return Verdict(
            word="pilot",
            why=f"{estimate.blocks} of the {fewest} blocks that a verdict needs",
        )
    bound, share = math.log1p(margin), f"{100 * margin:g} %"
    low, high = math.log(estimate.low), math.log(estimate.high)
    differs = p < alpha and (low > 0 or high < 0)
    within = tost_p is not None and tost_p < alpha
    if differs:
        word = words[0] if low > 0 else words[1]
        if (low > bound or high < -bound) and beyond_p is not None and beyond_p < alpha:
            return Verdict(word=word, qualifier=f"by at least {share}")
        return Verdict(word=word, qualifier=f"within {share}" if within else "")
    if within:
        return Verdict(word="equivalent", qualifier=f"within {share}")
    after = f" after {correction}" if correction else ""
    cause = f"the interval holds 1 and is not inside ±{share}"
    if low > 0 or high < 0:
        cause = f"the interval is clear of 1 but p{after} is {figure(p, 2)}"
    elif -bound < low and high < bound and tost_p is not None:
        cause = f"the interval holds 1 inside ±{share}, but the p of equivalence{after} is {figure(tost_p, 2)}"
    return Verdict(word="undecided", why=_undecided(estimate, cause, margin, alpha))


def _undecided(estimate: Estimate, cause: str, margin: float, alpha: float) -> str:
    """Why nothing can be said, and what would let it be said."""
    found = detectable(estimate.sd, estimate.blocks, alpha)
    needed = blocks_needed(estimate.sd, margin, alpha)
    enough = f"{needed} blocks" if needed else f"more than {MOST_BLOCKS} blocks"
    if found is None:
        return cause
    return (
        f"{cause}; in a test by itself {estimate.blocks} blocks find {percent(found)}, {enough} would find"
        f" {100 * margin:g} %"
    )


class Mean(msgspec.Struct, frozen=True, kw_only=True):
    """A geometric mean over windows with its t interval (None below two windows)."""

    value: float
    low: float | None
    high: float | None
    n: int


def geometric(logs: Sequence[float], alpha: float = ALPHA) -> Mean | None:
    """The exponential of the mean of window means, with the t interval at 1 − α on them; None without a window."""
    x = np.asarray(logs, dtype=float)
    if x.size == 0:
        return None
    value = math.exp(float(x.mean()))
    if x.size == 1:
        return Mean(value=value, low=None, high=None, n=1)
    if float(np.ptp(x)) <= _NO_SPREAD:
        return Mean(value=value, low=value, high=value, n=x.size)
    interval = scipy.stats.ttest_1samp(x, 0.0).confidence_interval(1 - alpha)
    return Mean(value=value, low=math.exp(interval.low), high=math.exp(interval.high), n=x.size)
