"""Batteries in which nothing differs, judged by the analysis that judges campaigns: how many get a verdict anyway.

A null battery may be called undecided or equivalent. One in twenty is called something else by chance; more than the
binomial test allows are a fault of the method. A battery that voids itself (its arms differed from themselves) is
counted apart: it is no pass.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator

import msgspec
import numpy as np
from scipy.stats import binomtest

from battery.analyse import findings as analysis
from battery.analyse.findings import Findings
from battery.ledger.receipt import Receipt
from battery.ledger.store import Header
from benchmarks.statistics.receipts import battery
from benchmarks.statistics.simulate import Drawn, World, draw

SEED = 20_260_101
COUNT = 200
ALPHA, SURE = 0.05, 0.01
QUIET = ("undecided", "equivalent")
WORLD = World(blocks=8, seeds=2, rungs=4)
"""Two arms, two rungs (each with decode and prefill), eight blocks."""

Judge = Callable[[list[Receipt], Header], Findings]


class Null(msgspec.Struct, frozen=True, kw_only=True):
    """What one null battery came to."""

    arms: str
    drift: str
    carry: bool
    outliers: bool
    word: str
    """The verdict at the primary endpoint."""
    p: float
    """Of the primary endpoint, before anything could void it."""
    self_p: float | None
    """Of the arms against themselves."""
    voided: bool
    claims: dict[str, int]
    """Per metric, comparisons of the battery that were called different after Holm."""


def worlds() -> list[World]:
    """Every mixture of arms, drift, carry-over and outliers: forty."""
    return [
        WORLD.but(arms=arms, drift=drift, carry=carry, outliers=outliers)
        for arms, drift, carry, outliers in itertools.product(
            ("exact", "rounding"), ("none", "linear", "walk", "warm-up", "step"), (False, True), (False, True)
        )
    ]  # fmt: skip


def drawn(count: int = COUNT) -> Iterator[tuple[Drawn, np.random.Generator]]:
    """The batteries, each with a generator of its own, the mixtures in turn."""
    mixtures = worlds()
    for place in range(count):
        rng = np.random.default_rng([SEED, place])
        yield draw(mixtures[place % len(mixtures)], 1, rng), rng


def together(count: int = COUNT) -> Drawn:
    """The same batteries' requests at the primary endpoint, for rules that are not battery's."""
    every = [one for one, _ in drawn(count)]
    anchor = slice(WORLD.rungs - 2, WORLD.rungs - 1)
    return Drawn(
        WORLD,
        np.concatenate([one.logs[:, :, :, anchor] for one in every]),
        np.concatenate([one.windows for one in every]),
        np.concatenate([one.coins for one in every]),
    )


def real(receipts: list[Receipt], header: Header) -> Findings:
    """The findings as of any campaign."""
    return analysis.found(receipts, header)


def judged(count: int = COUNT, judge: Judge = real) -> Iterator[Null]:
    """`count` null batteries through the analysis."""
    for one, rng in drawn(count):
        header, receipts = battery(one, 0, rng)
        yield _null(one.world, judge(receipts, header))


def _null(world: World, found: Findings) -> Null:
    """What the findings say of a battery in which nothing differs."""
    (primary,) = found.primary
    assert primary.estimate is not None and primary.estimate.p is not None
    claims = Counter(
        one.metric for one in found.comparisons if one.verdict.word not in (*QUIET, "invalid")
    )
    return Null(
        arms=world.arms, drift=world.drift, carry=world.carry, outliers=world.outliers,
        word=primary.verdict.word, p=primary.estimate.p, self_p=found.drift.self_test.p,
        voided=primary.verdict.word == "invalid", claims=dict(sorted(claims.items())),
    )  # fmt: skip


def most(count: int) -> int:
    """The most rejections that `count` null batteries may show before chance at 5 % is no explanation (p < .01)."""
    return max(
        k
        for k in range(count + 1)
        if binomtest(k, count, ALPHA, alternative="greater").pvalue >= SURE
    )


def summary(nulls: list[Null]) -> dict[str, object]:
    """The counts of a set of null batteries."""
    rejected = [one for one in nulls if one.word not in QUIET]  # void ones too: they are no passes
    return {
        "batteries": len(nulls),
        "rejections": len(rejected),
        "most": most(len(nulls)),
        "voided": sum(one.voided for one in nulls),
        "voided_that_would_reject": sum(one.voided and one.p < ALPHA for one in nulls),
        "voided_without_carry": sum(one.voided and not one.carry for one in nulls),
        "without_carry": sum(not one.carry for one in nulls),
        "words": dict(sorted(Counter(one.word for one in nulls).items())),
        "any_claim": sum(bool(one.claims) for one in nulls),
        "claims_by_metric": {
            metric: sum(metric in one.claims for one in nulls)
            for metric in sorted({name for one in nulls for name in one.claims})
        },
        "rejections_by": {
            name: dict(sorted(Counter(str(getattr(one, name)) for one in rejected).items()))
            for name in ("arms", "drift", "carry", "outliers")
        },
    }
