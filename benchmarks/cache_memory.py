"""What one pass allocates beside the cache that it writes into, with mlx-lm's cache and with in_place_kv.

    python -m benchmarks.cache_memory                              1,024, 8,192 and 32,768 rows; seconds
    python -m benchmarks.cache_memory --rows 1024 --steady 200     rows in the buffer and, of those, filled
    python -m benchmarks.cache_memory --shape smollm2 --rows 8192  the layers and heads of SmolLM2-135M, random weights

A small llama (4 layers, 2 heads of keys and values, 32 wide) or one of SmolLM2's shape, whose cache is filled to a
multiple of 256 rows, where mlx-lm's is full and has to grow. Extra is the peak of MLX's allocator during the pass,
less what was in use before it and less what the pass keeps for good. A pass of attention needs scores for every
filled row whatever the cache is, so the same pass is also measured with 200 rows filled and the capacity as given:
what is left there would be the cost of capacity alone.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from typing import Any

import mlx.core as mx

from switchboard import cache as kv
from switchboard import lm, memory
from switchboard.registry import CacheFactory, Counter, Room
from switchboard.switches.in_place_kv import Options, in_place_kv

VERIFY = 5
BLOCK = 256
SMALL = {
    "model_type": "llama",
    "hidden_size": 64,
    "num_hidden_layers": 4,
    "intermediate_size": 64,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "rms_norm_eps": 1e-5,
    "vocab_size": 256,
    "rope_theta": 1e5,
    "tie_word_embeddings": True,
}
SMOLLM2 = {
    **SMALL,
    "hidden_size": 576,
    "num_hidden_layers": 30,
    "intermediate_size": 1536,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "head_dim": 64,
}
"""Without its vocabulary, whose logits no cache changes."""
SHAPES: dict[str, dict[str, Any]] = {"small": SMALL, "smollm2": SMOLLM2}


def build(shape: str = "small") -> Any:
    """The model, evaluated."""
    mx.random.seed(1)
    model = lm.build(dict(SHAPES[shape]))
    mx.eval(model.parameters())
    return model


def factories(model: Any) -> dict[str, CacheFactory]:
    """The plain factory and the one that writes in place."""
    plain = kv.factory(model)
    return {"plain": plain, "in place": in_place_kv(plain, Options(), Counter()).factory}


def heads(count: int, shape: str) -> tuple[int, int, int, int]:
    """The shape of so many rows of keys, or of values, of one layer."""
    return (1, SHAPES[shape]["num_key_value_heads"], count, SHAPES[shape]["head_dim"])


def filled(factory: CacheFactory, rows: int, capacity: int, shape: str = "small") -> list[Any]:
    """A cache with that many rows of numbers in it, and room for `capacity` where it takes it in advance."""
    cache = factory(Room(capacity, 0))
    for start in range(0, rows, BLOCK):
        block = mx.random.normal(heads(BLOCK, shape))[:, :, : rows - start]
        for entry in cache:
            entry.update_and_fetch(block, block)
        mx.eval(kv.arrays(cache))
    return cache


def extra(work: Callable[[], Any]) -> int:
    """Bytes that the work needed at its peak, beyond those in use before it or kept after it."""
    mx.clear_cache()
    mx.synchronize()
    before = mx.get_active_memory()
    mx.reset_peak_memory()
    kept = work()
    mx.synchronize()
    peak = memory.peak()
    del kept
    return peak - max(before, mx.get_active_memory())


def write(cache: list[Any], count: int, shape: str = "small") -> None:
    """Put rows into every layer, with nothing that reads them."""
    rows = mx.ones(heads(count, shape))
    for entry in cache:
        entry.update_and_fetch(rows, rows)
    mx.eval(kv.arrays(cache))


def step(model: Any, cache: list[Any], count: int) -> None:
    """A pass of that many tokens through the whole model."""
    mx.eval(model(mx.array([list(range(1, count + 1))]), cache=cache))


def measured(model: Any, capacity: int, steady: int, shape: str = "small") -> dict[str, int]:
    """Extra bytes by what was done; plain caches are full at `capacity`, the others have room for the pass."""
    found: dict[str, int] = {}
    for name, factory in factories(model).items():
        for what, work in (
            ("write", lambda cache: write(cache, VERIFY, shape)),
            ("decode", lambda cache: step(model, cache, 1)),
            ("verify", lambda cache: step(model, cache, VERIFY)),
        ):
            cache = filled(factory, capacity, capacity + VERIFY, shape)
            found[f"{what}, {name}"] = extra(lambda: work(cache))  # noqa: B023 called at once
        cache = filled(factory, steady, capacity + VERIFY, shape)
        found[f"verify at {steady}, {name}"] = extra(lambda: step(model, cache, VERIFY))  # noqa: B023
    return found


def table(rows: list[int], steady: int, shape: str = "small") -> str:
    """A Markdown table of kilobytes, a row for each capacity."""
    model, layers = build(shape), SHAPES[shape]["num_hidden_layers"]
    step(model, filled(factories(model)["plain"], steady, 0, shape), VERIFY)
    lines: list[str] = []
    for capacity in rows:
        found = measured(model, capacity, steady, shape)
        bytes_held = 2 * 4 * layers * math.prod(heads(capacity, shape))
        if not lines:
            lines.append("| rows | cache | " + " | ".join(found) + " |")
            lines.append("|---:|---:|" + "---:|" * len(found))
        cells = [f"{value / 1e3:,.0f}" for value in (bytes_held, *found.values())]
        lines.append(f"| {capacity:,} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--rows", type=int, nargs="+", default=[1024, 8192, 32768])
    parser.add_argument("--steady", type=int, default=200)
    parser.add_argument("--shape", choices=list(SHAPES), default="small")
    asked = parser.parse_args()
    print("Extra kB of one pass beside the cache (kB)\n")
    print(table(asked.rows, asked.steady, asked.shape))


if __name__ == "__main__":
    main()
