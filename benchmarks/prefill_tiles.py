"""What is left to gain in prefill over mlx-lm's attention: chunk widths, and queries in tiles within a chunk.

    python -m benchmarks.prefill_tiles                     2,048 tokens through 6 layers of SmolLM2's shape, fp32
    python -m benchmarks.prefill_tiles --tokens 4096 --layers 2

mlx-lm already hands `mask="causal"` to mx.fast.scaled_dot_product_attention. A tile computes some queries of the chunk
against the keys they can see and no others. Time is the processor time of the whole process, least of two runs, so that
neighbours on the machine do not count; extra is the peak of MLX's allocator over what was in use before. The logits of
the last token are compared with those of the first row.
"""

from __future__ import annotations

import argparse
import sys
import time
from typing import Any

from switchboard import blas

WAYS = ((128, 0), (128, 32), (512, 0), (512, 64), (2048, 0), (2048, 128), (2048, 16))


def tiled(plain: Any, tile: int) -> Any:
    """The attention of mlx-lm with its queries taken `tile` at a time."""
    import mlx.core as mx

    def attention(queries: Any, keys: Any, values: Any, cache: Any, **more: Any) -> Any:
        rows, before = queries.shape[2], keys.shape[2] - queries.shape[2]
        if more.get("mask") != "causal" or rows <= tile:
            return plain(queries, keys, values, cache=cache, **more)
        parts = []
        for start in range(0, rows, tile):
            end = min(start + tile, rows)
            seen = slice(0, before + end)
            one = queries[:, :, start:end]
            parts.append(plain(one, keys[:, :, seen], values[:, :, seen], cache=cache, **more))
        return mx.concatenate(parts, axis=2)

    return attention


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
    asked = parser.parse_args()
    blas.preload(1)

    import mlx.core as mx

    from switchboard import lm
    from switchboard.sources.synthetic import SHAPES

    shape = {**SHAPES["smollm2-135m"], "num_hidden_layers": asked.layers}
    mx.random.seed(1)
    model = lm.build(shape)
    mx.eval(model.parameters())
    module = sys.modules[type(model).__module__]
    plain = module.scaled_dot_product_attention
    prompt = [7 * place % 997 for place in range(asked.tokens + 1)]
    first: Any = None
    print(f"{asked.tokens} tokens, {asked.layers} layers, BLAS {blas.loaded()}\n")
    print(
        "| chunk | tile | tok/s of processor time | extra, MB | logits |\n|---:|---:|---:|---:|---|"
    )
    once(model, prompt[:200], 128)
    for chunk, tile in WAYS:
        module.scaled_dot_product_attention = tiled(plain, tile) if tile else plain  # type: ignore[attr-defined]
        runs = [once(model, prompt, chunk) for _ in range(2)]
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
