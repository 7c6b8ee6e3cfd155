"""Quality receipts as they lie in a campaign's folder, and which of them may be used: nothing is judged here.

A receipt is left out, with the reason, where it is not of this campaign and arm, where a verdict is missing or there
twice, or where the answers beside it are not those that were graded.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np

from battery.analyse.tasks_changed import Told, family
from battery.ledger import strict
from battery.ledger.answers import SCHEMA, Graded, Scores
from battery.ledger.errors import ReceiptError
from battery.ledger.store import Header

FOLDER = "quality"
"""Below a campaign's receipts."""


class Kept(NamedTuple):
    """One quality receipt: its file's name and digest, and what it says."""

    file: str
    digest: str
    scores: Scores

    @property
    def arm(self) -> str:
        """The arm that was asked."""
        return self.scores.arm.name

    @property
    def suite(self) -> str:
        """The suite that it was asked."""
        return self.scores.dataset.suite


class LeftOut(msgspec.Struct, frozen=True, kw_only=True):
    """A quality receipt that no figure comes from."""

    file: str
    why: str


def kept(folder: Path, header: Header) -> tuple[list[Kept], list[LeftOut]]:
    """The quality receipts below a campaign's folder that may be used, by name, and those left out with the reason."""
    good, bad = [], []
    for path in sorted((folder / FOLDER).glob("*.json")):
        try:
            scores = strict.read_json(path, Scores)
        except ReceiptError as broken:
            bad.append(LeftOut(file=path.name, why=str(broken).replace(str(path), path.name)))
            continue
        one = Kept(path.name, strict.digest(path.read_bytes()), scores)
        answers = path.with_suffix(".jsonl")
        graded = strict.digest(answers.read_bytes()) if answers.is_file() else scores.answers_digest
        why = unfit(one, header)
        if not why and graded != scores.answers_digest:
            why = f"{answers.name} is not what was graded; grade it again"
        if why:
            bad.append(LeftOut(file=path.name, why=why))
        else:
            good.append(one)
    return good, bad


def unfit(one: Kept, header: Header) -> str:
    """Why a receipt may not be used in this campaign; nothing where it may."""
    scores, wanted = one.scores, header.arm_digests.get(one.arm)
    if scores.schema != SCHEMA:
        return f"its schema is {scores.schema}, this battery reads {SCHEMA}"
    if one.file != f"{one.arm}.{one.suite}.json":
        return f"it is of arm {one.arm} and suite {one.suite}, and its name is not {one.arm}.{one.suite}.json"
    if scores.campaign != header.campaign:
        return f"it is of campaign {scores.campaign}"
    if wanted is None:
        return f"the campaign has no arm {one.arm}"
    if scores.arm_digest != wanted:
        return f"its arm {one.arm} is not the one whose speed was measured (other digest)"
    if not scores.tasks:
        return "no task was to be asked"
    return _uneven(scores)


def _uneven(scores: Scores) -> str:
    """Why the verdicts are not one for every sample of every task."""
    seen = Counter((one.task, one.sample) for one in scores.graded)
    wanted = {(task, sample) for task in scores.tasks for sample in range(scores.samples)}
    if len(wanted) != len(scores.tasks) * scores.samples:
        return "a task stands in it twice"
    if twice := [key for key, count in seen.items() if count > 1]:
        return f"{len(twice)} answer(s) have two verdicts, such as sample {twice[0][1]} of {twice[0][0]}"
    if strange := [key for key in seen if key not in wanted]:
        return f"sample {strange[0][1]} of {strange[0][0]} was not to be asked"
    if missing := len(wanted) - len(seen):
        return f"unfinished: {missing} of {len(wanted)} answers have no verdict"
    contrary = [one.task for one in scores.graded if one.passed != (one.status == "passed")]
    return f"{contrary[0]} is passed and not, by its status" if contrary else ""


def passed(one: Graded) -> bool:
    """Whether an answer counts as passed: it passed its tests, and was not cut off."""
    return one.passed and not one.truncated


def unknown(one: Graded) -> bool:
    """Whether it is not known what a whole answer would have been: cut off, or none came."""
    return one.truncated or one.status == "request_error"


def told(one: Kept) -> Told:
    """What the arm made of the suite, in the order of the dataset."""
    rows: dict[str, list[Graded]] = {task: [] for task in one.scores.tasks}
    for graded in sorted(one.scores.graded, key=lambda graded: graded.sample):
        rows[graded.task].append(graded)
    return Told(
        tuple(rows),
        tuple(family(one.suite, task) for task in rows),
        [np.array([passed(graded) for graded in own]) for own in rows.values()],
        [np.array([unknown(graded) for graded in own]) for own in rows.values()],
    )


def unlike(left: Kept, right: Kept, allow_declined: bool = False) -> str:
    """Why two arms' receipts of a suite may not be compared; nothing where they may.

    `allow_declined`: the plan measures arms of which a switch declined.
    """
    one, other = left.scores, right.scores
    graders = [
        " ".join(filter(None, (who.name, who.version, who.python and f"Python {who.python}")))
        for who in (one.grader, other.grader)
    ]
    if graders[0] != graders[1]:
        return f"other graders: {' and '.join(graders)}"
    if one.dataset.digest != other.dataset.digest:
        return f"other tasks: sha256 {one.dataset.digest[:16]} and {other.dataset.digest[:16]}"
    if set(one.tasks) != set(other.tasks):
        return f"other tasks: {len(set(one.tasks) ^ set(other.tasks))} were asked of one arm only"
    for path in sorted({*one.sampler, *other.sampler}):
        values = [scores.sampler.get(path) for scores in (one, other)]
        if values[0] != values[1]:
            return f"other sampler: {path} {values[0]} and {values[1]}"
    if one.samples != other.samples:
        return f"other numbers of answers a task: {one.samples} and {other.samples}"
    if one.prompt_style != other.prompt_style:
        return f"other wording of the tasks: {one.prompt_style} and {other.prompt_style}"
    for scores in (one, other):
        verdict = scores.engagement.get("verdict")
        if verdict == "disengaged":
            return f"the switches of {scores.arm.name} were not engaged while it was asked"
        if verdict == "declined" and not allow_declined:
            return f"a switch of {scores.arm.name} declined while it was asked"
    return ""
