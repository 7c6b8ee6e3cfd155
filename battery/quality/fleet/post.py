"""A grader's post on one machine of a fleet: it tests itself there, then judges the programs that it is sent.

It knows nothing of what carries between it and the driver, so that a test can stand it up in its own process.
"""

from __future__ import annotations

import contextlib
import platform
import threading
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from typing_extensions import override

from battery.ledger import scrub
from battery.ledger.answers import Grader as Told
from battery.ledger.errors import BatteryError
from battery.quality.fleet.shards import Judged
from battery.quality.grade import Grader
from battery.quality.reference import Reference, Shelf
from battery.quality.sandbox.limits import Limits
from battery.quality.sandbox.pool import GraderError, Sandbox
from battery.quality.sheet import Program
from battery.quality.tasks import Task
from battery.quality.verdicts import surroundings


class Brief(msgspec.Struct, frozen=True):
    """What goes out once to every machine: the tasks, and what the driver knows of their canonical solutions."""

    tasks: tuple[Task, ...]
    references: dict[str, Reference]
    where: dict[str, Any]
    """The driver's own surroundings: verdicts of another grader, Python or numpy would not be its verdicts."""


class Ready(msgspec.Struct, frozen=True, kw_only=True):
    """What a machine says once it has tested itself."""

    system: str = ""
    workers: int = 0
    refused: str | None = None
    """Why it grades nothing; None: it does."""
    told: Told | None = None
    bounds: dict[str, Limits] = {}
    """What a program for each task may use there."""
    seconds: dict[str, float] = {}
    """What the canonical solution of each task takes."""
    where: dict[str, Any] = {}


class Handed(Shelf):
    """References that came with the tasks; what is found besides is kept in memory."""

    def __init__(self, known: Mapping[str, Reference]) -> None:
        super().__init__(None)
        self._known = dict(known)

    @override
    def get(self, task: Task) -> Reference | None:
        """What is known of a task."""
        return self._known.get(task.id)

    @override
    def put(self, task: Task, found: Reference) -> None:
        """Keep it until the post is given up."""
        self._known[task.id] = found


class Post:
    """The grader of one suite on one machine. `close` may be called while `judge` runs: it waits for one program."""

    def __init__(self, brief: Brief, workers: int, label: str) -> None:
        """`workers`: most programs at a time; never more than this machine has cores."""
        self._brief, self.label = brief, label
        self._workers = min(workers, Sandbox().workers)
        self._grader: Grader | None = None
        self._stack = contextlib.ExitStack()
        self._busy, self._stop = threading.Lock(), threading.Event()

    def test(self) -> Ready:
        """Build the sandbox here and let the grader test itself; what it showed, or why this machine grades nothing."""
        system = f"{platform.system()} {platform.machine()}"
        with self._busy:
            try:
                self._same_grader()
                made = Grader(
                    self._brief.tasks, workers=self._workers, shelf=Handed(self._brief.references)
                )
                grader = self._grader = self._stack.enter_context(made)
            except BatteryError as refused:
                reason = scrub.text(str(refused))
                return Ready(system=system, workers=self._workers, refused=reason)
            return Ready(
                system=system,
                workers=self._workers,
                told=grader.told(),
                bounds=grader.bounds(),
                seconds={name: one.seconds for name, one in grader.references.items()},
                where=grader.where,
            )

    def _same_grader(self) -> None:
        """GraderError where grader, Python or numpy are not the driver's, the processor's kind aside."""
        here, there = surroundings(), self._brief.where
        found, wanted = ({**one, "python": one["python"][:2]} for one in (here, there))
        for name in ("grader", "python", "numpy"):
            if found[name] != wanted[name]:
                raise GraderError(
                    f"its {name} is {found[name]}, and the driver's {wanted[name]}; install the same there"
                )

    def references(self) -> dict[str, Reference]:
        """What the canonical solutions showed here, for a driver that did not know."""
        return dict(self._grader.references) if self._grader else {}

    def judge(self, programs: Sequence[Program]) -> list[Judged] | str:
        """The verdict on each program; a text says why there are none."""
        with self._busy:
            if self._grader is None:
                return "it has not tested itself"
            places = {program: place for place, program in enumerate(programs)}
            found = []
            try:
                with contextlib.closing(self._grader.judged(programs)) as judged:
                    for program, name, outcome in judged:
                        found.append(Judged(places[program], name, outcome))
                        if self._stop.is_set():
                            return "it was told to stop"
            except BatteryError as wrong:
                return scrub.text(str(wrong))
            return found

    def close(self) -> None:
        """End the sandbox, and leave nothing of it behind."""
        self._stop.set()
        with self._busy:
            self._grader = None
            self._stack.close()
