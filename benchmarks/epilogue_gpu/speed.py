"""Time and memory of a decode step, arm by arm in blocks."""

from __future__ import annotations

import math
import time
from statistics import median
from typing import Any

import mlx.core as mx

from battery.analyse import stats
from benchmarks.epilogue_gpu.arms import GREEDY, WARM, Arms
from switchboard import decode
from switchboard.sampler import Sampler

BLOCKS, STEPS = 8, 48


def timed(arms: Arms, arm: str, context: int) -> tuple[float, int]:
    """Seconds a decode step takes, and bytes at the peak over what was held before."""
    arms.turn(arm)
    steps = decode.plain(arms.model, arms.filled(context), 1, Sampler(GREEDY, ()), WARM + STEPS)
    # The first steps bring what happens once a request: the caches grow, or are made private.
    for _ in range(WARM):
        next(steps)
    mx.clear_cache()
    held = mx.get_active_memory()
    mx.reset_peak_memory()
    started = time.perf_counter()
    for _ in range(STEPS):
        next(steps)
    return (time.perf_counter() - started) / STEPS, mx.get_peak_memory() - held


def speed(arms: Arms, context: int) -> dict[str, Any]:
    """Every arm once in each block, the order rotating; ratios of speed to the chain with 95 % intervals."""
    for arm in arms.names:
        timed(arms, arm, context)
    seconds: dict[str, list[float]] = {arm: [] for arm in arms.names}
    peaks: dict[str, list[int]] = {arm: [] for arm in arms.names}
    for block in range(BLOCKS):
        turn = block % len(arms.names)
        order = (*arms.names[turn:], *arms.names[:turn])
        for arm in order if block % 2 == 0 else order[::-1]:
            took, peak = timed(arms, arm, context)
            seconds[arm].append(took)
            peaks[arm].append(peak)
    told: dict[str, Any] = {"seconds": seconds, "peaks": peaks, "ratio": {}}
    for arm in arms.names[1:]:
        logs = [math.log(a / b) for a, b in zip(seconds["chain"], seconds[arm], strict=True)]
        found = stats.paired(logs)
        assert found is not None
        told["ratio"][arm] = {
            "ratio": found.ratio,
            "low": found.low,
            "high": found.high,
            "p": found.p,
        }
    return told


def show(name: str, context: int, found: dict[str, Any]) -> None:
    """One line of the table."""
    ms = {arm: 1e3 * median(seconds) for arm, seconds in found["seconds"].items()}
    mb = {arm: max(peaks) / 1e6 for arm, peaks in found["peaks"].items()}
    ratios = "  ".join(
        f"{a} {r['ratio']:.3f}x [{r['low']:.3f}, {r['high']:.3f}]"
        for a, r in found["ratio"].items()
    )
    print(f"{name:30} {context:6}  ms {'/'.join(f'{ms[a]:.2f}' for a in ms)}  "
          f"peak MB {'/'.join(f'{mb[a]:.0f}' for a in ms)}  {ratios}", flush=True)  # fmt: skip
