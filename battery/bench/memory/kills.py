"""The kernel's word that it killed for memory: counts and messages that came after a mark, each named.

Best first: the count of the server's own cgroup, which settles it either way; the kernel's log where it names a
process of ours; the count of the cgroup around battery (a container's); the whole machine's in /proc/vmstat. The
last two only together with SIGKILL, since it may have been someone else. On macOS jetsam's lines in the unified log.
SIGKILL without any of these is a death of unknown cause.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
from collections.abc import Callable, Set
from pathlib import Path

from battery.bench.judge import oom
from battery.bench.memory import cgroup
from battery.bench.memory.cgroup import Cgroup

KMSG, VMSTAT = Path("/dev/kmsg"), Path("/proc/vmstat")
_LINUX = re.compile(r"Killed process (\d+)")
_JETSAM = re.compile(
    r"memorystatus: killing[^\n]*?(?:\bpid (\d+) \[|\[(\d+)\])[^\n]*", re.IGNORECASE
)
_LOG = ("/usr/bin/log", "show", "--last", "2m", "--style", "compact", "--predicate",
        'eventMessage CONTAINS "memorystatus: killing"')  # fmt: skip


def machine_kills(vmstat: Path = VMSTAT) -> int | None:
    """How often the kernel has killed for memory since it started; None where it does not tell."""
    try:
        lines = vmstat.read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), None)


def unified_log() -> str:
    """What macOS logged of jetsam's kills in the last two minutes; empty elsewhere or when it cannot be read."""
    if sys.platform != "darwin":
        return ""
    try:
        return subprocess.run(_LOG, capture_output=True, text=True, timeout=20, check=False).stdout
    except (OSError, subprocess.SubprocessError):
        return ""


class Kills:
    """Watches for the kernel's kills of one server: `mark()` before a request, `word()` after it failed."""

    def __init__(
        self,
        group: Cgroup | None = None,
        kmsg: Path = KMSG,
        vmstat: Path = VMSTAT,
        jetsam: Callable[[], str] = unified_log,
        around: Cgroup | None = None,
    ) -> None:
        self._group, self._vmstat, self._jetsam = group, vmstat, jetsam
        self._around = (around or cgroup.of()) if group is None else None
        self._pids: Set[int] = frozenset()
        self._in_group: int | None = None
        self._in_around: int | None = None
        self._on_machine: int | None = None
        self._kmsg, self._messages = kmsg, -1

    def close(self) -> None:
        """Give up the kernel's log."""
        if self._messages >= 0:
            os.close(self._messages)
            self._messages = -1

    def mark(self, pids: Set[int] = frozenset()) -> None:
        """Begin to count from here; `pids` are the server's processes as long as they live."""
        self._pids = self._pids | pids
        self._in_group = self._group.kills() if self._group else None
        self._in_around = self._around.kills() if self._around else None
        self._on_machine = machine_kills(self._vmstat)
        with contextlib.suppress(OSError):
            if self._messages < 0:
                self._messages = os.open(self._kmsg, os.O_RDONLY | os.O_NONBLOCK)
            os.lseek(self._messages, 0, os.SEEK_END)

    def word(self, exit_status: int | None) -> oom.Words | None:
        """The kernel's word that the server, or a process of it, was killed for memory since the mark."""
        if self._group is not None and (moved := _moved(self._in_group, self._group.kills())):
            text = f"oom_kill of the server's own cgroup went {moved}"
            return oom.Words(f"the kernel's {self._group.label}", "kernel", text)
        for line in self._lines():
            found = _LINUX.search(line)
            if found and int(found.group(1)) in self._pids:
                return oom.Words("the kernel's log", "kernel", line[:240])
        if self._in_group is not None or not oom.killed(exit_status):
            return None  # the group's own count would have moved
        if self._around is not None and (moved := _moved(self._in_around, self._around.kills())):
            text = f"SIGKILL, and oom_kill of the cgroup around battery went {moved}"
            return oom.Words(f"the kernel's {self._around.label}", "kernel", text)
        if moved := _moved(self._on_machine, machine_kills(self._vmstat)):
            text = f"SIGKILL, and oom_kill of the whole machine went {moved}"
            return oom.Words("the kernel's /proc/vmstat", "kernel", text)
        for kill in _JETSAM.finditer(self._jetsam()):
            if int(kill.group(1) or kill.group(2)) in self._pids:
                return oom.Words("the unified log", "kernel", f"SIGKILL, and {kill.group()[:240]}")
        return None

    def _lines(self) -> list[str]:
        """What the kernel logged since the mark; nothing where its log may not be read."""
        lines: list[str] = []
        while self._messages >= 0 and len(lines) < 10_000:
            try:
                record = os.read(self._messages, 8192)
            except BrokenPipeError:
                continue  # records were overwritten before they were read; the next read goes on behind the gap
            except OSError:
                break
            if not record:
                break
            lines += record.decode("utf-8", "replace").splitlines()
        return lines


def _moved(before: int | None, after: int | None) -> str | None:
    """How a count moved, in words; None where it did not, or is not told."""
    if before is None or after is None or after <= before:
        return None
    return f"from {before} to {after}"
