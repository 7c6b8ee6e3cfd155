"""Readings while a cell runs, from a process that is started once per window: the measuring side of it.

A sampler that does not start, dies or falls silent costs its samples, with the reason; never the cell.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from battery.bench.sensors.watch import ROOT

if TYPE_CHECKING:
    from battery.ledger.receipt import Reading

EVERY_S = 0.5
_START_S, _END_S = 30.0, 10.0
"""How long the process may take to begin (it may still be opening NVML, seconds on a board that slept) and to hand its
samples over."""


class Silent(Exception):
    """The sampling process did not answer."""


def to_reading(values: dict[str, Any], at_s: float) -> Reading:
    """A look at the sensors as a receipt keeps it."""
    # the sampling process imports this package too, and has no use for msgspec
    import msgspec

    from battery.ledger.receipt import Reading

    return msgspec.convert({**values, "at_s": at_s}, Reading)


class Sampler:
    """One sampling process, for the cells of a window: `with Sampler() as one: with one.during(pid) as taken: …`."""

    def __init__(self, root: Path = ROOT, every_s: float = EVERY_S) -> None:
        self._root, self._every_s = root, every_s
        self._process: subprocess.Popen[bytes] | None = None
        self._heard = b""

    def __enter__(self) -> Sampler:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def pid(self) -> int | None:
        """Of the process; None while there is none."""
        return self._process.pid if self._process else None

    def start(self) -> None:
        """Start the process unless it runs; it is ready by the time the first cell begins."""
        if self._process is not None and self._process.poll() is None:
            return
        self.close()
        here = str(Path(__file__).parents[3])
        path = os.pathsep.join(filter(None, (here, os.environ.get("PYTHONPATH"))))
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "battery.bench.sensors.sampler", str(self._every_s), str(self._root)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": path},
            start_new_session=True,  # Ctrl-C is for the battery, which then ends this one
        )  # fmt: skip

    def close(self) -> None:
        """End the process, by end of file or else by force."""
        running, self._process, self._heard = self._process, None, b""
        if running is None:
            return
        with contextlib.suppress(BrokenPipeError):
            running.stdin.close()  # type: ignore[union-attr]
        try:
            running.wait(timeout=2)
        except subprocess.TimeoutExpired:
            running.kill()
            running.wait()
        running.stdout.close()  # type: ignore[union-attr]

    def during(self, server: int, own: Sequence[int] = ()) -> Sampling:
        """Samples of this server's cell, while the block under `with` runs; `own` are further processes of ours."""
        return Sampling(self, server, own)

    def say(self, order: str) -> None:
        """Send an order; Silent when nobody is there."""
        if self._process is None:
            raise Silent("the sampling process was not started")
        try:
            self._process.stdin.write(f"{order}\n".encode())  # type: ignore[union-attr]
            self._process.stdin.flush()  # type: ignore[union-attr]
        except OSError as gone:
            raise Silent(self._end()) from gone

    def line(self, deadline: float) -> bytes:
        """The next line of its answer; Silent when none comes in time."""
        while b"\n" not in self._heard:
            if self._process is None or self._process.stdout is None:
                raise Silent("the sampling process was not started")
            out = self._process.stdout.fileno()
            if not select.select([out], [], [], max(0.0, deadline - time.monotonic()))[0]:
                raise Silent("the sampling process did not answer in time")
            more = os.read(out, 1 << 16)
            if not more:
                raise Silent(self._end())
            self._heard += more
        line, _, self._heard = self._heard.partition(b"\n")
        return line

    def _end(self) -> str:
        """How the process ended, in words."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            if self._process is not None:
                return f"the sampling process ended ({self._process.wait(timeout=1)})"
        return "the sampling process closed its pipe"


class Sampling:
    """The samples of one cell: the first before its request, one every half second, the last behind its end."""

    def __init__(self, sampler: Sampler, server: int, own: Sequence[int] = ()) -> None:
        self._sampler, self._server, self._own = sampler, server, own
        self._taken: list[dict[str, Any]] = []
        self.why: str | None = None
        """Why there are no samples."""
        self.processor_s: float | None = None
        """What they cost the machine."""

    def __enter__(self) -> Sampling:
        try:
            self._sampler.start()
            self._sampler.say(" ".join(["begin", str(self._server), *map(str, self._own)]))
            self._sampler.line(time.monotonic() + _START_S)
        except (Silent, OSError) as silent:
            self._lost(silent)
        return self

    def __exit__(self, *_: object) -> None:
        if self.why is not None:
            return
        try:
            self._sampler.say("end")
            deadline = time.monotonic() + _END_S
            while "end" not in (one := json.loads(self._sampler.line(deadline))):
                self._taken.append(one)
            self.processor_s = one["processor_s"]
        except (Silent, ValueError) as silent:
            self._lost(silent)

    def _lost(self, silent: Exception) -> None:
        """No samples for this cell; the next one gets a process of its own."""
        self.why, self._taken = f"no samples: {silent}", []
        self._sampler.close()

    def readings(self, send_ns: int) -> tuple[Reading, ...]:
        """What was read, `at_s` counted from `send_ns`; the gate's reading says why values are missing."""
        return tuple(
            to_reading(
                {**{k: v for k, v in one.items() if k != "at_ns"}, "missing": {}},
                round((one["at_ns"] - send_ns) / 1e9, 3),
            )
            for one in self._taken
        )
