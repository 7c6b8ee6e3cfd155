"""A fixed piece of work, and how long it takes here: the gate where there is no thermal sensor, and beside one.

One core and the memory behind it, the same on every machine and for every arm. It does not load a GPU: battery knows
no GPU library, so a GPU's speed is watched by its clocks and events alone, and the gate says so.
"""

from __future__ import annotations

import hashlib
import statistics
import time
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from battery.bench.sensors import linux

if TYPE_CHECKING:
    import numpy as np

_BLOCK = bytes(range(256)) * 16_384  # 4 MiB
_STREAM = 4_000_000  # doubles: 32 MB, beyond any cache of a small machine


@cache
def _source() -> np.ndarray[Any, np.dtype[np.float64]]:
    """The numbers that are streamed; made once."""
    # numpy is not needed by the sampling process, which imports this package too
    import numpy as np

    return np.ones(_STREAM)


def calibrate() -> float:
    """Seconds for hashing 8 MiB and streaming 64 MB through memory on one core."""
    source = _source()
    start = time.perf_counter_ns()
    for _ in range(2):
        hashlib.sha256(_BLOCK).digest()
    for _ in range(2):
        source += 1.0
    return (time.perf_counter_ns() - start) / 1e9


def calibrated(root: Path, goes: int = 3) -> dict[str, float | None]:
    """Median seconds of the fixed work, and the highest clock that any core had right after it."""
    took, clocks = [], []
    for _ in range(goes):
        took.append(calibrate())
        told, _why = linux.clocks(root)
        if told:
            clocks.append(told["highest"])
    return {
        "calibration_s": round(statistics.median(took), 6),
        "calibration_mhz": statistics.median(clocks) if clocks else None,
    }


def calibration_baseline(rounds: int = 20) -> dict[str, float]:
    """Median of the fixed work over `rounds` goes, and the median absolute deviation as a share of it."""
    took = [calibrate() for _ in range(rounds)]
    middle = statistics.median(took)
    spread = statistics.median(abs(value - middle) for value in took)
    return {"median_s": middle, "mad_share": spread / middle, "rounds": rounds}


def heat(seconds: float) -> None:
    """Warm the processor with the fixed work: a machine colder than its baseline is not as it was either."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        calibrate()
