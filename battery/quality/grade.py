"""From saved answers to verdicts: the grader tests itself, then runs each program once and says what it found.

    with Grader(tasks) as grader:
        rows = grader.grade(answers)

It refuses to grade where a canonical solution fails here or a planted wrong one passes: then what it would say of
answers means nothing.
"""

from __future__ import annotations

import contextlib
import statistics
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self, cast, get_args

import msgspec

from battery.ledger import strict
from battery.ledger.answers import Answer, Graded, Status
from battery.ledger.answers import Grader as Told
from battery.quality import jobs
from battery.quality.extract import Found, extract
from battery.quality.reference import Reference, Shelf, limits, references
from battery.quality.sandbox.limits import Limits
from battery.quality.sandbox.pool import GraderError, Job, Outcome, Sandbox
from battery.quality.sandbox.program import FILE
from battery.quality.tasks import Task
from battery.quality.verdicts import Verdicts, key

PLANTED = 12
"""Tasks of a suite whose canonical solutions are run each time, and for which wrong programs are planted."""
QUICK_S = 0.02
"""Below this a time says more of starting a process than of the machine."""
WRONG = (
    "def {name}(*_, **__):\n    return None\n",
    "def {name}(*given, **__):\n    return given\n",
    "raise SystemExit(0)\n",
)
"""Programs that no task accepts; those of one task take turns."""

Tell = Callable[[int, int], None]
"""Told how many of how many programs are done."""


class Grader:
    """A sandbox, the tasks of one suite, and what their canonical solutions showed; a context manager."""

    def __init__(
        self,
        tasks: Sequence[Task],
        *,
        cache: Path | None = None,
        workers: int | None = None,
        keep_verdicts: bool = True,
    ) -> None:
        """`cache`: a folder for expected results and verdicts; None: nothing is kept. `workers`: default, the cores."""
        self._tasks = {task.id: task for task in tasks}
        self._digests = {task.id: jobs.tests_digest(task) for task in tasks}
        self._sandbox = Sandbox(workers)
        self._shelf = Shelf(cache and cache / "references")
        self._verdicts = Verdicts(cache / "verdicts.jsonl" if cache and keep_verdicts else None)
        self._references: dict[str, Reference] = {}
        self._planted = 0
        self._slowness = 1.0
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Self:
        self._stack.enter_context(self._sandbox)
        try:
            tasks = list(self._tasks.values())
            self._references = references(tasks, self._sandbox, self._shelf)
            self._test_itself()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()

    def job(self, task: Task, code: str, name: str = "") -> Job:
        """The job that judges `code` within this machine's limits."""
        known = self._references[task.id]
        return jobs.job(
            task,
            code,
            self._limits(task),
            expected=known.expected if jobs.is_plus(task) else None,
            weight=known.seconds,
            name=name,
        )

    def _limits(self, task: Task) -> Limits:
        return limits(task, self._references, self._slowness)

    def _test_itself(self) -> None:
        """Some canonical solutions must pass now as all did when they were run, and wrong programs must fail.

        Their times tell how much slower the machine is today; limits grow with it.
        """
        some = self._sample()
        right = [self.job(task, task.solution) for task in some if task.canonical]
        ratios = []
        for job, outcome in self._sandbox.run(right):
            if outcome.status != "passed":
                raise GraderError(
                    f"{job.id}: its canonical solution does not pass any more ({outcome.status}: {outcome.detail})"
                )
            ratios.append(outcome.wall_s / max(self._references[job.id].seconds, QUICK_S))
        self._slowness = max(1.0, statistics.median(ratios)) if ratios else 1.0
        wrong = [
            self.job(task, WRONG[number % len(WRONG)].format(name=task.entry_point))
            for number, task in enumerate(some)
        ]
        for job, outcome in self._sandbox.run(wrong):
            if outcome.status == "passed":
                raise GraderError(
                    f"{job.id}: a planted wrong program passes, so nothing is graded; are the tests in the data file?"
                )
        self._planted = len(wrong)

    def _sample(self) -> list[Task]:
        """Tasks from all over the suite, but for the slowest quarter; none that accepts everything."""
        by_time = sorted(self._tasks.values(), key=lambda task: self._references[task.id].seconds)
        quick = {task.id for task in by_time[: max(1, 3 * len(by_time) // 4)]}
        fit = [
            task
            for task in self._tasks.values()
            if task.id in quick and jobs.ORACLES.get(task.id) != "anything"
        ]
        return fit[:: max(1, len(fit) // PLANTED)][:PLANTED]

    def told(self) -> Told:
        """Who grades, for a receipt."""
        floor = {task.id: self._limits(task) for task in self._tasks.values()}
        times = [bound.cpu_s for bound in floor.values()]
        one = next(iter(floor.values()))
        return Told(
            name=jobs.NAME,
            version=jobs.grader_version(),
            limits={
                "cpu_s": [min(times), max(times)],
                "wall_s": [min(b.wall_s for b in floor.values()), max(b.wall_s for b in floor.values())],
                "memory": one.memory, "file": one.file, "files": one.files, "processes": one.processes,
            },
            fences=self._sandbox.fences,
            missing=self._sandbox.missing,
            self_test={
                "canonical_passed": sum(bool(task.canonical) for task in self._tasks.values()),
                "planted_failed": self._planted,
                "slowness": round(self._slowness, 3),
            },
        )  # fmt: skip

    def grade(
        self, answers: Iterable[Answer], tell: Tell = lambda done, total: None
    ) -> list[Graded]:
        """A verdict on every answer, in their order. Equal programs of a task are run once."""
        given = list(answers)
        found = [self._extracted(answer) for answer in given]
        asked = [
            (place, self.job(self._tasks[answer.task], one.code))
            for place, (answer, one) in enumerate(zip(given, found, strict=True))
            if answer.error is None and one.code is not None
        ]
        rows = [_unrun(answer, one) for answer, one in zip(given, found, strict=True)]
        outcomes = self._outcomes([job for _, job in asked], tell)
        for (place, job), (outcome, ran) in zip(asked, outcomes, strict=True):
            rows[place] = _row(given[place], found[place], job, outcome, ran=ran)
        return rows

    def alone(self, programs: Iterable[tuple[str, str]]) -> list[Outcome]:
        """What becomes of (task, code), in their order: code as it is, without the prompt that it may need."""
        asked = [
            msgspec.structs.replace(self.job(self._tasks[task], ""), parts=((FILE, code),))
            for task, code in programs
        ]
        return [outcome for outcome, _ in self._outcomes(asked)]

    def _extracted(self, answer: Answer) -> Found:
        """The code of an answer, by our rules."""
        task = self._tasks[answer.task]
        return extract(answer.content, answer.reasoning, task.entry_point, task.prompt)

    def _outcomes(
        self, programs: Sequence[Job], tell: Tell = lambda done, total: None
    ) -> list[tuple[Outcome, bool]]:
        """What became of every job of a task, and whether it ran now; equal ones run once, known ones never."""
        names = [key(job, self._digests[job.id]) for job in programs]
        known: dict[str, tuple[Outcome, bool]] = {}
        asked: dict[str, Job] = {}
        for name, job in zip(names, programs, strict=True):
            if (kept := self._verdicts.get(name)) is not None:
                known[name] = (kept, False)
            else:
                asked.setdefault(name, msgspec.structs.replace(job, id=name))
        for done, (job, outcome) in enumerate(self._sandbox.run(asked.values()), start=1):
            self._verdicts.put(job.id, outcome)
            known[job.id] = (outcome, True)
            tell(done, len(asked))
        return [known[name] for name in names]


def _unrun(answer: Answer, found: Found) -> Graded:
    """The verdict on an answer that is no program."""
    status: Status = "cut_off" if answer.truncated else "empty"
    if answer.error is not None:
        status = "request_error"
    return Graded(
        task=answer.task, sample=answer.sample, passed=False, status=status, truncated=answer.truncated,
        completion_tokens=answer.completion_tokens, rule=found.rule, detail=answer.error,
    )  # fmt: skip


def _row(answer: Answer, found: Found, job: Job, outcome: Outcome, *, ran: bool) -> Graded:
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
    plus = outcome.base is not None or job.kind == "inputs"
    return Graded(
        task=answer.task,
        sample=answer.sample,
        passed=status == "passed",
        status=cast(Status, status),
        truncated=answer.truncated,
        base=bool(outcome.base) if plus else None,
        completion_tokens=answer.completion_tokens,
        rule=found.rule,
        suspicious=outcome.suspicious,
        detail=detail or None,
        seconds=round(outcome.wall_s, 4) if ran else None,
        program_digest=strict.digest("".join(source for _, source in job.parts)),
    )


def summary(rows: Iterable[Graded]) -> dict[str, Any]:
    """How many rows have each status."""
    counts: dict[str, int] = {}
    for row in rows:
        counts[row.status] = counts.get(row.status, 0) + 1
    return dict(sorted(counts.items()))
