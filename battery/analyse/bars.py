"""Bars: what must hold of a campaign's intervals, and whether it does.

A bar is about an interval, not about a verdict: it is met where the interval's near end clears the bound, failed where
the far end does not reach it either, and undecided in between. It is undecided too where the comparison carries no
claim: a pilot, a campaign that is not finished, pairs that are missing, a doubt that voids. No bar is corrected for
others: each was asked for by itself, and a plan with many is to be read as such. What voids a speed says nothing of
answers, and the other way round.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from battery.analyse.numerals import percent, points
from battery.analyse.quality import Quality
from battery.analyse.speed import Comparison
from battery.analyse.stopping import DECIDED
from battery.analyse.tasks_changed import STRICT_ONLY, Paired, judge
from battery.ledger.claims import Bar, wording
from battery.ledger.plan import Plan

Outcome = Literal["met", "failed", "undecided"]
Side = Literal["at least", "at most", "within"]


class BarResult(msgspec.Struct, frozen=True, kw_only=True):
    """One bar of one candidate; a bar with two bounds gives two."""

    what: str
    """The bar in words."""
    candidate: str
    metric: str
    """A metric of speed, or a quality suite."""
    rung: int | None
    """None for a suite."""
    side: Side
    bound: float
    """A change as a share (0.03 is +3 %), of a suite's pass rate in shares of 1."""
    low: float | None
    """The interval's ends, as changes in shares too."""
    high: float | None
    outcome: Outcome
    why: str
    sealed: bool
    """Whether the bar stands in the plan that every receipt names, and the campaign's files are those of its seal."""
    declared: bool = False
    """Whether it stands in the plan; otherwise it was named afterwards."""


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """What bars are held against."""

    plan: Plan
    control: str
    candidates: tuple[str, ...]
    comparisons: tuple[Comparison, ...]
    hindrance: str
    """Why nothing can be claimed of speed at all: what voids the campaign, or what it still waits for."""
    quality: Quality | None = None
    """None: no arm was asked."""


def results(
    bars: Sequence[Bar], measured: Measured, sealed: bool, declared: bool = False
) -> tuple[BarResult, ...]:
    """Every bar of every candidate that it names; `sealed` and `declared` are what is known of all of them.

    A declared bar that is not sealed is undecided: nobody can tell whether it was declared before.
    """
    found = []
    for bar in bars:
        for candidate in (bar.candidate,) if bar.candidate else measured.candidates or ("",):
            if bar.suite is not None and bar.within is not None:
                found.append(_quality(bar, bar.within, measured, candidate, sealed))
            if bar.at_least is not None:
                found.append(_speed(bar, "at least", bar.at_least, measured, candidate, sealed))
            if bar.at_most is not None:
                found.append(_speed(bar, "at most", bar.at_most, measured, candidate, sealed))
    return tuple(_standing(one, declared) for one in found)


def _standing(one: BarResult, declared: bool) -> BarResult:
    """The result with where the bar comes from; without a claim where that cannot be trusted."""
    one = msgspec.structs.replace(one, declared=declared)
    if not declared or one.sealed or one.outcome == "undecided":
        return one
    why = "the files are not those of a seal, so nobody can tell that it was declared before; battery verify says more"
    return msgspec.structs.replace(one, outcome="undecided", why=why)


def _quality(
    bar: Bar, within: float, measured: Measured, candidate: str, sealed: bool
) -> BarResult:
    """A bar on a quality suite: of strict pass@1, by its 90 % interval, whatever was cut off.

    A verdict that holds under strict only leaves it undecided: answers that were cut off could turn it.
    """
    pair, why = _pair(bar, measured, candidate)
    outcome: Outcome = "undecided"
    low, high = None, None
    if pair is not None:
        low, high = round(pair.strict.low, 12), round(pair.strict.high, 12)
        verdict = judge(pair, within, why)
        words: dict[str, Outcome] = {"non-inferior": "met", "inferior": "failed"}
        told = f"{points(low)} to {points(high)} points (90 % interval)"
        if STRICT_ONLY in verdict.qualifier:
            why = f"{verdict.word} {STRICT_ONLY}: {verdict.why}"
        else:
            outcome = words.get(verdict.word, "undecided")
            why = verdict.why or told
    return BarResult(
        what=wording(bar, "within", within, 0, (measured.control, candidate)),
        candidate=candidate, metric=str(bar.suite), rung=None, side="within", bound=within, low=low, high=high,
        outcome=outcome, why=why, sealed=sealed,
    )  # fmt: skip


def _pair(bar: Bar, measured: Measured, candidate: str) -> tuple[Paired | None, str]:
    """The comparison that a quality bar is of, and what keeps it open; None with the reason where there is none."""
    if measured.quality is None:
        return None, "quality was not run"
    if candidate not in measured.candidates:
        others = ", ".join(measured.candidates) or "none"
        return None, f"no such candidate was measured; those that were: {others}"
    named = (
        x for x in measured.quality.changes if (x.candidate, x.suite) == (candidate, bar.suite)
    )
    one = next(named, None)
    if one is None:
        return None, f"quality was not run on {bar.suite} by both arms"
    return one.paired, one.refused or one.unanswered


def _speed(
    bar: Bar, side: Side, bound: float, measured: Measured, candidate: str, sealed: bool
) -> BarResult:
    """A bar on one ratio's interval."""
    rung = bar.rung or measured.plan.anchor
    named = (
        x
        for x in measured.comparisons
        if (x.candidate, x.metric, x.rung) == (candidate, bar.metric, rung)
    )
    one = next(named, None)
    low, high = None, None
    if one and one.estimate and one.estimate.low is not None and one.estimate.high is not None:
        low, high = round(one.estimate.low - 1, 12), round(one.estimate.high - 1, 12)
    outcome, why = _outcome(side, bound, low, high)
    if hindrance := _hindrance(one, bar, measured, candidate):
        outcome, why = "undecided", hindrance
    return BarResult(
        what=wording(bar, side, bound, rung, (measured.control, candidate)),
        candidate=candidate, metric=bar.metric, rung=rung, side=side, bound=bound, low=low, high=high,
        outcome=outcome, why=why, sealed=sealed,
    )  # fmt: skip


def _hindrance(one: Comparison | None, bar: Bar, measured: Measured, candidate: str) -> str:
    """Why the interval carries no claim; nothing where it does."""
    if candidate not in measured.candidates:
        others = ", ".join(measured.candidates) or "none"
        return f"no such candidate was measured; those that were: {others}"
    if measured.hindrance:
        return measured.hindrance
    if one is None:
        return f"{bar.metric} was not compared: not both arms tell it"
    if one.attrition or one.verdict.word not in {*DECIDED, "undecided"}:
        return f"{one.verdict.word}: {one.verdict.why}".removesuffix(": ")
    return ""


def _outcome(
    side: Side, bound: float, low: float | None, high: float | None
) -> tuple[Outcome, str]:
    """What the interval says of the bound, and by which end."""
    if low is None or high is None:
        return "undecided", "there is no interval"
    near, far = (low, high) if side == "at least" else (high, low)
    names = ("lower", "upper") if side == "at least" else ("upper", "lower")

    def holds(end: float) -> bool:
        return end >= bound if side == "at least" else end <= bound

    if holds(near):
        return "met", f"the {names[0]} end is {percent(near, 4, sign=True)}"
    if not holds(far):
        return "failed", f"even the {names[1]} end is {percent(far, 4, sign=True)}"
    return (
        "undecided",
        f"the bound lies inside the interval, {percent(low, 4, sign=True)} to {percent(high, 4, sign=True)}",
    )
