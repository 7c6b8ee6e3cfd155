"""Log-probabilities: those of the model itself, whichever loop wrote the text and whatever the sampler made of it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from served import Engine
from test_server import ALL, TINY, texts
from test_speculate import Guesses, Knowing

from switchboard import cache as kv
from switchboard.decode import Tally, plain, prefill
from switchboard.logprobs import LOWEST, Entry, Seen, Watched, of_text, spelled
from switchboard.sampler import Sampler, Sampling
from switchboard.sources import synthetic
from switchboard.speculate import verified

Start = Callable[..., Engine]
PROMPT = [1, 2, 3, 4, 1, 2, 3, 4, 1, 2]
HOT = Sampling(temperature=1.7, top_k=40, seed=3, logit_bias={7: 4.0}, min_tokens=99)


def expected(model: Any, text: list[int], start: int) -> np.ndarray:
    """Rows of the model's own log-softmax for the places from `start` on, by NumPy in float64."""
    logits = np.array(model(mx.array([text]))[0].astype(mx.float32), dtype=np.float64)[
        start - 1 : -1
    ]
    highest = logits.max(axis=1, keepdims=True)
    shares: np.ndarray = logits - highest
    return shares - np.log(np.exp(shares).sum(axis=1, keepdims=True))


def told(model: Any, proposer: Any, top: int, count: int = 60) -> tuple[list[int], list[Entry]]:
    """A text with the entries of its tokens, taken as the text is yielded."""
    cache = kv.make(model)
    prefill(model, cache, PROMPT, 4, Tally(), lambda: None)
    seen = Seen(top)
    chooser = Watched(Sampler(HOT, (0,)), seen)
    if proposer is None:
        stream = plain(model, cache, PROMPT[-1], chooser, count)
    else:
        proposer.begin(PROMPT)
        stream = verified(model, cache, PROMPT[-1], chooser, proposer, count, Tally())
    text, entries = list[int](), list[Entry]()
    for tokens in stream:
        text += tokens
        entries += seen.take(tokens)
    assert not seen._rows or max(seen._rows) >= count, "rows of told places are let go"
    return text, entries


@pytest.mark.parametrize("kind", ["plain", "wrong drafts", "drafts that err in the middle"])
def test_figures_are_the_models_own(kind: str) -> None:
    model, _ = synthetic.build("tiny-llama")
    known, _ = told(model, None, 0)
    proposer = {"plain": None, "wrong drafts": Guesses([9, 9])}.get(kind, Knowing(known))
    text, entries = told(model, proposer, 5)
    assert text == known
    rows = expected(model, PROMPT + text, len(PROMPT))
    assert [one.token for one in entries] == text
    own = rows[np.arange(len(text)), text]
    assert np.abs(np.array([one.logprob for one in entries]) - own).max() < 2e-4
    for row, one in zip(rows, entries, strict=True):
        assert (
            np.abs(np.array([figure for _, figure in one.top]) - np.sort(row)[:-6:-1]).max() < 2e-4
        )
        assert np.abs(row[[token for token, _ in one.top]] - np.sort(row)[:-6:-1]).max() < 2e-4
    drawn = Sampler(HOT, ()).distributions(mx.array(rows[:1].astype(np.float32)))
    figure = math.log(float(drawn[0, text[0]].item()))
    assert abs(figure - own[0]) > 0.1, "what is drawn from is another distribution"


def test_no_chance_at_all_is_a_number() -> None:
    seen = Seen(2)
    seen.keep(mx.array([[0.0, -math.inf, 0.0]]), 0)
    (entry,) = seen.take([1])
    assert entry.logprob == LOWEST
    assert entry.top == [(0, pytest.approx(-math.log(2))), (2, pytest.approx(-math.log(2)))]


def test_tokens_that_are_no_text_are_spelled() -> None:
    raw = {1: b"a", 2: b"\xe2\x82", 3: b"", 4: b"a"}
    assert [spelled(token, raw.__getitem__) for token in raw] == [
        "a", "bytes:\\xe2\\x82", "token_id:3", "a",
    ]  # fmt: skip
    found = of_text([Entry(4, -3.0, [(1, -1.0)])], raw.__getitem__, [0])
    assert found["top_logprobs"] == [{"a": -1.0, "token_id:4": -3.0}]


@pytest.mark.parametrize("flags", [TINY, ALL])
def test_streamed_or_not_the_endpoints_tell_the_same(shared: Start, flags: tuple[str, ...]) -> None:
    engine = shared(*flags)
    body = {"prompt": "abcabcabc", "max_tokens": 30, "seed": 4, "ignore_eos": True, "logprobs": 2}
    whole = engine.complete(**body)["choices"][0]
    events = engine.events("/v1/completions", **body)
    parts = [event["choices"][0]["logprobs"] for event in events if event["choices"]]
    figures = {name: [one for part in parts for one in part[name]] for name in parts[0]}
    assert figures.keys() == whole["logprobs"].keys()
    assert figures["tokens"] == whole["logprobs"]["tokens"]
    assert figures["text_offset"] == whole["logprobs"]["text_offset"]
    for one, token, figure in zip(
        figures["top_logprobs"], figures["tokens"], figures["token_logprobs"], strict=True
    ):
        assert len(one) in (2, 3) and one[token] == figure
    text, ids = texts(events)
    assert len(figures["tokens"]) == len(ids) == 30
    for place, token in enumerate(figures["tokens"]):
        if not token.startswith(("bytes:", "token_id:")):
            assert text[figures["text_offset"][place] :].lstrip("\ufffd").startswith(token)


def test_a_chat_tells_bytes_ids_and_others(shared: Start) -> None:
    body: dict[str, Any] = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 9}
    body = {**body, "temperature": 0, "ignore_eos": True}
    engine = shared(*TINY)
    for more, others in (({}, 0), ({"top_logprobs": 3}, 3)):
        reply = engine.post("/v1/chat/completions", **body, logprobs=True, **more).json()
        content = reply["choices"][0]["logprobs"]["content"]
        assert [one["token_id"] for one in content] == reply["choices"][0]["token_ids"]
        assert {len(one["top_logprobs"]) for one in content} == {others}
        assert bytes(content[0]["bytes"]).decode(errors="replace") == content[0]["token"]
    assert all(one["top_logprobs"][0]["logprob"] == one["logprob"] for one in content), "greedy"
    assert engine.post("/v1/chat/completions", **body).json()["choices"][0]["logprobs"] is None
    alone = engine.post("/v1/chat/completions", **body, top_logprobs=3)
    assert alone.json()["error"]["param"] == "top_logprobs"


def test_logprobs_leave_the_text_alone(shared: Start) -> None:
    body = {"prompt": "abcabc", "max_tokens": 40, "seed": 9, "ignore_eos": True}
    for flags in (TINY, ALL):
        without = shared(*flags).complete(**body)["choices"][0]["token_ids"]
        assert shared(*flags).complete(**body, logprobs=0)["choices"][0]["token_ids"] == without


def test_a_forced_answer_is_scored_as_the_free_one_was(shared: Start) -> None:
    body = {"prompt": "abcabc", "logprobs": 1}
    for flags in (TINY, ALL):
        engine = shared(*flags)
        free = engine.complete(**body, max_tokens=20, seed=2, ignore_eos=True)["choices"][0]
        forced = engine.complete(**body, forced_tokens=free["token_ids"], temperature=0)["choices"][
            0
        ]
        assert forced["token_ids"] == free["token_ids"]
        assert forced["logprobs"]["token_logprobs"] == pytest.approx(
            free["logprobs"]["token_logprobs"], abs=2e-4
        )
