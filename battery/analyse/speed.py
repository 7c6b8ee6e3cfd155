"""Per rung and metric: what each arm did, how each candidate stands to the control, and the verdict."""

from __future__ import annotations

import math
from collections.abc import Mapping
from operator import itemgetter

import msgspec
import numpy as np
import pandas as pd

from battery.analyse import stats
from battery.analyse.pairs import Pairs, match
from battery.analyse.rows import MEASURES
from battery.analyse.stats import Verdict, Word
from battery.ledger.plan import Plan
from battery.ledger.store import Header
from battery.ledger.trace import Trace

MAIN = ("decode", "prefill", "ttft", "peak_memory")
FACTORS = ("tokens_per_step", "seconds_per_step", "acceptance")
COMPARED = (*MAIN, *FACTORS)
"""Metrics that get a ratio. End-to-end time and TPOT do not: they follow the length of the answer."""


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
    p_corrected: float | None = None
    """After Holm across the other rungs of this metric; for the primary endpoint across the candidates."""
    tost_p: float | None = None
    tost_p_corrected: float | None = None
    detectable: float | None = None
    """Share that this many blocks find four times out of five at this spread."""
    blocks_needed: int | None = None
    """Blocks that would find the margin at this spread; None where there is no spread, or too many."""
    by_block: tuple[tuple[int, float], ...] = ()
    """Block and its own ratio."""
    receipts: tuple[int, ...] = ()


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
    measured = frame[~frame["sentinel"].astype(bool)]
    cells = {
        (arm.name, rung): measured[(measured["arm"] == arm.name) & (measured["rung"] == rung)]
        for arm in header.arms
        for rung in header.plan.ladder
    }
    return tuple(
        _level(cells[arm.name, rung], arm.name, metric, rung)
        for metric in MEASURES
        if metric in MAIN or frame[metric].notna().any()
        for rung in header.plan.ladder
        for arm in header.arms
    )


def _level(seen: pd.DataFrame, arm: str, metric: str, rung: int) -> Level:
    """One arm's value at one rung, over the pooled ones of the rows `seen` there."""
    here = seen[seen["pooled"].astype(bool) & seen[metric].notna()]
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
    mean = stats.geometric([math.log(value) for _, value in windows])
    column = {"prefill": "prefill_source", "peak_memory": "memory_source"}.get(metric)
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
    for candidate in header.arms[1:]:
        for metric in COMPARED:
            if metric not in MAIN and not _both_have(frame, metric, header.control, candidate.name):
                continue
            families.append(
                [
                    _compared(
                        match(frame, traces, header.plan, metric, rung, (header.control, candidate.name)),
                        header, candidate.name, rung,
                    )
                    for rung in header.plan.ladder
                ]
            )  # fmt: skip
    return _judged(families, header, complete)


def _both_have(frame: pd.DataFrame, metric: str, *arms: str) -> bool:
    """Whether every arm has the metric somewhere."""
    return all(bool(frame[frame["arm"] == arm][metric].notna().any()) for arm in arms)


def _compared(pairs: Pairs, header: Header, candidate: str, rung: int) -> Comparison:
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
    and Holm runs over these. With one candidate its p stays as it is.
    """
    every = [one for family in families for one in family]
    tests = [[one for one in family if not one.primary] for family in families]
    tests.append([one for one in every if one.primary])
    corrected = {}
    for test in tests:
        ps = stats.holm([one.estimate.p if one.estimate else None for one in test])
        tosts = stats.holm([one.tost_p for one in test])
        for one, p, tost in zip(test, ps, tosts, strict=True):
            corrected[one.candidate, one.metric, one.rung] = (p, tost)
    judged = []
    for one in every:
        p, tost = corrected[one.candidate, one.metric, one.rung]
        verdict = _verdict(one, p, tost, header.plan, complete)
        judged.append(
            msgspec.structs.replace(one, p_corrected=p, tost_p_corrected=tost, verdict=verdict)
        )
    return tuple(judged)


def _verdict(
    one: Comparison, p: float | None, tost: float | None, plan: Plan, complete: int
) -> Verdict:
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
    if lost > stats.MOST_LOST * one.planned:
        return Verdict(
            word="not comparable", why=f"{lost} of {one.planned} pairs are missing: {told}"
        )
    return stats.judge(one.estimate, p, tost, one.margin, words(one.metric), plan.stopping.alpha)


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
            usable = [one for one in family if one.verdict.word != "not comparable"]
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
