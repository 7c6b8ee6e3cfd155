"""Pairs of two arms, and three estimates from the same pairs: naive, by seed, by round.

Seeds that return in every round are not new evidence, and neither is a second seed of one launch. A t interval over all
pairs counts both as such: where nothing differs it finds a difference in a quarter to a third of all batteries. Means
by seed carry what the prompts vary, means by round what the launches vary; the wider of the two intervals covers the
larger of the two (1.9 to 6.1 % false positives), and is the one to rest on.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Literal

import msgspec
import numpy as np
import scipy

from battery.analyse.foreign.rows import Row
from battery.analyse.stats import ALPHA

Basis = Literal["seed", "round"]
BASES: tuple[Basis, Basis] = ("seed", "round")
_NO_SPREAD = 1e-12
_STEEPEST = 700.0
"""Logarithms are cut here, for a float ends at e^709: two units far apart give an interval wider than that."""


class Pair(msgspec.Struct, frozen=True, kw_only=True):
    """Two values of one metric with the same context, seed and round."""

    control: Row
    candidate: Row

    @property
    def log(self) -> float:
        """The logarithm of candidate / control."""
        return math.log(self.candidate.value) - math.log(self.control.value)

    @property
    def difference(self) -> float:
        """Candidate − control, in the metric's unit."""
        return self.candidate.value - self.control.value

    @property
    def log_length(self) -> float | None:
        """The logarithm of the ratio of generated tokens; None where one is unknown."""
        one, other = self.control.tokens, self.candidate.tokens
        return None if one is None or other is None else math.log(other) - math.log(one)


class Contrast(msgspec.Struct, frozen=True, kw_only=True):
    """Candidate / control and candidate − control, each a mean over units with its 95 % t interval.

    Below two units there is no interval and no p. The p is of the ratio.
    """

    units: int
    ratio: float
    low: float | None
    high: float | None
    difference: float
    difference_low: float | None
    difference_high: float | None
    p: float | None


class Estimates(msgspec.Struct, frozen=True, kw_only=True):
    """The three estimates; one by labels is None where a pair lacks that label."""

    naive: Contrast | None
    by_seed: Contrast | None
    by_round: Contrast | None
    basis: Basis | None
    """Whose interval is the wider; None where neither has two units."""
    logs: tuple[float, ...] = ()
    """Log ratios of the units of the basis."""

    @property
    def chosen(self) -> Contrast | None:
        """The estimate that a verdict rests on."""
        return {"seed": self.by_seed, "round": self.by_round, None: None}[self.basis]


class Tested(msgspec.Struct, frozen=True):
    """A mean with its 95 % t interval and the p of no difference from 0; the latter None below two values."""

    mean: float
    low: float | None = None
    high: float | None = None
    p: float | None = None


def t_test(values: Sequence[float], blur: float = 0.0) -> Tested:
    """One-sample t of at least one value; where all agree the interval has no width and p is its limit, 0 or 1.

    Values agree if they are within `blur`, or within rounding, of each other.
    """
    x = np.asarray(values, dtype=float)
    mean = float(x.mean())
    if x.size < 2:
        return Tested(mean)
    blur = max(blur, _NO_SPREAD * float(np.abs(x).max()))
    if float(np.ptp(x)) <= blur:
        return Tested(mean, mean, mean, float(abs(mean) <= blur))
    found = scipy.stats.ttest_1samp(x, 0.0)
    interval = found.confidence_interval(1 - ALPHA)
    return Tested(mean, float(interval.low), float(interval.high), float(found.pvalue))


def exp(log: float) -> float:
    """The ratio of a logarithm, cut where no float can hold it."""
    return math.exp(max(-_STEEPEST, min(_STEEPEST, log)))


def match(
    control: Iterable[Row], candidate: Iterable[Row]
) -> tuple[tuple[Pair, ...], tuple[int, int]]:
    """Pairs by seed and round in the order of their labels, and how many values of each arm have no partner."""
    sides = [{(row.seed, row.round): row for row in rows} for rows in (control, candidate)]
    both = sorted(sides[0].keys() & sides[1].keys(), key=lambda key: (key[0] or "", key[1] or ""))
    pairs = tuple(Pair(control=sides[0][key], candidate=sides[1][key]) for key in both)
    return pairs, (len(sides[0]) - len(pairs), len(sides[1]) - len(pairs))


def label(pair: Pair, basis: Basis) -> str | None:
    """The pair's seed or round."""
    return pair.control.seed if basis == "seed" else pair.control.round


def means(
    pairs: Sequence[Pair], basis: Basis, of: Callable[[Pair], float]
) -> tuple[float, ...] | None:
    """Mean of `of` within each seed or round, in the order of the labels; None where a pair has no such label."""
    groups: dict[str, list[float]] = {}
    for pair in pairs:
        name = label(pair, basis)
        if name is None:
            return None
        groups.setdefault(name, []).append(of(pair))
    return tuple(float(np.mean(groups[name])) for name in sorted(groups))


def contrast(logs: Sequence[float] | None, differences: Sequence[float] | None) -> Contrast | None:
    """Ratio and difference over the same units; None without a unit."""
    if not logs or not differences:
        return None
    relative, absolute = t_test(logs, _NO_SPREAD), t_test(differences)
    return Contrast(
        units=len(logs),
        ratio=exp(relative.mean),
        low=None if relative.low is None else exp(relative.low),
        high=None if relative.high is None else exp(relative.high),
        difference=absolute.mean, difference_low=absolute.low, difference_high=absolute.high,
        p=relative.p,
    )  # fmt: skip


def estimate(pairs: Sequence[Pair]) -> Estimates:
    """All three estimates of the pairs, and on which of seed and round a verdict may rest."""
    logs = {basis: means(pairs, basis, lambda pair: pair.log) for basis in BASES}
    found = {
        basis: contrast(logs[basis], means(pairs, basis, lambda pair: pair.difference))
        for basis in BASES
    }
    basis = wider(found["seed"], found["round"])
    return Estimates(
        naive=contrast([pair.log for pair in pairs], [pair.difference for pair in pairs]),
        by_seed=found["seed"], by_round=found["round"], basis=basis,
        logs=(logs[basis] or ()) if basis else (),
    )  # fmt: skip


def wider(by_seed: Contrast | None, by_round: Contrast | None) -> Basis | None:
    """Whose interval is the wider in logarithms, seeds if both are as wide; None where neither has an interval."""
    seed, rounds = _width(by_seed), _width(by_round)
    if seed is None:
        return None if rounds is None else "round"
    return "round" if rounds is not None and rounds > seed else "seed"


def _width(one: Contrast | None) -> float | None:
    """Width of an interval in logarithms."""
    if one is None or one.low is None or one.high is None:
        return None
    return math.log(one.high) - math.log(one.low)
