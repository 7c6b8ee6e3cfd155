"""Answers sorted into programs, and what became of the programs back into rows.

What is no program has its row at once; equal programs of a task are judged once. Whoever judges them, the sandbox here
or a fleet, the rows are made in the same place and come in the order of the answers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple, cast, get_args

from battery.ledger import scrub, strict
from battery.ledger.answers import Answer, Graded, Status
from battery.quality import jobs
from battery.quality.extract import Found, extract
from battery.quality.sandbox.pool import GraderError, Outcome
from battery.quality.tasks import Task


class Program(NamedTuple):
    """The code of an answer, and the id of the task that it answers."""

    task: str
    code: str


class Sheet:
    """Answers to one suite on their way to rows."""

    def __init__(self, tasks: Mapping[str, Task], answers: Iterable[Answer]) -> None:
        self._tasks = tasks
        self._given = list(answers)
        self._rows: dict[int, Graded] = {}
        self._waiting: dict[Program, list[tuple[int, Found]]] = {}
        self._digests: dict[Program, str] = {}
        first: dict[tuple[str, str], Program] = {}
        for place, answer in enumerate(self._given):
            task = tasks[answer.task]
            found = extract(answer.content, answer.reasoning, task.entry_point, task.prompt)
            if answer.error is not None or found.code is None:
                self._rows[place] = _unrun(answer, found, task)
                continue
            whole = jobs.program(task, found.code)
            program = first.setdefault((task.id, whole), Program(task.id, found.code))
            self._waiting.setdefault(program, []).append((place, found))
            self._digests.setdefault(program, strict.digest(whole))

    @property
    def programs(self) -> list[Program]:
        """What must be judged, each once, in the order in which the answers bring it up."""
        return list(self._waiting)

    def enter(self, program: Program, outcome: Outcome, *, ran: bool) -> None:
        """Make the rows of all answers that are this program; `ran`: it was run now, its time is one of today."""
        task, digest = self._tasks[program.task], self._digests[program]
        for place, found in self._waiting[program]:
            self._rows[place] = _row(self._given[place], found, task, outcome, digest, ran=ran)

    def rows(self) -> list[Graded]:
        """A row for every answer, in their order; all programs must have been entered."""
        return [self._rows[place] for place in range(len(self._given))]


def _unrun(answer: Answer, found: Found, task: Task) -> Graded:
    """The verdict on an answer that is no program: it passes no base tests either."""
    status: Status = "cut_off" if answer.truncated else "empty"
    if answer.error is not None:
        status = "request_error"
    return Graded(
        task=answer.task, sample=answer.sample, passed=False, status=status, truncated=answer.truncated,
        base=False if jobs.is_plus(task) else None, completion_tokens=answer.completion_tokens, rule=found.rule,
        detail=answer.error,
    )  # fmt: skip


def _row(
    answer: Answer, found: Found, task: Task, outcome: Outcome, digest: str, *, ran: bool
) -> Graded:
    """The verdict on an answer whose program has an outcome; one that was cut off fails, whatever its code does."""
    passes = outcome.status == "passed"
    status, detail = outcome.status, outcome.detail
    if answer.truncated:
        status = "cut_off"
        detail = f"as far as it goes, its code {'passes' if passes else f'does not pass: {outcome.status}'}"
    elif outcome.retried and status == "timeout":
        detail = f"{detail}, twice"
    if status not in get_args(Status):
        raise GraderError(f"{answer.task}: the sandbox says {status!r}, which is no status")
    plus = outcome.base is not None or jobs.is_plus(task)
    return Graded(
        task=answer.task,
        sample=answer.sample,
        passed=status == "passed",
        status=cast(Status, status),
        truncated=answer.truncated,
        base=bool(outcome.base) if plus else None,
        completion_tokens=answer.completion_tokens,
        rule=found.rule,
        suspicious=outcome.suspicious and scrub.text(outcome.suspicious),
        detail=scrub.text(detail) or None,
        seconds=round(outcome.wall_s, 4) if ran else None,
        program_digest=digest,
    )
