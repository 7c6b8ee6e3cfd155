"""EvalPlus's `sanitize` on all cores, in an environment of its own.

EvalPlus's pins do not agree with ours, so it is seldom in our environment. It is about cubic in an answer's lines: 400
lines of prose take 13 s, so running out of time is common with models that reason, and is told as that, never as a
fail.

    with Sanitiser(python) as sanitiser:
        cleaned = sanitiser.run([(content, entry_point), ...])
"""

from __future__ import annotations

import concurrent.futures
import importlib.util
import os
import queue
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from types import TracebackType
from typing import Self

from battery.ledger.errors import InputError
from battery.ledger.sanitised import LIMIT_S, VERSION, Peer
from battery.quality.evalplus.process import Clean, Lost, Process

_MAKE = (
    "make an environment for it, `python -m venv .peers/evalplus` and"
    f" `.peers/evalplus/bin/pip install evalplus=={VERSION}`, and say --evalplus-python .peers/evalplus/bin/python"
)


class Sanitiser:
    """Processes that run `sanitize`, one for each core; a context manager, to be entered as often as wanted."""

    def __init__(
        self, python: Path | None = None, limit_s: float = LIMIT_S, workers: int | None = None
    ) -> None:
        """`python`: an interpreter that has EvalPlus; None: this one. InputError where it has not that version."""
        if python is None and importlib.util.find_spec("evalplus") is None:
            raise InputError(f"no package evalplus here to compare with; {_MAKE}")
        named = str(python or sys.executable)
        # absolute, since it is started elsewhere; not resolved, since an environment is known by its link
        self._python, self._limit_s = str(Path(shutil.which(named) or named).absolute()), limit_s
        self._count, self._processes = workers or _cores(), list[Process]()
        with self:
            self.peer = self._introduced()

    def __enter__(self) -> Self:
        self._folder = tempfile.TemporaryDirectory(prefix="battery-")
        self._processes = [
            Process(self._python, self._limit_s, self._folder.name) for _ in range(self._count)
        ]
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for process in self._processes:
            process.stop()
        self._processes.clear()
        self._folder.cleanup()

    def _introduced(self) -> Peer:
        """Who answers here; InputError where nobody does, or another version."""
        try:
            told = self._processes[0].start()
        except Lost as lost:
            raise InputError(f"{self._python}: EvalPlus does not start: {lost}; {_MAKE}") from lost
        if told.version != VERSION:
            raise InputError(
                f"{self._python} has EvalPlus {told.version}, and what is compared with is {VERSION}; {_MAKE}"
            )
        return Peer(
            version=told.version, source=told.source, python=told.python, parsers=told.parsers,
            limit_s=self._limit_s,
        )  # fmt: skip

    def run(
        self,
        answers: Iterable[tuple[str, str]],
        tell: Callable[[int, int], None] = lambda done, total: None,
    ) -> list[Clean]:
        """What becomes of every (answer, entry point), in their order; equal ones are looked at once.

        BatteryError where EvalPlus, once gone, does not start again.
        """
        given = list(answers)
        each = sorted(set(given), key=lambda one: (-len(one[0]), one))  # the longest take longest
        idle: queue.SimpleQueue[Process] = queue.SimpleQueue()
        for process in self._processes:
            idle.put(process)
        with concurrent.futures.ThreadPoolExecutor(self._count) as threads:
            asked = {threads.submit(_asked, idle, one): one for one in each}
            found: dict[tuple[str, str], Clean] = {}
            try:
                for one in concurrent.futures.as_completed(asked):
                    found[asked[one]] = one.result()
                    tell(len(found), len(each))
            except BaseException:
                threads.shutdown(wait=False, cancel_futures=True)
                for process in self._processes:
                    process.kill()
                raise
        return [found[one] for one in given]


def _asked(idle: queue.SimpleQueue[Process], one: tuple[str, str]) -> Clean:
    """One answer, by whichever process is free."""
    process = idle.get()
    try:
        return process.ask(*one)
    finally:
        idle.put(process)


def _cores() -> int:
    """Cores that this process may use."""
    if sys.platform == "linux":
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
