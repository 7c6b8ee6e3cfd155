"""What one pass allocates beside the cache that it writes into, with mlx-lm's cache and with in_place_kv.

    python -m benchmarks.cache_memory                              1,024, 8,192 and 32,768 rows; seconds
    python -m benchmarks.cache_memory --rows 1024 --steady 200     rows in the buffer and, of those, filled

A small llama (4 layers, 2 heads of keys and values, 32 wide) whose cache is filled to a multiple of 256 rows, where
mlx-lm's is full and has to grow. Extra is the peak of MLX's allocator during the pass, less what was in use before it
and less what the pass keeps for good. A pass of attention needs scores for every filled row whatever the cache is, so
the same pass is also measured with 200 rows filled and the capacity as given: what is left there would be the cost of
capacity alone.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import mlx.core as mx

from switchboard import cache as kv
from switchboard import lm, memory
from switchboard.registry import CacheFactory, Counter, Room
from switchboard.switches.in_place_kv import Options, in_place_kv

VERIFY = 5
BLOCK = 256
CONFIG = {
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


def small() -> Any:
    """The model, evaluated."""
    mx.random.seed(1)
    model = lm.build(dict(CONFIG))
    mx.eval(model.parameters())
    return model


def factories(model: Any) -> dict[str, CacheFactory]:
    """The plain factory and the one that writes in place."""
    plain = kv.factory(model)
    return {"plain": plain, "in place": in_place_kv(plain, Options(), Counter()).factory}


def filled(factory: CacheFactory, rows: int, capacity: int) -> list[Any]:
    """A cache with that many rows of numbers in it, and room for `capacity` where it takes it in advance."""
    cache = factory(Room(capacity, 0))
    shape = (1, CONFIG["num_key_value_heads"], BLOCK, CONFIG["head_dim"])
    for start in range(0, rows, BLOCK):
        block = mx.random.normal(shape)[:, :, : rows - start]
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


def write(cache: list[Any], count: int) -> None:
    """Put rows into every layer, with nothing that reads them."""
    rows = mx.ones((1, CONFIG["num_key_value_heads"], count, CONFIG["head_dim"]))
    for entry in cache:
        entry.update_and_fetch(rows, rows)
    mx.eval(kv.arrays(cache))


def step(model: Any, cache: list[Any], count: int) -> None:
    """A pass of that many tokens through the whole model."""
    mx.eval(model(mx.array([list(range(1, count + 1))]), cache=cache))


def measured(model: Any, capacity: int, steady: int) -> dict[str, int]:
    """Extra bytes by what was done; plain caches are full at `capacity`, the others have room for the pass."""
    found: dict[str, int] = {}
    for name, factory in factories(model).items():
        for what, work in (
            ("write", lambda cache: write(cache, VERIFY)),
            ("decode", lambda cache: step(model, cache, 1)),
            ("verify", lambda cache: step(model, cache, VERIFY)),
        ):
            cache = filled(factory, capacity, capacity + VERIFY)
            found[f"{what}, {name}"] = extra(lambda: work(cache))  # noqa: B023 called at once
        cache = filled(factory, steady, capacity + VERIFY)
        found[f"verify at {steady}, {name}"] = extra(lambda: step(model, cache, VERIFY))  # noqa: B023
    return found


def table(rows: list[int], steady: int) -> str:
    """A Markdown table of kilobytes, a row for each capacity."""
    model = small()
    step(model, filled(factories(model)["plain"], steady, 0), VERIFY)
    lines: list[str] = []
    for capacity in rows:
        found = measured(model, capacity, steady)
        bytes_held = 2 * 4 * CONFIG["num_hidden_layers"] * 2 * 32 * capacity  # type: ignore[operator]
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
    asked = parser.parse_args()
    print("Extra kB of one pass beside the cache (kB)\n")
    print(table(asked.rows, asked.steady))


if __name__ == "__main__":
    main()
