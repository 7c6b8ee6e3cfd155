"""Whether one row's attention repeats itself, and whether it hangs on how long the cache's buffer is.

    python -m benchmarks.gpu.attention --out attention.json

On CUDA MLX takes cuDNN's kernel for one row over 256 tokens or more where the buffer is whole steps of 256 rows and
not a byte longer, and its own kernel otherwise; `MLX_CUDA_USE_CUDNN_SDPA=0` leaves its own alone. The same keys are
put into buffers of several lengths, and into one that the allocator hands out a page longer than asked for, as it may
whenever it has one to spare.
"""

from __future__ import annotations

import argparse
import os
from itertools import product
from pathlib import Path
from typing import Any

import mlx.core as mx

from benchmarks.gpu.sheet import Sheet

HEADS, GROUPS, WIDTH = 8, 2, 64
TOKENS = (100, 257, 1500, 4094)
STEP, PAGE = 256, 16384
REPEATS = 6


def buffer(rows: mx.array, length: int, spare: bool) -> mx.array:
    """A buffer of so many rows that begins with these; with `spare`, in memory that is a page larger."""
    _, groups, filled, width = rows.shape
    mx.clear_cache()
    if spare:
        size = groups * length * width * rows.dtype.size
        pages = (size + PAGE - 1) // PAGE + 1
        one = mx.zeros((pages * PAGE,), mx.uint8)
        mx.eval(one)
        mx.synchronize()
        del one
    rest = mx.zeros((1, groups, length - filled, width), rows.dtype)
    mx.eval(rest)
    whole = mx.concatenate([rows, rest], axis=2)
    mx.eval(whole)
    return whole


def outputs(q: mx.array, keys: mx.array, values: mx.array, filled: int) -> list[mx.array]:
    """The attention's output, several times over the same memory."""
    told = []
    for _ in range(REPEATS):
        k, v = keys[..., :filled, :], values[..., :filled, :]
        told.append(mx.fast.scaled_dot_product_attention(q, k, v, scale=WIDTH**-0.5))
        mx.eval(told[-1])
    return told


def ask(dtype: mx.Dtype, filled: int) -> dict[str, Any]:
    """For each way to lay out the buffer: does it repeat, and is it what the whole-step buffer gave."""
    keys = mx.random.split(mx.random.key(filled), 3)
    q = mx.random.normal((1, HEADS, 1, WIDTH), key=keys[0]).astype(dtype)
    k, v = (mx.random.normal((1, GROUPS, filled, WIDTH), key=key).astype(dtype) for key in keys[1:])
    mx.eval(q, k, v)
    whole = (filled + STEP) // STEP * STEP
    ways = {
        "whole steps": (whole, False),
        "not whole": (filled + STEP - 1, False),
        "a page more": (whole, True),
    }
    first, told = None, {}
    for name, (length, spare) in ways.items():
        seen = outputs(q, buffer(k, length, spare), buffer(v, length, spare), filled)
        first = seen[0] if first is None else first
        gap = mx.abs(first.astype(mx.float32) - seen[0].astype(mx.float32)).max().item()
        told[name] = {
            "rows": length,
            "repeats": all(mx.array_equal(seen[0], one).item() for one in seen),
            "as_whole_steps": bool(mx.array_equal(first, seen[0]).item()),
            "gap": gap,
        }
    return told


def main() -> None:
    """Every type and length."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, required=True)
    types = (mx.float16, mx.bfloat16, mx.float32)
    planned = {f"{dtype} {filled}": (dtype, filled) for dtype, filled in product(types, TOKENS)}
    cudnn = os.environ.get("MLX_CUDA_USE_CUDNN_SDPA", "1") != "0"
    sheet = Sheet(parser.parse_args().out, planned, device=str(mx.default_device()), cudnn=cudnn)
    for name, given in planned.items():
        sheet.take(name, lambda given=given: ask(*given))  # type: ignore[misc]


if __name__ == "__main__":
    main()
