"""After a server ran out of memory: wait until the machine has its memory back, so that the next finds what it found.

Memory of a killed server is not free at once: drivers give it back late, and a restart into a depleted pool fails for a
reason that is not its own. The wait has a cap; how it ended is told, and the gate before each cell judges.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import psutil

from battery.bench.memory import nvml

CAP_S = 60.0
SLACK = 256_000_000
"""Bytes by which an idle machine's free memory moves by itself, at least."""
SLACK_SHARE = 0.02


def level() -> dict[str, int | None]:
    """Memory that is available on the machine, and that is in use on its GPUs (None: no NVML)."""
    return {"available_bytes": psutil.virtual_memory().available, "gpu_used_bytes": nvml.used()}


def wait(
    baseline: Mapping[str, Any],
    cap_s: float = CAP_S,
    look: Callable[[], dict[str, int | None]] = level,
    stop: Callable[[], bool] = lambda: False,
) -> dict[str, Any]:
    """Wait until memory is back at the campaign's baseline, or the cap; what came of it, for the journal."""
    start = time.monotonic()
    slack = max(SLACK, int(SLACK_SHARE * psutil.virtual_memory().total))
    while True:
        now, waited = look(), time.monotonic() - start
        short = _short(baseline, now, slack)
        if not short or waited >= cap_s or stop():
            break
        time.sleep(min(0.2, cap_s))
    told = {
        "waited_s": round(waited, 2),
        **now,
        "baseline": {key: baseline.get(key) for key in now},
    }
    compared = any(now[key] is not None and baseline.get(key) is not None for key in now)
    settled = not short if compared else None
    return {**told, "settled": settled, **({"short": "; ".join(short)} if short else {})}


def _short(baseline: Mapping[str, Any], now: Mapping[str, int | None], slack: int) -> list[str]:
    """What is not back yet, in words; a figure that one side lacks cannot be waited for."""
    short = []
    free, free_then = now.get("available_bytes"), baseline.get("available_bytes")
    if free is not None and free_then is not None and free < free_then - slack:
        short.append(f"{(free_then - free) / 1e9:.2f} GB less memory than at the start")
    gpu, gpu_then = now.get("gpu_used_bytes"), baseline.get("gpu_used_bytes")
    if gpu is not None and gpu_then is not None and gpu > gpu_then + slack:
        short.append(f"{(gpu - gpu_then) / 1e9:.2f} GB more GPU memory in use than at the start")
    return short
