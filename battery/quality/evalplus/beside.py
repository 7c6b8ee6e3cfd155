"""From an arm's saved answers to EvalPlus's verdicts beside ours: only the extraction differs.

As EvalPlus grades chat models: the whole answer goes into `sanitize`, and what comes out is run alone, without the
prompt. The tests, the grader, its limits and the rule for answers that were cut off are ours for both.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import cast

from battery.ledger import disk, sanitised, saved, scrub, strict
from battery.ledger.answers import Answer, Graded, Scores, Status
from battery.ledger.errors import ReceiptError
from battery.ledger.sanitised import Extracted, Form, Sanitised
from battery.ledger.store import pretty, utc_now
from battery.quality import jobs
from battery.quality.evalplus.process import Clean
from battery.quality.evalplus.sanitiser import Sanitiser
from battery.quality.extract.parsing import binding, parse
from battery.quality.grade import Grader
from battery.quality.sandbox.pool import Outcome
from battery.quality.tasks import Task

Key = tuple[str, int]


def compare(
    campaign: Path,
    scores: Scores,
    tasks: Mapping[str, Task],
    grader: Grader,
    sanitiser: Sanitiser,
    tell: Callable[[int, int], None] = lambda done, total: None,
) -> Extracted:
    """EvalPlus's verdict on every answer that `scores` tell of, written beside them.

    `grader` is the one that the scores came from. ReceiptError where the answers are not those that were graded.
    """
    suite, arm = scores.dataset.suite, scores.arm.name
    answers = _answers(campaign, scores)
    given = [(answer.content, tasks[task].entry_point) for (task, _), answer in answers.items()]
    cleaned = dict(zip(answers, sanitiser.run(given, tell), strict=True))
    asked = {key: one.code for key, one in cleaned.items() if one.code and one.code.strip()}
    ran = grader.alone([(task, code) for (task, _), code in asked.items()])
    outcomes = dict(zip(asked, ran, strict=True))
    rows = []
    for verdict in scores.graded:
        key = (verdict.task, verdict.sample)
        if key in cleaned:
            rows.append(_row(verdict, tasks[key[0]], cleaned[key], outcomes.get(key)))
        else:
            rows.append(_never(verdict))
    told = Extracted(
        campaign=scores.campaign, arm=arm, arm_digest=scores.arm_digest, suite=suite,
        dataset_digest=scores.dataset.digest, answers_digest=scores.answers_digest, peer=sanitiser.peer,
        grader=scores.grader, rows=tuple(rows), ended=utc_now(),
    )  # fmt: skip
    disk.replace(sanitised.path_of(campaign, arm, suite), pretty(told))
    return told


def _answers(campaign: Path, scores: Scores) -> dict[Key, Answer]:
    """The answers that were graded and are some."""
    path = saved.answers_path(campaign, scores.arm.name, scores.dataset.suite)
    if strict.digest(path.read_bytes()) != scores.answers_digest:
        raise ReceiptError(
            f"{path}: answers came while they were graded; give the same command again"
        )
    stands = saved.standing(saved.read_answers(path))
    wanted = [(row.task, row.sample) for row in scores.graded]
    return {key: stands[key] for key in wanted if key in stands and stands[key].error is None}


def _never(verdict: Graded) -> Sanitised:
    """The row of a request that brought no answer to extract from."""
    return Sanitised(
        task=verdict.task, sample=verdict.sample, passed=False, status=verdict.status, truncated=verdict.truncated,
    )  # fmt: skip


def _row(verdict: Graded, task: Task, clean: Clean, outcome: Outcome | None) -> Sanitised:
    """The verdict on what `sanitize` made of an answer; `outcome` is that of its code, None where there is none."""
    ran: Status | None = None
    detail = clean.why
    if outcome is not None:
        ran, detail = cast(Status, outcome.status), outcome.detail
        if outcome.retried and ran == "timeout":
            detail = f"{detail}, twice"
    elif clean.code is not None:
        ran = "empty"
    status: Status | None = "cut_off" if verdict.truncated else ran
    return Sanitised(
        task=verdict.task,
        sample=verdict.sample,
        passed=None if status is None else status == "passed",
        status=status,
        ran=ran,
        truncated=verdict.truncated,
        base=bool(outcome.base) if outcome is not None and jobs.is_plus(task) else None,
        form=None if clean.code is None else form(clean.code, task.entry_point),
        code_digest=None if clean.code is None else strict.digest(clean.code),
        suspicious=scrub.text(outcome.suspicious)
        if outcome is not None and outcome.suspicious
        else None,
        detail=scrub.text(detail or "") or None,
        seconds=clean.seconds,
    )


def form(code: str, entry_point: str) -> Form:
    """What a piece of code is to who calls its entry point."""
    if not code.strip():
        return "blank"
    tree = parse(code)
    if tree is None:
        return "broken"
    return "defines" if binding(tree, entry_point) else "lacks"
