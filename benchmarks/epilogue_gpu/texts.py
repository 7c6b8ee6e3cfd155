"""The same text: greedy tokens, logits and caches of every arm against the chain's, and the chain against itself."""

from __future__ import annotations

from typing import Any

import mlx.core as mx

from benchmarks.epilogue_gpu.arms import GREEDY, Arms
from switchboard import cache as kv
from switchboard import decode
from switchboard.decode import Tally
from switchboard.sampler import Sampler

PROMPTS = (5, 250, 1500)
TOKENS = 128


def walk(arms: Arms, arm: str, length: int) -> tuple[list[int], list[mx.array]]:
    """Greedy tokens after a prompt; and the logits of as many given tokens, with the caches they leave."""
    arms.turn(arm)
    before = arms.counter.runs
    prompt = [(17 * place + 3) % 500 for place in range(length)]
    cache = kv.make(arms.model)
    decode.prefill(arms.model, cache, prompt, 2048, Tally(), lambda: None)
    steps = decode.plain(arms.model, cache, prompt[-1], Sampler(GREEDY, ()), TOKENS)
    written = [token for tokens in steps for token in tokens]
    cache = kv.make(arms.model)
    decode.prefill(arms.model, cache, prompt, 2048, Tally(), lambda: None)
    seen: list[mx.array] = []
    for place in range(TOKENS):
        seen.append(decode.forward(arms.model, cache, mx.array([(29 * place + 7) % 500])))
        mx.async_eval(seen[-1])
    seen += [array for entry in cache for array in entry.keys_and_values()]
    mx.eval(seen)
    assert (arms.counter.runs > before) == (arm != "chain"), (
        "the arm did not run what it is named for"
    )
    return written, seen


def text(arms: Arms) -> dict[str, Any]:
    """For each prompt and arm: the first greedy token that differs, and how many of the forced logits and caches do.

    `again` is the chain a second time: what the device itself does not repeat is no fault of a kernel.
    """
    told: dict[str, Any] = {}
    for length in PROMPTS:
        tokens, seen = walk(arms, "chain", length)
        mine: dict[str, Any] = {
            "distinct": len(set(tokens)),
            "finite": bool(mx.isfinite(seen[0]).all().item()),
        }
        for name, arm in (("again", "chain"), *zip(arms.names[1:], arms.names[1:], strict=True)):
            others, found = walk(arms, arm, length)
            first = next(
                (n for n, (a, b) in enumerate(zip(tokens, others, strict=True)) if a != b), None
            )
            wrong = [
                n
                for n, (a, b) in enumerate(zip(seen, found, strict=True))
                if not mx.array_equal(a, b).item()
            ]
            mine[name] = {
                "token": first,
                "arrays": len(seen),
                "differ": len(wrong),
                "first": wrong[:1],
            }
        told[str(length)] = mine
    return told
