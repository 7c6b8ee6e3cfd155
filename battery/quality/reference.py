"""What the canonical solutions say of this machine and of the tests: times, and for plus suites the expected results.

A limit of so many seconds means another thing on every machine, so limits follow from the times that the canonical
solutions take here. Expected results are theirs too; they are computed once, in the sandbox, and kept in a folder by
digests of task, Python and grader, so that nothing stale is ever used.
"""

from __future__ import annotations

import contextlib
import math
import os
import platform
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from battery.ledger import strict
from battery.quality import jobs
from battery.quality.sandbox.limits import MIB, Limits
from battery.quality.sandbox.pool import GraderError, Job, Outcome, Sandbox
from battery.quality.tasks import Task

FLOOR_S = 3.0
"""Processor time that every program may use on a machine where the canonical ones take milliseconds."""
OF_MEDIAN = 100
OF_OWN = 6
"""The limit is this many times the median of the suite's canonical times, and this many times the task's own."""
MEMORY = 1024 * MIB
MORE_MEMORY = 4096 * MIB
"""For the tasks whose canonical solution needs more than `MEMORY` (Mbpp/255: results of hundreds of megabytes)."""
PATIENT = Limits(cpu_s=300, wall_s=900, memory=MEMORY)
"""For canonical solutions, whose times are not known yet."""


class Reference(msgspec.Struct, frozen=True):
    """What the canonical solution of a task did here."""

    seconds: float
    memory: int = MEMORY
    """Bytes of address space that were enough."""
    expected: tuple[bytes, ...] = ()
    """Plus suites: what is kept of its results (`sandbox.inside.comparing.sameness`)."""


class Shelf:
    """References kept between runs, one file for each task; None keeps nothing."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder

    def _path(self, task: Task) -> Path | None:
        if self._folder is None:
            return None
        key = [jobs.tests_digest(task), jobs.grader_version(), platform.python_version()]
        return self._folder / f"{strict.digest(key)[:32]}.reference"

    def get(self, task: Task) -> Reference | None:
        """What is kept of a task, if it is whole."""
        path = self._path(task)
        with contextlib.suppress(OSError, msgspec.DecodeError):
            if path is not None:
                return msgspec.msgpack.decode(path.read_bytes(), type=Reference)
        return None

    def put(self, task: Task, found: Reference) -> None:
        """Keep it; a reader sees all of it or nothing."""
        path = self._path(task)
        if path is None:
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        new = path.with_suffix(f".{os.getpid()}")
        new.write_bytes(msgspec.msgpack.encode(found))
        new.replace(path)


def references(
    tasks: Sequence[Task], sandbox: Sandbox, shelf: Shelf, weights: Mapping[str, float] = {}
) -> dict[str, Reference]:
    """Every task's reference; GraderError where a canonical solution does not pass its own tests here.

    What lies on the shelf was found by this grader with these tests. Fresh results of plus suites are believed only
    after a second run has given the same.
    """
    found = {task.id: kept for task in tasks if (kept := shelf.get(task))}
    missing = [task for task in tasks if task.id not in found and task.canonical]
    # a task that somebody wrote for one answer may have no solution; it is held to the times of the others
    fresh = {task.id: Reference(0.0) for task in tasks if not task.canonical}
    large = _run(missing, sandbox, fresh, weights)
    for lost in _run(large, sandbox, fresh, weights, MORE_MEMORY):
        raise GraderError(f"{lost.id}: its canonical solution needs more memory than there is")
    _verify([task for task in missing if jobs.is_plus(task)], sandbox, fresh)
    for task in missing:
        shelf.put(task, fresh[task.id])
    return found | fresh


def _run(
    tasks: Sequence[Task],
    sandbox: Sandbox,
    fresh: dict[str, Reference],
    weights: Mapping[str, float],
    memory: int = MEMORY,
) -> list[Task]:
    """Run canonical solutions and add what they show to `fresh`; the tasks whose memory was not enough."""
    by_id = {task.id: task for task in tasks}
    bounds = PATIENT._replace(memory=memory)
    asked = [
        jobs.job(
            task, task.solution, bounds, weight=weights.get(task.id, len(task.plus_input) / 1e4)
        )
        for task in tasks
    ]
    large = []
    for job, outcome in sandbox.run(asked):
        if outcome.status == "memory":
            large.append(by_id[job.id])
            continue
        _demand(job, outcome)
        seconds = outcome.wall_s if outcome.seconds is None else outcome.seconds
        fresh[job.id] = Reference(seconds, memory, outcome.expected)
    return large


def _verify(tasks: Sequence[Task], sandbox: Sandbox, fresh: Mapping[str, Reference]) -> None:
    """Run canonical solutions against what they gave before."""
    asked = []
    for task in tasks:
        known = fresh[task.id]
        bounds = PATIENT._replace(memory=known.memory)
        asked.append(
            jobs.job(task, task.solution, bounds, expected=known.expected, weight=known.seconds)
        )
    for job, outcome in sandbox.run(asked):
        _demand(job, outcome)


def _demand(job: Job, outcome: Outcome) -> None:
    """GraderError where a canonical solution does not pass."""
    if outcome.status != "passed":
        raise GraderError(
            f"{job.id}: its canonical solution does not pass here ({outcome.status}: {outcome.detail}), so nothing is"
            " graded; is the data file whole, and this Python one that it was made for?"
        )


def limits(task: Task, found: Mapping[str, Reference], slowness: float = 1.0) -> Limits:
    """What a program for `task` may use on this machine, which is `slowness` times slower than when `found` was.

    Processor time is `FLOOR_S` times a power of two: so it is the same from run to run, as a verdict's key must be.
    The clock allows three times as much, since other work may hold the cores.
    """
    median = statistics.median(one.seconds for one in found.values())
    wanted = max(FLOOR_S, slowness * max(OF_MEDIAN * median, OF_OWN * found[task.id].seconds))
    cpu = FLOOR_S * 2 ** math.ceil(math.log2(wanted / FLOOR_S))
    return Limits(cpu_s=cpu, wall_s=3 * cpu + 5, memory=found[task.id].memory)
