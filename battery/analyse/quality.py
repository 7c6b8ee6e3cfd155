"""Quality: what every arm passed of every suite, and what changed against the control, from quality receipts.

Three numbers for an arm and a suite, because an answer that was cut off is neither right nor wrong: strict pass@1
counts it as failed, completed-task pass@1 leaves it out, and the truncation rate says how often it happened. With P
passed, T cut off, E never answered and n answers, truth lies between P / n and (P + T + E) / n. An answer that was cut
off after code that passes counts as cut off.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import msgspec

from battery.analyse import asked, extraction, tasks_changed
from battery.analyse.asked import Kept, LeftOut
from battery.analyse.extraction import Extraction
from battery.analyse.facts import SwitchFacts
from battery.analyse.shares import PassAt, Share, pass_at, share
from battery.analyse.tasks_changed import Judgement, Paired, Together
from battery.ledger.answers import SUITES
from battery.ledger.claims import POOL, quality_margin
from battery.ledger.plan import Plan
from battery.ledger.store import Header

_LOOSE = ("rounding", "lossy")


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One arm and one suite."""

    arm: str
    suite: str
    tasks: int
    samples: int
    strict: Share
    completed: Share
    truncation: Share
    upper: Share
    """Passed, cut off or never answered: what could have passed at most."""
    base: Share | None
    """Strict pass@1 by the base tests alone; None where the suite has no others."""
    empty: Share
    errors: int
    """Requests that no answer came to, after all attempts."""
    tokens_mean: float | None
    """Completion tokens of an answer; None where the server did not count them."""
    tokens_most: int | None
    statuses: dict[str, int]
    suspicious: tuple[str, ...]
    """Tasks whose pass wants a look."""
    pass_at: tuple[PassAt, ...]
    basis: Basis


class Basis(msgspec.Struct, frozen=True, kw_only=True):
    """What a row rests on."""

    receipt: str
    """sha256 of the receipt's file."""
    answers: str
    """sha256 of the answers that were graded."""
    dataset: str
    digest: str
    known: str | None
    of: int
    """Tasks that the dataset has."""
    grader: str
    limits: dict[str, Any]
    fences: tuple[str, ...]
    missing: dict[str, str]
    self_test: dict[str, Any]
    sampler: dict[str, Any]
    prompt_style: str
    concurrency: int
    engagement: str | None
    ended: str


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """A candidate against the control over one suite, or over the pool of them."""

    candidate: str
    control: str
    suite: str
    suites: tuple[str, ...]
    """Those of a pool; else the one."""
    margin: float
    """As a share: 0.05 is 5 points."""
    paired: Paired | None = None
    verdict: Judgement
    refused: str = ""
    """Why the two may not be compared."""
    unanswered: str = ""
    """What keeps the verdict open whatever the figures are."""
    notes: tuple[str, ...] = ()
    """In what else the two runs differ."""


class Quality(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a report may say of quality."""

    rows: tuple[Row, ...]
    changes: tuple[Change, ...]
    together: tuple[Together, ...]
    left_out: tuple[LeftOut, ...]
    extraction: tuple[Extraction, ...] | msgspec.UnsetType = msgspec.UNSET
    """The same answers under EvalPlus's extraction; not written where nobody compared."""

    @property
    def extractions(self) -> tuple[Extraction, ...]:
        """The same answers under EvalPlus's extraction; empty where nobody compared."""
        return self.extraction if isinstance(self.extraction, tuple) else ()

    def row(self, arm: str, suite: str) -> Row | None:
        """One arm and suite."""
        return next((one for one in self.rows if (one.arm, one.suite) == (arm, suite)), None)

    def deciding(self, candidate: str) -> Change | None:
        """The comparison that speaks for a candidate: the pool, else its only suite; None without one."""
        own = [one for one in self.changes if one.candidate == candidate and one.paired is not None]
        return next((one for one in own if one.suite == POOL), own[0] if len(own) == 1 else None)

    @property
    def suites(self) -> tuple[str, ...]:
        """The suites that any arm was asked."""
        return tuple(dict.fromkeys(one.suite for one in self.rows))


def quality(folder: Path, header: Header) -> Quality | msgspec.UnsetType:
    """The quality of a campaign's arms; unset where its folder has no quality receipt, used or not."""
    good, bad = asked.kept(folder, header)
    beside, odd = extraction.found(folder, good)
    bad += odd
    if not good and not bad:
        return msgspec.UNSET
    told = found(good, header, bad)
    return msgspec.structs.replace(told, extraction=tuple(beside)) if beside else told


def found(receipts: Sequence[Kept], header: Header, left_out: Sequence[LeftOut] = ()) -> Quality:
    """The same from receipts in memory."""
    places = {arm.name: place for place, arm in enumerate(header.arms)}
    ordered = sorted(receipts, key=lambda one: (SUITES.index(one.suite), places[one.arm]))
    by_key = {(one.arm, one.suite): one for one in ordered}
    changes: list[Change] = []
    for arm in header.arms[1:]:
        changes += _changes(by_key, header, arm.name)
    alike = [
        tasks_changed.together(suite, [one.arm for one in own], _same_order(own))
        for suite in SUITES
        if len(own := [one for one in ordered if one.suite == suite]) > 2
        and not any(
            asked.unlike(left, right, header.plan.limits.allow_declined)
            for left, right in combinations(own, 2)
        )
    ]
    return Quality(
        rows=tuple(map(_row, ordered)), changes=tuple(changes), together=tuple(alike),
        left_out=tuple(left_out),
    )  # fmt: skip


def _row(one: Kept) -> Row:
    """The numbers of one receipt."""
    scores = one.scores
    places = {task: place for place, task in enumerate(scores.tasks)}
    graded = sorted(scores.graded, key=lambda verdict: (places[verdict.task], verdict.sample))
    tasks = [verdict.task for verdict in graded]
    whole = [verdict for verdict in graded if not verdict.truncated]
    tokens = [verdict.completion_tokens for verdict in graded if verdict.completion_tokens is not None]  # fmt: skip
    base = [bool(v.base) and not v.truncated for v in graded if v.base is not None]
    passes = [int(row.sum()) for row in asked.told(one).passed]
    statuses = [verdict.status for verdict in graded]
    return Row(
        arm=one.arm, suite=one.suite, tasks=len(scores.tasks), samples=scores.samples,
        strict=share([asked.passed(verdict) for verdict in graded], tasks),
        completed=share([asked.passed(verdict) for verdict in whole], [verdict.task for verdict in whole]),
        truncation=share([verdict.truncated for verdict in graded], tasks),
        upper=share([asked.passed(verdict) or asked.unknown(verdict) for verdict in graded], tasks),
        base=share(base, tasks) if len(base) == len(graded) else None,
        empty=share([status == "empty" for status in statuses], tasks),
        errors=statuses.count("request_error"),
        tokens_mean=sum(tokens) / len(tokens) if tokens else None,
        tokens_most=max(tokens, default=None),
        statuses={status: statuses.count(status) for status in sorted(set(statuses))},
        suspicious=tuple(dict.fromkeys(verdict.task for verdict in graded if verdict.passed and verdict.suspicious)),
        pass_at=pass_at(passes, scores.samples),
        basis=_basis(one),
    )  # fmt: skip


def _basis(one: Kept) -> Basis:
    """What a receipt says of tasks, grader and asking."""
    scores, data, grader = one.scores, one.scores.dataset, one.scores.grader
    verdict = scores.engagement.get("verdict")
    return Basis(
        receipt=one.digest, answers=scores.answers_digest, dataset=data.source, digest=data.digest, known=data.known,
        of=data.tasks, grader=f"{grader.name} {grader.version}", limits=grader.limits, fences=grader.fences,
        missing=grader.missing, self_test=grader.self_test, sampler=scores.sampler, prompt_style=scores.prompt_style,
        concurrency=scores.concurrency, engagement=None if verdict is None else str(verdict), ended=scores.ended,
    )  # fmt: skip


def _same_order(receipts: Sequence[Kept]) -> list[tasks_changed.Told]:
    """What each arm made of the tasks, in the order of the first: datasets may be written in any order."""
    made = []
    for one in receipts:
        whole = asked.told(one)
        at = {task: place for place, task in enumerate(whole.tasks)}
        order = [at[task] for task in receipts[0].scores.tasks]
        made.append(
            tasks_changed.Told(
                tuple(whole.tasks[i] for i in order), tuple(whole.families[i] for i in order),
                [whole.passed[i] for i in order], [whole.open[i] for i in order],
            )
        )  # fmt: skip
    return made


def _changes(by_key: dict[tuple[str, str], Kept], header: Header, candidate: str) -> list[Change]:
    """A candidate against the control: each suite that either was asked, then the pool of those that both were."""
    control, plan, made = header.control, header.plan, []
    pairs: list[tuple[Kept, Kept]] = []
    for suite in SUITES:
        left, right = by_key.get((control, suite)), by_key.get((candidate, suite))
        if left is None and right is None:
            continue
        if left is None or right is None:
            why = f"{control if left is None else candidate} was not asked {suite}"
        else:
            why = asked.unlike(left, right, plan.limits.allow_declined)
        if why or left is None or right is None:
            made.append(_refused(plan, control, candidate, suite, why))
        else:
            pairs.append((left, right))
            made.append(_change(plan, [(left, right)], suite))
    return [*made, _change(plan, pairs, POOL)] if len(pairs) > 1 else made


def _refused(plan: Plan, control: str, candidate: str, suite: str, why: str) -> Change:
    """A comparison that may not be made."""
    return Change(
        candidate=candidate, control=control, suite=suite, suites=(suite,),
        margin=quality_margin(plan, candidate, suite, (suite,)),
        verdict=Judgement(word="undecided", why=why), refused=why,
    )  # fmt: skip


def _change(plan: Plan, pairs: Sequence[tuple[Kept, Kept]], suite: str) -> Change:
    """A comparison over one suite or several."""
    suites = tuple(left.suite for left, _ in pairs)
    sides = [_same_order(pair) for pair in pairs]
    both = tasks_changed.paired(
        tasks_changed.joined([left for left, _ in sides]),
        tasks_changed.joined([right for _, right in sides]),
    )
    control, candidate = pairs[0][0].arm, pairs[0][1].arm
    margin = quality_margin(plan, candidate, suite, suites)
    unanswered = _unanswered(pairs)
    return Change(
        candidate=candidate, control=control, suite=suite, suites=suites, margin=margin, paired=both,
        verdict=tasks_changed.judge(both, margin, unanswered), unanswered=unanswered,
        notes=tuple(dict.fromkeys(note for pair in pairs for note in _notes(*pair))),
    )  # fmt: skip


def _unanswered(pairs: Sequence[tuple[Kept, Kept]]) -> str:
    """Requests without an answer: a server that did not answer is no wrong answer, and none left out at random."""
    counts: dict[str, int] = {}
    for one in (one for pair in pairs for one in pair):
        errors = sum(verdict.status == "request_error" for verdict in one.scores.graded)
        counts[one.arm] = counts.get(one.arm, 0) + errors
    told = [f"{count} request(s) to {arm}" for arm, count in counts.items() if count]
    return f"{' and '.join(told)} had no answer; ask again" if told else ""


def _notes(left: Kept, right: Kept) -> list[str]:
    """Differences that do not forbid a comparison, but that a reader must know."""
    one, other = left.scores, right.scores
    pairs = (
        ("limits of the grader", one.grader.limits, other.grader.limits),
        ("fences", one.grader.fences, other.grader.fences),
        ("concurrency", one.concurrency, other.concurrency),
    )
    return [f"{left.suite}: the two had other {what}" for what, a, b in pairs if a != b]


def loose(switches: Sequence[SwitchFacts], arm: str) -> tuple[SwitchFacts, ...]:
    """The switches that an arm asks for and that may change answers: by rounding, or by their law."""
    return tuple(
        one for one in switches if one.arm == arm and one.asked and one.exactness in _LOOSE
    )
