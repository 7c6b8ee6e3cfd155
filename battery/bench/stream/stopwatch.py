"""The timed request in a process of its own, where nothing else can hold the interpreter while bytes arrive.

Beside a live display, 1 in 100 stamps of a thread in the same process came 5 ms late and some 19 ms; here they come as
late as the kernel wakes a process (benchmarks/client_timing.py). The stamps are perf_counter nanoseconds, which are
one clock for all processes of a machine: CLOCK_MONOTONIC on Linux, mach_absolute_time on macOS.

`python -m battery.bench.stream.stopwatch` takes one Order after the other on standard input and answers each with an
Answer, both as msgpack behind a length of four bytes. It ends when its input does, in the midst of a request too: a
parent that is killed leaves none behind.
"""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import struct
import subprocess
import sys
import threading
from pathlib import Path
from typing import IO

import msgspec

from battery.bench.stream.chunks import Answer
from battery.bench.stream.wire import Headers, Lane, Order
from battery.ledger.errors import BatteryError

_LENGTH = struct.Struct("<I")
STOP_S = 5.0


class Opening(msgspec.Struct, frozen=True):
    """The first message: which server, and what every request to it carries."""

    url: str
    headers: Headers


class StopwatchLost(BatteryError):
    """The timing process ended by itself; what it was timing is lost, and nothing is known of the server."""


class Stopwatch:
    """A child that times requests to one server; it starts with the first one. `close` ends it."""

    def __init__(self, url: str, headers: Headers) -> None:
        self._opening = Opening(url, headers)
        self._child: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """Of the child; None while there is none."""
        return self._child.pid if self._child else None

    def request(self, order: Order) -> Answer:
        """Have one request timed; StopwatchLost if the child ends before it answers."""
        try:
            child = self._child or self._start()
            _put(child.stdin, order)
            return msgspec.msgpack.decode(_take(child.stdout), type=Answer)
        except (EOFError, OSError) as gone:
            lost = self._child
            self.close()
            status = gone if lost is None else lost.returncode
            raise StopwatchLost(
                f"the timing process ended with {status} in the midst of a request; run the same command again"
            ) from gone

    def _start(self) -> subprocess.Popen[bytes]:
        """The child, in a session of its own: a Ctrl-C in the terminal is for us to hear."""
        here = str(Path(__file__).parents[3])
        path = os.pathsep.join(filter(None, (here, os.environ.get("PYTHONPATH"))))
        self._child = subprocess.Popen(
            [sys.executable, "-P", "-m", "battery.bench.stream.stopwatch"],
            env={**os.environ, "PYTHONPATH": path},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        _put(self._child.stdin, self._opening)
        return self._child

    def close(self) -> None:
        """End the child, whatever it is at."""
        if self._child is None:
            return
        child, self._child = self._child, None
        with contextlib.suppress(OSError):
            child.stdin.close()  # type: ignore[union-attr]
        try:
            child.wait(STOP_S)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
        child.stdout.close()  # type: ignore[union-attr]


def _put(pipe: IO[bytes] | None, message: msgspec.Struct) -> None:
    """Write one message."""
    assert pipe is not None
    raw = msgspec.msgpack.encode(message)
    pipe.write(_LENGTH.pack(len(raw)) + raw)
    pipe.flush()


def _take(pipe: IO[bytes] | None) -> bytes:
    """Read one message; EOFError where the other side is gone."""
    assert pipe is not None
    head = pipe.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        raise EOFError
    size = _LENGTH.unpack(head)[0]
    raw = pipe.read(size)
    if len(raw) < size:
        raise EOFError
    return raw


def _listen(orders: queue.SimpleQueue[bytes]) -> None:
    """Hand on what the parent sends, and end the process with the parent."""
    with contextlib.suppress(EOFError, OSError):
        while True:
            orders.put(_take(sys.stdin.buffer))
    os._exit(0)


def main() -> None:
    """Time requests until the parent closes the pipe."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    orders: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(orders,), name="orders", daemon=True).start()
    opening = msgspec.msgpack.decode(orders.get(), type=Opening)
    lane = Lane(opening.url, opening.headers)
    while True:
        order = msgspec.msgpack.decode(orders.get(), type=Order)
        _put(sys.stdout.buffer, lane.request(order))


if __name__ == "__main__":
    main()
