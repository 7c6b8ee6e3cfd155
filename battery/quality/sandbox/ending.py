"""How a program's process ended, and the end of what it left."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import time
from collections.abc import Callable
from typing import Any

from battery.quality.sandbox import crowd, limits

END_S = 10.0
"""Most that is waited for what was killed."""
PAUSE_S = 0.0003


class Program:
    """A process that was forked for one program, until it and all that it started are gone."""

    def __init__(self, pid: int, judge: int, listing: int | None) -> None:
        """`judge`: the one child that stays; `listing`: the system's list of processes, where orphans can come here."""
        self.pid, self._judge, self._listing = pid, judge, listing
        self._status: tuple[int, resource.struct_rusage] | None = None

    def gone(self) -> bool:
        """Whether it has ended."""
        if self._status is None:
            found, status, usage = os.wait4(self.pid, os.WNOHANG)
            if found:
                self._status = status, usage
                self._kill(os.killpg)
        return self._status is not None

    def ended(self, bounds: limits.Limits) -> dict[str, Any]:
        """What it means that it ended before its checks had run."""
        assert self._status is not None, "it runs"
        status, usage = self._status
        cpu = usage.ru_utime + usage.ru_stime
        code = os.waitstatus_to_exitcode(status)
        # the kernel's limit is above the one that is kept from outside, so this is one that outran the looks
        if code in (-signal.SIGXCPU, -signal.SIGKILL) and cpu > bounds.cpu_s / 2:
            return {"status": "timeout", "detail": f"it used {cpu:.1f} s of processor time"}
        if code < 0:
            return {"status": "crash", "detail": f"ended by {signal.Signals(-code).name}"}
        return {
            "status": "failed",
            "detail": f"it ended itself (exit {code}) before its checks had run",
        }

    def unfenced(self) -> dict[str, Any]:
        """Why it never said that it was ready: no answer's fault."""
        assert self._status is not None, "it runs"
        code = os.waitstatus_to_exitcode(self._status[0])
        reason = os.strerror(code) if code >= 0 else f"ended by {signal.Signals(-code).name}"
        return {
            "status": "fault",
            "detail": f"the program's process could not be fenced in: {reason}",
        }

    def end(self) -> None:
        """Kill it with all that it started, and reap every one."""
        if not self.gone():
            self._kill(os.killpg)
            self._kill(os.kill)
        until = time.perf_counter() + END_S
        while not (self.gone() and not self._orphans()) and time.perf_counter() < until:
            time.sleep(PAUSE_S)

    def _kill(self, kill: Callable[[int, int], None]) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            kill(self.pid, signal.SIGKILL)

    def _orphans(self) -> list[int]:
        """Kill and reap what came to this process when its parent ended, where the system tells."""
        if self._listing is None:
            return []
        found = [
            pid for pid in crowd.children(self._listing, os.getpid()) if pid not in (self.pid, self._judge)
        ]  # fmt: skip
        for orphan in found:
            with contextlib.suppress(ProcessLookupError, PermissionError, ChildProcessError):
                os.kill(orphan, signal.SIGKILL)
                os.waitpid(orphan, os.WNOHANG)
        return found
