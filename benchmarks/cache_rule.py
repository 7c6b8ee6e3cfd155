"""How often the rule on repeated prompts accuses an honest server, and how often it catches one that keeps prompts.

    python -m benchmarks.cache_rule                                     simulated noise: 20,000 windows a row
    python -m benchmarks.cache_rule --url http://127.0.0.1:8080 --windows 60    a running server, window by window

Each window is what a campaign does before it times anything: battery.bench.judge.repeat.look. Simulated times to the
first token are log-normal around 0.1 s; a liar's repeats take a share of it, and it says that it cached nothing.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Callable

from battery.bench.client import Client, Completion
from battery.bench.judge import repeat
from battery.bench.prompts import Messages
from battery.ledger.trace import Event, Trace

WORDS = 48


class Simulated:
    """A server in which a prompt that came before takes `share` of the time."""

    def __init__(self, chance: random.Random, spread: float, share: float) -> None:
        self._chance, self._spread, self._share = chance, spread, share
        self._seen: list[Messages] = []

    def __call__(self, messages: Messages) -> Completion:
        share = self._share if messages in self._seen else 1.0
        self._seen.append(messages)
        took_ns = int(1e8 * share * self._chance.lognormvariate(0, self._spread))
        trace = Trace(
            events=(Event(took_ns, 1),), prompt_tokens=100, completion_tokens=8, cached_tokens=0,
            count_source="server",
        )  # fmt: skip
        return Completion(outcome="ok", reason=None, phase="decode", trace=trace, text="x")


def accused(ask: Callable[[], repeat.Ask], windows: int) -> int:
    """In how many windows the rule says that the server keeps prompts."""
    return sum(repeat.look(ask(), 1, WORDS, True).cache is not None for _ in range(windows))


def simulate(windows: int, seed: int) -> None:
    """A row per noise and kind of server."""
    chance = random.Random(seed)
    print(f"seed {seed}\n| noise | repeats take | windows | accused |\n|---:|---:|---:|---:|")
    for spread in (0.3, 0.6):
        for share, many in ((1.0, windows), (0.3, windows // 10), (0.1, windows // 10)):
            found = accused(lambda: Simulated(chance, spread, share), many)  # noqa: B023 called at once
            print(
                f"| {spread:.0%} | {share:.0%} | {many:,} | {found:,} ({found / many:.2%}) |",
                flush=True,
            )


def live(url: str, windows: int, model: str) -> None:
    """The rule on a running server, with a new prompt in every window."""
    caches = seeds = pairs = 0
    with Client(url) as client:
        for window in range(windows):
            asked = 0

            def ask(messages: Messages, seed: int = 50_000 + window) -> Completion:
                nonlocal asked
                asked += 1
                body = {
                    "model": model,
                    "messages": messages,
                    "seed": seed,
                    "temperature": 0.7,
                    "max_tokens": repeat.TOKENS,
                    "min_tokens": repeat.TOKENS,
                    "stream_options": {"include_usage": True},
                }
                done = client.stream("/v1/chat/completions", body, deadline_s=120)
                if done.outcome != "ok":
                    raise SystemExit(f"{url}: {done.outcome}: {done.reason}")
                return done

            shown = repeat.look(ask, 50_000 + window, WORDS, True)
            caches += shown.cache is not None
            seeds += shown.seed is not None
            pairs += asked > 2
    print(
        f"{windows} windows: first pair suspicious {pairs}, accused of a cache {caches}, of ignoring the seed {seeds}"
    )


def main() -> None:
    """Simulate, or ask a server."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--url", help="root of a server that is running")
    parser.add_argument("--model", default="any")
    parser.add_argument("--windows", type=int, help="default: 20,000 simulated, 60 on a server")
    parser.add_argument("--seed", type=int, default=4821)
    asked = parser.parse_args()
    if asked.url:
        live(asked.url, asked.windows or 60, asked.model)
    else:
        simulate(asked.windows or 20_000, asked.seed)


if __name__ == "__main__":
    main()
