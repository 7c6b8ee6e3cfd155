"""What taking tokens back costs by kind of cache, and what a prompt that was read before costs to take up.

    python -m benchmarks.rewind_cost [FAMILY ...] [--model NAME]

For each tiny family: microseconds to note a checkpoint before a pass, bytes
that a hundred of them hold beyond the cache, microseconds until a draft was taken back in part (its graph, nothing
evaluated), and the passes that this adds. Then, for one model, seconds until a prompt is read cold, and taken up from
the pool but for its last tokens. Median of `ROUNDS`; on a busy machine the times say little, the bytes are exact.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import mlx.core as mx

from switchboard import blas
from switchboard import cache as kv
from switchboard.decode import Tally
from switchboard.pool import Pool
from switchboard.registry import Counter, Room
from switchboard.sources import tiny

ROUNDS = 30
FILLED = 300
DRAFT = [3, 1, 4, 1, 5, 9]
PROMPT = 1024
NEW = 16


def timed(work: Callable[[], Any], rounds: int = ROUNDS) -> float:
    """Median seconds of a piece of work."""
    seconds = []
    for _ in range(rounds):
        started = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - started)
    return median(seconds)


def row(family: str) -> dict[str, Any]:
    """The figures of one family."""
    model, _ = tiny.build(family, "none")
    cache = kv.make(model)
    model(mx.arange(FILLED)[None] % 512, cache=cache)
    mx.eval(kv.arrays(cache))
    mx.synchronize()
    active = mx.get_active_memory()
    points = [kv.Checkpoint(cache) for _ in range(100)]
    mx.eval([state for point in points for _, state in point._held])
    held = mx.get_active_memory() - active
    del points
    noted = timed(lambda: kv.Checkpoint(cache))
    seconds, passes = [], 0
    for _ in range(ROUNDS):
        before = kv.Checkpoint(cache)
        model(mx.array([DRAFT]), cache=cache)
        mx.eval(kv.arrays(cache))
        calls = [0]

        def counted(ids: mx.array, cache: list[Any], calls: list[int] = calls) -> Any:
            calls[0] += 1
            return model(ids, cache=cache)

        started = time.perf_counter()
        before.keep(counted, DRAFT, 2)
        seconds.append(time.perf_counter() - started)
        passes = calls[0]
        mx.eval(kv.arrays(cache))
    kinds = sorted({type(entry).__name__ for entry in cache})
    return {
        "cache": " + ".join(kinds),
        "layers": len(cache),
        "checkpoint_us": round(1e6 * noted, 1),
        "bytes": max(0, held),
        "back_us": round(1e6 * median(seconds), 1),
        "passes": passes,
    }


def taken_up(name: str) -> dict[str, Any]:
    """Seconds to read a prompt cold and from the pool, without its last token; and the bytes of its slot."""
    from switchboard.bisect.subject import open_plain

    subject = open_plain(name, "auto")
    ids = subject.ids(PROMPT)

    def pool() -> Pool:
        return Pool(
            chunk=subject.session.chunk,
            exact=False,
            most=2,
            limit=1 << 40,
            least=1,
            counter=Counter(),
        )

    def read(held: Pool, prompt: list[int]) -> float:
        started = time.perf_counter()
        turn = held.begin(prompt, subject.session.make_cache(Room(len(prompt), 1)))
        held.read(subject.model, turn, Tally(), lambda: None)
        seconds = time.perf_counter() - started
        held.keep(turn, [])
        return seconds

    read(pool(), ids[:130])
    held = pool()
    cold = read(held, ids)
    size = held.told()["bytes"]
    again = [read(held, [*ids[: PROMPT - NEW], *ids[at : at + NEW]]) for at in (5, 25, 45)]
    return {
        "model": name,
        "prompt": PROMPT,
        "taken": PROMPT - NEW,
        "cold_s": round(cold, 3),
        "again_s": round(median(again), 3),
        "slot_bytes": size,
    }


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("family", nargs="*", default=list(tiny.FAMILIES))
    parser.add_argument("--model", default="smollm2-135m")
    given = parser.parse_args()
    print(f"{'family':<14}{'checkpoint':>12}{'bytes':>8}{'back':>10}{'passes':>8}  cache")
    for family in given.family:
        seen = row(family)
        print(
            f"{family:<14}{seen['checkpoint_us']:>9} us{seen['bytes']:>8}{seen['back_us']:>7} us"
            f"{seen['passes']:>8}  {seen['cache']}, {seen['layers']} layers"
        )
    for name, value in taken_up(given.model).items():
        print(f"{name:<12}{value}")


if __name__ == "__main__":
    blas.preload(1)
    main()
