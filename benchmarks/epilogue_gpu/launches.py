"""Kernel launches of a decode step by name, from CUPTI through torch's profiler where that works."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter as Counts
from typing import Any

import mlx.core as mx

from benchmarks.epilogue_gpu.arms import GREEDY, MODELS, WARM, Arms
from switchboard import decode
from switchboard.sampler import Sampler


def launches(name: str, arm: str) -> None:
    """Kernels a decode step by name, as JSON; in a process of its own, since torch shares it."""
    from torch import profiler

    joined = dict(MODELS)[name]
    arms = Arms(name, joined)
    arms.turn(arm)
    steps = decode.plain(arms.model, arms.filled(64), 1, Sampler(GREEDY, ()), 64)
    for _ in range(WARM):
        next(steps)
    mx.synchronize()
    with profiler.profile(activities=[profiler.ProfilerActivity.CUDA]) as seen:
        for _ in range(8):
            next(steps)
        mx.synchronize()
    found = Counts(event.name[:90] for event in seen.events() or [])
    print(
        json.dumps({"steps": 8, "per_step": {key: count / 8 for key, count in found.most_common()}})
    )


def ask_launches(name: str, arm: str, timeout: float) -> dict[str, Any]:
    """The launches of one arm, or why they are not known."""
    words = [sys.executable, "-m", "benchmarks.epilogue_gpu", "--launches", name, arm]
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=timeout, check=False)
        found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
        found["all"] = sum(found["per_step"].values())
        return found if found["all"] else {"all": None, "why": "the profiler saw no kernel"}
    except (subprocess.TimeoutExpired, IndexError, ValueError) as error:
        said = done.stderr[-600:] if "done" in locals() else ""
        return {"all": None, "why": f"{type(error).__name__}: {error}"[:300], "stderr": said}
