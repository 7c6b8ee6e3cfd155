"""What the machine gave: how fast it reads memory, and how much of its processor others took meanwhile.

    python -m benchmarks.engine.machine PASSES BYTES

A decode step cannot be faster than its weights are read. A dot product of an array with itself reads it once and
writes nothing; one thread, and one for each core, each on an array of its own that no cache holds. Also a copy, whose
bytes count twice. The best of several passes, since other work only ever takes away.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psutil

from benchmarks.engine.pipes import ROOT

BYTES = 256 << 20
PASSES = 12
IDLE = ("idle", "iowait", "guest", "guest_nice")
"""What is no work, or is counted under another name already."""


def bandwidth(passes: int = PASSES, size: int = BYTES) -> dict[str, Any]:
    """The figures from a process of its own, in which NumPy's BLAS has one thread and picks its own kernels."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("OPENBLAS_")}
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.engine.machine", str(passes), str(size)],
        cwd=ROOT, env={**kept, "OPENBLAS_NUM_THREADS": "1"}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    told: dict[str, Any] = json.loads(done.stdout)
    return told


def look(passes: int, size: int) -> dict[str, Any]:
    """Bytes a second: reading on one thread and on all, and copying on all."""
    import numpy as np

    cores = (
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    )
    arrays = [np.ones(size // 4, dtype=np.float32) for _ in range(cores)]
    spare = [np.empty_like(one) for one in arrays]

    def best(work: Callable[[int], object], threads: int, moved: int) -> float:
        with ThreadPoolExecutor(threads) as pool:
            times = []
            for _ in range(passes):
                began = time.perf_counter()
                list(pool.map(work, range(threads)))
                times.append(time.perf_counter() - began)
        return threads * moved / min(times)

    def read(place: int) -> object:
        return np.dot(arrays[place], arrays[place])

    def copy(place: int) -> object:
        return np.copyto(spare[place], arrays[place])

    return {
        "read_one": best(read, 1, size),
        "read_all": best(read, cores, size),
        "copy_all": best(copy, cores, 2 * size),
        "cores": cores,
        "bytes": size,
        "passes": passes,
    }


class Watch:
    """From its making on: time of all processes and of the hypervisor, less our own and that of all we started."""

    def __init__(self) -> None:
        self._began = (time.monotonic(), self._busy(), self._ours())

    def others(self) -> float:
        """Their share of all cores, 0 to 1."""
        wall, busy, ours = self._began
        spent = (self._busy() - busy) - (self._ours() - ours)
        share = spent / ((time.monotonic() - wall) * (psutil.cpu_count() or 1))
        return min(1.0, max(0.0, share))

    @staticmethod
    def _busy() -> float:
        return float(
            sum(value for name, value in psutil.cpu_times()._asdict().items() if name not in IDLE)
        )

    @staticmethod
    def _ours() -> float:
        """Of this process, of the children that have ended, and of those that live."""
        own = psutil.Process()
        spent = float(sum(own.cpu_times()[:4]))
        for one in own.children(recursive=True):
            with contextlib.suppress(psutil.Error):
                spent += float(sum(one.cpu_times()[:2]))
        return spent


if __name__ == "__main__":
    print(json.dumps(look(int(sys.argv[1]), int(sys.argv[2]))))
