"""From saved answers to verdicts: the grader tests itself, then runs each program once and says what it found.

    with Grader(tasks) as grader:
        rows = grader.grade(answers)

It refuses to grade where a canonical solution fails here or a planted wrong one passes: then what it would say of
answers means nothing.
"""

from __future__ import annotations

import contextlib
import platform
import statistics
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec

from battery.ledger.answers import Answer, Graded
from battery.ledger.answers import Grader as Told
from battery.quality import jobs
from battery.quality.reference import Reference, Shelf, limits, references
from battery.quality.sandbox.inside.program import FILE
from battery.quality.sandbox.limits import Limits
from battery.quality.sandbox.pool import GraderError, Job, Outcome, Sandbox
from battery.quality.sheet import Program, Sheet
from battery.quality.tasks import Task
from battery.quality.verdicts import Verdicts, key, surroundings

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
        shelf: Shelf | None = None,
    ) -> None:
        """`cache`: a folder for expected results and verdicts; None: nothing is kept. `workers`: default, the cores.

        `shelf`: what is known of the canonical solutions, instead of what lies in `cache`.
        """
        self._tasks = {task.id: task for task in tasks}
        self._digests = {task.id: jobs.tests_digest(task) for task in tasks}
        self._sandbox = Sandbox(workers)
        self._shelf = shelf or Shelf(cache and cache / "references")
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

    @property
    def references(self) -> Mapping[str, Reference]:
        """What the canonical solutions showed, by task."""
        return self._references

    def bounds(self) -> dict[str, Limits]:
        """What a program for each task may use here."""
        return {task.id: self._limits(task) for task in self._tasks.values()}

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
        floor = self.bounds()
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
            python=platform.python_version(),
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
        sheet = Sheet(self._tasks, answers)
        asked: dict[str, tuple[Program, Job]] = {}
        for program in sheet.programs:
            job = self._named(program)
            if (known := self._verdicts.get(job.id)) is not None:
                sheet.enter(program, known, ran=False)
            else:
                asked[job.id] = (program, job)
        for done, (program, name, outcome) in enumerate(self._run(asked), start=1):
            self._verdicts.put(name, outcome, program.code)
            sheet.enter(program, outcome, ran=True)
            tell(done, len(asked))
        return sheet.rows()

    def each(self, batches: Iterable[Iterable[Answer]]) -> Iterator[list[Graded]]:
        """The verdicts on one list of answers after the other."""
        for answers in batches:
            yield self.grade(answers)

    def judged(
        self, programs: Iterable[Program]
    ) -> Generator[tuple[Program, str, Outcome], None, None]:
        """Each program run now, as they end, with the key that its verdict may be kept under."""
        named = ((program, self._named(program)) for program in programs)
        return self._run({job.id: (program, job) for program, job in named})

    def alone(self, programs: Iterable[tuple[str, str]]) -> list[Outcome]:
        """What becomes of (task, code), in their order: code as it is, without the prompt that it may need."""
        named = [
            self._keyed(
                task,
                msgspec.structs.replace(self.job(self._tasks[task], ""), parts=((FILE, code),)),
            )
            for task, code in programs
        ]
        known = {job.id: kept for job in named if (kept := self._verdicts.get(job.id)) is not None}
        asked = {job.id: job for job in named if job.id not in known}
        for job, outcome in self._sandbox.run(asked.values()):
            self._verdicts.put(job.id, outcome, job.parts[0][1])
            known[job.id] = outcome
        return [known[job.id] for job in named]

    def _named(self, program: Program) -> Job:
        """A program's job, under its verdict's key."""
        return self._keyed(program.task, self.job(self._tasks[program.task], program.code))

    def _keyed(self, task: str, job: Job) -> Job:
        return msgspec.structs.replace(job, id=key(job, self._digests[task], self.where))

    @property
    def where(self) -> dict[str, Any]:
        """What verdicts depend on besides their jobs: this grader's surroundings and the fences that stand."""
        return {**surroundings(), "fences": sorted(self._sandbox.fences)}

    def _run(
        self, asked: Mapping[str, tuple[Program, Job]]
    ) -> Generator[tuple[Program, str, Outcome], None, None]:
        for job, outcome in self._sandbox.run([job for _, job in asked.values()]):
            yield asked[job.id][0], job.id, outcome


def summary(rows: Iterable[Graded]) -> dict[str, Any]:
    """How many rows have each status."""
    counts: dict[str, int] = {}
    for row in rows:
        counts[row.status] = counts.get(row.status, 0) + 1
    return dict(sorted(counts.items()))
