"""Per rung and metric: what each arm did, how each candidate stands to the control, and the verdict."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from operator import itemgetter

import msgspec
import numpy as np
import pandas as pd

from battery.analyse import stats
from battery.analyse.pairs import Pairs, Sides, match
from battery.analyse.rows import MEASURES
from battery.analyse.sensitivity import Sensitivity, sensitivity
from battery.analyse.stats import Verdict, Word
from battery.ledger.plan import Plan
from battery.ledger.store import Header
from battery.ledger.trace import Trace

MAIN = ("decode", "prefill", "ttft", "peak_memory")
FACTORS = ("tokens_per_step", "seconds_per_step", "acceptance")
COMPARED = (*MAIN, *FACTORS)
"""Metrics that get a ratio. End-to-end time and TPOT do not: they follow the length of the answer."""

_OF_A_LEVEL = (
    "arm", "rung", "sequence", "window", "outcome", "counted", "pooled", "prefill_source", "memory_source",
)  # fmt: skip
"""Columns that a level is computed from, beside the metric's own."""


class Level(msgspec.Struct, frozen=True, kw_only=True):
    """One arm's own value of a metric at a rung: geometric mean over windows, t interval over them, and the range."""

    arm: str
    metric: str
    rung: int
    value: float | None
    low: float | None
    high: float | None
    smallest: float | None
    largest: float | None
    n: int
    """Requests behind it."""
    windows: tuple[tuple[int, float], ...]
    """Window number and that window's own geometric mean (for peak memory: its highest)."""
    source: str = ""
    """Where the figure was read, for metrics that have more than one source."""
    why: str = ""
    """Why there is no value."""
    receipts: tuple[int, ...] = ()


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """One candidate against the control, one metric, one rung: ratio = candidate / control."""

    metric: str
    rung: int
    control: str
    candidate: str
    primary: bool
    verdict: Verdict
    margin: float
    pairs: int
    planned: int
    lost: dict[str, int]
    unequal_lengths: int
    """Pairs that were timed over the tokens that both arms produced."""
    estimate: stats.Estimate | None = None
    sensitivity: Sensitivity | None = None
    """The same by other methods, for the main metrics; no verdict uses it."""
    p_corrected: float | None = None
    """After `correction`."""
    correction: str = ""
    """What p, the equivalence p and the margin's p went through, and over how many; nothing where it is one test."""
    exploratory: bool = False
    """One of the many questions of a screen: a lead to follow, no result."""
    tost_p: float | None = None
    tost_p_corrected: float | None = None
    beyond_p_corrected: float | None = None
    """That the difference is the margin or less, after the same correction."""
    detectable: float | None = None
    """Share that this many blocks find four times out of five at this spread."""
    blocks_needed: int | None = None
    """Blocks that would find the margin at this spread; None where there is no spread, or too many."""
    by_block: tuple[tuple[int, float], ...] = ()
    """Block and its own ratio."""
    receipts: tuple[int, ...] = ()

    @property
    def attrition(self) -> bool:
        """Whether so many pairs are missing that those that are left may stand for something else."""
        return self.planned - self.pairs > stats.MOST_LOST * self.planned


class Ladder(msgspec.Struct, frozen=True, kw_only=True):
    """One candidate against the control over all rungs: geometric mean of the rung ratios, per block, then one t."""

    metric: str
    control: str
    candidate: str
    rungs: tuple[int, ...]
    estimate: stats.Estimate | None
    why: str = ""
    standing: str = ""
    """Why the interval is no result (void, unfinished, a pilot); nothing where it is one."""


def levels(frame: pd.DataFrame, header: Header) -> tuple[Level, ...]:
    """Every arm × metric × rung, also those without a value; metrics that no receipt has are left out."""
    measured = frame[~frame["sentinel"].astype(bool)][[*_OF_A_LEVEL, *MEASURES]]
    cells = {
        (arm.name, rung): measured[(measured["arm"] == arm.name) & (measured["rung"] == rung)]
        for arm in header.arms
        for rung in header.plan.ladder
    }
    return tuple(
        _level(cells[arm.name, rung], arm.name, metric, rung, header.plan.stopping.alpha)
        for metric in MEASURES
        if metric in MAIN or frame[metric].notna().any()
        for rung in header.plan.ladder
        for arm in header.arms
    )


def _level(seen: pd.DataFrame, arm: str, metric: str, rung: int, alpha: float) -> Level:
    """One arm's value at one rung, over the pooled ones of the rows `seen` there."""
    column = {"prefill": "prefill_source", "peak_memory": "memory_source"}.get(metric)
    wanted = [metric, "window", "sequence", *([column] if column else [])]
    here = seen.loc[seen["pooled"].astype(bool) & seen[metric].notna(), wanted]
    here = here[here[metric] > 0]
    values = [float(value) for value in here[metric]]
    by_window: dict[int, list[float]] = {}
    for number, value in sorted(
        zip(here["window"].tolist(), values, strict=True), key=itemgetter(0)
    ):
        by_window.setdefault(int(number), []).append(value)
    windows = [
        (number, max(own) if metric == "peak_memory" else math.exp(float(np.log(own).mean())))
        for number, own in by_window.items()
    ]
    mean = stats.geometric([math.log(value) for _, value in windows], alpha)
    return Level(
        arm=arm, metric=metric, rung=rung,
        value=mean.value if mean else None,
        low=mean.low if mean else None,
        high=mean.high if mean else None,
        smallest=min(values, default=None),
        largest=max(values, default=None),
        n=len(here),
        windows=tuple(windows),
        source=" and ".join(sorted({str(s) for s in here[column]})) if column and mean else "",
        why="" if mean else _absent(seen),
        receipts=tuple(int(number) for number in here["sequence"]),
    )  # fmt: skip


def _absent(seen: pd.DataFrame) -> str:
    """Why an arm has no value at a rung, in words short enough for a chart."""
    if not len(seen):
        return "not reached"
    if not seen["counted"].any():
        return "incomplete"
    failed = seen[seen["counted"].astype(bool) & (seen["outcome"] != "ok")]["outcome"]
    if len(failed):
        return ", ".join(f"{word} {count}" for word, count in sorted(failed.value_counts().items()))
    return "not reported"


def compare(
    frame: pd.DataFrame, traces: Mapping[int, Trace], header: Header, complete: int
) -> tuple[Comparison, ...]:
    """Every candidate against the control, corrected and judged; `complete` is the number of complete blocks."""
    families: list[list[Comparison]] = []
    sides = Sides(frame)
    for candidate in header.arms[1:]:
        for metric in COMPARED:
            if metric not in MAIN and not both_have(frame, metric, header.control, candidate.name):
                continue
            families.append(
                [
                    compared(
                        match(sides, traces, header.plan, metric, rung, (header.control, candidate.name)),
                        header, candidate.name, rung,
                    )
                    for rung in header.plan.ladder
                ]
            )  # fmt: skip
    return _judged(families, header, complete)


def primary(
    frame: pd.DataFrame, traces: Mapping[int, Trace], header: Header, complete: int
) -> tuple[Comparison, ...]:
    """The primary endpoint alone, once per candidate, judged as `compare` judges it: what a look needs."""
    plan, sides = header.plan, Sides(frame)
    # a screen corrects it together with the other rungs
    rungs = plan.ladder if header.screen else (plan.anchor,)
    families = [
        [
            compared(
                match(sides, traces, plan, plan.primary.metric, rung, (header.control, candidate.name)),
                header, candidate.name, rung,
            )
            for rung in rungs
        ]
        for candidate in header.arms[1:]
    ]  # fmt: skip
    return tuple(one for one in _judged(families, header, complete) if one.primary)


def both_have(frame: pd.DataFrame, metric: str, *arms: str) -> bool:
    """Whether every arm has the metric somewhere."""
    return all(bool(frame[frame["arm"] == arm][metric].notna().any()) for arm in arms)


def compared(pairs: Pairs, header: Header, candidate: str, rung: int) -> Comparison:
    """The numbers of one comparison, before correction; the verdict comes with the family."""
    plan, blocks, alpha = header.plan, pairs.by_block(), header.plan.stopping.alpha
    estimate = stats.paired(list(blocks.values()), alpha)
    margin = plan.margins.of(pairs.metric)
    return Comparison(
        metric=pairs.metric, rung=rung, control=header.control, candidate=candidate,
        primary=(pairs.metric, rung) == (plan.primary.metric, plan.anchor),
        verdict=Verdict(word="undecided"),
        margin=margin,
        pairs=len(pairs.kept), planned=pairs.planned, lost=pairs.lost,
        unequal_lengths=sum(pair.cut for pair in pairs.kept),
        estimate=estimate,
        sensitivity=sensitivity(pairs, alpha) if estimate and pairs.metric in MAIN else None,
        tost_p=stats.equivalence(list(blocks.values()), margin),
        detectable=stats.detectable(estimate.sd, estimate.blocks, alpha) if estimate else None,
        blocks_needed=stats.blocks_needed(estimate.sd, margin, alpha) if estimate else None,
        by_block=tuple((block, math.exp(d)) for block, d in blocks.items()),
        receipts=tuple(sorted({number for pair in pairs.kept for number in pair.receipts})),
    )  # fmt: skip


def _judged(
    families: list[list[Comparison]], header: Header, complete: int
) -> tuple[Comparison, ...]:
    """All comparisons with p-values corrected and verdicts given.

    Holm runs within a candidate's metric over its rungs, the primary endpoint apart: that is one test per candidate,
    and Holm runs over these. With one candidate its p stays as it is. In a screen Benjamini-Hochberg runs within a
    metric over all candidates and rungs, the primary endpoint among them.
    """
    every = [one for family in families for one in family]
    return judged(every, _tests(families, header), header, complete)


def judged(
    every: Sequence[Comparison],
    tests: Sequence[tuple[list[Comparison], str]],
    header: Header,
    complete: int,
) -> tuple[Comparison, ...]:
    """All comparisons with their verdicts, each of `tests` corrected by itself; its words have a place for how many."""
    adjust = stats.false_discovery if header.screen else stats.holm
    corrected = {}
    for test, what in tests:
        ps = adjust([one.estimate.p if one.estimate else None for one in test])
        tosts = adjust([one.tost_p for one in test])
        aways = adjust(
            [stats.beyond(one.estimate, one.margin, header.plan.stopping.alpha) for one in test]
        )
        tested = sum(p is not None for p in ps)
        told = what.format(tested) if tested > 1 else ""
        for one, p, tost, away in zip(test, ps, tosts, aways, strict=True):
            corrected[id(one)] = (p, tost, away, told)
    found = []
    for one in every:
        p, tost, away, told = corrected[id(one)]
        one = msgspec.structs.replace(
            one, p_corrected=p, tost_p_corrected=tost, beyond_p_corrected=away, correction=told,
            exploratory=bool(header.screen),
        )  # fmt: skip
        found.append(msgspec.structs.replace(one, verdict=_verdict(one, header.plan, complete)))
    return tuple(found)


def _tests(families: list[list[Comparison]], header: Header) -> list[tuple[list[Comparison], str]]:
    """Which comparisons are corrected together, and by what, with a place for their number."""
    every = [one for family in families for one in family]
    if header.screen:
        metrics = dict.fromkeys(one.metric for one in every)
        what = "Benjamini-Hochberg over {} comparisons"
        return [([one for one in every if one.metric == metric], what) for metric in metrics]
    found = [
        ([one for one in family if not one.primary], "Holm over {} contexts") for family in families
    ]
    return [*found, ([one for one in every if one.primary], "Holm over {} candidates")]


def _verdict(one: Comparison, plan: Plan, complete: int) -> Verdict:
    """The verdict, after the reasons that forbid one; a plan too small for any is a pilot from its first block."""
    planned = plan.blocks
    lost = one.planned - one.pairs
    told = "; ".join(f"{why} ({count})" for why, count in one.lost.items())
    if one.estimate is None:
        return Verdict(word="not comparable", why=told or "no complete block")
    if planned >= stats.FEWEST_BLOCKS and complete < planned:
        return Verdict(
            word="undecided",
            why=f"{complete} of {planned} planned blocks: a verdict before the end would be peeking",
        )
    if planned >= stats.FEWEST_BLOCKS and one.attrition:
        return Verdict(
            word="undecided", why=f"attrition: {lost} of {one.planned} pairs are missing: {told}"
        )
    return stats.judge(
        one.estimate, one.p_corrected, one.tost_p_corrected, one.margin, words(one.metric), plan.stopping.alpha,
        correction=one.correction, beyond_p=one.beyond_p_corrected,
    )  # fmt: skip


def words(metric: str) -> tuple[Word, Word]:
    """The words for a ratio above and below 1."""
    if metric == "peak_memory":
        return ("larger", "smaller")
    if metric in ("tokens_per_step", "acceptance"):
        return ("higher", "lower")
    return ("faster", "slower") if MEASURES[metric].higher_is_better else ("slower", "faster")


def ladders(comparisons: tuple[Comparison, ...], header: Header) -> tuple[Ladder, ...]:
    """The summary over rungs per candidate and metric, from blocks that have every comparable rung."""
    found = []
    for candidate in header.arms[1:]:
        for metric in MAIN:
            family = [
                one
                for one in comparisons
                if (one.candidate, one.metric) == (candidate.name, metric)
            ]
            usable = [one for one in family if one.estimate is not None and not one.attrition]
            per_rung = [dict(one.by_block) for one in usable]
            blocks = sorted(set.intersection(*map(set, per_rung))) if per_rung else []
            means = [float(np.mean([math.log(rung[b]) for rung in per_rung])) for b in blocks]
            found.append(
                Ladder(
                    metric=metric, control=header.control, candidate=candidate.name,
                    rungs=tuple(one.rung for one in usable),
                    estimate=stats.paired(means, header.plan.stopping.alpha),
                    why="" if means else "no rung can be compared",
                )
            )  # fmt: skip
    return tuple(found)
