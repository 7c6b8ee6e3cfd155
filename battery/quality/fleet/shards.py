"""Programs dealt out to machines: shards of about equal weight, and each to whichever machine is free.

A shard holds programs from all over the suite, so that the samples of one hard task, whose loops end together, do not
meet on one machine. There are several for each machine: one that is slow, or was given an endless loop, takes fewer.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol

from battery.quality.sandbox.pool import GraderError, Outcome
from battery.quality.sheet import Program

PARTS = 6
"""Shards that a machine gets, if all are equally fast."""
FILL = 2
"""Programs that a shard has at least for each that can be judged at a time: less would leave cores idle."""
START_S = 0.02
"""Seconds that a program costs beyond its calls: two processes."""


class Shard(NamedTuple):
    """Programs that are judged together on one machine."""

    number: int
    programs: tuple[Program, ...]
    weight: float
    """Seconds of processor time that it is thought to take."""


class Judged(NamedTuple):
    """The verdict on one program of a shard."""

    place: int
    """Of the program in its shard."""
    key: str
    """What it may be kept under, made where it was judged."""
    outcome: Outcome


class Came(NamedTuple):
    """What became of a shard that a machine was given."""

    machine: str
    verdicts: Sequence[Judged] = ()
    failed: str | None = None
    """Why there are no verdicts; None: there are."""
    gone: bool = False
    """Whether the machine takes no more."""


class Crew(Protocol):
    """Machines that judge shards, each one at a time."""

    def send(self, machine: str, shard: Shard) -> None:
        """Give a machine a shard; `wait` tells what became of it."""

    def wait(self) -> Came:
        """What came next from any machine that has a shard."""


def cut(
    programs: Iterable[Program], weights: Mapping[str, float], machines: int, at_once: int
) -> list[Shard]:
    """The programs in shards of about equal weight, the heaviest first, in each its heaviest first.

    `weights`: seconds by task; `at_once`: programs that the largest of the machines judges at a time. The longest
    program goes to the shard that is lightest so far; of equal ones, to the one with the fewest programs.
    """
    ordered = sorted(programs, key=lambda program: -weights.get(program.task, 0.0))
    most = max(machines, min(PARTS * machines, len(ordered) // (FILL * at_once)))
    count = min(len(ordered), most)
    held: list[list[Program]] = [[] for _ in range(count)]
    lightest = [(0.0, 0, number) for number in range(count)]
    for program in ordered:
        weight, size, number = heapq.heappop(lightest)
        held[number].append(program)
        weight += weights.get(program.task, 0.0) + START_S
        heapq.heappush(lightest, (weight, size + 1, number))
    total = {number: weight for weight, _, number in lightest}
    heaviest = sorted(total, key=lambda number: -total[number])
    return [Shard(n, tuple(held[old]), total[old]) for n, old in enumerate(heaviest)]


def spread(
    crew: Crew, machines: Sequence[str], shards: Sequence[Shard]
) -> Iterator[tuple[str, Shard, Sequence[Judged]]]:
    """Every shard's verdicts and the machine that gave them, as they come.

    A shard that failed goes to another machine, if there is one. GraderError where one failed twice, or where no
    machine is left.
    """
    waiting, idle = list(shards), list(machines)
    flying: dict[str, Shard] = {}
    failures: dict[int, list[tuple[str, str]]] = {}
    while waiting or flying:
        for machine in list(idle):
            alone = len(idle) + len(flying) == 1
            shard = _next(waiting, machine, {} if alone else failures)
            if shard is not None:
                waiting.remove(shard)
                idle.remove(machine)
                flying[machine] = shard
                crew.send(machine, shard)
        if not flying:
            raise GraderError(
                f"no machine of the fleet is left to grade: {_told(failures)}; verdicts so far are kept, so the same"
                " command goes on from there"
            )
        came = crew.wait()
        shard = flying.pop(came.machine)
        if not came.gone:
            idle.append(came.machine)
        failed = came.failed or _unlike(shard, came.verdicts)
        if failed is None:
            yield came.machine, shard, came.verdicts
            continue
        failures.setdefault(shard.number, []).append((came.machine, failed))
        if len(failures[shard.number]) > 1:
            raise GraderError(
                f"{len(shard.programs)} programs could not be graded, twice:"
                f" {_told({shard.number: failures[shard.number]})}; they are not counted as failed, nothing is scored"
            )
        waiting.insert(0, shard)


def _next(
    waiting: Sequence[Shard], machine: str, failures: Mapping[int, Sequence[tuple[str, str]]]
) -> Shard | None:
    """The heaviest shard that has not failed on this machine."""
    for shard in waiting:
        if machine not in {name for name, _ in failures.get(shard.number, ())}:
            return shard
    return None


def _unlike(shard: Shard, verdicts: Sequence[Judged]) -> str | None:
    """Why verdicts are not those of a shard; None where each of its programs has one."""
    if sorted(one.place for one in verdicts) == list(range(len(shard.programs))):
        return None
    return f"{len(verdicts)} verdicts came for {len(shard.programs)} programs"


def _told(failures: Mapping[int, Sequence[tuple[str, str]]]) -> str:
    found = [f"{machine}: {why}" for failed in failures.values() for machine, why in failed]
    return "; ".join(dict.fromkeys(found)) or "none took part"
