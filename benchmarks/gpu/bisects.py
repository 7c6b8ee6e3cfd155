"""The exactness ladder on one model, switch by switch, on whatever device MLX has here.

python -m benchmarks.gpu.bisects --model synthetic:tiny-llama-q4-g32 --out bisect-llama.json
"""

from __future__ import annotations

import argparse
import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

import mlx.core as mx

from benchmarks.gpu.sheet import Sheet
from switchboard.bisect.ladder import climb
from switchboard.bisect.rungs import Plan, Reference, observe, walk, whole
from switchboard.bisect.subject import Subject, open_plain, put_on
from switchboard.config import parse_asked
from switchboard.registry import known

MORE = ("fused_epilogue:kv=rows",)
ELSEWHERE = ("text_only",)
"""Decided while a checkpoint is read; the ladder puts switches on afterwards."""
CONTROL = "the plain model again"


def main() -> None:
    """Climb with each switch; the model is read anew for each, so that one cannot spoil the next."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--format", default="auto")
    asked = parser.parse_args()
    names = [name for name in (*known(), *MORE) if name not in ELSEWHERE]
    cudnn = os.environ.get("MLX_CUDA_USE_CUDNN_SDPA", "1") != "0"
    sheet = Sheet(
        asked.out, [CONTROL, *names], model=asked.model, device=str(mx.default_device()), cudnn=cudnn
    )  # fmt: skip
    first = open_plain(asked.model, asked.format)
    reference = observe(first, Plan(prompts=2, tokens=8))
    sheet.take(CONTROL, lambda: control(open_plain(asked.model, asked.format), reference))
    for place, name in enumerate(names):
        subject = first if place == 0 else open_plain(asked.model, asked.format)
        sheet.take(name, lambda name=name, subject=subject: one(subject, reference, name))  # type: ignore[misc]
        mx.clear_cache()


def control(subject: Subject, reference: Reference) -> dict[str, Any]:
    """How many arrays of a prefill and of twenty steps the plain model itself gives otherwise when it is read again."""
    wanted, seen = reference.whole | reference.walk, whole(subject) | walk(subject)
    wrong = [name for name, array in wanted.items() if not mx.array_equal(array, seen[name]).item()]
    return {"arrays": len(wanted), "differ": len(wrong), "first": wrong[:1]}


def one(subject: Subject, reference: Reference, name: str) -> dict[str, Any]:
    """One climb: declined with its reason, or the verdict of every rung."""
    told = asdict(climb(subject, reference, parse_asked([name], [])[0], put_on))
    if told["declined"] is not None:
        return {"declined": told["declined"]}
    return {
        "coverage": told["coverage"],
        "rungs": {rung["rung"]: f"{rung['verdict']}: {rung['told']}" for rung in told["outcomes"]},
        "failed": sum(rung["verdict"] == "failed" for rung in told["outcomes"]),
    }


if __name__ == "__main__":
    main()
