"""What is taken back after a verify pass leaves no trace in any kind of cache, and the text stays the plain one's."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from functools import cache as once
from typing import Any

import mlx.core as mx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from served import Engine

from switchboard import cache as kv
from switchboard import lm
from switchboard.bisect.compare import bound
from switchboard.bisect.subject import open_plain
from switchboard.decode import Tally, plain, prefill
from switchboard.parity import same
from switchboard.registry import CacheFactory, Counter, Room, known
from switchboard.sampler import Sampler, Sampling
from switchboard.sources import tiny
from switchboard.speculate import verified
from switchboard.switches.prompt_lookup import Options, PromptLookup

KINDS = {
    "plain": [],
    "in place": ["in_place_kv"],
    "8 bits": ["quantized_kv:bits=8,group=32"],
    "4 bits": ["quantized_kv:bits=4,group=32"],
}
PACKED = ("8 bits", "4 bits")
ROOM = Room(60, 8)
WINDOW = tiny.SLIDING["sliding_window"]
Passes = list[list[int]]


@once
def built(family: str) -> Any:
    return tiny.build(family, "none")[0]


def factory(model: Any, kind: str) -> CacheFactory:
    plain_factory = kv.factory(model)
    for asked in KINDS[kind]:
        name, _, options = asked.partition(":")
        given = dict(pair.split("=") for pair in filter(None, options.split(",")))
        plain_factory = (
            known()[name].apply(plain_factory, known()[name].parse(given), Counter()).factory
        )
    return plain_factory


def fed(model: Any, cache: list[Any], passes: Passes) -> list[mx.array]:
    out = [model(mx.array([tokens]), cache=cache) for tokens in passes]
    mx.eval(out, kv.arrays(cache))
    return out


def verify(model: Any, cache: list[Any], tokens: list[int], count: int) -> None:
    before = kv.Checkpoint(cache)
    fed(model, cache, [tokens])
    before.keep(model, tokens, count)


def text(start: int, count: int) -> list[int]:
    return [(start + 7 * place * place + place) % 512 for place in range(count)]


@st.composite
def histories(draw: st.DrawFn) -> tuple[Passes, int, int, Passes]:
    """Passes before, the width of the verify pass, how many of its tokens stay, and passes after."""
    sizes = draw(st.lists(st.one_of(st.just(1), st.integers(1, 40)), min_size=1, max_size=4))
    steps = draw(st.integers(0, 5))
    before = [text(31 * at, size) for at, size in enumerate([*sizes, *[1] * steps])]
    width = draw(st.integers(2, 8))
    after = [
        text(5 + at, size)
        for at, size in enumerate(draw(st.lists(st.integers(1, 4), min_size=3, max_size=4)))
    ]
    return before, width, draw(st.integers(0, width - 1)), after


def usable(family: str, kind: str) -> bool:
    return not (family == "qwen2" and kind in PACKED)


CASES = [(family, kind) for family in tiny.FAMILIES for kind in KINDS if usable(family, kind)]


@pytest.mark.families
@pytest.mark.parametrize(("family", "kind"), CASES)
@settings(max_examples=8, deadline=None)
@given(history=histories())
def test_rejected_tokens_leave_no_trace(family: str, kind: str, history: Any) -> None:
    """Bitwise the same whatever was rejected, and near a cache that read the accepted ones alone."""
    before, width, count, after = history
    model = built(family)
    first = factory(model, kind)(ROOM)
    fed(model, first, before)
    second, alone = deepcopy(first), deepcopy(first)
    tokens, others = text(3, width), [*text(3, count), *text(400, width - count)]
    verify(model, first, tokens, count)
    verify(model, second, others, count)
    if count:
        fed(model, alone, [tokens[:count]])
    seen, wanted = fed(model, first, after), fed(model, alone, after)
    for one, other in zip(seen, fed(model, second, after), strict=True):
        assert same(one, other)
    replayed = any(kv.is_state(entry) for entry in first)
    for one, other in zip(wanted, seen, strict=True):
        if replayed or not count:
            assert same(one, other)
        elif kind not in PACKED:
            assert mx.max(mx.abs(one - other)).item() <= bound(one)


def broken_by(monkeypatch: pytest.MonkeyPatch, fault: str) -> str:
    """Plant a fault; the family whose cache it is in."""
    if fault == "the window's rows stay":
        monkeypatch.setattr(kv, "_cut", lambda entry, count: entry.trim(count))
        return "gemma3"
    if fault == "one row too many stays":
        honest = kv.rewind
        monkeypatch.setattr(kv, "rewind", lambda cache, count: honest(cache, count - 1))
        return "llama"
    if fault == "the state stays":
        monkeypatch.setattr(
            lm.caches().ArraysCache, "state", property(lambda self: [], lambda self, v: None)
        )
        return "qwen3_5"
    monkeypatch.setattr(kv, "alias", lambda value: value)
    return "qwen3_5"


@pytest.mark.parametrize(
    "fault",
    ["the window's rows stay", "one row too many stays", "the state stays", "no aliases"],
)
def test_the_comparison_sees_a_fault(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    family = broken_by(monkeypatch, fault)
    model, caches = built(family), []
    for rejected in (3, 400):
        caches.append(kv.make(model))
        fed(model, caches[-1], [text(0, 40), [3], [4]])
        verify(model, caches[-1], [1, 2, *text(rejected, 3)], 2)
    one, other = (fed(model, cache, [[5], [6], [7, 8]]) for cache in caches)
    assert not all(same(left, right) for left, right in zip(one, other, strict=True))


def test_a_checkpoint_holds_references_and_no_numbers() -> None:
    for family in ("gemma3", "qwen3_5"):
        model = built(family)
        cache = kv.make(model)
        fed(model, cache, [text(0, 50), [1]])
        before = mx.get_active_memory()
        points = [kv.Checkpoint(cache) for _ in range(100)]
        mx.eval([state for point in points for _, state in point._held])
        assert mx.get_active_memory() <= before, "a hundred copies would be seen"


def test_what_cannot_be_taken_back_is_told_with_its_class() -> None:
    caches = lm.caches()
    assert kv.cannot_rewind([caches.KVCache(), caches.CacheList(caches.ArraysCache(2))]) is None
    told = kv.cannot_rewind([caches.CacheList(caches.KVCache(), caches._BaseCache())])
    assert told == "the model's _BaseCache cannot give rejected tokens back"
    with pytest.raises(RuntimeError, match="ArraysCache gives no token back without a checkpoint"):
        kv.rewind([caches.ArraysCache(2)], 1)
    window = caches.RotatingKVCache(4)
    for _ in range(6):
        window.update_and_fetch(mx.zeros((1, 1, 1, 4)), mx.zeros((1, 1, 1, 4)))
    with pytest.raises(RuntimeError, match="RotatingKVCache gave back 0 of 1 tokens"):
        kv.rewind([window], 1)


class Knowing:
    """Guesses the text that comes, with every third guess wrong at a place that moves."""

    def __init__(self, text: list[int]) -> None:
        self.text, self.made, self.asked = text, 0, 0

    def begin(self, prompt: list[int]) -> None:
        self.made = 0

    def extend(self, tokens: list[int]) -> None:
        self.made += len(tokens)

    def propose(self, limit: int) -> list[int]:
        self.asked += 1
        ahead = self.text[self.made : self.made + min(1 + self.asked % 5, limit)]
        if self.asked % 3 and ahead:
            ahead[self.asked % len(ahead)] += 1
        return ahead

    def judged(self, proposed: int, accepted: int) -> None:
        pass


GREEDY = Sampling(temperature=0.0, ignore_eos=True)
DRAWN = Sampling(temperature=0.9, seed=5, ignore_eos=True)


@pytest.mark.families
@pytest.mark.parametrize("sampling", [GREEDY, DRAWN], ids=["greedy", "drawn"])
@pytest.mark.parametrize(("family", "kind"), CASES)
def test_the_verified_text_is_the_plain_one(family: str, kind: str, sampling: Sampling) -> None:
    model, prompt, count = built(family), text(2, WINDOW + 9), 60
    make = factory(model, kind)

    def written(proposer: Any) -> tuple[list[int], Tally, list[Any]]:
        cache, tally = make(Room(len(prompt), count)), Tally()
        prefill(model, cache, prompt, 16, Tally(), lambda: None)
        sampler = Sampler(sampling, ())
        if proposer is None:
            stream = plain(model, cache, prompt[-1], sampler, count)
        else:
            proposer.begin(prompt)
            stream = verified(model, cache, prompt[-1], sampler, proposer, count, tally)
        return [token for tokens in stream for token in tokens], tally, cache

    wanted, _, cache = written(None)
    held = [getattr(one, "offset", 0) for one in cache]
    for proposer in (Knowing(wanted), PromptLookup(Options(adaptive=False), Counter())):
        seen, tally, other = written(proposer)
        assert seen == wanted
        assert [getattr(one, "offset", 0) for one in other] == held
        if isinstance(proposer, Knowing):
            assert 0 < tally.accepted < tally.proposed


@pytest.mark.families
@pytest.mark.parametrize("family", tiny.FAMILIES)
def test_served_with_drafts_the_text_is_the_plain_one(
    family: str, start: Callable[..., Engine]
) -> None:
    # Every token of the vocabulary is in the prompt, so that there is a guess after each, mostly a wrong one.
    name, prompt, count = f"synthetic:tiny-{family}", [7 * at % 512 for at in range(514)], 40
    subject = open_plain(name, "auto")
    wanted = [subject.answer(prompt, sampling, count) for sampling in (GREEDY, DRAWN)]
    engine = start("--model", name, "--require", "prompt_lookup:adaptive=false,ngram=2,least=1")
    accepted = rejected = 0
    for sampling, ids in zip((GREEDY, DRAWN), wanted, strict=True):
        body = {"temperature": sampling.temperature, "seed": sampling.seed, "max_tokens": count}
        answer = engine.complete(prompt, ignore_eos=True, **body)
        assert answer["choices"][0]["token_ids"] == ids
        accepted += answer["timings"]["accepted"]
        rejected += answer["timings"]["proposed"] - answer["timings"]["accepted"]
    assert accepted > 0 and rejected > 0
    assert engine.switch("prompt_lookup")["state"] == "engaged"
