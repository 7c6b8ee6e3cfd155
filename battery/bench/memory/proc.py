"""What Linux tells of processes under /proc: their high-water mark, their share of memory, faults and swap.

VmHWM is the kernel's own high-water mark of one process's resident set: writing 5 to clear_refs sets it to the present
size (Linux 4.0). It counts mapped files. Over several processes the sum of their peaks is an upper bound: peaks
need not coincide, and shared pages count in each. PSS divides shared pages among their users, but is only a look.
"""

from __future__ import annotations

import time
from collections.abc import Set
from pathlib import Path

from battery.bench.memory.source import Value, risen
from battery.ledger.receipt import How

PROC = Path("/proc")
TOO_LARGE = 8_000_000_000
"""Resident bytes beyond which a process's pages are not walked for PSS: it takes a second and more."""
DEAR_S = 0.002
"""A look that takes longer than this would disturb the cell, and is left out of it."""


def status(pid: int, proc: Path = PROC) -> dict[str, int]:
    """VmHWM, VmRSS and VmSwap of a process in bytes, as far as its status tells them."""
    found: dict[str, int] = {}
    try:
        for line in (proc / str(pid) / "status").read_text().splitlines():
            name, _, value = line.partition(":")
            if name in ("VmHWM", "VmRSS", "VmSwap"):
                found[name] = int(value.split()[0]) * 1024
    except (OSError, ValueError, IndexError):
        return found
    return found


def major_faults(pid: int, proc: Path = PROC) -> int | None:
    """How often the process waited for a page from disk; None where it is gone."""
    try:
        # the process name may hold blanks and brackets: fields count from behind the last one
        return int((proc / str(pid) / "stat").read_text().rpartition(")")[2].split()[9])
    except (OSError, ValueError, IndexError):
        return None


def pss(pid: int, proc: Path = PROC) -> int | None:
    """Proportional set size in bytes: own pages, and of shared ones this process's part."""
    try:
        for line in (proc / str(pid) / "smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        return None
    return None


class VmHwm:
    """The kernel's high-water mark of each process, summed over the server's tree."""

    name, includes_file_cache = "VmHWM", True
    how: How = "true peak"

    def __init__(self, proc: Path = PROC) -> None:
        self._proc = proc
        self._before: dict[int, int] = {}
        self._last: dict[int, int] = {}
        self._refusal: str | None = None

    def reset(self, pids: Set[int]) -> str | None:
        """Set the mark of every process back to its present size."""
        self._refusal = None
        for pid in sorted(pids):
            try:
                (self._proc / str(pid) / "clear_refs").write_text("5")
            except OSError as refused:
                self._refusal = f"VmHWM cannot be reset: {refused.strerror}"
        self._before = self._last = self._marks(pids)
        return self._refusal

    def look(self) -> None:
        """Remember the marks: a process that dies takes its own with it."""
        self._last = {**self._last, **self._marks(self._before.keys())}

    def read(self) -> Value:
        """The sum of the marks; of a process that died, the last one seen."""
        now = self._marks(self._before.keys())
        gone = set(self._before) - set(now)
        total = sum({**self._last, **now}.values()) if self._before else None
        value = risen(
            sum(self._before.values()), total, self._refusal, "no /proc/PID/status that tells VmHWM"
        )
        notes = [value.note]
        if len(self._before) > 1:
            notes.append(
                f"sum of the peaks of {len(self._before)} processes: an upper bound, shared pages count in each"
            )
        if gone:
            notes.append(
                f"{len(gone)} of them gone: last seen before" if now else "last seen before it died"
            )
        return value._replace(note="; ".join(note for note in notes if note) or None)

    def _marks(self, pids: Set[int]) -> dict[int, int]:
        """The mark of every process that still has one."""
        found = {pid: status(pid, self._proc).get("VmHWM") for pid in pids}
        return {pid: mark for pid, mark in found.items() if mark is not None}


class Sampled:
    """The largest sum over the server's tree that was seen: of resident sets (`rss`) or of shares (`pss`)."""

    includes_file_cache = True
    how: How = "sampled"

    def __init__(self, name: str, proc: Path = PROC) -> None:
        self.name = name
        self._proc, self._pids = proc, frozenset[int]()
        self._most: int | None = None
        self._dear = 0.0

    def reset(self, pids: Set[int]) -> str | None:
        """Begin with the present size; it needs no counter."""
        self._pids = frozenset(pids)
        start = time.perf_counter()
        self._most = self._sum()
        self._dear = time.perf_counter() - start
        return None

    def look(self) -> None:
        """One sample, if it is cheap: walking a large process's pages for PSS holds its memory lock."""
        if self._dear <= DEAR_S:
            self._sample()

    def read(self) -> Value:
        """The largest sum seen, the one at this moment included."""
        self._sample()
        if self._most is None and self._large():
            return Value(
                None, f"not read: walking the pages of more than {TOO_LARGE} bytes takes long"
            )
        if self._most is None:
            return Value(None, f"no /proc/PID that tells {self.name}")
        notes = []
        if self._dear > DEAR_S:
            notes.append(f"only before and after: a look takes {self._dear * 1e3:.0f} ms")
        if self.name == "rss" and len(self._pids) > 1:
            notes.append(f"sum over {len(self._pids)} processes: shared pages count in each")
        return Value(self._most, None, "; ".join(notes) or None)

    def _sample(self) -> None:
        now = self._sum()
        if now is not None:
            self._most = max(now, self._most or 0)

    def _large(self) -> bool:
        """Whether PSS would take too long to read."""
        sizes = [status(pid, self._proc).get("VmRSS", 0) for pid in self._pids]
        return self.name == "pss" and sum(sizes) > TOO_LARGE

    def _sum(self) -> int | None:
        if self._large():
            return None
        sizes = [
            pss(pid, self._proc) if self.name == "pss" else status(pid, self._proc).get("VmRSS")
            for pid in self._pids
        ]
        known = [size for size in sizes if size is not None]
        return sum(known) if known else None
