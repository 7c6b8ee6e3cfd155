"""What the n-gram table of prompt_lookup costs a token, in a short text and in a long one.

    python -m benchmarks.lookup_cost [--contexts 1024,131072] [--tokens 4096] [--rounds 9] [--out FILE]

Every token is entered, and asked for a draft behind it, as the loops do where nothing is verified. The text is drawn
from 49,152 words as unevenly as natural ones are, and every other stretch of 64 tokens is a copy of an earlier one, so
that lookups find something. Rounds go through the contexts in turn, over the same texts; of every token the least of
its rounds counts, as delays only add. The table holds an entry for every n-gram, so a long text costs memory; a token
touches it as often in a long text as in a short one, and takes longer only by what a larger table misses in the
processor's caches: on two cores of a server processor 1.42 µs at 1,024 tokens, 2.05 µs at 131,072.

The last line is one JSON object: microseconds a token by context, and the ratio of the last to the first.
`reports/lookup-cost.json` is kept with --out; the figures of the machine that made it are in it.
"""

from __future__ import annotations

import argparse
import gc
import json
import random
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from switchboard.registry import Counter
from switchboard.switches.prompt_lookup import Options, PromptLookup

VOCABULARY = 49152
STRETCH = 64
DRAFT = 5


def text(length: int, seed: int) -> list[int]:
    """Tokens with words as common as natural ones, half of them in copies of earlier stretches."""
    dice = random.Random(seed)
    made: list[int] = []
    while len(made) < length:
        if len(made) > STRETCH and dice.random() < 0.5:
            start = dice.randrange(len(made) - STRETCH)
            made += made[start : start + STRETCH]
        else:
            made += [int(VOCABULARY ** dice.random()) - 1 for _ in range(STRETCH)]
    return made[:length]


def seconds(context: int, tokens: Sequence[int]) -> tuple[list[float], list[float], int]:
    """Token by token behind the context: to enter it, and to ask for a draft; and how many drafts there were."""
    lookup = PromptLookup(Options(adaptive=False), Counter())
    lookup.begin(list(tokens[:context]))
    entering, asking = list[float](), list[float]()
    drafts = 0
    clock = time.perf_counter
    gc.collect()
    for token in tokens[context:]:
        began = clock()
        lookup.extend([token])
        entered = clock()
        draft = lookup.propose(DRAFT)
        asking.append(clock() - entered)
        entering.append(entered - began)
        drafts += bool(draft)
    return entering, asking, drafts


def measure(contexts: Sequence[int], count: int, rounds: int) -> list[dict[str, Any]]:
    """A row a context."""
    seen: dict[int, list[tuple[list[float], list[float], int]]] = {one: [] for one in contexts}
    for _ in range(rounds):
        for context in contexts:
            seen[context].append(seconds(context, text(context + count, context)))
    return [row(context, found) for context, found in seen.items()]


def row(context: int, found: Sequence[tuple[list[float], list[float], int]]) -> dict[str, Any]:
    """One context's figures: microseconds a token, the mean over tokens of the least that each took in any round."""
    enter, ask = (
        round(1e6 * fmean(map(min, zip(*(one[part] for one in found), strict=True))), 3)
        for part in (0, 1)
    )
    return {
        "context": context,
        "enter_us": enter,
        "ask_us": ask,
        "token_us": round(enter + ask, 3),
        "drafts": round(found[0][2] / len(found[0][0]), 3),
    }


def summary(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Microseconds a token by context, and how many times the first the last is."""
    return {
        "token_us": {str(one["context"]): one["token_us"] for one in rows},
        "ratio": round(rows[-1]["token_us"] / rows[0]["token_us"], 2),
    }


def main(words: list[str] | None = None) -> int:
    """Measure, print, and keep where asked to."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--contexts", default="1024,131072")
    parser.add_argument("--tokens", type=int, default=4096)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args(words)
    rows = measure([int(one) for one in asked.contexts.split(",")], asked.tokens, asked.rounds)
    print(f"{'context':>8}  {'enter':>8}  {'ask':>8}  {'both':>8}  drafts")
    for one in rows:
        print(
            f"{one['context']:>8}  {one['enter_us']:>5.2f} µs  {one['ask_us']:>5.2f} µs  "
            f"{one['token_us']:>5.2f} µs  {one['drafts']:.0%}"
        )
    if asked.out:
        kept = {
            "command": "python -m benchmarks.lookup_cost --out reports/lookup-cost.json",
            "tokens": asked.tokens,
            "rounds": asked.rounds,
            "rows": rows,
            **summary(rows),
        }
        asked.out.write_text(json.dumps(kept, indent=1) + "\n")
    print(json.dumps(summary(rows)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
