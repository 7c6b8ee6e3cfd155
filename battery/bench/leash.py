"""A small process beside each server: it ends the server if the battery dies, and keeps the server's log small.

Run as `python leash.py MARK CAP [CGROUP]` with a pipe from the battery as standard input and the log as standard
output. It is started before the server, which carries `BATTERY_WINDOW=MARK` in its environment and hands that on to
all it forks. The pipe's other end is closed for good only when the battery is dead, by SIGKILL even, and no child of
it is still on its way to exec: then every process that carries the mark is killed, in whatever session it is and
whoever its parent has become, and with them the process group that was named. The words `let go` mean that all this
is done already. A control group that was made for the server is emptied and removed too. A process that was started
with an emptied environment and in a session of its own cannot be found this way.

Linux tells environments in /proc; elsewhere `ps` does (of one's own processes). Standard library only: it starts in
milliseconds.
"""

from __future__ import annotations

import contextlib
import os
import re
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import IO

MARK = "BATTERY_WINDOW"
"""The variable that names the window a process belongs to."""
LOG_CAP = 64 << 20
"""Bytes of a server's log that may be on disk before all but the last KEEP are given back."""
KEEP = 64 << 10
LOOK_S = 0.5
END_S = 10.0
EMPTY_S = 5.0
WAIT_S = 20.0
"""How long a leash is waited for: longer than it may take to kill."""
LET_GO = b"let go"


def attach(
    mark: str, log: IO[bytes], cap: int = LOG_CAP, cgroup: Path | None = None
) -> subprocess.Popen[bytes]:
    """Start a leash for the server that will carry `mark` and print into `log`; end it with `let_go`."""
    return subprocess.Popen(
        [sys.executable, "-I", "-S", __file__, mark, str(cap), *([str(cgroup)] if cgroup else [])],
        stdin=subprocess.PIPE,
        stdout=log,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def name_group(leash: subprocess.Popen[bytes], group: int) -> None:
    """Tell the leash the process group of the server."""
    _say(leash, b"%d\n" % group)


def let_go(leash: subprocess.Popen[bytes], gone: bool = True) -> None:
    """End a leash; if its server is not `gone`, the leash tries once more to kill it."""
    if gone:
        _say(leash, LET_GO)
    with contextlib.suppress(OSError):
        leash.stdin.close()  # type: ignore[union-attr]
    try:
        leash.wait(WAIT_S)
    except subprocess.TimeoutExpired:  # it is stopped, or starved: no reason to wait with it
        leash.kill()
        leash.wait()


def _say(leash: subprocess.Popen[bytes], words: bytes) -> None:
    """Write to a leash that may be dead."""
    with contextlib.suppress(OSError):
        os.write(leash.stdin.fileno(), words)  # type: ignore[union-attr]


def marked(mark: str) -> set[int]:
    """Process ids that carry `mark` in their environment, as far as this user may look."""
    if Path("/proc/self/environ").is_file():
        return _marked_by_proc(f"{MARK}={mark}".encode())
    return marked_by_ps(mark)


def _marked_by_proc(word: bytes) -> set[int]:
    """The same from Linux' own table; a zombie has no environment any more."""
    found = set()
    for entry in os.listdir("/proc"):  # noqa: PTH208 a leash has no time for paths
        if entry.isdigit():
            with contextlib.suppress(OSError), Path(f"/proc/{entry}/environ").open("rb") as file:
                if word in file.read().split(b"\0"):
                    found.add(int(entry))
    return found


def marked_by_ps(mark: str) -> set[int]:
    """The same from `ps`, which prints the environment behind the command line."""
    line = ["ps", "axeww", "-o", "pid=,command="]
    told = subprocess.run(line, capture_output=True, check=False).stdout.decode("utf-8", "replace")
    word = re.compile(rf"\s{MARK}={re.escape(mark)}(\s|$)")
    return {int(row.split(None, 1)[0]) for row in told.splitlines() if word.search(row)}


def trim(log: int, cap: int) -> None:
    """Give a log's blocks back when more than `cap` bytes of it are on disk; places and the last lines stay.

    A server that goes on writes behind its last byte, so the file gets a hole and marks into it hold. What it writes
    between the two calls below is lost.
    """
    told = os.fstat(log)
    if told.st_blocks * 512 <= cap:
        return
    start = max(0, told.st_size - KEEP)
    tail = os.pread(log, KEEP, start)
    os.ftruncate(log, 0)
    os.pwrite(log, tail, start)


def end(mark: str, groups: set[int]) -> None:
    """Kill everything that carries the mark, and the groups, until two looks in a row find nothing."""
    for group in groups:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(group, signal.SIGKILL)
    deadline, empty = time.monotonic() + END_S, 0
    while empty < 2 and time.monotonic() < deadline:
        left = marked(mark)
        empty = 0 if left else empty + 1
        for pid in left:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.05)


def main() -> None:
    """Wait for the parent's word or its end, and look after the log meanwhile."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    mark, cap = sys.argv[1], int(sys.argv[2])
    heard = b""
    while True:
        if select.select([0], [], [], LOOK_S)[0]:
            piece = os.read(0, 4096)
            if not piece:
                break
            heard += piece
        with contextlib.suppress(OSError):
            trim(1, cap)
    if not heard.endswith(LET_GO):
        end(mark, {int(line) for line in heard.splitlines() if line.isdigit()})
        for cgroup in sys.argv[3:]:
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
