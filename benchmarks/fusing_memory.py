"""Bytes in use before and after projections are joined, with the originals dropped and kept.

A table on standard output: what MLX holds for arrays (active) and for reuse (cache), and the most that was active
while the switches went on (peak). `python -m benchmarks.fusing_memory [MODEL …]`; no model is timed, so it may run
beside other work.
"""

from __future__ import annotations

import gc
import sys
from dataclasses import dataclass

import mlx.core as mx

from switchboard import memory
from switchboard.board import Board
from switchboard.errors import Declined
from switchboard.load import load
from switchboard.models import resolve
from switchboard.registry import Counter, known

MODELS = (
    "synthetic:tiny-llama-q4-g32",
    "synthetic:tiny-qwen3_moe-q4-g32",
    "synthetic:tiny-qwen3_5_moe-mixed",
    "smollm2-135m",
)
FORMATS = ("quantized", "float32")
SWITCHES = ("fused_qkv", "fused_gate_up", "fused_experts")
HEADINGS = (
    "model",
    "format",
    "originals",
    "active before",
    "after",
    "change",
    "cache",
    "peak",
    "peak above",
)


@dataclass(frozen=True)
class Row:
    """One model, joined once."""

    model: str
    format: str
    originals: str
    before: int
    after: int
    cache: int
    peak: int

    def cells(self) -> tuple[str, ...]:
        return (
            self.model.removeprefix("synthetic:"),
            self.format,
            self.originals,
            megabytes(self.before),
            megabytes(self.after),
            f"{100 * (self.after / self.before - 1):+.1f} %",
            megabytes(self.cache),
            megabytes(self.peak),
            f"{100 * (self.peak / self.before - 1):+.1f} %",
        )


def megabytes(count: int) -> str:
    return f"{count / 1e6:.2f} MB"


def measure(name: str, format: str, keep: bool) -> Row:
    """Load, join everything that can be, and read MLX's counters."""
    loaded = load(resolve(name), format, Board((), {}))
    gc.collect()
    mx.clear_cache()
    before = mx.get_active_memory()
    memory.reset_peak()
    done = []
    for switch in SWITCHES:
        one = known()[switch]
        options = one.parse({"keep_originals": str(keep).lower()})
        try:
            done.append(one.apply(loaded.model, options, Counter()))
        except Declined:
            continue
    gc.collect()
    after, cache, peak = mx.get_active_memory(), mx.get_cache_memory(), memory.peak()
    return Row(name, loaded.format, "kept" if keep else "dropped", before, after, cache, peak)


def main(names: list[str]) -> None:
    table = [HEADINGS]
    for name in names or MODELS:
        for format in FORMATS:
            table += [measure(name, format, keep).cells() for keep in (False, True)]
    print("| " + " | ".join(table[0]) + " |")
    print("|" + "---|" * len(HEADINGS))
    for row in table[1:]:
        print("| " + " | ".join(row) + " |")


if __name__ == "__main__":
    main(sys.argv[1:])
