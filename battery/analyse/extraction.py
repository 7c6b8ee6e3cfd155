"""Two extractors over the same answers: how many answers pass under each, and which differ, from files kept apart.

Ours are the verdicts of the quality receipts, EvalPlus's lie beside them (`ledger.sanitised`). They are held against
each other only where both are of the same answers, tasks and grader, so that nothing but the extraction differs; else
they are left out, with the reason.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from battery.analyse import asked
from battery.analyse.asked import FOLDER, Kept, LeftOut
from battery.analyse.shares import Share, share
from battery.ledger import sanitised
from battery.ledger.answers import Graded, Scores
from battery.ledger.errors import ReceiptError
from battery.ledger.sanitised import PLACE, SCHEMA, Extracted, Form, Sanitised

OURS = "battery"
FORMS: dict[str | None, str] = {
    "defines": "defines the entry point",
    "lacks": "lacks the entry point",
    "broken": "does not parse",
    "blank": "is empty",
    None: "was not had",
}
"""What EvalPlus's code is, as the end of a sentence."""


class Differing(msgspec.Struct, frozen=True, kw_only=True):
    """One answer that passes under one extractor and not under the other."""

    task: str
    sample: int
    ours: str
    """Our status of it."""
    rule: str
    """How our program was found in the answer."""
    theirs: str
    """EvalPlus's status of it."""
    form: Form | None
    """What EvalPlus's code of it is to who calls its entry point."""


class Unjudged(msgspec.Struct, frozen=True, kw_only=True):
    """An answer that EvalPlus's extraction brought to no verdict."""

    task: str
    sample: int
    ours: str
    why: str


class Extraction(msgspec.Struct, frozen=True, kw_only=True):
    """One arm and one suite under both extractors."""

    arm: str
    suite: str
    answers: int
    ours: Share
    """Strict pass@1 by our extraction."""
    theirs: Share
    """By EvalPlus's; an answer without a verdict counts as failed here, so with such ones it is the least it can be."""
    our_name: str
    their_name: str
    python: str
    """Under which EvalPlus's extraction ran."""
    limit_s: float
    ours_only: tuple[Differing, ...]
    theirs_only: tuple[Differing, ...]
    unjudged: tuple[Unjudged, ...]
    cut_off: int
    """Answers that were cut off, which fail under both."""
    cut_off_passing: int
    """Of these, how many have code, as EvalPlus extracts it, that passes: EvalPlus itself never looks at how an answer
    ended, and would count them."""


def found(folder: Path, receipts: Sequence[Kept]) -> tuple[list[Extraction], list[LeftOut]]:
    """What lies beside the quality receipts of a campaign's folder, and what of it cannot be used with the reason.

    `receipts` are those that can be used.
    """
    ours = {f"{one.arm}.{one.suite}.json": one.scores for one in receipts}
    good, bad = [], []
    for path in sorted((folder / FOLDER / PLACE).glob("*.json")):
        place = f"{PLACE}/{path.name}"
        try:
            theirs = sanitised.read(path)
        except ReceiptError as broken:
            bad.append(LeftOut(file=place, why=str(broken).replace(str(path), place)))
            continue
        scores = ours.get(path.name)
        why = unfit(path.name, theirs, scores)
        if why or scores is None:
            bad.append(LeftOut(file=place, why=why))
        else:
            good.append(extraction(scores, theirs))
    return good, bad


def unfit(name: str, theirs: Extracted, scores: Scores | None) -> str:
    """Why EvalPlus's verdicts may not be held against ours; nothing where they may."""
    if theirs.schema != SCHEMA:
        return f"its schema is {theirs.schema}, this battery reads {SCHEMA}"
    if name != f"{theirs.arm}.{theirs.suite}.json":
        return f"it is of arm {theirs.arm} and suite {theirs.suite}, and its name says another"
    if scores is None:
        return f"no quality receipt {name} that can be used has the verdicts of our own extraction"
    told = (
        ("campaign", theirs.campaign, scores.campaign),
        ("arm", theirs.arm_digest, scores.arm_digest),
        ("data file", theirs.dataset_digest, scores.dataset.digest),
        ("file of answers", theirs.answers_digest, scores.answers_digest),
        ("grader", _grader(theirs), _grader(scores)),
    )
    for what, left, right in told:
        if left != right:
            return f"it is of another {what} than {name} ({left[:40]}, not {right[:40]}); compare again"
    return _uneven(theirs, scores)


def _grader(one: Extracted | Scores) -> str:
    return f"{one.grader.name} {one.grader.version}"


def _uneven(theirs: Extracted, scores: Scores) -> str:
    """Why the rows are not one for each of our verdicts, or cannot be of the same answer."""
    keys = [[(row.task, row.sample) for row in rows] for rows in (theirs.rows, scores.graded)]
    if keys[0] != keys[1]:
        return "its verdicts are not on the answers of the receipt, in their order; compare again"
    for row, ours in zip(theirs.rows, scores.graded, strict=True):
        at = f"sample {row.sample} of {row.task}"
        if row.truncated != ours.truncated:
            return f"{at}: cut off is {row.truncated}, our verdict says {ours.truncated}"
        if (row.status == "request_error") != (ours.status == "request_error"):
            return f"{at}: its status is {row.status}, our verdict says {ours.status}"
        if row.passed != (None if row.status is None else row.status == "passed"):
            return f"{at}: it is passed and not, by its status"
        wanted = "cut_off" if row.truncated else row.ran
        if row.status not in (wanted, "request_error"):
            return f"{at}: its status is {row.status}, and its code came to {row.ran}"
    return ""


def extraction(scores: Scores, theirs: Extracted) -> Extraction:
    """Both verdicts on every answer, counted; `unfit` must have found nothing."""
    pairs = list(zip(scores.graded, theirs.rows, strict=True))
    tasks = [ours.task for ours, _ in pairs]
    return Extraction(
        arm=theirs.arm,
        suite=theirs.suite,
        answers=len(pairs),
        ours=share([asked.passed(ours) for ours, _ in pairs], tasks),
        theirs=share([_passed(row) for _, row in pairs], tasks),
        our_name=f"{OURS} {scores.grader.version}",
        their_name=theirs.peer.name,
        python=theirs.peer.python,
        limit_s=theirs.peer.limit_s,
        ours_only=tuple(
            _differing(ours, row)
            for ours, row in pairs
            if asked.passed(ours) and row.passed is not None and not _passed(row)
        ),
        theirs_only=tuple(
            _differing(ours, row) for ours, row in pairs if _passed(row) and not asked.passed(ours)
        ),
        unjudged=tuple(
            Unjudged(task=row.task, sample=row.sample, ours=ours.status, why=row.detail or "not told")
            for ours, row in pairs
            if row.passed is None
        ),
        cut_off=sum(row.truncated for _, row in pairs),
        cut_off_passing=sum(row.truncated and row.ran == "passed" for _, row in pairs),
    )  # fmt: skip


def _passed(row: Sanitised) -> bool:
    return bool(row.passed) and not row.truncated


def _differing(ours: Graded, row: Sanitised) -> Differing:
    return Differing(
        task=row.task, sample=row.sample, ours=ours.status, rule=ours.rule, theirs=str(row.status), form=row.form
    )  # fmt: skip
