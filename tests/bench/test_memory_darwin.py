"""macOS's physical footprint, from a struct laid out as <sys/resource.h> says, filled by a stand-in for libproc."""

from __future__ import annotations

import ctypes
import struct
from typing import Any

from battery.bench.memory.darwin import SIZE, Footprint, footprint

UUID = bytes(range(16))
# ri_user_time … ri_proc_exit_abstime (10), children (6), disk (2), qos (7), billed and serviced (2), logical writes
BEFORE_LIFETIME = 10 + 6 + 2 + 7 + 2 + 1


def rusage(now: int, lifetime: int, interval: int) -> bytes:
    """A struct rusage_info_v4 with these figures, and a number of its own in every other word."""
    words = list(range(1000, 1035))
    words[7] = now  # ri_phys_footprint, the eighth behind the uuid
    words[BEFORE_LIFETIME] = lifetime
    words[BEFORE_LIFETIME + 5] = interval  # behind instructions, cycles, billed and serviced energy
    return UUID + struct.pack("<35Q", *words)


class Library:
    """libproc's two functions over processes whose figures a test sets."""

    def __init__(self, resets: bool = True) -> None:
        self.figures: dict[int, tuple[int, int, int]] = {}
        self.resets = resets

    def proc_pid_rusage(self, pid: Any, flavor: Any, into: Any) -> int:
        assert flavor.value == 4
        if pid.value not in self.figures:
            return -1
        ctypes.memmove(into, rusage(*self.figures[pid.value]), SIZE)
        return 0

    def proc_reset_footprint_interval(self, pid: Any) -> int:
        if not self.resets or pid.value not in self.figures:
            return -1
        now, lifetime, _ = self.figures[pid.value]
        self.figures[pid.value] = (now, lifetime, now)
        return 0


def test_the_words_of_the_struct() -> None:
    library = Library()
    library.figures[7] = (4_000_000_000, 9_000_000_000, 6_000_000_000)
    assert len(rusage(1, 2, 3)) == SIZE
    assert footprint(library, 7) == (4_000_000_000, 9_000_000_000, 6_000_000_000)
    assert footprint(library, 8) is None


def test_a_cells_peak_is_the_interval_since_its_reset() -> None:
    library = Library()
    library.figures[7] = (4000, 9000, 9000)
    source = Footprint(library)
    assert source.reset({7}) is None
    assert source.read().bytes == 4000  # not the 9000 of an earlier cell
    library.figures[7] = (4000, 9000, 5500)
    assert source.read().bytes == 5500


def test_without_a_reset_the_lifetime_counts_only_where_it_rose() -> None:
    library = Library(resets=False)
    library.figures[7] = (4000, 9000, 9000)
    source = Footprint(library)
    assert source.reset({7}) == "the footprint's interval cannot be reset here"
    assert source.read().bytes is None
    library.figures[7] = (4000, 9700, 9700)
    assert source.read().bytes == 9700


def test_several_processes_are_an_upper_bound_and_a_dead_one_keeps_its_last_figure() -> None:
    library = Library()
    library.figures = {7: (4000, 9000, 9000), 8: (100, 200, 200)}
    source = Footprint(library)
    source.reset({7, 8})
    library.figures[8] = (100, 700, 700)
    source.look()
    del library.figures[8]
    value = source.read()
    assert value.bytes == 4700 and "upper bound" in (value.note or "")


def test_elsewhere_it_says_so() -> None:
    source = Footprint(None)
    if source._library is None:
        assert source.reset({1}) == "no macOS" and source.read().reason == "no macOS"
