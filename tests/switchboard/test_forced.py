"""A forced answer is the recorded one, at the work of a free one: passes, drafts, rewinds and sampling."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mlx.core as mx
import pytest
from served import Engine

from switchboard import cache as kv
from switchboard.census import operations
from switchboard.decode import Chooser, Tally, plain, prefill
from switchboard.errors import RequestError
from switchboard.forced import Forced, checked
from switchboard.registry import Counter
from switchboard.sampler import Sampler, Sampling
from switchboard.sources import synthetic
from switchboard.speculate import verified
from switchboard.switches.prompt_lookup import Options, PromptLookup

LOOKUP = ("--model", "synthetic:tiny-llama", "--switch", "prompt_lookup:adaptive=false")
PLAIN = ("--model", "synthetic:tiny-llama")
PROMPT = [1, 2, 3, 4, 1, 2, 3, 4, 1, 2]
GIVEN = [3, 4, 1, 2, 3, 4, 1, 2, 50, 51, 3, 4, 1, 2, 60, 3, 4, 1, 2, 3]
"""Text that quotes the prompt, with words of its own in between."""
Start = Callable[..., Engine]


class Passes:
    """A model that notes how many tokens each pass read."""

    def __init__(self, model: Any) -> None:
        self.model, self.widths = model, list[int]()

    def __call__(self, tokens: mx.array, cache: Any) -> mx.array:
        self.widths.append(tokens.shape[1])
        logits: mx.array = self.model(tokens, cache=cache)
        return logits


class Knows:
    """A chooser that would write this very text by itself: a free run that came to it."""

    def __init__(self, text: list[int]) -> None:
        self.text, self.judged = text, 0

    def choose(self, logits: mx.array, made: int) -> mx.array:
        return mx.array([self.text[made]])

    def judge(self, logits: mx.array, draft: Any, made: int) -> Any:
        self.judged += 1
        return Forced(Sampler(Sampling(), ()), self.text).judge(logits, draft, made)


def run(chooser: Chooser, drafts: bool) -> tuple[list[int], list[int], Tally, int]:
    """Text, widths of the passes after the prompt, counts, and tokens in the cache at the end."""
    model, _ = synthetic.build("tiny-llama")
    cache, passes, tally = kv.make(model), Passes(model), Tally()
    prefill(model, cache, PROMPT, 4, Tally(), lambda: None)
    if drafts:
        lookup = PromptLookup(Options(adaptive=False), Counter())
        lookup.begin(PROMPT)
        stream = verified(passes, cache, PROMPT[-1], chooser, lookup, len(GIVEN), tally)
    else:
        stream = plain(passes, cache, PROMPT[-1], chooser, len(GIVEN))
    return [one for tokens in stream for one in tokens], passes.widths, tally, cache[0].offset


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("drafts", [False, True])
def test_the_recorded_text_comes_with_the_passes_of_a_free_run(
    drafts: bool, temperature: float
) -> None:
    sampler = Sampler(Sampling(temperature=temperature, seed=5), ())
    free = run(Knows(GIVEN), drafts)
    forced = run(Forced(sampler, GIVEN), drafts)
    assert forced[0] == free[0] == GIVEN
    assert forced[1] == free[1] and forced[2] == free[2]
    assert forced[3] == len(PROMPT) + len(GIVEN) - 1, "rejected guesses were taken back"
    widths = forced[1]
    assert (max(widths) > 1) == drafts
    if drafts:
        assert 0 < forced[2].accepted < forced[2].proposed, "some guesses stand and some do not"
        assert len(widths) < len(GIVEN), "what stands saves passes"


def test_a_run_forced_to_its_own_text_is_the_free_run() -> None:
    sampling = Sampling(temperature=0.8, seed=11)
    free = run(Sampler(sampling, ()), True)
    again = run(Forced(Sampler(sampling, ()), free[0]), True)
    assert again == free


def test_sampling_is_still_done_and_awaited() -> None:
    sampler = Sampler(Sampling(temperature=0.7, top_p=0.9, seed=3), ())
    logits = mx.random.normal((1, 64), key=mx.random.key(1))
    mx.eval(logits)
    free = operations([sampler.choose(logits, 0)])
    forced = operations([Forced(sampler, [9]).choose(logits, 0)])
    assert free["Sort"] and free["RandomBits"]
    assert forced == {**free, "Depends": 1}, "the same operations, and one that costs nothing"


def test_the_law_is_asked_though_its_verdict_is_put_aside() -> None:
    asked = Knows([1, 2, 3, 4])
    forced = Forced(asked, [5, 6, 7, 8])
    verdict = forced.judge(mx.zeros((3, 9)), [5, 9], 0)
    assert asked.judged == 1
    assert (verdict.accepted, verdict.following) == (1, 6)


def test_the_served_answer_is_the_forced_one_and_says_so(shared: Start) -> None:
    asked = {"temperature": 0.9, "seed": 4, "prompt": "abcabcabc"}
    seen = []
    for flags in (PLAIN, LOOKUP):
        engine = shared(*flags)
        free = engine.complete(**asked, max_tokens=len(GIVEN), ignore_eos=True)
        made = engine.complete(**asked, forced_tokens=GIVEN)
        assert free["choices"][0]["token_ids"] != GIVEN and free["sampler"]["forced_tokens"] == 0
        assert made["choices"][0]["token_ids"] == GIVEN
        assert made["choices"][0]["finish_reason"] == "length"
        assert made["usage"]["completion_tokens"] == len(GIVEN)
        assert made["sampler"]["forced_tokens"] == len(GIVEN) == made["sampler"]["max_tokens"]
        seen.append((made["choices"][0]["text"], made["timings"]["steps"]))
    assert seen[0][0] == seen[1][0] and len(seen[0][0]) > 0
    assert seen[1][1] < seen[0][1] == len(GIVEN) - 1, "drafts that stand save steps of their arm"
    assert shared(*LOOKUP).switch("prompt_lookup")["state"] == "engaged"


@pytest.mark.parametrize(
    "switches",
    [
        ("draft_model:layers=1,coupled=false", "block_verify"),
        ("prompt_lookup:adaptive=false", "typical:epsilon=0.9"),
    ],
)
def test_no_law_and_no_drawn_guess_leads_away_from_the_given_text(
    start: Start, switches: tuple[str, str]
) -> None:
    engine = start(*PLAIN, *(word for one in switches for word in ("--switch", one)))
    made = engine.complete("abcabcabc", temperature=0.9, seed=4, forced_tokens=GIVEN)
    assert made["choices"][0]["token_ids"] == GIVEN
    law = engine.switch(switches[1].partition(":")[0])
    assert law["state"] == "engaged", "the law was asked, and its verdict put aside"
    assert made["timings"]["proposed"] > 0


def test_a_stream_sends_the_forced_ids_and_an_end_token_inside_ends_nothing(shared: Start) -> None:
    engine = shared(*PLAIN)
    given = [97, 256, 98, 256, 99]
    body = {"messages": [{"role": "user", "content": "ab"}], "forced_tokens": given}
    events = engine.events("/v1/chat/completions", **body, max_tokens=5)
    choices = [event["choices"][0] for event in events if event["choices"]]
    assert [token for one in choices for token in one.get("token_ids", [])] == given
    assert "".join(one["delta"].get("content", "") for one in choices) == "abc"
    assert events[-1]["sampler"]["forced_tokens"] == 5


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"forced_tokens": []}, "length >= 1 - at `$.forced_tokens`"),
        ({"forced_tokens": [1, -1]}, "`int` >= 0 - at `$.forced_tokens[1]`"),
        ({"forced_tokens": [10**6]}, "outside the vocabulary"),
        ({"forced_tokens": [True]}, "forced_tokens"),
        ({"forced_tokens": "abc"}, "forced_tokens"),
        ({"forced_tokens": [1, 2], "max_tokens": 3}, "2 tokens, but max_tokens is 3"),
        ({"forced_tokens": [1, 2], "max_completion_tokens": 1}, "but max_tokens is 1"),
        ({"forced_tokens": [1] * 2048}, "room for"),
        ({"forced_tokens": [1, 2], "stop": "x"}, "leave stop out"),
    ],
)
def test_a_continuation_that_cannot_be_the_answer_is_refused_by_name(
    shared: Start, changes: dict[str, Any], words: str
) -> None:
    reply = shared(*PLAIN).post("/v1/completions", prompt="abc", **changes)
    assert reply.status_code == 400
    told = reply.json()["error"]["message"]
    assert "forced_tokens" in told and words in told


def test_what_is_checked_comes_back_as_it_was() -> None:
    assert checked([3, 0, 3], (None, 3), (), 4, 3) == (3, 0, 3)
    with pytest.raises(RequestError, match="room for 2"):
        checked([3, 0, 3], (None, None), (), 4, 2)
