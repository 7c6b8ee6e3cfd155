"""The process that reads the sensors twice a second beside a timed request.

Run as `python -m battery.bench.sensors.sampler SECONDS ROOT`, one per window. Orders come on standard input, a line
each: `begin PID [OWN …]`, the server and further processes that measure (answered `begun` once the first sample is
taken), `end` (answered with every sample, a JSON line each, then `{"end": N, "processor_s": S}`, what they cost). End
of file means that the measuring process is gone, and ends this one.

It is a process because a thread would share the interpreter lock with the client that stamps the stream. Stamps are
perf_counter_ns, which is one clock for all processes of a machine: CLOCK_MONOTONIC on Linux, mach_absolute_time on
macOS. Samples wait in memory until the cell is over: 500 bytes each, 7 MB for a cell of two hours.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import time
from pathlib import Path
from typing import Any

from battery.bench.sensors.watch import Watch


def serve(every_s: float, root: Path) -> None:
    """Obey orders until end of file."""
    us = (os.getpid(), os.getppid())
    watch = Watch(None, root, us, stream=True)
    taken: list[dict[str, Any]] = []
    due: float | None = None
    began = 0.0
    orders = b""

    def sample() -> None:
        at_ns = time.perf_counter_ns()
        taken.append({"at_ns": at_ns, **watch.look()})

    while True:
        wait = None if due is None else max(0.0, due - time.monotonic())
        if not select.select([0], [], [], wait)[0]:
            sample()
            due = time.monotonic() + every_s
            continue
        heard = os.read(0, 4096)
        if not heard:
            return
        *lines, orders = (orders + heard).split(b"\n")
        for line in lines:
            word, *pids = line.decode().split()
            if word == "begin":
                taken.clear()
                began = time.process_time()
                watch.own = (*us, *map(int, pids[1:]))
                watch.aim(int(pids[0]))
                sample()
                due = time.monotonic() + every_s
                print("begun", flush=True)
            elif word == "end":
                sample()
                due = None
                spent = round(time.process_time() - began, 6)
                for one in taken:
                    print(json.dumps(one, separators=(",", ":")))
                print(json.dumps({"end": len(taken), "processor_s": spent}), flush=True)


def main() -> None:
    """Sample until the measuring process ends; its Ctrl-C is not ours."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        serve(float(sys.argv[1]), Path(sys.argv[2]))
    except BrokenPipeError:
        os._exit(1)  # nobody listens any more


if __name__ == "__main__":
    main()
