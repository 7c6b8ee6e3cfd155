"""A drafter writes the target's greedy text, its text for a seed where coupled, its distribution where drawn."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from chances import answer, enumerated, p_value, session
from served import Engine

from switchboard import cache as kv
from switchboard import drafter
from switchboard.accept.ruling import Drawn
from switchboard.decode import Tally, forward
from switchboard.errors import ConfigError, Declined
from switchboard.registry import Counter, Target, known
from switchboard.sampler import Sampler, Sampling
from switchboard.sources import tiny
from switchboard.text import bytes_only

PROMPT = [5, 6, 7, 8, 300, 12, 5, 6]


def small(family: str = "llama", quantisation: str = "none") -> Any:
    return tiny.build(family, quantisation)[0]


def made(model: Any, layers: int = 2, draws: bool = False, depth: int = 3) -> drafter.Drafter:
    return drafter.Drafter(drafter.cut(model, layers), layers, depth, draws, Counter())


@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen3", "qwen3_moe", "qwen3_vl"])
@pytest.mark.parametrize("layers", [1, 3])
def test_a_cut_is_the_first_layers_under_the_same_head(family: str, layers: int) -> None:
    model = small(family)
    before = forward(model, kv.make(model), mx.array(PROMPT))
    part = drafter.cut(model, layers)
    assert len(part.layers) == layers and len(model.layers) == tiny.LAYERS
    assert all(one is other for one, other in zip(part.layers, model.layers, strict=False))
    rows = forward(part, drafter.fresh(part, layers), mx.array(PROMPT))
    # another model that was built alike and truly has no other layers
    inner = getattr(whole := small(family), "language_model", whole).model
    inner.layers = inner.layers[:layers]
    assert mx.array_equal(rows, forward(whole, kv.make(whole), mx.array(PROMPT)))
    assert not mx.array_equal(rows, before)
    assert mx.array_equal(before, forward(model, kv.make(model), mx.array(PROMPT)))


def test_a_cut_does_not_go_the_way_of_a_hook_on_the_whole() -> None:
    model = small()
    wanted = forward(drafter.cut(model, 2), drafter.fresh(model, 2), mx.array(PROMPT))
    original: Any = type(model)

    class Hooked(original):  # type: ignore[misc]
        def __call__(self, *given: Any, **more: Any) -> Any:
            raise RuntimeError("a graph of the whole model")

    Hooked.__name__, Hooked.__module__ = original.__name__, original.__module__
    model.__class__ = Hooked
    part = drafter.cut(model, 2)
    assert mx.array_equal(wanted, forward(part, drafter.fresh(part, 2), mx.array(PROMPT)))
    with pytest.raises(RuntimeError, match="whole model"):
        forward(model, kv.make(model), mx.array(PROMPT))


@pytest.mark.parametrize("layers", [0, 4, 9])
def test_a_cut_of_nothing_or_of_all_is_declined(layers: int) -> None:
    with pytest.raises(Declined, match="the model has 4; give 1 to 3"):
        drafter.cut(small(), layers)


def test_the_cache_agrees_with_the_text_whatever_stood() -> None:
    model, rng = small(), np.random.default_rng(4)
    guesser = made(model)
    guesser.begin(list(PROMPT))
    text = list(PROMPT)
    for stood in (0, 3, 1, 2, 0, 3):
        guesses = guesser.propose(3)
        wanted, cache = [], drafter.fresh(guesser._model, 2)
        feed = mx.array(text)
        for _ in range(3):
            feed = mx.argmax(forward(guesser._model, cache, feed)[-1:], axis=-1)
            wanted += feed.tolist()  # type: ignore[arg-type]
        assert guesses == wanted
        tokens = [*guesses[:stood], int(rng.integers(512))]
        guesser.extend(tokens)
        text += tokens


def test_a_draft_that_nobody_judged_is_taken_back_too() -> None:
    guesser = made(small())
    guesser.begin(list(PROMPT))
    first = guesser.propose(3)
    assert guesser.propose(2) == first[:2], "asked twice at the same place"
    guesser.extend([17])
    other = made(small())
    other.begin([*PROMPT, 17])
    assert guesser.propose(3) == other.propose(3)


def test_drawn_guesses_come_with_the_rows_that_they_were_drawn_from() -> None:
    model = small()
    guesser = made(model, draws=True)
    guesser.sample_with(Sampler(Sampling(top_k=5, temperature=0.7, seed=2), ()))
    guesser.begin(list(PROMPT))
    guesses = guesser.propose(3)
    assert isinstance(guesses, Drawn) and guesses.chances.shape == (3, 512)
    rows = np.array(guesses.chances)
    assert rows.sum(axis=1) == pytest.approx([1, 1, 1], abs=1e-5)
    assert ((rows > 0).sum(axis=1) == 5).all()
    assert all(rows[place, guess] > 0 for place, guess in enumerate(guesses))


def test_tokens_are_compared_one_by_one() -> None:
    text = bytes_only(512)
    assert drafter.differs(text, bytes_only(512)) is None
    assert "tokens and the target" in (drafter.differs(text, bytes_only(400)) or "")
    swapped = replace(text, token_bytes=lambda one: text.token_bytes(one ^ 1))
    assert "token 0 is" in (drafter.differs(text, swapped) or "")
    assert "texts end with" in (drafter.differs(text, replace(text, eos=(7,))) or "")
    other = replace(text, encode=lambda words: text.encode(words)[::-1])
    assert "other tokens" in (drafter.differs(text, other) or "")


def test_a_model_that_cannot_guess_is_declined_with_the_reason() -> None:
    target = small()
    assert drafter.unfit(target, drafter.cut(target, 2), 2) is None
    hybrid = small("qwen3_5")
    assert "cannot give" in (drafter.unfit(hybrid, drafter.cut(hybrid, 2), 2) or "")
    narrow = tiny.CONFIGS["llama"] | {"vocab_size": 500}
    from switchboard import lm

    assert "scores 500 tokens" in (drafter.unfit(target, lm.build(copy.deepcopy(narrow)), 4) or "")


@pytest.mark.parametrize("name", ["synthetic:tiny-llama", "synthetic:tiny-qwen3"])
def test_another_model_of_the_same_tokens_guesses_too(name: str) -> None:
    switch = known()["draft_model"]
    options = switch.parse({"model": name, "depth": "2"})
    proposer = switch.apply(options, Counter(), Target(small(), bytes_only(512)))
    proposer.begin(list(PROMPT))
    assert len(proposer.propose(5)) == 2
    with pytest.raises(Declined, match="another tokenizer: it has 512 tokens and the target 400"):
        switch.apply(options, Counter(), Target(small(), bytes_only(400)))


EXACT = ("fused_qkv", "fused_gate_up", "shared_rotary", "in_place_kv")


@pytest.mark.parametrize("model", ["tiny-llama", "tiny-qwen3", "tiny-qwen3_moe", "tiny-llama-q4"])
def test_a_greedy_text_and_a_coupled_one_are_the_plain_loops(model: str) -> None:
    named = f"synthetic:{model}"
    plain, tallies = session(model=named), []
    for draft in ("draft_model:layers=3", "draft_model:layers=2,coupled=false,depth=5"):
        one = session(*EXACT, draft, model=named)
        assert one.board.positions["draft_model"].on
        for temperature in (0.0, 0.8) if "coupled" not in draft else (0.0,):
            asked = Sampling(temperature=temperature, top_k=40, seed=6, ignore_eos=True)
            tallies.append(Tally())
            text = answer(one, PROMPT, asked, 40, tallies[-1])
            assert text == answer(plain, PROMPT, asked, 40)
            assert tallies[-1].proposed > 15
    proposed = sum(tally.proposed for tally in tallies)
    assert 0 < sum(tally.accepted for tally in tallies) < proposed


FEW: dict[str, Any] = {
    "top_k": 3, "logit_bias": dict.fromkeys((10, 11, 12), 60.0), "ignore_eos": True
}  # fmt: skip


@pytest.mark.parametrize("law", [None, "block_verify"])
def test_a_drawn_draft_keeps_the_models_distribution(law: str | None) -> None:
    switches = ["draft_model:layers=2,coupled=false", *([law] if law else [])]
    one = session(*switches)
    assert one.board.acceptance()["law"] == (law or "exact")
    chances = enumerated(one, PROMPT, Sampling(**FEW), 5)
    counts: dict[tuple[int, ...], int] = {}
    tally = Tally()
    for seed in range(160):
        text = answer(one, PROMPT, Sampling(**FEW, seed=seed), 5, tally)
        counts[text] = counts.get(text, 0) + 1
    assert 0.2 < tally.accepted / tally.proposed < 0.95
    by_end: dict[tuple[int, ...], float] = {}
    seen: dict[tuple[int, ...], int] = {}
    # the tokens that drafts had a part in, as 160 texts are few for 243 classes
    for text, chance in chances.items():
        by_end[text[2:]] = by_end.get(text[2:], 0.0) + chance
        seen[text[2:]] = seen.get(text[2:], 0) + counts.get(text, 0)
    assert p_value({text: count for text, count in seen.items() if count}, by_end) > 1e-3


def test_served_drafts_tell_what_they_are(shared: Callable[..., Engine]) -> None:
    flags = ("--model", "synthetic:tiny-llama", "--switch")
    body = {"max_tokens": 24, "temperature": 1.0, "top_k": 5, "ignore_eos": True, "seed": 3}
    coupled = shared(*flags, "draft_model:layers=2")
    plain = shared("--model", "synthetic:tiny-llama")
    told = coupled.complete(PROMPT, **body)
    assert told["choices"] == plain.complete(PROMPT, **body)["choices"]
    switch = coupled.switch("draft_model")
    assert (switch["state"], switch["exactness"]) == ("engaged", "rounding")
    assert switch["counters"]["proposed"] == told["timings"]["proposed"] > 0
    drawn = shared(
        *flags, "draft_model:layers=2,coupled=false", "--switch", "cascade:alpha=0,rule=peak"
    )
    assert drawn.health()["acceptance"]["options"] == {"alpha": 0.0, "rule": "peak"}
    assert drawn.switch("draft_model")["exactness"] == "redrawn"
    assert drawn.complete(PROMPT, **body)["timings"]["accepted"] > 0
    assert drawn.switch("cascade")["state"] == "engaged"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("draft_model:layers=4", "the model has 4; give 1 to 3"),
        ("draft_model:layers=2,model=smollm2-135m", "not both"),
        ("draft_model:depth=0", "depth must be"),
        ("draft_model:model=synthetic:tiny-qwen2", None),
    ],
)
def test_what_cannot_guess_stays_off(text: str, says: str | None) -> None:
    if says is None:
        assert session(text).board.positions["draft_model"].state == "armed"
    elif "not both" in says or "depth" in says:
        with pytest.raises(ConfigError, match=says):
            session(text)
    else:
        position = session(text).board.positions["draft_model"]
        assert position.state == "declined" and says in (position.reason or "")
