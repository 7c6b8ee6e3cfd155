"""Posts of a fleet with planted faults, told by the machine's label; importable by the workers of a cluster."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence

import msgspec

from battery.quality import reference
from battery.quality.fleet.post import Brief, Post, Ready
from battery.quality.fleet.shards import Judged
from battery.quality.sheet import Program

FAULTY = "machine 2"


class Died(Exception):
    """A worker that ended, where it is none of a process of its own."""


class Hurried(Post):
    """A second of the processor for an endless answer, however long canonical solutions take today; of its process."""

    def test(self) -> Ready:
        reference.FLOOR_S, reference.OF_MEDIAN, reference.OF_OWN = 1.0, 1, 1
        return super().test()


class Broken(Post):
    """On one machine a canonical solution does not do what it should."""

    def __init__(self, brief: Brief, workers: int, label: str) -> None:
        if label == FAULTY:
            *others, last = brief.tasks
            wrong = msgspec.structs.replace(last, canonical="    return 'elsewhere'\n")
            brief = msgspec.structs.replace(brief, tasks=(*others, wrong), references={})
        super().__init__(brief, workers, label)


class Dying(Post):
    """On one machine the worker ends when it is given a shard."""

    def judge(self, programs: Sequence[Program]) -> list[Judged] | str:
        if self.label == FAULTY:
            self.die()
        return super().judge(programs)

    def die(self) -> None:
        raise Died


class Killed(Dying):
    """The same by SIGKILL, in a process of its own."""

    def die(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)


class Confused(Post):
    """No machine finds a verdict."""

    def judge(self, programs: Sequence[Program]) -> list[Judged] | str:
        return "no verdict: the sandbox is confused"


class Forgetful(Post):
    """One machine leaves a verdict out."""

    def judge(self, programs: Sequence[Program]) -> list[Judged] | str:
        found = super().judge(programs)
        return found[1:] if self.label == FAULTY else found


class Other(Post):
    """One machine has another grader."""

    def test(self) -> Ready:
        if self.label == FAULTY:
            where = {**self._brief.where, "grader": "0.0.1+another"}
            self._brief = msgspec.structs.replace(self._brief, where=where)
        return super().test()
