"""A limit on the memory of a server, enforced by the kernel: a cgroup of its own, or else its address space.

A cgroup counts what is really used, over the whole tree, and its kills are counted by the kernel. RLIMIT_AS counts
addresses, per process: engines that reserve far more than they use (CUDA, large memory maps) fail under it long before
memory is short, and each child has the whole limit again; the failure is the allocator's own error, not a kill.
"""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from battery.bench.memory import cgroup
from battery.bench.memory.cgroup import Cgroup
from battery.ledger.errors import LaunchError, PlanError

ENTER = Path(__file__).with_name("enter.py")


class Limit(NamedTuple):
    """The limit that one server runs under."""

    kind: str
    """`cgroup v2`, `cgroup v1` or `RLIMIT_AS`."""
    bytes: int
    group: Cgroup | None = None
    why: str | None = None
    """Why it is no better kind."""

    @property
    def told(self) -> str:
        """The kind, and why no better one, in words."""
        return self.kind + (f" (no cgroup: {self.why})" if self.why else "")

    def wrap(self, command: Sequence[str]) -> list[str]:
        """The command line that starts the server under the limit."""
        if self.group is not None:
            how = ["--cgroup", str(self.group.path / "cgroup.procs")]
        else:
            how = ["--as", str(self.bytes)]
        return [sys.executable, "-I", "-S", str(ENTER), *how, "--", *command]

    def confirm(self, pid: int) -> None:
        """LaunchError unless the running server is under the limit, as the kernel tells it."""
        if self.group is not None:
            if pid not in self.group.pids():
                raise LaunchError(
                    f"process {pid} is not in its {self.kind}; its memory would not be limited"
                )
            return
        told = address_space(pid)
        if told != self.bytes:
            raise LaunchError(f"process {pid} has RLIMIT_AS {told}, not {self.bytes}")

    def lift(self) -> str | None:
        """Remove what the limit needed, once the server is gone; why something is left, None when nothing is."""
        return self.group.remove() if self.group is not None else None


def impose(most: int, name: str) -> Limit:
    """The best limit that this machine can put on a server; PlanError where it can put none."""
    group, why = cgroup.make(name)
    if group is not None:
        try:
            group.limit(most)
        except OSError as refused:
            group.remove(wait_s=0)
            why = f"{group.label}: its limit cannot be set ({refused.strerror})"
        else:
            return Limit(group.label, group.limited_to() or most, group)
    if sys.platform != "linux":
        raise PlanError(
            f"limits.memory_limit_gb: no limit can be put on a server here ({why}; {sys.platform} does not enforce"
            " RLIMIT_AS); take it out of the plan, or use memory_cap_gb, which only judges the peak"
        )
    return Limit("RLIMIT_AS", most, None, why)


def kinds() -> list[tuple[str, str | None]]:
    """(kind, why it cannot be used here or None) of every limit, best first; makes a group for a moment to see."""
    group, why = cgroup.make("doctor")
    label = "cgroup"
    if group is not None:
        label = group.label
        try:
            group.limit(1 << 30)
        except OSError as refused:
            why = f"its limit cannot be set ({refused.strerror})"
        why = group.remove() or why
    enforced = sys.platform == "linux"
    return [(label, why), ("RLIMIT_AS", None if enforced else f"not enforced on {sys.platform}")]


def address_space(pid: int) -> int | None:
    """The soft limit on a process's address space in bytes; None where there is none or it is not told."""
    with contextlib.suppress(OSError):
        text = Path(f"/proc/{pid}/limits").read_text()
        found = re.search(r"^Max address space +(\d+) ", text, re.MULTILINE)
        return int(found.group(1)) if found else None
    return None
