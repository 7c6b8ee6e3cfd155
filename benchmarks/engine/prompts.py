"""Prompts of natural prose of an exact number of tokens, a new one for every block and rung."""

from __future__ import annotations

import random
from collections.abc import Callable

from battery.bench.prompts import corpus

LETTERS = 8
"""Characters taken for a token: more than any prose needs on average."""


def passages(
    encode: Callable[[str], list[int]], rungs: list[int], blocks: int, seed: int
) -> dict[tuple[int, int], list[int]]:
    """The tokens by block (from 1) and rung; the same seed gives the same prompts."""
    paragraphs = corpus("prose").paragraphs
    made: dict[tuple[int, int], list[int]] = {}
    for block in range(1, blocks + 1):
        for rung in rungs:
            rng = random.Random(f"{seed}/{block}/{rung}")
            text, place = "", rng.randrange(len(paragraphs))
            while len(text) < LETTERS * rung:
                text += paragraphs[place % len(paragraphs)] + "\n\n"
                place += 1
            tokens = encode(text)[:rung]
            if len(tokens) < rung:
                raise ValueError(f"{LETTERS * rung} characters gave {len(tokens)} of {rung} tokens")
            made[block, rung] = tokens
    return made
