"""When a program's time is up: by the processor time that it used, and a clock that waiting for a core does not move.

Two counts exist of the processor time of a process. The kernel's limit (RLIMIT_CPU) counts ticks: who runs when the
clock ticks is charged for a whole one. On a machine that others use too it was seen to end programs at 0.92 s of 1 s.
So that limit is a backstop with room (`limits.kernel_seconds`), and the exact count, nanoseconds that the scheduler
gave, is read from outside.

The clock's limit is for programs that sleep or wait. One that wants a core and does not get one is not late: beyond the
limit it goes on as long as it works, `PATIENCE` times the limit at most. Nor is one late that was stopped together with
the process that looks (a machine that was held).
"""

from __future__ import annotations

import time
from collections.abc import Callable

from battery.quality.sandbox.limits import Limits

PATIENCE = 3
"""So many times its limit on the clock a program may go on that works but gets little of a core."""
LOOK_S = 0.5
"""Seconds between looks, and the least over which it is judged whether a program works."""
SOON_S = 0.01
IDLE = 0.01
"""A program that uses less of a core than this waits."""
_PROCESS_CLOCK = 2
"""The scheduler's count among a process's clocks (CPUCLOCK_SCHED)."""


def used(pid: int) -> float | None:
    """Seconds of processor time that a process has used, all its threads; None where the system does not tell."""
    try:
        return time.clock_gettime((~pid << 3) | _PROCESS_CLOCK)
    except (OSError, AttributeError, OverflowError):
        return None


class Allowance:
    """The time of one program, and of the judge that checks it."""

    def __init__(
        self,
        bounds: Limits,
        judge: int,
        *,
        clock: Callable[[], float] = time.perf_counter,
        count: Callable[[int], float | None] = used,
    ) -> None:
        """`clock` and `count` are the system's; a test has its own."""
        self._bounds, self._judge, self._clock, self._count = bounds, judge, clock, count
        self._seen = self._looked = clock()
        self._passed, self._idle = 0.0, True
        self._work = self._of(judge)  # of programs before this one
        self.program: int | None = None
        """The program's process, once it is known."""

    @property
    def spent(self) -> bool:
        """Whether the processor time is used up, which no other work on this machine can bring about."""
        return self._of(self.program) >= self._bounds.cpu_s

    def over(self) -> str:
        """Why the time is up; an empty text while it is not. Time in which nobody could look is not counted."""
        now, own = self._clock(), self._of(self.program)
        unseen, self._seen = now - self._seen, now
        self._passed += min(unseen, 2 * LOOK_S)
        if own >= self._bounds.cpu_s:
            return f"it used {own:.1f} s of processor time"
        if (since := now - self._looked) >= LOOK_S:
            work = own + self._of(self._judge)
            if unseen <= 2 * LOOK_S:
                self._idle = work - self._work < IDLE * since
            self._looked, self._work = now, work
        wall = self._bounds.wall_s * (1 if self._idle else PATIENCE)
        return "its time on the clock was up" if self._passed >= wall else ""

    def pause(self) -> float:
        """Seconds until the next look: no sooner than one thread could use up what is left."""
        own, clock = self._of(self.program), self._bounds.wall_s - self._passed
        return max(SOON_S, min(LOOK_S, self._bounds.cpu_s - own, clock if clock > 0 else LOOK_S))

    def _of(self, pid: int | None) -> float:
        return (self._count(pid) or 0.0) if pid else 0.0
