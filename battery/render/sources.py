"""What each kind of figure rests on, as a Source for marks: levels, comparisons, windows, blocks, single receipts."""

from __future__ import annotations

from collections.abc import Sequence

from battery.analyse.facts import Outcomes, WindowFacts
from battery.analyse.findings import Findings
from battery.analyse.mechanism import Mechanism
from battery.analyse.quality import Change, Quality, Row
from battery.analyse.speed import Comparison, Ladder, Level
from battery.render import words
from battery.render.marks import Group, Source


def level(findings: Findings, one: Level | None, of: str = "") -> Source:
    """An arm's own value with its windows; `of` names the kind of text where the value is of one only."""
    if one is None:
        return Source(title="nothing")
    metric = findings.measure(one.metric)
    groups = tuple(
        Group(number, f"window {number}", f"{words.amount(value, one.metric)} {words.unit(findings, one.metric)}")
        for number, value in one.windows
    )  # fmt: skip
    return Source(
        title=f"{one.arm}, {metric.title} at {one.rung:,} tokens of context{of and f', {of}'}",
        figure=words.level(one), said=one.why, metric=one.metric, receipts=one.receipts,
        where=() if one.receipts else (("arm", (one.arm,)), ("rung", (one.rung,)), ("sentinel", (False,))),
        by="window", groups=groups,
    )  # fmt: skip


def comparison(findings: Findings, one: Comparison, of: str = "") -> Source:
    """A candidate against the control with the ratio of every block."""
    metric, estimate = findings.measure(one.metric), one.estimate
    told = words.verdict(one) + (f": {one.verdict.why}" if one.verdict.why else "")
    groups = tuple(
        Group(block, f"block {block}, order {'-'.join(findings.order[block - 1])}", words.change(ratio, fine=True))
        for block, ratio in one.by_block
    )  # fmt: skip
    ends = None
    if one.primary and not of and estimate and estimate.low is not None and estimate.high is not None:  # fmt: skip
        ends = (estimate.ratio, estimate.low, estimate.high)
    return Source(
        title=f"{one.candidate} against {one.control}, {metric.title} at {one.rung:,} tokens of context"
        f"{of and f', {of}'}",
        figure=words.interval(estimate), said=told, metric=one.metric, receipts=one.receipts,
        where=() if one.receipts else _cells(one),
        by="block", groups=groups, ends=ends, margin=one.margin if ends else None,
    )  # fmt: skip


def _cells(one: Comparison) -> tuple[tuple[str, tuple[int | str | bool, ...]], ...]:
    """What the cells of a comparison have in common."""
    return (
        ("arm", (one.control, one.candidate)), ("rung", (one.rung,)), ("sentinel", (False,)),
    )  # fmt: skip


def ladder(findings: Findings, one: Ladder) -> Source:
    """A candidate over all contexts: the receipts of every comparison in it."""
    parts = [
        part for rung in one.rungs if (part := findings.comparison(one.candidate, one.metric, rung))
    ]
    metric = findings.measure(one.metric).title
    return Source(
        title=f"{one.candidate} against {one.control}, {metric} over the whole ladder",
        figure=words.interval(one.estimate), said=one.standing, metric=one.metric, by="block",
        receipts=tuple(sorted({number for part in parts for number in part.receipts})),
    )  # fmt: skip


def mechanism(findings: Findings, one: Mechanism, metric: str) -> Source:
    """One of the factors of a decode rate: what its own comparison rests on."""
    found = findings.comparison(one.candidate, metric, one.rung)
    return comparison(findings, found) if found else Source(title="nothing")


def window(findings: Findings, one: WindowFacts) -> Source:
    """A window with every cell of it, the sentinel's too."""
    return Source(
        title=f"Window {one.number}: {one.arm} in block {one.block}",
        metric=findings.plan.primary.metric, where=(("window", (one.number,)),),
    )  # fmt: skip


def block(findings: Findings, one: Comparison, number: int, ratio: str) -> Source:
    """One block of a comparison."""
    title = comparison(findings, one).title
    return Source(
        title=f"{title}: block {number}", figure=ratio, metric=one.metric,
        where=(("block", (number,)), ("pooled", (True,)), *_cells(one)), by="window",
    )  # fmt: skip


def outcomes(one: Outcomes) -> Source:
    """How the cells of an arm at a context ended."""
    return Source(
        title=f"{one.arm} at {one.rung:,} tokens of context: every cell",
        where=(("arm", (one.arm,)), ("rung", (one.rung,)), ("sentinel", (False,))), by="window",
    )  # fmt: skip


def sentinels(findings: Findings, arm: str) -> Source:
    """The sentinel's cells of an arm, one a window."""
    return Source(
        title=f"Sentinel of {arm}", metric=findings.drift.metric, where=(("arm", (arm,)), ("sentinel", (True,))),
    )  # fmt: skip


def listed(title: str, numbers: Sequence[int]) -> Source:
    """Receipts that are named one by one."""
    return Source(title=title, receipts=tuple(numbers))


def pooled(arm: str, rung: int) -> Source:
    """What an arm sent at a context and that estimates count."""
    return Source(
        title=f"{arm} at {rung:,} tokens of context: pooled cells",
        where=(("arm", (arm,)), ("rung", (rung,)), ("sentinel", (False,)), ("pooled", (True,))), by="window",
    )  # fmt: skip


def answers(one: Row) -> Source:
    """The graded answers of an arm on a suite: files of their own, with what they were graded by."""
    return Source(
        title=f"{one.arm} on {one.suite}: {one.tasks} tasks",
        said=f"graded by {one.basis.grader}; {words.counts(one.statuses)}",
        files=_files(one),
    )


def _files(one: Row) -> tuple[tuple[str, str], ...]:
    """Receipt and answers, each with its digest."""
    name = f"quality/{one.arm}.{one.suite}"
    return (f"{name}.json", one.basis.receipt), (f"{name}.jsonl", one.basis.answers)


def change(quality: Quality, one: Change, figure: str) -> Source:
    """A candidate's answers and the control's, suite by suite."""
    rows = [
        row
        for row in quality.rows
        if row.suite in one.suites and row.arm in (one.control, one.candidate)
    ]
    told = f"{one.verdict.word} {one.verdict.qualifier}".strip()
    return Source(
        title=f"{one.candidate} against {one.control}, pass@1 on {', '.join(one.suites)}", figure=figure,
        said=f"{told}: {one.verdict.why}" if one.verdict.why else told,
        files=tuple(file for row in rows for file in _files(row)),
    )  # fmt: skip
