"""A small process that outlives its parent by a moment, and then kills the server's process group.

Run as `python leash.py PGID [CGROUP]` with a pipe from the parent as standard input. The words `let go` mean
an orderly stop, and the leash ends without a kill; end of file without them means that the parent
died, by SIGKILL even. Works the same on Linux and macOS, where prctl(PR_SET_PDEATHSIG) does not
exist. A control group that was made for the server is emptied and removed too. Standard library
only: it starts in milliseconds.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

EMPTY_S = 5.0


def attach(group: int, cgroup: Path | None = None) -> subprocess.Popen[bytes]:
    """Start a leash on the process group `group`; keep the returned process and hand it to `let_go`."""
    return subprocess.Popen(
        [sys.executable, "-I", "-S", __file__, str(group), *([str(cgroup)] if cgroup else [])],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def let_go(leash: subprocess.Popen[bytes]) -> None:
    """End a leash whose group has been stopped in order."""
    with contextlib.suppress(BrokenPipeError):
        leash.communicate(b"let go", timeout=5)


def main() -> None:
    """Wait for the parent's word or its end."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if sys.stdin.buffer.read() != b"let go":
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(int(sys.argv[1]), signal.SIGKILL)
        for cgroup in sys.argv[2:]:
            clear(Path(cgroup))


def clear(cgroup: Path) -> None:
    """Kill whatever the control group still holds, and remove it."""
    deadline = time.monotonic() + EMPTY_S
    while cgroup.is_dir() and time.monotonic() < deadline:
        with contextlib.suppress(OSError):
            for pid in (cgroup / "cgroup.procs").read_text().split():
                os.kill(int(pid), signal.SIGKILL)
        with contextlib.suppress(OSError):
            cgroup.rmdir()
        time.sleep(0.02)


if __name__ == "__main__":
    main()
