"""The head's cache keeps step with the text, whatever stood of its guesses; the tap hears every pass, changing none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mlx.core as mx
import pytest
from chances import answer
from headed import DRAWN, GREEDY, LONG, PROMPT, opened, proposer
from hypothesis import given, settings
from hypothesis import strategies as st

from switchboard import cache as kv
from switchboard import lm
from switchboard.accept.ruling import Drawn
from switchboard.decode import Tally, forward
from switchboard.mtp.foresight import Foresight
from switchboard.mtp.trail import Trail, tap
from switchboard.sampler import Sampler
from switchboard.session import Session
from switchboard.sources import tiny


def hear(one: Session, prompt: list[int]) -> list[Any]:
    """Let the proposer hear a prompt as the session reads it, the last token with it; the target's cache."""
    cache, made = kv.make(one.loaded.model), proposer(one)
    for place in range(0, len(prompt) - 1, 128):
        piece = prompt[place : min(place + 128, len(prompt) - 1)]
        mx.eval(forward(one.loaded.model, cache, mx.array(piece)))
    made.begin(list(prompt))
    forward(one.loaded.model, cache, mx.array(prompt[-1:]))
    made.extend([9])
    return cache


def afresh(one: Session, text: list[int], depth: int) -> list[int]:
    """Guesses after a text by the formula alone: all of it at once, no cache kept."""
    made, model = proposer(one), one.loaded.model
    states = model.language_model.model(mx.array([text]), kv.make(model))[:, :-1]
    ids, guesses = list(text[1:]), list[int]()
    for _ in range(depth):
        foreseen = made._head(made._ends.embed(mx.array(ids)), states, lm.caches().KVCache())
        guesses.append(int(mx.argmax(made._ends.logits(foreseen)[-1]).item()))
        states = mx.concatenate([states, foreseen[:, -1:]], axis=1)
        ids.append(guesses[-1])
    return guesses


def followed(one: Session, prompt: list[int]) -> list[tuple[list[int], list[int]]]:
    """Guesses beside those made afresh, while drafts stand whole, in part and not at all."""
    made, text, seen = proposer(one), [*prompt, 9], []
    cache = hear(one, prompt)
    for turn, stood in enumerate((0, 3, 1, 2, 0, 3, 3, 1)):
        guesses = made.propose(3)
        seen.append((guesses, afresh_quietly(one, text)))
        before, fed = kv.Checkpoint(cache), [text[-1], *guesses]
        forward(one.loaded.model, cache, mx.array(fed))
        before.keep(one.loaded.model, fed, 1 + stood)
        made.judged(3, stood)
        tokens = [*guesses[:stood], (31 * turn) % 512]
        made.extend(tokens)
        text += tokens
    return seen


def afresh_quietly(one: Session, text: list[int]) -> list[int]:
    """The same, without the proposer's hearing of it."""
    inner = one.loaded.model.language_model.model
    kind = type(inner)
    inner.__class__ = kind.__base__
    try:
        return afresh(one, text, 3)
    finally:
        inner.__class__ = kind


@pytest.mark.parametrize("family", ["qwen3_5", "qwen3_5_moe"])
@pytest.mark.parametrize("prompt", [PROMPT, LONG], ids=["short", "long"])
def test_the_heads_cache_agrees_with_the_text_whatever_stood(
    headed: Callable[..., str], family: str, prompt: list[int]
) -> None:
    one = opened(headed(family), "native_mtp:depth=3")
    for guesses, wanted in followed(one, prompt):
        assert guesses == wanted


def test_guesses_that_are_left_in_the_cache_are_seen(
    headed: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def kept(made: Foresight, place: int) -> None:
        made._guesses = 0

    monkeypatch.setattr(Foresight, "_take_back", kept)
    one = opened(headed("qwen3_5"), "native_mtp:depth=3")
    assert any(guesses != wanted for guesses, wanted in followed(one, PROMPT))


def test_a_second_reading_of_accepted_tokens_is_not_waited_for(
    headed: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    noted, note = list[tuple[int, int]](), Trail.note

    def seen(trail: Trail, place: int, ids: mx.array, hidden: mx.array) -> bool:
        noted.append((place, int(ids.shape[0])))
        return note(trail, place, ids, hidden)

    monkeypatch.setattr(Trail, "note", seen)
    followed(opened(headed("qwen3_5"), "native_mtp:depth=3"), PROMPT)
    # the prompt and its last token, then a pass of four a turn, each from where the text ended
    assert noted[:4] == [(0, 7), (7, 1), (8, 4), (9, 4)]
    assert [count for _, count in noted[2:]] == [4] * 8


def test_asked_twice_at_one_place_it_says_the_same(headed: Callable[..., str]) -> None:
    one = opened(headed("qwen3_5"), "native_mtp:depth=3")
    hear(one, LONG)
    first = proposer(one).propose(3)
    assert proposer(one).propose(2) == first[:2]
    assert proposer(one).propose(3) == first


def test_another_text_than_was_heard_is_not_taken_for_its_beginning(
    headed: Callable[..., str],
) -> None:
    one = opened(headed("qwen3_5"), "native_mtp")
    made, cache = proposer(one), kv.make(one.loaded.model)
    forward(one.loaded.model, cache, mx.array(LONG[:150]))
    made.begin([*LONG[:149], 1, 2])
    assert made._cache.offset == 0 and len(made._trail) == 0
    forward(one.loaded.model, cache, mx.array([2]))
    made.extend([3])
    assert len(made.propose(1)) == 1, "it begins where it hears something"
    made.begin([])
    assert made._cache.offset == 0


def test_of_a_prompt_that_was_taken_up_only_the_rest_is_heard(headed: Callable[..., str]) -> None:
    one = opened(headed("qwen3_5"), "native_mtp", "prompt_cache:least=8")
    answer(one, LONG, GREEDY, 4)
    stream = one.generate([*LONG, 7, 8, 9], GREEDY, 12, Tally(), lambda: None)
    next(stream)
    next(stream)
    assert proposer(one)._first >= len(LONG) - 1
    list(stream)
    assert proposer(one)._cache.offset == 0, "nothing of a text lives on"


@settings(max_examples=80, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from("ncd"), st.integers(0, 12), st.integers(1, 5)), max_size=25)
)
def test_a_trail_is_a_table_of_places(steps: list[tuple[str, int, int]]) -> None:
    trail, table, first, end, told = Trail(), dict[int, int](), 0, 0, 0
    for kind, place, count in steps:
        if kind == "n":
            ids = list(range(told, told := told + count))
            joins = trail.note(place, mx.array(ids), mx.array(ids)[None, :, None])
            assert joins == (first <= place <= end)
            table = {at: one for at, one in table.items() if joins and at < place}
            first = first if joins else place
            table |= {place + at: one for at, one in enumerate(ids)}
            end = place + count
        elif kind == "c":
            trail.cut(place)
            end = min(end, max(place, first))
        else:
            trail.drop(place)
            first = max(first, min(place, end))
        table = {at: one for at, one in table.items() if first <= at < end}
        assert (trail.first, trail.end, len(trail)) == (first, end, end - first)
        if table:
            wanted = [table[at] for at in range(first, end)]
            assert trail.ids(first, end).tolist() == wanted
            assert trail.hidden(first, end)[0, :, 0].tolist() == wanted


def test_a_tap_changes_no_bit_and_comes_off() -> None:
    model, _ = tiny.build("qwen3_5", "none")
    inner, seen = model.language_model.model, list[tuple[int, list[int]]]()
    kind = type(inner)

    def passes() -> list[mx.array]:
        entries = kv.make(model)
        return [model(mx.array([piece]), cache=entries) for piece in (PROMPT, [4], [5, 6])]

    wanted = passes()
    undo = tap(inner, lambda place, ids, _: seen.append((place, ids.tolist())))  # type: ignore[arg-type]
    found = passes()
    model(mx.array([PROMPT]))
    undo()
    passes()
    assert all(mx.array_equal(one, other) for one, other in zip(wanted, found, strict=True))
    assert seen == [(0, PROMPT), (8, [4]), (9, [5, 6])]
    assert type(inner) is kind


def test_drawn_guesses_bring_the_chances_that_they_were_drawn_with(
    headed: Callable[..., str],
) -> None:
    one = opened(headed("qwen3_5"), "native_mtp:depth=3,coupled=false")
    made = proposer(one)
    made.sample_with(Sampler(DRAWN, ()))
    hear(one, PROMPT)
    guesses = made.propose(3)
    assert isinstance(guesses, Drawn) and guesses.chances.shape == (3, 512)
    rows = guesses.chances
    assert mx.allclose(rows.sum(axis=1), mx.ones(3), atol=1e-5).item()
    assert all(rows[place, guess].item() > 0 for place, guess in enumerate(guesses))
