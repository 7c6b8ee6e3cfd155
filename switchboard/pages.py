"""Ask the C library for memory in large pages, and say how much of the process lies in them.

A decode step reads every weight once. In pages of 4 kB that is over a hundred thousand entries of the page table a
step, and the processor's prefetching stops at the end of each page. Where Linux gives large pages only to those who
ask (`madvise`, the usual setting), glibc asks for what it allocates when it is told so before the process begins.
Nothing is computed differently. SWITCHBOARD_HUGE_PAGES=0 leaves memory as it is.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

KILL = "SWITCHBOARD_HUGE_PAGES"
TUNABLES = "GLIBC_TUNABLES"
ASK = "glibc.malloc.hugetlb=1:glibc.malloc.arena_max=1"
"""In one arena: the others, one for each thread, never ask."""
SINCE = (2, 35)
MODE = Path("/sys/kernel/mm/transparent_hugepage/enabled")
OWN = Path("/proc/self/smaps_rollup")


def settings(environment: Mapping[str, str]) -> dict[str, str]:
    """What to add to a process's environment; nothing where it was turned off, does not help, or is set already."""
    given = environment.get(TUNABLES, "")
    if environment.get(KILL) == "0" or "hugetlb" in given or not _asked_for() or not _can_ask():
        return {}
    return {TUNABLES: f"{given}:{ASK}" if given else ASK}


def keep() -> None:
    """Take out of this process's environment what `settings` put there, for the children's sake."""
    given = os.environ.get(TUNABLES)
    if given == ASK:
        del os.environ[TUNABLES]
    elif given and given.endswith(f":{ASK}"):
        os.environ[TUNABLES] = given.removesuffix(f":{ASK}")


def held() -> int | None:
    """Bytes of this process's own memory that lie in large pages; None where the system does not tell."""
    try:
        lines = OWN.read_text().splitlines()
    except OSError:
        return None
    found = [line.split()[1] for line in lines if line.startswith("AnonHugePages:")]
    return int(found[0]) * 1024 if found else None


def _asked_for() -> bool:
    """Whether Linux gives large pages to those who ask, and to them only."""
    try:
        return "[madvise]" in MODE.read_text()
    except OSError:
        return False


def _can_ask() -> bool:
    try:
        name, _, version = (os.confstr("CS_GNU_LIBC_VERSION") or "").partition(" ")
    except (ValueError, OSError):
        return False
    numbers = version.split(".")[:2]
    return name == "glibc" and all(map(str.isdigit, numbers)) and tuple(map(int, numbers)) >= SINCE
