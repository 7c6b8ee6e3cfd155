"""The model's own head writes the plain loop's text; what it knows is accepted, and where it is wrong nothing is."""

from __future__ import annotations

from collections.abc import Callable

import mlx.core as mx
import pytest
import taught
from chances import answer
from headed import ASKED, DRAWN, GREEDY, LONG, PROMPT, opened, proposer

from switchboard import cache as kv
from switchboard import lm
from switchboard.bisect.matrix import Model, climb_all
from switchboard.bisect.rungs import Plan
from switchboard.config import Asked
from switchboard.decode import Tally, plain, prefill
from switchboard.mtp.foresight import Foresight
from switchboard.mtp.head import Ends
from switchboard.mtp.trail import tap
from switchboard.registry import Counter
from switchboard.sampler import Sampler
from switchboard.sources import tiny
from switchboard.speculate import verified


@pytest.mark.parametrize(
    ("family", "kind", "raw"),
    [("qwen3_5", "none", True), ("qwen3_5", "mixed", False), ("qwen3_5_moe", "none", False)],
)
def test_with_random_heads_every_text_is_the_plain_loops(
    headed: Callable[..., str], family: str, kind: str, raw: bool
) -> None:
    name = headed(family, kind, raw)
    alone = opened(name)
    wanted = [answer(alone, prompt, sampling, 16) for prompt, sampling in ASKED]
    for switches in (
        ["native_mtp"],
        ["native_mtp:depth=3", "fused_qkv", "shared_rotary", "in_place_kv"],
    ):
        one = opened(name, *switches)
        for text, (prompt, sampling) in zip(wanted, ASKED, strict=True):
            tally = Tally()
            assert answer(one, prompt, sampling, 16, tally) == text
            assert tally.proposed >= 12
            assert one.board.positions["native_mtp"].state == "engaged"


NEXT = {
    **tiny.CONFIGS["qwen3_5_moe"]["text_config"],
    "model_type": "qwen3_next",
    "partial_rotary_factor": 0.25,
}


def test_qwen3_next_has_heads_of_the_same_kind() -> None:
    mx.random.seed(2)
    model = lm.build(dict(NEXT))
    model.eval()
    ends, prompt = Ends(model), LONG[:20]
    texts, tally = list[list[int]](), Tally()
    for depth in (0, 2):
        entries, sampler = kv.make(model), Sampler(DRAWN, ())
        if depth:
            head = tiny.heads(model, "none")
            made = Foresight(head, ends, depth, False, Counter())
            tap(ends.inner, made.heard)
            made.sample_with(sampler)
        prefill(model, entries, prompt, 8, Tally(), lambda: None)
        if depth:
            made.begin(list(prompt))
            stream = verified(model, entries, prompt[-1], sampler, made, 12, tally)
        else:
            stream = plain(model, entries, prompt[-1], sampler, 12)
        texts.append([token for tokens in stream for token in tokens])
    assert texts[0] == texts[1]
    assert tally.proposed >= 12


@pytest.mark.parametrize("switches", [(), ("in_place_kv",), ("prompt_cache:least=8",)])
def test_with_a_head_that_is_often_right_too(
    counting: Callable[..., str], switches: tuple[str, ...]
) -> None:
    name = counting("both", 0.12, 0.3)
    alone, tally = opened(name), Tally()
    one = opened(name, "native_mtp:depth=3", *switches)
    for prompt, sampling in [*ASKED, ([*LONG, 4, 9], GREEDY), (LONG[:140], DRAWN)]:
        text = answer(one, prompt, sampling, 24, tally)
        assert text == answer(alone, prompt, sampling, 24)
    assert 0.2 < tally.accepted / tally.proposed < 0.9, "some stand, some fall"
    assert len(tally.accepted_by_depth) == 3
    counters = one.board.positions["native_mtp"].counter.told()
    assert (counters["proposed"], counters["accepted"]) == (tally.proposed, tally.accepted)


def test_drawn_guesses_leave_the_greedy_text_as_it_is(
    counting: Callable[..., str],
) -> None:
    name = counting("both", 0.12, 0.3)
    one = opened(name, "native_mtp:depth=3,coupled=false", "block_verify")
    assert one.board.positions["native_mtp"].told()["exactness"] == "redrawn"
    assert answer(one, PROMPT, GREEDY, 30) == answer(opened(name), PROMPT, GREEDY, 30)
    tally = Tally()
    answer(one, LONG, DRAWN, 60, tally)
    assert 0 < tally.accepted < tally.proposed


def test_counting_is_what_the_counting_model_does() -> None:
    model, _, _ = taught.counting()
    logits = model(mx.array([PROMPT]))[0]
    following = [(one + taught.STEP) % 512 for one in PROMPT]
    assert mx.argmax(logits, axis=-1).tolist() == following


@pytest.mark.parametrize("way", list(taught.WAYS))
@pytest.mark.parametrize("depth", [1, 3])
def test_what_a_head_knows_is_accepted_whole(
    counting: Callable[..., str], way: str, depth: int
) -> None:
    one, tally = opened(counting(way), f"native_mtp:depth={depth}"), Tally()
    text = answer(one, LONG, GREEDY, 41, tally)
    first = (LONG[-1] + taught.STEP) % 512
    assert text == tuple((first + taught.STEP * place) % 512 for place in range(41))
    assert tally.proposed == tally.accepted > 15
    assert len(tally.accepted_by_depth) == depth


def late(made: Foresight, place: int, ids: mx.array, hidden: mx.array) -> mx.array:
    """The hidden state of the place before, and none of the first."""
    return mx.concatenate([0 * hidden[:, :1], hidden[:, :-1]], axis=1)


def before_the_norm(made: Foresight, place: int, ids: mx.array, hidden: mx.array) -> mx.array:
    """What the final norm was given, up to its length."""
    return hidden / made._ends.inner.norm.weight


def its_embedding(made: Foresight, place: int, ids: mx.array, hidden: mx.array) -> mx.array:
    """What the token was to the first layer, in the place of what the layers and the norm made of it."""
    return made._ends.embed(ids)


FAULTS = (late, before_the_norm, its_embedding)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_head_that_is_fed_the_wrong_state_is_not_believed(
    counting: Callable[..., str], monkeypatch: pytest.MonkeyPatch, fault: Callable[..., mx.array]
) -> None:
    heard = Foresight.heard
    monkeypatch.setattr(
        Foresight,
        "heard",
        lambda made, place, ids, hidden: heard(made, place, ids, fault(made, place, ids, hidden)),
    )
    name, tally = counting("hidden state"), Tally()
    one = opened(name, "native_mtp:depth=2")
    assert answer(one, LONG, GREEDY, 41, tally) == answer(opened(name), LONG, GREEDY, 41)
    assert tally.proposed > 60
    assert tally.accepted <= 0.05 * tally.proposed


def test_halves_of_fc_the_wrong_way_around_are_not_believed(
    counting: Callable[..., str],
) -> None:
    one, tally = opened(counting("hidden state"), "native_mtp"), Tally()
    fc = proposer(one)._head.fc
    fc.weight = mx.concatenate([fc.weight[:, 64:], fc.weight[:, :64]], axis=1)
    text = answer(one, LONG, GREEDY, 41, tally)
    assert text == answer(opened(counting("hidden state")), LONG, GREEDY, 41)
    assert tally.accepted <= 0.05 * tally.proposed


def test_norms_that_are_read_the_wrong_way_are_not_believed(counting: Callable[..., str]) -> None:
    """As they were published, the norms of this head are zeros: offsets from one."""
    name = counting("hidden state", raw=True)
    texts = set()
    for norms, least, most in (("auto", 1.0, 1.0), ("offset", 1.0, 1.0), ("whole", 0.0, 0.05)):
        one, tally = opened(name, f"native_mtp:norms={norms}"), Tally()
        texts.add(answer(one, LONG, GREEDY, 30, tally))
        assert least <= tally.accepted / tally.proposed <= most
    assert len(texts) == 1


@pytest.mark.parametrize(("family", "kind"), [("qwen3_5", "none"), ("qwen3_5_moe", "mixed")])
def test_it_climbs_the_ladder(headed: Callable[..., str], family: str, kind: str) -> None:
    model = Model(headed(family, kind), "auto" if kind == "none" else "quantized")
    asked = [Asked("native_mtp", {"depth": "3"})]
    (found,) = climb_all([model], asked, Plan(1, 6, (1, 6)), lambda one: None)
    assert found.declined is None
    assert {one.verdict for one in found.outcomes} <= {"passed", "not applicable"}
    assert found.count("passed") >= 4
