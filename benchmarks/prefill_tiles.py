"""What masked_prefill does on this machine: speed and peak of a prefill by chunk, with and without tiles.

    python -m benchmarks.prefill_tiles                     2,048 tokens through 6 layers of SmolLM2-135M
    python -m benchmarks.prefill_tiles --tokens 4096 --layers 0 --model synthetic:qwen2.5-0.5b

A tile computes some queries of the chunk against the keys that they can see and no others. Time is the processor time
of the whole process, least of two runs, so that neighbours on the machine do not count; extra is the peak of MLX's
allocator over what was in use before, without the cache. Layers run one after another, so that their number moves the
time and not the peak. The logits of the last token are compared with those of the first row.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

from switchboard import blas

WAYS = (
    (128, 0), (128, 32), (128, 64), (512, 0), (512, 64), (512, 128),
    (2048, 0), (2048, 64), (2048, 128), (2048, 256),
)  # fmt: skip


def tiled(model: Any, tile: int) -> Callable[[], None]:
    """Put masked_prefill on with this tile; the way back. Nothing for 0."""
    from switchboard.registry import Counter
    from switchboard.switches.masked_prefill import Options, masked_prefill

    if not tile:
        return lambda: None
    done = masked_prefill(model, Options(tile=tile), Counter())
    return done.undo


def opened(name: str, layers: int) -> Any:
    """The model as the engine holds it, cut to its first layers; 0: all of them."""
    from switchboard.board import Board
    from switchboard.load import load
    from switchboard.models import resolve

    model = load(resolve(name), "auto", Board((), {})).model
    if layers:
        model.model.layers = model.model.layers[:layers]
    return model


def once(model: Any, prompt: list[int], chunk: int) -> tuple[float, int, Any]:
    """Processor seconds, extra bytes and the last logits of one prefill."""
    import mlx.core as mx

    from switchboard import cache as kv
    from switchboard import memory
    from switchboard.decode import Tally, forward, prefill
    from switchboard.registry import Counter, Room
    from switchboard.switches.in_place_kv import Options, in_place_kv

    # In place, so that what the cache allocates when it grows does not hide what attention does.
    cache = in_place_kv(kv.factory(model), Options(), Counter()).factory(Room(len(prompt), 1))
    mx.synchronize()
    before = mx.get_active_memory()
    mx.reset_peak_memory()
    started = time.process_time()
    prefill(model, cache, prompt, chunk, Tally(), lambda: None)
    took = time.process_time() - started
    held = sum(entry.nbytes for entry in cache)
    logits = forward(model, cache, mx.array([prompt[-1]]))
    mx.eval(logits)
    return took, memory.peak() - before - held, logits


def main() -> None:
    """Print a row per way."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--tokens", type=int, default=2048)
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--model", default="smollm2-135m")
    asked = parser.parse_args()
    blas.preload(1)

    import mlx.core as mx

    model = opened(asked.model, asked.layers)
    prompt = [7 * place % 997 for place in range(asked.tokens + 1)]
    first: Any = None
    print(
        f"{asked.model}, {asked.tokens} tokens, {len(model.layers)} layers, BLAS {blas.loaded()}\n"
    )
    print(
        "| chunk | tile | tok/s of processor time | extra, MB | logits |\n|---:|---:|---:|---:|---|"
    )
    once(model, prompt[:200], 128)
    for chunk, tile in WAYS:
        undo = tiled(model, tile)
        runs = [once(model, prompt, chunk) for _ in range(2)]
        undo()
        took, extra, logits = min(runs, key=lambda run: run[0])
        first = logits if first is None else first
        same = bool(mx.array_equal(first, logits).item())
        differ = "same bytes" if same else f"differ by {mx.abs(first - logits).max().item():.1g}"
        speed = asked.tokens / took
        print(
            f"| {chunk} | {tile or '—'} | {speed:,.0f} | {extra / 1e6:,.0f} | {differ} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
