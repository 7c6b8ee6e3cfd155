"""A control group for one server: a limit that the kernel enforces, the peak of the whole tree, a count of kills.

Version 2 (memory.max, memory.peak, memory.events) and version 1 (memory.limit_in_bytes, memory.max_usage_in_bytes,
memory.oom_control). A group is made beneath the one that battery runs in, so that limits set on battery hold for its
servers too; where version 2 forbids that (a group with processes cannot have children with a memory controller) beneath
its parent, if that is writable. What a group counts includes the file cache. Both versions were run (version 2 on
Linux 6.18); the tests use the one that is here, and recorded files of the other.
"""

from __future__ import annotations

import contextlib
import errno
import os
import time
from collections.abc import Iterator, Set
from pathlib import Path
from typing import IO

import psutil

from battery.bench.memory.source import Value, risen
from battery.ledger.receipt import How

PREFIX = "battery-"
SELF = Path("/proc/self/mountinfo")
REMOVE_S = 3.0


class Cgroup:
    """One control group with a memory controller."""

    def __init__(self, path: Path, version: int) -> None:
        self.path, self.version = path, version

    @property
    def label(self) -> str:
        """As receipts name the kind."""
        return f"cgroup v{self.version}"

    def number(self, name: str) -> int | None:
        """A file that holds one number; None where it cannot be read or says `max`."""
        try:
            return int((self.path / name).read_text())
        except (OSError, ValueError):
            return None

    def table(self, name: str) -> dict[str, int]:
        """A file of names and numbers; empty where it cannot be read."""
        try:
            pairs = [line.split() for line in (self.path / name).read_text().splitlines()]
            return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2}
        except (OSError, ValueError):
            return {}

    def kills(self) -> int | None:
        """How often the kernel killed in this group for memory; None where it does not tell (before Linux 4.13)."""
        file = "memory.events" if self.version == 2 else "memory.oom_control"
        return self.table(file).get("oom_kill")

    def pids(self) -> set[int]:
        """The processes in it."""
        try:
            return {int(pid) for pid in (self.path / "cgroup.procs").read_text().split()}
        except (OSError, ValueError):
            return set()

    def file_cache(self) -> int | None:
        """Bytes of file cache in it at this moment."""
        return self.table("memory.stat").get("file" if self.version == 2 else "total_cache")

    def limit(self, most: int) -> None:
        """Let it use `most` bytes, and no swap beyond; OSError where the kernel refuses."""
        if self.version == 2:
            (self.path / "memory.max").write_text(str(most))
            with contextlib.suppress(FileNotFoundError):  # a kernel without swap accounting
                (self.path / "memory.swap.max").write_text("0")
        else:
            (self.path / "memory.limit_in_bytes").write_text(str(most))
            with contextlib.suppress(FileNotFoundError):
                (self.path / "memory.memsw.limit_in_bytes").write_text(str(most))

    def limited_to(self) -> int | None:
        """The limit in force, in bytes; the kernel rounds it to pages."""
        return self.number("memory.max" if self.version == 2 else "memory.limit_in_bytes")

    def remove(self, wait_s: float = REMOVE_S) -> str | None:
        """Remove it once its processes are gone; why it is still there, None when it is not."""
        deadline = time.monotonic() + wait_s
        while True:
            try:
                self.path.rmdir()
            except FileNotFoundError:
                return None
            except OSError as busy:
                if busy.errno != errno.EBUSY or time.monotonic() > deadline:
                    return f"{self.label} {self.path.name} cannot be removed: {busy.strerror}"
                time.sleep(0.02)
            else:
                return None


def of(pid: int | str = "self", proc: Path = Path("/proc"), mounts: Path = SELF) -> Cgroup | None:
    """The group whose memory controller counts a process; None where there is none to be seen."""
    try:
        lines = (proc / str(pid) / "cgroup").read_text().splitlines()
    except OSError:
        return None
    paths: dict[str, str] = {}
    for line in lines:
        _, controllers, path = line.split(":", 2)
        paths[controllers] = path
    one = next((path for names, path in paths.items() if "memory" in names.split(",")), None)
    for version, inner in ((1, one), (2, paths.get(""))):
        for root, place in _mounts(version, mounts):
            inside = _beneath(inner, root)
            if inside is not None and _counts(place / inside, version):
                return Cgroup(place / inside, version)
    return None


def _mounts(version: int, mounts: Path) -> Iterator[tuple[str, Path]]:
    """(root, mount point) of every hierarchy of this version that may count memory."""
    try:
        lines = mounts.read_text().splitlines()
    except OSError:
        return
    for line in lines:
        fields, _, behind = line.partition(" - ")
        kind, _, options = behind.split(" ", 2)
        root, place = fields.split(" ")[3:5]
        one = kind == "cgroup" and "memory" in options.split(",")
        if (version == 1 and one) or (version == 2 and kind == "cgroup2"):
            yield root, Path(place)


def _beneath(path: str | None, root: str) -> str | None:
    """`path` of a group as a path beneath the mount of `root`; None where that mount does not show it."""
    if path is None or ".." in path.split("/"):
        return None
    if root == "/":
        return path.lstrip("/")
    if path == "/" or path == root or path.startswith(f"{root}/"):
        return path.removeprefix(root).lstrip("/")
    return None


def _counts(folder: Path, version: int) -> bool:
    """Whether memory is counted in the group; a root group has no figures of its own, but may have children."""
    names = ("memory.current", "cgroup.subtree_control") if version == 2 else ("memory.stat",)
    return any((folder / name).is_file() for name in names)


def make(name: str, own: Cgroup | None = None) -> tuple[Cgroup | None, str | None]:
    """A new, empty group for one server, or None with the reason why none can be made."""
    own = own or of()
    if own is None:
        return None, "no cgroup with a memory controller is mounted here"
    reasons = []
    for parent in _parents(own):
        if not _offers(parent):
            reasons.append(f"{parent.label}: children of this group have no memory controller")
            continue
        _sweep(parent)
        path = parent.path / f"{PREFIX}{os.getpid()}-{name}"
        try:
            path.mkdir()
        except OSError as refused:
            reasons.append(f"{parent.label}: no group can be made ({refused.strerror})")
        else:
            return Cgroup(path, parent.version), None
    return None, "; ".join(dict.fromkeys(reasons))


def _parents(own: Cgroup) -> list[Cgroup]:
    """Where a group for a server may be made, best first."""
    above = Cgroup(own.path.parent, own.version)
    has_above = own.version == 2 and (above.path / "cgroup.subtree_control").is_file()
    return [own, above] if has_above else [own]


def _offers(parent: Cgroup) -> bool:
    """Whether a child of this group would have its memory counted and limited."""
    if parent.version == 1:
        return True
    try:
        return "memory" in (parent.path / "cgroup.subtree_control").read_text().split()
    except OSError:
        return False


def _sweep(parent: Cgroup) -> None:
    """Remove groups that a battery which is gone left behind; one that still holds a process is left alone."""
    for path in parent.path.glob(f"{PREFIX}*-*"):
        maker = path.name.removeprefix(PREFIX).partition("-")[0]
        if maker.isdigit() and not psutil.pid_exists(int(maker)):
            Cgroup(path, parent.version).remove(wait_s=0)


class CgroupPeak:
    """The largest memory of the server's own group, file cache included; only where it has one of its own."""

    name, includes_file_cache = "cgroup", True
    how: How = "true peak"

    def __init__(self, group: Cgroup | None = None) -> None:
        self._given, self._group = group, group
        self._file: IO[str] | None = None
        self._before: int | None = None
        self._refusal: str | None = None

    def reset(self, pids: Set[int]) -> str | None:
        """Set the mark back: version 1 by writing 0, version 2 per open file (Linux 6.12 and later)."""
        self.close()
        self._group, self._before = self._given or _foreign(pids), None
        if self._group is None:
            return None
        try:
            if self._group.version == 1:
                (self._group.path / "memory.max_usage_in_bytes").write_text("0")
            else:
                self._file = (self._group.path / "memory.peak").open("r+")
                self._file.write("reset\n")
                self._file.flush()
            self._refusal = None
        except OSError as refused:
            older = " (version 2 can from Linux 6.12 on)" if self._group.version == 2 else ""
            self._refusal = f"its peak cannot be reset: {refused.strerror}{older}"
        self._before = self._now()
        return self._refusal

    def look(self) -> None:
        """Nothing: the group outlives its processes, and its mark with it."""

    def read(self) -> Value:
        """The mark of the group."""
        if self._group is None:
            return Value(None, "the server runs in battery's own cgroup, or in none")
        value = risen(
            self._before, self._now(), self._refusal, f"{self._group.label} tells no peak"
        )
        cache = self._group.file_cache()
        told = f"file cache {cache} bytes at the end" if cache is not None else None
        notes = [self._group.label, value.note, told]
        return value._replace(note="; ".join(note for note in notes if note))

    def close(self) -> None:
        """Give up the open file that a reset of version 2 is bound to."""
        if self._file is not None:
            with contextlib.suppress(OSError):
                self._file.close()
            self._file = None

    def _now(self) -> int | None:
        """The mark, through the file that was reset where there is one."""
        assert self._group is not None
        if self._group.version == 1:
            return self._group.number("memory.max_usage_in_bytes")
        if self._file is None:
            return self._group.number("memory.peak")
        try:
            return int(os.pread(self._file.fileno(), 64, 0))
        except (OSError, ValueError):
            return None


def _foreign(pids: Set[int]) -> Cgroup | None:
    """The one group that all of the server's processes are in, if it is not battery's own nor one above it."""
    groups = {group.path: group for pid in pids if (group := of(pid)) is not None}
    own = of()
    if len(groups) != 1 or own is None:
        return None
    group = next(iter(groups.values()))
    return None if own.path.is_relative_to(group.path) else group
