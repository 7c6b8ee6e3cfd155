"""A child process whose memory a test can make grow by a known amount, in a cgroup of its own where it should be."""

from __future__ import annotations

import contextlib
import itertools
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from battery.bench.memory import cgroup
from battery.bench.memory.cgroup import Cgroup
from battery.bench.memory.limit import Limit

COUNT = itertools.count()
GROWER = Path(__file__).parents[1] / "fake_grower.py"


class Grower:
    """The running child."""

    def __init__(self, limit: Limit | None = None) -> None:
        command = [sys.executable, "-I", "-S", str(GROWER)]
        self.process = subprocess.Popen(
            limit.wrap(command) if limit else command,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        self.pid = self.heard()

    def heard(self) -> int:
        """The answer: a process id."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        return int(line) if line else 0

    def tell(self, word: str) -> int:
        """Give an order, and wait until it is done; 0 when the child died of it."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{word}\n")
        self.process.stdin.flush()
        return self.heard()

    def end(self) -> int:
        """Close its input, wait, and give its status."""
        with contextlib.suppress(BrokenPipeError):
            self.process.communicate()
        return self.process.returncode


@contextlib.contextmanager
def grower(limit: Limit | None = None) -> Iterator[Grower]:
    """A child that is gone, with what it needed, when the test ends."""
    child = Grower(limit)
    try:
        yield child
    finally:
        child.process.kill()
        child.end()
        if limit is not None:
            assert limit.lift() is None


def own_group(most: int | None = None) -> Limit:
    """A cgroup of its own with a limit of `most` bytes; skips where none can be made."""
    group, why = cgroup.make(f"test{next(COUNT)}")
    if group is None:
        pytest.skip(f"no cgroup can be made here: {why}")
    if most is not None:
        group.limit(most)
    return Limit(group.label, most or 0, group)


def recorded(folder: Path, version: int, files: dict[str, str]) -> Cgroup:
    """A group whose files hold what a kernel once said."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name).write_text(text)
    return Cgroup(folder, version)
