"""The verify loop gives the plain loop's text, and the law's distribution; the table gives what brute force gives."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from switchboard import cache as kv
from switchboard.decode import Tally, plain, prefill
from switchboard.registry import Counter
from switchboard.sampler import Sampler, Sampling
from switchboard.sources import synthetic
from switchboard.speculate import verified
from switchboard.switches.prompt_lookup import Options, PromptLookup


@dataclass
class Guesses:
    """A proposer that always guesses the same tokens."""

    guess: list[int]
    seen: list[int] = field(default_factory=list)

    def begin(self, prompt: list[int]) -> None:
        self.seen = list(prompt)

    def extend(self, tokens: list[int]) -> None:
        self.seen.extend(tokens)

    def propose(self, limit: int) -> list[int]:
        return self.guess[:limit]

    def judged(self, proposed: int, accepted: int) -> None:
        pass


class Knowing:
    """A proposer that knows the text, and errs at every seventh place."""

    def __init__(self, text: list[int]) -> None:
        self.text, self.made = text, 0

    def begin(self, prompt: list[int]) -> None:
        self.made = 0

    def extend(self, tokens: list[int]) -> None:
        self.made += len(tokens)

    def propose(self, limit: int) -> list[int]:
        ahead = self.text[self.made : self.made + min(4, limit)]
        return [token + 1 if (self.made + i) % 7 == 6 else token for i, token in enumerate(ahead)]

    def judged(self, proposed: int, accepted: int) -> None:
        pass


class Entry:
    """A cache entry that only counts."""

    state: tuple[int, ...] = ()

    def trim(self, count: int) -> int:
        return count


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_the_verified_text_is_the_plain_one_at_any_temperature(temperature: float) -> None:
    model, _ = synthetic.build("tiny-llama")
    prompt, count = [1, 2, 3, 4, 1, 2, 3, 4, 1, 2], 90
    texts: list[list[int]] = []
    tally = Tally()
    lookup = PromptLookup(Options(adaptive=False), Counter())
    for kind in ("plain", "lookup", "wrong", "knowing"):
        known = Knowing(texts[0]) if texts else None
        proposer = {"plain": None, "lookup": lookup, "wrong": Guesses([9, 9]), "knowing": known}[
            kind
        ]
        cache = kv.make(model)
        prefill(model, cache, prompt, 4, Tally(), lambda: None)
        sampler = Sampler(Sampling(temperature=temperature, seed=5), ())
        if proposer is None:
            stream = plain(model, cache, prompt[-1], sampler, count)
        else:
            proposer.begin(prompt)
            stream = verified(model, cache, prompt[-1], sampler, proposer, count, tally)
        texts.append([token for tokens in stream for token in tokens])
        assert cache[0].offset == len(prompt) + count - 1
    assert texts[0] == texts[1] == texts[2] == texts[3]
    assert tally.accepted > 0
    assert tally.accepted == sum(tally.accepted_by_depth)


def test_sampled_text_follows_the_chain_it_is_drawn_from() -> None:
    rng = np.random.default_rng(3)
    table = rng.normal(size=(3, 3)).astype(np.float32)
    shares = np.exp(table) / np.exp(table).sum(axis=1, keepdims=True)

    def chain(tokens: mx.array, cache: Any) -> mx.array:
        return mx.array(table)[tokens]

    runs = 1200
    counts: dict[tuple[int, ...], int] = {}
    for seed in range(runs):
        sampler = Sampler(Sampling(temperature=1.0, seed=seed), ())
        stream = verified(chain, [Entry()], 0, sampler, Guesses([1, 2]), 4, Tally())
        text = tuple(token for tokens in stream for token in tokens)[1:]
        counts[text] = counts.get(text, 0) + 1
    start = shares[0]
    drift = 0.0
    for text in itertools.product(range(3), repeat=3):
        chance = sum(
            start[first]
            * shares[first][text[0]]
            * shares[text[0]][text[1]]
            * shares[text[1]][text[2]]
            for first in range(3)
        )
        drift += abs(counts.get(text, 0) / runs - chance)
    assert drift / 2 < 0.07


def brute(text: list[int], options: Options, limit: int) -> list[int]:
    for size in range(options.ngram, options.least - 1, -1):
        for end in range(len(text) - 1, size - 1, -1):
            if size <= len(text) and text[end - size : end] == text[-size:]:
                return text[end : end + min(limit, options.draft)]
    return []


@settings(max_examples=150, deadline=None)
@given(st.lists(st.integers(0, 3), min_size=1, max_size=40), st.integers(0, 40), st.integers(1, 8))
def test_the_table_finds_what_brute_force_finds(text: list[int], cut: int, limit: int) -> None:
    options = Options()
    lookup = PromptLookup(options, Counter())
    lookup.begin(text[:cut])
    lookup.extend(text[cut:])
    assert lookup.propose(limit) == brute(text, options, limit)


def test_drafts_rest_when_they_do_not_pay_and_come_back() -> None:
    counter = Counter()
    lookup = PromptLookup(Options(rest=4), counter)
    lookup.begin([1, 2, 3, 1, 2, 3, 1, 2])
    drafted = 0
    while lookup.propose(5) and drafted < 10:
        lookup.judged(5, 0)
        drafted += 1
    assert drafted == 2, "hope is two tokens a draft, so two misses are enough"
    lookup.extend([3, 1, 2, 3])
    assert lookup.propose(5)
    lookup.judged(5, 0)
    assert not lookup.propose(5), "one miss after the rest sends it back to rest"
    lookup.extend([1, 2, 3, 1])
    for _ in range(5):
        assert lookup.propose(5)
        lookup.judged(5, 4)
    assert counter.told()["accepted"] == 20
