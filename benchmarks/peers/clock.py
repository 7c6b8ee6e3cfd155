"""Wall-clock stamps on the monotonic clock, with how far off they may be.

A peer that stamps with time.time() is converted by CLOCK_REALTIME − CLOCK_MONOTONIC, sampled before and after its run
and taken as a straight line between: the kernel slews one against the other by a few parts per million. What is left
open is half the width of a sample, what the offset moved in the run (a slew need not be even), and the rounding of a
float of seconds (2⁻²² s apart in this century). A clock that was stepped in between gives nothing.
"""

from __future__ import annotations

import time

import msgspec

from benchmarks.peers import NotDriven

TRIES = 200
FLOAT_NS = 120
"""Half the distance of two floats near 1.8e9 seconds, in nanoseconds."""
STEP_NS = 500_000
"""An offset that moved more than this within a run of a minute was stepped, or slewed too hard to be trusted."""


class Offset(msgspec.Struct, frozen=True):
    """CLOCK_REALTIME − CLOCK_MONOTONIC at one moment, and how far off that may be, in nanoseconds."""

    at_ns: int
    """On the monotonic clock."""
    wall_minus_ours_ns: int
    error_ns: int


def offset() -> Offset:
    """The narrowest of many readings of one clock between two of the other."""

    def once() -> Offset:
        before, wall, after = time.perf_counter_ns(), time.time_ns(), time.perf_counter_ns()
        middle = (before + after) // 2
        return Offset(middle, wall - middle, (after - before + 1) // 2)

    return min((once() for _ in range(TRIES)), key=lambda one: one.error_ns)


class Conversion(msgspec.Struct, frozen=True):
    """From seconds of time.time() to perf_counter_ns, for stamps taken between two readings."""

    before: Offset
    after: Offset

    @property
    def moved_ns(self) -> int:
        """How much the wall clock went against the monotonic one."""
        return self.after.wall_minus_ours_ns - self.before.wall_minus_ours_ns

    @property
    def error_ns(self) -> int:
        """How far off a converted stamp may be, either way."""
        widest = max(self.before.error_ns, self.after.error_ns)
        return widest + abs(self.moved_ns) + FLOAT_NS

    def check(self) -> None:
        """NotDriven where the wall clock was stepped during the run."""
        if abs(self.moved_ns) > STEP_NS:
            raise NotDriven(
                f"the wall clock moved {self.moved_ns / 1e3:.0f} µs against the monotonic one during the run, "
                "and this peer stamps with it: run again when the clock is steady"
            )

    def ours(self, wall_s: float) -> int:
        """The stamp on our clock, nanoseconds."""
        wall_ns = round(wall_s * 1e9)
        near = wall_ns - self.before.wall_minus_ours_ns
        span = self.after.at_ns - self.before.at_ns
        share = (near - self.before.at_ns) / span if span > 0 else 0.0
        return near - round(self.moved_ns * share)

    def words(self) -> str:
        """What was done, for the report."""
        return (
            f"time.time(), converted by CLOCK_REALTIME − CLOCK_MONOTONIC read before and after the run "
            f"(it moved {self.moved_ns / 1e3:+.1f} µs): ± {self.error_ns / 1e3:.1f} µs"
        )


OUR_CLOCK = "time.perf_counter, one clock for all processes of a Linux machine: nothing converted"
