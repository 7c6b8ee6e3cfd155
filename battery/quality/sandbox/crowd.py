"""The memory of all processes of a program together, counted from outside: the kernel's limit holds for each alone.

Counted is what is resident of each process beyond what it was forked with, so memory that processes share is counted
once for each that has it. The system's list of processes is opened before the server leaves it out of sight, and closed
in what it forks.
"""

from __future__ import annotations

import contextlib
import os

from battery.quality.sandbox.limits import Limits

TOGETHER = 2
"""So many times the memory of one process may those of a program have together."""
LOOK_S = 0.05
"""Seconds between looks, at most: a few processes fill a gigabyte in less than one."""


def opened() -> int:
    """The system's list of processes; OSError where it has none that tells of children and their memory."""
    listing = os.open("/proc", os.O_RDONLY | os.O_DIRECTORY)
    try:
        _words(listing, f"{os.getpid()}/statm")
        _words(listing, f"{os.getpid()}/task/{os.getpid()}/children")
    except OSError:
        os.close(listing)
        raise
    return listing


class Crowd:
    """All processes of one program."""

    def __init__(self, listing: int | None, bounds: Limits, judge: int) -> None:
        """`listing`: what `opened` gave; None where nothing can be counted."""
        self._listing, self._judge = listing, judge
        self._most = TOGETHER * bounds.memory

    def over(self, program: int | None) -> str:
        """Why its memory is too much; an empty text while it is not."""
        if self._listing is None or program is None:
            return ""
        own = _resident(self._listing, os.getpid())
        waiting, seen, total = [program], {self._judge}, 0
        waiting += children(self._listing, os.getpid())  # orphans, where they come here
        while waiting:
            pid = waiting.pop()
            if pid in seen:
                continue
            seen.add(pid)
            total += max(0, _resident(self._listing, pid) - own)
            waiting += children(self._listing, pid)
        if total <= self._most:
            return ""
        return f"its {len(seen) - 1} processes held {total >> 20:,} MiB together"


def _resident(listing: int, pid: int) -> int:
    """Bytes of a process that are in memory; 0 where it has ended."""
    with contextlib.suppress(OSError, IndexError):
        return int(_words(listing, f"{pid}/statm")[1]) * os.sysconf("SC_PAGE_SIZE")
    return 0


def children(listing: int, pid: int) -> list[int]:
    """Those that any thread of a process has started."""
    found: list[int] = []
    with contextlib.suppress(OSError):
        threads = os.open(f"{pid}/task", os.O_RDONLY | os.O_DIRECTORY, dir_fd=listing)
        try:
            with os.scandir(threads) as entries:
                for thread in entries:
                    found += map(int, _words(threads, f"{thread.name}/children"))
        finally:
            os.close(threads)
    return found


def _words(folder: int, name: str) -> list[bytes]:
    with os.fdopen(os.open(name, os.O_RDONLY, dir_fd=folder), "rb") as file:
        return file.read().split()
