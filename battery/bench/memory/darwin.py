"""The physical footprint of a process on macOS: what Activity Monitor shows, Metal's allocations included.

`proc_pid_rusage(pid, RUSAGE_INFO_V4, …)` fills a struct of a 16-byte uuid and 64-bit words. Words used, counted in 8
bytes from the start: 9 ri_phys_footprint, 30 ri_lifetime_max_phys_footprint, 35 ri_interval_max_phys_footprint, which
`proc_reset_footprint_interval(pid)` sets back. Source: <sys/resource.h> and <libproc.h> of the macOS SDK. Written from
these and tested with a stand-in for the library; not run on a Mac. Resident set size misses Metal's memory; this does
not.
"""

from __future__ import annotations

import ctypes
import struct
import sys
from collections.abc import Set
from typing import Any

from battery.bench.memory.source import Value, risen
from battery.ledger.receipt import How

RUSAGE_INFO_V4 = 4
SIZE = 296
"""Bytes of struct rusage_info_v4: the uuid and 35 words."""
FOOTPRINT, LIFETIME_MAX, INTERVAL_MAX = 9 * 8, 30 * 8, 35 * 8


def libproc() -> Any:
    """libSystem, or None where this is no macOS."""
    return ctypes.CDLL("/usr/lib/libSystem.B.dylib") if sys.platform == "darwin" else None


def footprint(library: Any, pid: int) -> tuple[int, int, int] | None:
    """(now, largest since the start, largest since the interval was reset) in bytes; None where it is not told."""
    raw = ctypes.create_string_buffer(SIZE)
    if library.proc_pid_rusage(ctypes.c_int(pid), ctypes.c_int(RUSAGE_INFO_V4), raw) != 0:
        return None
    now, lifetime, interval = (
        int(struct.unpack_from("<Q", raw.raw, at)[0])
        for at in (FOOTPRINT, LIFETIME_MAX, INTERVAL_MAX)
    )
    return now, lifetime, interval


class Footprint:
    """The largest physical footprint of the server's processes, summed over its tree."""

    name, includes_file_cache = "phys_footprint", False
    how: How = "true peak"

    def __init__(self, library: Any = None) -> None:
        self._library = library or libproc()
        self._before: dict[int, tuple[int, int, int]] = {}
        self._last: dict[int, tuple[int, int, int]] = {}
        self._refusal: str | None = None

    def reset(self, pids: Set[int]) -> str | None:
        """Begin a new interval for every process."""
        self._before, self._last, self._refusal = {}, {}, None
        if self._library is None:
            return "no macOS"
        for pid in sorted(pids):
            reset = getattr(self._library, "proc_reset_footprint_interval", None)
            if reset is None or reset(ctypes.c_int(pid)) != 0:
                self._refusal = "the footprint's interval cannot be reset here"
        self._before = self._last = self._read(pids)
        return self._refusal

    def look(self) -> None:
        """Remember the figures: a process that dies takes its own with it."""
        if self._library is not None:
            self._last = {**self._last, **self._read(self._before.keys())}

    def read(self) -> Value:
        """The sum of the processes' peaks in this interval; where it was not reset, of their whole lives if it rose."""
        if self._library is None:
            return Value(None, "no macOS")
        self.look()
        at = 2 if self._refusal is None else 1
        total = sum(figures[at] for figures in self._last.values()) if self._last else None
        before = sum(figures[at] for figures in self._before.values())
        value = risen(before, total, self._refusal, "proc_pid_rusage tells nothing of the server")
        if len(self._before) > 1 and value.bytes is not None:
            several = f"sum of the peaks of {len(self._before)} processes: an upper bound"
            value = value._replace(note="; ".join(note for note in (value.note, several) if note))
        return value

    def _read(self, pids: Set[int]) -> dict[int, tuple[int, int, int]]:
        """The figures of every process that is still there."""
        found = {pid: footprint(self._library, pid) for pid in pids}
        return {pid: figures for pid, figures in found.items() if figures is not None}
