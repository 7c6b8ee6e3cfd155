"""Kernels of one decode step on a GPU, plain and with each switch: the census, from CUPTI and from torch's profiler.

    python -m benchmarks.gpu.steps --model smollm2-135m --out steps-smollm2.json
    python -m benchmarks.gpu.steps --model smollm2-135m --torch              one JSON line, for the first form to ask

torch's profiler stands on the same records but on its own reading of them: two readers that agree are worth more than
one. It runs in a process of its own, since each wants the records for itself.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import mlx.core as mx

from benchmarks.gpu.sheet import Sheet
from switchboard import census, cupti
from switchboard.bisect.rungs import filled
from switchboard.bisect.subject import open_plain
from switchboard.config import parse_asked
from switchboard.decode import forward
from switchboard.registry import known

MORE = ("fused_epilogue:kv=rows",)
PLAIN, TORCH = "plain", "plain, by torch's profiler"
STEPS = 5


def plain(model: str) -> dict[str, Any]:
    """The plain step."""
    told = census.take(model, "auto", [])
    if told.launches is None:
        return {"error": str(told.launches_unknown)}
    return {"launches": told.launches, "kernels": told.kernels, "operations": told.plain}


def switched(model: str, name: str) -> dict[str, Any]:
    """The step with one switch on."""
    told = census.take(model, "auto", parse_asked([name], []))
    (change,) = told.changes
    if change.declined is not None:
        return {"declined": change.declined}
    if change.launches is None or told.launches is None:
        return {"error": str(told.launches_unknown)}
    return {
        "launches": change.launches,
        "more_than_plain": change.launches - told.launches,
        "kernels": change.kernels,
        "layers": change.layers,
    }


def by_torch(model: str) -> None:
    """Kernels of a plain step by torch's profiler, as one JSON line: the median of some steps."""
    from torch import profiler

    subject = open_plain(model, "auto")
    ids = subject.ids(census.FILLED + 1 + census.WARM + STEPS)
    cache, coming = filled(subject, ids[: census.FILLED]), iter(ids[census.FILLED :])

    def run() -> None:
        """One step, to its end on the device."""
        mx.eval(forward(subject.model, cache, mx.array([next(coming)])))
        mx.eval([entry.state for entry in cache])
        mx.synchronize()

    for _ in range(census.WARM):
        run()
    counts = []
    for _ in range(STEPS):
        with profiler.profile(activities=[profiler.ProfilerActivity.CUDA]) as seen:
            run()
        names = Counter(event.name for event in seen.events() or [])
        copies = sum(n for name, n in names.items() if name.startswith(("Memcpy", "Memset")))
        counts.append(sum(names.values()) - copies)
    print(json.dumps({"launches": sorted(counts)[STEPS // 2], "steps": counts}))


def ask_torch(model: str) -> dict[str, Any]:
    """What torch's profiler counts, in a process of its own."""
    words = [sys.executable, "-m", "benchmarks.gpu.steps", "--torch", "--model", model]
    done = subprocess.run(words, capture_output=True, text=True, timeout=90, check=False)
    if done.returncode:
        return {"error": done.stderr.strip()[-400:] or f"ended with {done.returncode}"}
    told: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return told if told["launches"] else {"error": "the profiler saw no kernel"}


def main() -> None:
    """The plain step by both, then each switch."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path)
    parser.add_argument("--model", required=True)
    parser.add_argument("--torch", action="store_true")
    asked = parser.parse_args()
    if asked.torch:
        by_torch(asked.model)
        return
    names = [*known(), *MORE]
    counter = cupti.library()
    about = {
        "model": asked.model, "device": str(mx.default_device()),
        "counter": counter if isinstance(counter, str) else "CUPTI",
    }  # fmt: skip
    sheet = Sheet(asked.out, [PLAIN, *names, TORCH], **about)
    sheet.take(PLAIN, lambda: plain(asked.model))
    for name in names:
        sheet.take(name, lambda name=name: switched(asked.model, name))  # type: ignore[misc]
        mx.clear_cache()
    sheet.take(TORCH, lambda: ask_torch(asked.model))


if __name__ == "__main__":
    main()
