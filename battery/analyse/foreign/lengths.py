"""How long the answers of both arms were: a rate over different lengths is not the same work."""

from __future__ import annotations

import msgspec

from battery.analyse.foreign.case import Case
from battery.analyse.foreign.estimates import exp, means, t_test
from battery.analyse.foreign.wording import change
from battery.analyse.numerals import figure

BEFORE_THE_FIRST = ("ttft", "prefill")
"""Metrics that end with the first token, whatever the length of the answer."""


class Lengths(msgspec.Struct, frozen=True, kw_only=True):
    """Generated tokens of the pairs: how many differ, both ranges, and whether one arm writes more."""

    known: int
    """Pairs in which both lengths are told."""
    unequal: int
    control: tuple[int, int]
    candidate: tuple[int, int]
    """Fewest and most tokens."""
    ratio: float
    """Candidate / control, over the same units as the verdict where all lengths are known, else over pairs."""
    low: float | None
    high: float | None
    p: float | None


def lengths(case: Case) -> Lengths | None:
    """Generated tokens of the pairs whose lengths are told; the test is over the verdict's own units if it can be."""
    known = [pair for pair in case.pairs if pair.log_length is not None]
    if not known:
        return None
    basis = case.estimates.basis
    logs = means(known, basis, lambda pair: pair.log_length or 0.0) if basis else None
    test = t_test(logs or [pair.log_length or 0.0 for pair in known])
    one = [pair.control.tokens or 0 for pair in known]
    other = [pair.candidate.tokens or 0 for pair in known]
    clustered = logs is not None
    return Lengths(
        known=len(known), unequal=sum(a != b for a, b in zip(one, other, strict=True)),
        control=(min(one), max(one)), candidate=(min(other), max(other)),
        ratio=exp(test.mean),
        low=exp(test.low) if clustered and test.low is not None else None,
        high=exp(test.high) if clustered and test.high is not None else None,
        p=test.p if clustered else None,
    )  # fmt: skip


def unequal(case: Case, told: Lengths | None) -> list[str]:
    """Lengths that differ, lengths that are unknown."""
    found = []
    if told and told.unequal:
        consequence = (
            f"{case.metric.title} ends with the first token and does not depend on it"
            if case.metric.name in BEFORE_THE_FIRST
            else f"{case.metric.title} over different lengths is not the same work"
        )
        tested = (
            f"; length ratio by {case.estimates.basis}"
            f" {change(told.ratio)} [{change(told.low)}, {change(told.high)}], p {figure(told.p, 2)}"
            if told.low is not None and told.high is not None and told.p is not None
            else ""
        )
        found.append(
            f"unequal lengths: generated tokens differ in {told.unequal} of {told.known} pairs"
            f" ({case.control} {told.control[0]} to {told.control[1]}, {case.candidate} {told.candidate[0]} to"
            f" {told.candidate[1]}): {consequence}{tested}"
        )
    known = told.known if told else 0
    if known < len(case.pairs) and case.metric.name not in BEFORE_THE_FIRST:
        found.append(
            f"unknown lengths: generated tokens are not told in {len(case.pairs) - known} of {len(case.pairs)} pairs;"
            " whether both arms did the same work there cannot be seen"
        )
    return found
