"""The same text: greedy tokens, logits and caches of every arm against the chain's, and the chain against itself.

The prompts are the first tokens of packaged prose; the greedy text after them is one of dozens of different tokens, not
a loop (SmolLM2-135M on a CPU: 45, 22 and 21 of 128). A model of random weights loops whatever it is given; its arrays
count, its text does not.
"""

from __future__ import annotations

from typing import Any

import mlx.core as mx

from battery.bench.prompts import corpus
from benchmarks.epilogue_gpu.arms import GREEDY, Arms
from benchmarks.epilogue_gpu.plan import TOKENS
from switchboard import cache as kv
from switchboard import decode
from switchboard.decode import Tally
from switchboard.sampler import Sampler

PARAGRAPHS = slice(40, 80)


def prose(arms: Arms, length: int) -> list[int]:
    """So many tokens of packaged prose, in the model's own tokens."""
    ids = arms.loaded.text.encode("\n\n".join(corpus("prose").paragraphs[PARAGRAPHS]))
    if len(ids) < length:
        raise ValueError(f"the packaged prose has {len(ids)} tokens here, not {length}")
    return list(ids[:length])


def walk(arms: Arms, arm: str, length: int) -> tuple[list[int], list[mx.array]]:
    """Greedy tokens after a prompt; and the logits of as many given tokens, with the caches they leave."""
    arms.turn(arm)
    before = arms.counter.runs
    prompt = prose(arms, length)
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


def text(arms: Arms, length: int) -> dict[str, dict[str, Any]]:
    """For each arm after so many tokens: what its greedy text and its forced logits and caches are beside the chain's.

    `again` is the chain a second time: what the device itself does not repeat is no fault of a kernel.
    """
    tokens, seen = walk(arms, "chain", length)
    found = {
        name: beside(tokens, seen, *walk(arms, arm, length))
        for name, arm in (("again", "chain"), *((arm, arm) for arm in arms.names[1:]))
    }
    about = {
        "distinct": len(set(tokens)),
        "finite": bool(mx.isfinite(seen[0]).all().item()),
        "again": found["again"],
    }
    return {arm: {**about, "run": found[arm]} for arm in arms.names[1:]}


def beside(
    tokens: list[int], seen: list[mx.array], others: list[int], found: list[mx.array]
) -> dict[str, Any]:
    """The first token that differs, and how many arrays do."""
    first = next((n for n, (a, b) in enumerate(zip(tokens, others, strict=True)) if a != b), None)
    pairs = enumerate(zip(seen, found, strict=True))
    wrong = [n for n, (a, b) in pairs if not mx.array_equal(a, b).item()]
    return {"token": first, "arrays": len(seen), "differ": len(wrong), "first": wrong[:1]}
