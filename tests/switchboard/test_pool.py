"""A prompt that goes on from a slot gives a cold one's logits, whatever became of the requests before it."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from functools import cache as once
from typing import Any

import mlx.core as mx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_rewind import CASES, PACKED, built, factory, text

from switchboard import cache as kv
from switchboard import lm, pool
from switchboard.bisect.compare import bound
from switchboard.bisect.subject import Subject, open_plain, put_on
from switchboard.board import Board
from switchboard.config import Asked, parse_asked
from switchboard.decode import Tally, forward, plain, prefill
from switchboard.errors import OutOfMemory, SwitchRefused
from switchboard.parity import same
from switchboard.pool import Pool, Turn
from switchboard.registry import Counter, Room
from switchboard.sampler import Sampler, Sampling
from switchboard.session import Session

CHUNK, ANSWER, LEAST = 16, 5, 4
GREEDY = Sampling(temperature=0.0, ignore_eos=True)


def made_pool(**more: Any) -> Pool:
    given = {"chunk": CHUNK, "exact": False, "most": 3, "limit": 1 << 30, "least": LEAST}
    return Pool(**{**given, "counter": Counter(), **more})


def turn_of(held: Pool, model: Any, make: Any, prompt: list[int]) -> Turn:
    turn = held.begin(prompt, make(Room(len(prompt), ANSWER)))
    held.read(model, turn, Tally(), lambda: None)
    return turn


def asked(held: Pool, model: Any, make: Any, prompt: list[int]) -> tuple[int, mx.array]:
    """A whole request: tokens taken, and logits after the prompt; its answer is kept as well."""
    turn = turn_of(held, model, make, prompt)
    logits = forward(model, deepcopy(turn.cache), mx.array(prompt[-1:]))
    mx.eval(logits)
    stream = plain(model, turn.cache, prompt[-1], Sampler(GREEDY, ()), ANSWER)
    held.keep(turn, [token for tokens in stream for token in tokens])
    return turn.reused, logits


def cold(model: Any, make: Any, prompt: list[int]) -> mx.array:
    cache = make(Room(len(prompt), ANSWER))
    prefill(model, cache, prompt, CHUNK, Tally(), lambda: None)
    return forward(model, cache, mx.array(prompt[-1:]))


@st.composite
def conversations(draw: st.DrawFn) -> list[list[int]]:
    """Prompts that begin with a part of an earlier one, or anew."""
    prompts = [text(0, draw(st.integers(1, 90)))]
    for at in range(draw(st.integers(1, 4))):
        earlier = prompts[draw(st.integers(0, len(prompts) - 1))]
        kept = draw(st.integers(0, len(earlier)))
        prompts.append([*earlier[:kept], *text(50 * at + 11, draw(st.integers(1, 40)))])
    return prompts


@pytest.mark.families
@pytest.mark.parametrize("exact", [False, True], ids=["rounding", "exact"])
@pytest.mark.parametrize(("family", "kind"), CASES)
@settings(max_examples=4, deadline=None)
@given(prompts=conversations())
def test_logits_are_the_cold_ones(family: str, kind: str, exact: bool, prompts: Any) -> None:
    model = built(family)
    make, held, seen = factory(model, kind), made_pool(exact=exact, most=9), list[list[int]]()
    for prompt in prompts:
        reused, logits = asked(held, model, make, prompt)
        wanted = cold(model, make, prompt)
        if exact:
            assert reused % CHUNK == 0
            assert same(wanted, logits)
        elif kind not in PACKED:
            assert mx.max(mx.abs(wanted - logits)).item() <= bound(wanted)
        most = max((shared(prompt, one) for one in seen), default=0)
        assert reused <= min(most + ANSWER, len(prompt) - 1)
        if family != "gemma3" and "qwen3_5" not in family and not exact and most >= LEAST:
            assert reused >= min(most, len(prompt) - 1), "rows can be taken up to any token"
        seen.append(prompt)


def shared(one: list[int], other: list[int]) -> int:
    return next(
        (at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b),
        min(len(one), len(other)),
    )


@pytest.mark.parametrize("family", ["gemma3", "qwen3_5"])
def test_the_third_text_that_begins_alike_gains_by_the_second(family: str) -> None:
    model, held = built(family), made_pool()
    make, head = kv.factory(model), text(1, 50)
    taken = [asked(held, model, make, [*head, *text(at, 30)])[0] for at in (100, 200, 300)]
    assert taken == [0, 0, 50], "the second reads all of it and marks where it parts from the first"
    assert asked(held, model, make, [*head, *text(300, 30)])[0] == 79, "the same prompt again"


@pytest.mark.parametrize("family", ["llama", "gemma3", "qwen3_5"])
def test_a_text_that_goes_on_is_taken_with_its_answer_and_takes_its_place(family: str) -> None:
    model, held = built(family), made_pool()
    make, prompt = kv.factory(model), text(1, 40)
    answer: list[int] = []
    for length in (40, 40 + ANSWER + 3):
        turn = turn_of(held, model, make, prompt)
        stream = plain(model, turn.cache, prompt[-1], Sampler(GREEDY, ()), ANSWER)
        answer = [token for tokens in stream for token in tokens]
        held.keep(turn, answer)
        assert held.told()["slots"] == 1 and held.told()["tokens"] == length + ANSWER - 1
        prompt = [*prompt, *answer, 7, 8, 9]
    # The last token of an answer was made and never read.
    assert turn.reused == 40 + ANSWER - 1


def test_a_slot_stays_what_it_was_while_others_go_on_from_it() -> None:
    for family, kind in (
        ("llama", "plain"),
        ("llama", "8 bits"),
        ("gemma3", "plain"),
        ("qwen3_5", "in place"),
    ):
        model, held = built(family), made_pool(most=9)
        make, prompt = factory(model, kind), text(1, 60)
        asked(held, model, make, prompt)
        first = asked(held, model, make, prompt)
        for other in range(3):
            asked(held, model, make, [*prompt[:59], *text(100 + other, 20)])
        again = asked(held, model, make, prompt)
        assert first[0] == again[0] == 59
        assert same(first[1], again[1])


def test_the_least_recently_used_goes_first_and_the_pinned_last() -> None:
    model, counter = built("llama"), Counter()
    held = made_pool(most=3, counter=counter)
    make, texts = kv.factory(model), [text(at, 40) for at in (0, 100, 200, 300)]
    turn = turn_of(held, model, make, [*texts[0], 1])
    turn.prompt = texts[0]
    held.keep(turn, [], pinned=True)
    for prompt in texts[1:3]:
        asked(held, model, make, prompt)
    asked(held, model, make, texts[1])
    asked(held, model, make, texts[3])
    assert (held.told()["slots"], counter.more["evicted"]) == (3, 1)
    found = [held.begin([*one, 5], make(Room(41, 1))).reused for one in texts]
    assert found == [40, 40, 0, 40]
    assert [held.shed() for _ in range(3)] == [True, True, True]
    assert held.pinned_counter.more["given_up"] == 1 and not held.shed(), "the pinned one went last"


def test_a_text_larger_than_the_pool_drives_no_other_out() -> None:
    model, counter = built("llama"), Counter()
    make = kv.factory(model)
    held = made_pool(most=9, counter=counter)
    asked(held, model, make, text(0, 40))
    held.limit = held.told()["bytes"]
    asked(held, model, make, text(100, 400))
    assert held.told()["slots"] == 1 and counter.more["too_large"] == 1
    assert "evicted" not in counter.more
    assert held.begin([*text(0, 40), 5], make(Room(41, 1))).reused == 40


def test_a_state_that_decode_made_does_not_pass_for_one_of_whole_chunks() -> None:
    """B is a beginning of A whose answer followed A to a border of chunks; C may not take its state for A's."""
    model = built("qwen3_5")
    make, held = kv.factory(model), made_pool(exact=True, most=9)
    whole = text(0, 4 * CHUNK)
    asked(held, model, make, whole)
    begun = turn_of(held, model, make, whole[: CHUNK + 4])
    for token in whole[CHUNK + 3 : 2 * CHUNK]:
        mx.eval(forward(model, begun.cache, mx.array([token])))
    held.keep(begun, whole[CHUNK + 4 : 2 * CHUNK])
    assert 2 * CHUNK not in {mark for slot in held._slots for mark in slot.marks}
    prompt = [*whole[: 3 * CHUNK - 5], *text(900, 9)]
    _, logits = asked(held, model, make, prompt)
    assert same(logits, cold(model, make, prompt))


@settings(max_examples=15, deadline=None)
@given(prompts=conversations(), limit=st.integers(1, 400_000))
def test_the_bytes_are_bounded_and_true(prompts: Any, limit: int) -> None:
    model = built("qwen3_5")
    held, make = made_pool(limit=limit, most=9), kv.factory(built("qwen3_5"))
    for prompt in prompts:
        asked(held, model, make, prompt)
        arrays = {}
        for slot in held._slots:
            trees = [[one.keys, one.values] for one in slot.rows if one] + [
                one.states for one in slot.marks.values()
            ]
            arrays |= {
                id(one): one.nbytes
                for _, one in pool.tree_flatten(trees)
                if isinstance(one, mx.array)
            }
        assert held.told()["bytes"] == sum(arrays.values()) <= limit


def test_room_that_an_answer_did_not_need_is_given_back() -> None:
    model, held = built("llama"), made_pool()
    make, prompt = factory(model, "in place"), text(0, 40)
    turn = held.begin(prompt, make(Room(40, 4000)))
    held.read(model, turn, Tally(), lambda: None)
    assert turn.cache[0].keys.shape[2] == 4040
    held.keep(turn, [])
    assert held.told()["bytes"] == 4 * 2 * 39 * 2 * 32 * 4, (
        "layers, keys and values, rows, heads, width, fp32"
    )


def test_what_is_cleared_stays_cleared_and_a_request_in_hand_leaves_nothing() -> None:
    model, held = built("llama"), made_pool()
    make, prompt = kv.factory(model), text(0, 40)
    asked(held, model, make, prompt)
    turn = turn_of(held, model, make, prompt)
    gone = held.clear()
    assert gone["slots"] == 1 and gone["bytes"] > 0
    held.keep(turn, [])
    assert held.told()["slots"] == held.told()["bytes"] == 0
    assert asked(held, model, make, prompt)[0] == 0


@once
def subject(family: str) -> Subject:
    return open_plain(f"synthetic:tiny-{family}", "auto")


def session(family: str, **options: str) -> Session:
    return put_on(subject(family), Asked("prompt_cache", {"least": "4", **options})).session


class Gone(Exception):
    """The client."""


class Stop:
    """Raises when it was called more than so often."""

    def __init__(self, after: int, error: Exception, honest: Callable[..., Any]) -> None:
        self.left, self.error, self.honest = after, error, honest

    def __call__(self, *given: Any, **named: Any) -> Any:
        self.left -= 1
        if self.left < 0:
            raise self.error
        return self.honest(*given, **named)


@pytest.mark.parametrize("family", ["llama", "gemma3", "qwen3_5"])
@pytest.mark.parametrize("after", [0, 1, 2, 3, 5, 9])
@pytest.mark.parametrize(
    "error", [MemoryError("no memory left"), Gone()], ids=["fails", "cancelled"]
)
def test_a_request_that_is_cancelled_or_fails_spoils_nothing(
    family: str, after: int, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    prompt, served = text(0, 300), session(family)
    wanted = subject(family).answer(prompt, GREEDY, 12)
    assert answer(served, prompt[:150])[0]
    with monkeypatch.context() as patch, pytest.raises(type(error)):
        if isinstance(error, Gone):
            answer(served, prompt, Stop(after, error, lambda: None))
        else:
            broken = Stop(after, error, bound_call(served))
            kind = type(served.loaded.model)
            patch.setattr(kind, "__call__", lambda _, ids, cache: broken(ids, cache=cache))
            answer(served, prompt)
    assert served.pool is not None and served.pool.told()["slots"] >= 1
    seen, cached = answer(served, prompt)
    assert seen == wanted
    assert cached >= 149, "what was there before is still there"


def bound_call(served: Session) -> Callable[..., Any]:
    model: Any = type(served.loaded.model).__call__
    return lambda *given, **named: model(served.loaded.model, *given, **named)


def answer(
    served: Session, prompt: list[int], guard: Callable[[], Any] = lambda: None
) -> tuple[list[int], int]:
    tally, made = Tally(), list[int]()
    for tokens in served.generate(prompt, GREEDY, 12, tally, guard):
        made += tokens
    return made, len(prompt) - tally.prompt_tokens


def test_slots_are_given_up_before_a_request_is_refused_for_memory() -> None:
    served = session("llama")
    prompt = text(0, 200)
    answer(served, prompt)
    assert served.pool is not None and served.pool.told()["slots"] == 1
    served.memory_limit = mx.get_active_memory() - served.pool.told()["bytes"] // 2
    with pytest.raises(OutOfMemory):
        answer(served, text(90, 200))
    assert served.pool.told()["slots"] == 0
    served.memory_limit = None
    assert answer(served, prompt)[1] == 0


def test_the_exactness_is_that_of_its_options() -> None:
    told = session("llama").board.positions["prompt_cache"].told()
    assert (told["state"], told["exactness"]) == ("armed", "rounding")
    assert "logits differ by up to" in told["reason"]
    told = session("llama", exact="true").board.positions["prompt_cache"].told()
    assert (told["state"], told["exactness"], told["reason"]) == ("armed", "exact", None)


FAULTS = ("a row too few", "rows of values for keys", "a state that goes on")


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_found_by_the_probe(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    honest: Any = pool.Rows.into
    if fault == "a row too few":
        monkeypatch.setattr(
            pool.Rows, "into", lambda rows, entry, count: honest(rows, entry, count - 1)
        )
    elif fault == "rows of values for keys":
        swapped = lambda rows, entry, count: honest(pool.Rows(rows.values, rows.keys), entry, count)  # noqa: E731
        monkeypatch.setattr(pool.Rows, "into", swapped)
    else:
        monkeypatch.setattr(pool.Mark, "of", staticmethod(stirred))
    served = put_on(subject("qwen3_5"), Asked("prompt_cache")).session
    told = served.board.positions["prompt_cache"]
    assert told.state == "declined" and "parity probe failed" in str(told.reason)
    assert served.pool is None
    with pytest.raises(SwitchRefused):
        put_on(subject("qwen3_5"), Asked("prompt_cache", required=True))


def stirred(cache: list[Any], length: int) -> pool.Mark:
    states = [kv.alias(one.state) if kv.is_state(one) else None for one in kv.parts(cache)]
    moved = [one and ([array + 1e-2 for array in one[0]], *one[1:]) for one in states]
    return pool.Mark(length, tuple(moved))


def test_a_cache_of_another_class_declines_with_its_name() -> None:
    caches = lm.caches()
    assert pool.cannot_hold([caches.CacheList(caches.KVCache(), caches.ArraysCache(2))]) is None
    told = pool.cannot_hold([caches.KVCache(), caches.ChunkedKVCache(8)])
    assert told == "the model's ChunkedKVCache cannot be kept for another request"


def test_it_is_off_unless_asked_for_and_can_be_killed() -> None:
    plain_one = subject("llama").session
    assert plain_one.pool is None and plain_one.board.positions["prompt_cache"].state == "off"
    board = Board(parse_asked(["prompt_cache"], []), {"SWITCHBOARD_PROMPT_CACHE": "0"})
    killed = Session(subject("llama").loaded, board, None, 0)
    assert killed.pool is None and board.positions["prompt_cache"].state == "off"


def test_rows_that_cannot_be_computed_are_given_up_and_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    served, prompt = session("llama"), text(0, 60)
    with monkeypatch.context() as patch:
        patch.setattr(pool.Rows, "of", Stop(0, RuntimeError("[malloc] no"), pool.Rows.of))
        first, _ = answer(served, prompt)
    assert served.board.positions["prompt_cache"].counter.more["lost"] == 1
    assert served.pool is not None and served.pool.told()["slots"] == 0
    assert answer(served, prompt) == (first, 0)
