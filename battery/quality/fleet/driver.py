"""The grader of a fleet: used as the one of a single machine is, with the same rows in the same order.

What it keeps itself are the verdicts known before, and which machine told what. A verdict is looked up under the keys
that it would have on the machines that stand ready, and kept under the one that the machine made which judged.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

import msgspec

from battery.ledger.answers import Answer, Graded, Machine
from battery.ledger.answers import Grader as Told
from battery.quality import jobs
from battery.quality.fleet.post import Brief, Ready
from battery.quality.fleet.shards import Came, Shard, cut, spread
from battery.quality.reference import Reference, Shelf
from battery.quality.sandbox.pool import GraderError, Outcome
from battery.quality.sheet import Program, Sheet
from battery.quality.tasks import Task
from battery.quality.verdicts import Verdicts, key, surroundings

Say = Callable[[str], None]


class Crew(Protocol):
    """Machines that a suite is graded on."""

    def muster(self, brief: Brief) -> dict[str, Ready]:
        """Post a grader on every machine and have it test itself; what each says, by its label."""

    def references(self, machine: str) -> dict[str, Reference]:
        """What the canonical solutions showed on one of them."""

    def send(self, machine: str, shard: Shard) -> None:
        """Give a machine a shard; `wait` tells what became of it."""

    def wait(self) -> Came:
        """What came next from any machine that has a shard."""

    def dismiss(self) -> None:
        """End all that was posted, whatever it is doing."""


class Fleet:
    """Machines that grade one suite, and what each of them showed; a context manager."""

    def __init__(
        self,
        tasks: Sequence[Task],
        crew: Crew,
        *,
        cache: Path | None = None,
        say: Say = lambda line: None,
    ) -> None:
        """`cache`: the driver's folder for expected results and verdicts; None: nothing is kept."""
        self._tasks = {task.id: task for task in tasks}
        self._digests = {task.id: jobs.tests_digest(task) for task in tasks}
        self._crew, self._say = crew, say
        self._shelf = Shelf(cache and cache / "references")
        self._verdicts = Verdicts(cache / "verdicts.jsonl" if cache else None)
        self._ready: dict[str, Ready] = {}
        self._counts: dict[str, int] = {}
        self._lost: dict[str, str] = {}

    def __enter__(self) -> Self:
        try:
            self._muster()
        except BaseException:
            self._crew.dismiss()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._crew.dismiss()

    def _muster(self) -> None:
        """Have all machines test themselves; GraderError where none may grade."""
        tasks = tuple(self._tasks.values())
        known = {task.id: kept for task in tasks if (kept := self._shelf.get(task))}
        said = self._crew.muster(Brief(tasks, known, surroundings()))
        for label, one in said.items():
            if one.refused is not None:
                self._lost[label] = one.refused
                self._say(f"{label} grades nothing: {one.refused}")
        self._ready = said
        self._counts = dict.fromkeys(said, 0)
        fit = self._fit()
        if not fit:
            raise GraderError(
                "no machine of the fleet may grade: "
                + ("; ".join(f"{name}: {why}" for name, why in self._lost.items()) or "it has none")
            )
        at_once = sum(one.workers for one in fit.values())
        self._say(f"{len(fit)} of {len(said)} machines grade, {at_once} programs at a time")
        if len(known) < len(tasks):
            found = self._crew.references(next(iter(fit)))
            for task in tasks:
                if task.id not in known and task.canonical and task.id in found:
                    self._shelf.put(task, found[task.id])

    def _fit(self) -> dict[str, Ready]:
        """The machines that passed their own test."""
        return {label: one for label, one in self._ready.items() if one.refused is None}

    def each(self, batches: Iterable[Iterable[Answer]]) -> Iterator[list[Graded]]:
        """The verdicts on each list of answers, in their order; all lists are graded together."""
        sheets = [Sheet(self._tasks, answers) for answers in batches]
        asked: dict[Program, list[Sheet]] = {}
        for sheet in sheets:
            for program in sheet.programs:
                asked.setdefault(program, []).append(sheet)
        for program in list(asked):
            if (known := self._known(program)) is not None:
                for sheet in asked.pop(program):
                    sheet.enter(program, known, ran=False)
        self._judge(asked)
        for sheet in sheets:
            yield sheet.rows()

    def _known(self, program: Program) -> Outcome | None:
        """The verdict kept for a program, under a key that it would have on one of these machines."""
        task, digest = self._tasks[program.task], self._digests[program.task]
        tried = set()
        for one in self._fit().values():
            name = key(jobs.job(task, program.code, one.bounds[task.id]), digest, one.where)
            if name not in tried and (known := self._verdicts.get(name)) is not None:
                return known
            tried.add(name)
        return None

    def _judge(self, asked: Mapping[Program, Sequence[Sheet]]) -> None:
        """Have the programs judged, and enter each outcome in the sheets that wait for it."""
        fit = {label: one for label, one in self._fit().items() if label not in self._lost}
        if not asked:
            return
        seconds = next(iter(self._fit().values())).seconds
        largest = max(one.workers for one in self._fit().values())
        shards = cut(asked, seconds, len(fit) or 1, largest)
        for machine, shard, verdicts in spread(_Watched(self._crew, self._lose), list(fit), shards):
            self._counts[machine] += len(verdicts)
            for place, name, outcome in verdicts:
                program = shard.programs[place]
                self._verdicts.put(name, outcome, program.code)
                for sheet in asked[program]:
                    sheet.enter(program, outcome, ran=True)

    def _lose(self, came: Came) -> None:
        """Note and say that a machine failed."""
        if came.gone:
            self._lost[came.machine] = str(came.failed)
        after = "; it grades nothing any more" if came.gone else ""
        self._say(f"{came.machine} failed a shard: {came.failed}{after}")

    def told(self) -> Told:
        """Who grades, for a receipt: what holds of every machine that grades, and each for itself."""
        fit = {label: one.told for label, one in self._fit().items() if one.told is not None}
        first = next(iter(fit.values()))
        return msgspec.structs.replace(
            first,
            limits={name: _least(name, fit.values()) for name in first.limits},
            fences=tuple(
                fence for fence in first.fences if all(fence in one.fences for one in fit.values())
            ),
            missing={
                f"{name} ({label})" if len(fit) > 1 else name: why
                for label, one in fit.items()
                for name, why in one.missing.items()
            },
            python=platform.python_version(),
            self_test={
                "canonical_passed": min(one.self_test["canonical_passed"] for one in fit.values()),
                "planted_failed": min(one.self_test["planted_failed"] for one in fit.values()),
                "slowness": max(one.self_test["slowness"] for one in fit.values()),
            },
            machines=tuple(self._machine(label) for label in self._ready),
        )

    def _machine(self, label: str) -> Machine:
        one = self._ready[label]
        made = Machine(
            label=label, system=one.system, workers=one.workers, programs=self._counts[label],
            refused=self._lost.get(label),
        )  # fmt: skip
        if one.told is None:
            return made
        return msgspec.structs.replace(
            made, limits=one.told.limits, fences=one.told.fences, missing=one.told.missing,
            self_test=one.told.self_test,
        )  # fmt: skip


def _least(name: str, told: Iterable[Told]) -> Any:
    """A limit over all machines: its range where it is one, else the value that all have."""
    values = [one.limits[name] for one in told]
    if isinstance(values[0], list):
        return [min(low for low, _ in values), max(high for _, high in values)]
    return min(values)


class _Watched:
    """A crew whose failures are told as they come."""

    def __init__(self, crew: Crew, lose: Callable[[Came], None]) -> None:
        self._crew, self._lose = crew, lose

    def send(self, machine: str, shard: Shard) -> None:
        """Give a machine a shard."""
        self._crew.send(machine, shard)

    def wait(self) -> Came:
        """What came next."""
        came = self._crew.wait()
        if came.failed is not None:
            self._lose(came)
        return came
