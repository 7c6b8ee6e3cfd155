"""The model's own head: read in every form, in step with the text, believed only where the model says the same."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import mlx.core as mx
import published
import pytest
import taught
from chances import answer, session
from hypothesis import given, settings
from hypothesis import strategies as st

from switchboard import cache as kv
from switchboard import lm
from switchboard.accept.ruling import Drawn
from switchboard.bisect.matrix import Model, climb_all
from switchboard.bisect.rungs import Plan
from switchboard.board import Board
from switchboard.config import Asked, Config, parse_asked
from switchboard.decode import Tally, forward
from switchboard.errors import ConfigError, SwitchRefused
from switchboard.load import load
from switchboard.models import resolve
from switchboard.mtp import foresight
from switchboard.mtp.trail import Trail, tap
from switchboard.registry import Counter
from switchboard.sampler import Sampler, Sampling
from switchboard.session import Session, open_session
from switchboard.sources import tiny

PROMPT = [5, 6, 7, 8, 300, 12, 5, 6]
LONG = [(7 * place + place // 3) % 512 for place in range(150)]
GREEDY = Sampling(temperature=0.0, ignore_eos=True)
DRAWN = Sampling(temperature=0.9, top_k=40, seed=6, ignore_eos=True)
ASKED = [(prompt, sampling) for prompt in (PROMPT, LONG) for sampling in (GREEDY, DRAWN)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., str]:
    """Checkpoints with heads, each written once; their names."""

    @cache
    def written(family: str, kind: str = "none", raw: bool = False) -> str:
        place = tmp_path_factory.mktemp(family)
        published.with_heads(place, family, kind, raw=raw)
        return f"path:{place}"

    return written


@pytest.fixture(scope="module")
def counting(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., str]:
    """Models that count, with heads that know it, written once each; their names."""

    @cache
    def written(way: str = "hidden state", noise: float = 0.0, alive: float = 0.0) -> str:
        place = tmp_path_factory.mktemp("counting")
        published.write(place, *taught.counting(way, noise, alive))
        return f"path:{place}"

    return written


def opened(name: str, *switches: str, format: str = "auto") -> Session:
    asked = parse_asked([], list(switches))
    return open_session(Config(name, format=format, asked=asked), resolve(name), Board(asked, {}))


def proposer(one: Session) -> foresight.Foresight:
    made = one.proposer
    assert isinstance(made, foresight.Foresight)
    return made


# reading


@pytest.mark.parametrize("family", ["qwen3_5", "qwen3_5_moe"])
def test_published_and_converted_heads_are_the_same_numbers(
    folder: Callable[..., str], family: str
) -> None:
    model, _ = tiny.build(family, "none")
    wanted = published.flat(tiny.heads(model, "none"))
    for raw in (True, False):
        one = opened(folder(family, "none", raw), "native_mtp")
        found = published.flat(proposer(one)._head)
        assert set(found) == set(wanted)
        assert [name for name in wanted if not mx.array_equal(found[name], wanted[name])] == []
        ids = mx.array([PROMPT])
        assert mx.array_equal(one.loaded.model(ids), model(ids))


def test_experts_that_are_stored_one_by_one_are_stacked(
    folder: Callable[..., str], tmp_path: Path
) -> None:
    whole = Path(folder("qwen3_5_moe", "none", True).removeprefix("path:"))
    stored = dict(mx.load(str(whole / "model.safetensors")))  # type: ignore[arg-type]
    heads = {name: one for name, one in stored.items() if name.startswith("mtp.")}
    joint = heads.pop("mtp.layers.0.mlp.experts.gate_up_proj")
    down = heads.pop("mtp.layers.0.mlp.experts.down_proj")
    for expert in range(joint.shape[0]):
        stem, half = f"mtp.layers.0.mlp.experts.{expert}", joint.shape[1] // 2
        heads[f"{stem}.gate_proj.weight"] = joint[expert, :half]
        heads[f"{stem}.up_proj.weight"] = joint[expert, half:]
        heads[f"{stem}.down_proj.weight"] = down[expert]
    mx.save_safetensors(str(tmp_path / "heads.safetensors"), heads)
    apart = f"native_mtp:heads={tmp_path / 'heads.safetensors'},norms=offset"
    one = opened(folder("qwen3_5_moe", "none", True), "native_mtp")
    other = opened(folder("qwen3_5_moe", "none", True), apart)
    wanted, found = (published.flat(proposer(each)._head) for each in (one, other))
    assert set(found) == set(wanted)
    assert [name for name in wanted if not mx.array_equal(found[name], wanted[name])] == []


@pytest.mark.parametrize("family", ["qwen3_5", "qwen3_5_moe"])
def test_packed_heads_stay_as_stored_or_become_plain_with_the_model(
    folder: Callable[..., str], family: str
) -> None:
    name = folder(family, "mixed")
    packed = opened(name, "native_mtp", format="quantized")
    kept = published.quantisation(proposer(packed)._head)
    stored = published.quantisation(tiny.heads(tiny.build(family, "mixed")[0], "mixed"))
    assert kept == stored and {one["bits"] for one in kept.values()} == {4, 8}
    plain = opened(name, "native_mtp", format="float32")
    assert published.quantisation(proposer(plain)._head) == {}
    texts = {answer(one, PROMPT, GREEDY, 20) for one in (packed, opened(name, format="quantized"))}
    assert len(texts) == 1


def test_plain_heads_stay_plain_beside_a_packed_model(
    folder: Callable[..., str], tmp_path: Path
) -> None:
    place = folder("qwen3_5").removeprefix("path:")
    one = opened("synthetic:tiny-qwen3_5-q4", f"native_mtp:heads={place}", format="quantized")
    assert published.quantisation(proposer(one)._head) == {}
    plain = opened("synthetic:tiny-qwen3_5-q4", format="quantized")
    assert answer(one, PROMPT, GREEDY, 20) == answer(plain, PROMPT, GREEDY, 20)


# the text


@pytest.mark.parametrize(
    ("family", "kind", "raw"),
    [("qwen3_5", "none", True), ("qwen3_5", "mixed", False), ("qwen3_5_moe", "none", False)],
)
def test_with_random_heads_every_text_is_the_plain_loops(
    folder: Callable[..., str], family: str, kind: str, raw: bool
) -> None:
    name = folder(family, kind, raw)
    plain = opened(name)
    wanted = [answer(plain, prompt, sampling, 16) for prompt, sampling in ASKED]
    for switches in (["native_mtp"], ["native_mtp:depth=3", "fused_qkv", "in_place_kv"]):
        one = opened(name, *switches)
        for text, (prompt, sampling) in zip(wanted, ASKED, strict=True):
            tally = Tally()
            assert answer(one, prompt, sampling, 16, tally) == text
            assert tally.proposed >= 12
            assert one.board.positions["native_mtp"].state == "engaged"


@pytest.mark.parametrize("switches", [(), ("in_place_kv",), ("prompt_cache:least=8",)])
def test_with_a_head_that_is_often_right_too(
    counting: Callable[..., str], switches: tuple[str, ...]
) -> None:
    name = counting("both", 0.12, 0.3)
    plain, tally = opened(name), Tally()
    one = opened(name, "native_mtp:depth=3", *switches)
    for prompt, sampling in [*ASKED, ([*LONG, 4, 9], GREEDY), (LONG[:140], DRAWN)]:
        text = answer(one, prompt, sampling, 24, tally)
        assert text == answer(plain, prompt, sampling, 24)
    assert 0.2 < tally.accepted / tally.proposed < 0.9, "some stand, some fall"
    assert len(tally.accepted_by_depth) == 3
    counters = one.board.positions["native_mtp"].counter.told()
    assert (counters["proposed"], counters["accepted"]) == (tally.proposed, tally.accepted)


def test_drawn_guesses_bring_their_chances_and_the_greedy_text_is_the_same(
    counting: Callable[..., str],
) -> None:
    name = counting("both", 0.12, 0.3)
    one = opened(name, "native_mtp:depth=3,coupled=false", "block_verify")
    assert one.board.positions["native_mtp"].told()["exactness"] == "redrawn"
    assert answer(one, PROMPT, GREEDY, 30) == answer(opened(name), PROMPT, GREEDY, 30)
    tally = Tally()
    answer(one, LONG, DRAWN, 60, tally)
    assert 0 < tally.accepted < tally.proposed
    made = proposer(one)
    made.sample_with(Sampler(DRAWN, ()))
    _read(one, PROMPT)
    guesses = made.propose(3)
    assert isinstance(guesses, Drawn) and guesses.chances.shape == (3, 512)
    rows = guesses.chances
    assert mx.allclose(rows.sum(axis=1), mx.ones(3), atol=1e-5).item()
    assert all(rows[place, guess].item() > 0 for place, guess in enumerate(guesses))


# acceptance


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
    assert (
        tally.bonus == tally.proposed / depth if depth == 1 else len(tally.accepted_by_depth) == 3
    )


def late(made: Any, place: int, ids: mx.array, hidden: mx.array) -> mx.array:
    """The hidden state of the place before, and none of the first."""
    return mx.concatenate([0 * hidden[:, :1], hidden[:, :-1]], axis=1)


def before_the_norm(made: Any, place: int, ids: mx.array, hidden: mx.array) -> mx.array:
    """What the final norm was given, up to its length."""
    return hidden / made._ends.inner.norm.weight


def of_the_next(made: Any, place: int, ids: mx.array, hidden: mx.array) -> mx.array:
    """What the embedding of the token says, in the place of what the layers made of it."""
    return made._ends.embed(ids)


FAULTS = (late, before_the_norm, of_the_next)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_head_that_is_fed_the_wrong_state_is_not_believed(
    counting: Callable[..., str], monkeypatch: pytest.MonkeyPatch, fault: Callable[..., mx.array]
) -> None:
    heard = foresight.Foresight.heard
    monkeypatch.setattr(
        foresight.Foresight,
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


# in step


def _read(one: Session, prompt: list[int]) -> list[Any]:
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
    cache = _read(one, prompt)
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
    folder: Callable[..., str], family: str, prompt: list[int]
) -> None:
    one = opened(folder(family), "native_mtp:depth=3")
    for guesses, wanted in followed(one, prompt):
        assert guesses == wanted


def test_guesses_that_are_left_in_the_cache_are_seen(
    folder: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def kept(made: foresight.Foresight, place: int) -> None:
        made._guesses = 0

    monkeypatch.setattr(foresight.Foresight, "_take_back", kept)
    one = opened(folder("qwen3_5"), "native_mtp:depth=3")
    assert any(guesses != wanted for guesses, wanted in followed(one, PROMPT))


def test_asked_twice_at_one_place_it_says_the_same(folder: Callable[..., str]) -> None:
    one = opened(folder("qwen3_5"), "native_mtp:depth=3")
    _read(one, LONG)
    first = proposer(one).propose(3)
    assert proposer(one).propose(2) == first[:2]
    assert proposer(one).propose(3) == first


def test_another_text_than_was_heard_is_not_taken_for_its_beginning(
    folder: Callable[..., str],
) -> None:
    one = opened(folder("qwen3_5"), "native_mtp")
    made, cache = proposer(one), kv.make(one.loaded.model)
    forward(one.loaded.model, cache, mx.array(LONG[:150]))
    made.begin([*LONG[:149], 1, 2])
    assert made._cache.offset == 0 and len(made._trail) == 0
    forward(one.loaded.model, cache, mx.array([2]))
    made.extend([3])
    assert len(made.propose(1)) == 1, "it begins where it hears something"
    made.begin([])
    assert made._cache.offset == 0


def test_of_a_prompt_that_was_taken_up_only_the_rest_is_heard(folder: Callable[..., str]) -> None:
    one = opened(folder("qwen3_5"), "native_mtp", "prompt_cache:least=8")
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


# declines


def declined(name: str, text: str = "native_mtp") -> str:
    one = session(text, model=name)
    position = one.board.positions["native_mtp"]
    assert position.state == "declined" and one.proposer is None
    return position.reason or ""


def test_where_there_are_no_heads_it_says_so_or_refuses(
    folder: Callable[..., str], tmp_path: Path
) -> None:
    assert "random: there is no checkpoint" in declined("synthetic:tiny-qwen3_5")
    model, config = tiny.build("qwen3_5", "none")
    published.write(tmp_path, model, config)
    assert "no mtp.* tensors in" in declined(f"path:{tmp_path}")
    with pytest.raises(SwitchRefused, match=r"required and was declined.*no mtp\.\* tensors"):
        opened(f"path:{tmp_path}", "native_mtp")
    heads = folder("qwen3_5").removeprefix("path:")
    assert "no head is known for llama" in declined(
        "synthetic:tiny-llama", f"native_mtp:heads={heads}"
    )
    (tmp_path / "empty").mkdir()
    assert "no *.safetensors in" in declined(
        "synthetic:tiny-qwen3_5", f"native_mtp:heads={tmp_path / 'empty'}"
    )
    assert "no such file" in declined("synthetic:tiny-qwen3_5", "native_mtp:heads=nowhere")
    (tmp_path / "torn.safetensors").write_bytes(b"torn")
    assert "cannot be read" in declined(
        "synthetic:tiny-qwen3_5", f"native_mtp:heads={tmp_path / 'torn.safetensors'}"
    )
    with pytest.raises(ConfigError, match="depth must be 1 to 64"):
        session("native_mtp:depth=0")
    with pytest.raises(ConfigError, match="norms"):
        session("native_mtp:norms=other")


@pytest.mark.model
def test_smollm2_has_none() -> None:
    assert "no multi-token heads: no mtp.* tensors in" in declined("smollm2-135m")


def test_heads_that_do_not_fit_are_named(folder: Callable[..., str], tmp_path: Path) -> None:
    place = Path(folder("qwen3_5").removeprefix("path:"))
    stored = dict(mx.load(str(place / "model.safetensors")))  # type: ignore[arg-type]
    heads = {name: one for name, one in stored.items() if ".mtp." in name}
    fc = "language_model.mtp.fc.weight"
    second = {name.replace(".0.", ".1."): one for name, one in heads.items()}
    cases = {
        "one more of": heads | {"language_model.mtp.embed_tokens.weight": mx.ones((512, 64))},
        "Missing": {name: one for name, one in heads.items() if name != fc},
        "shape": heads | {fc: mx.ones((64, 64))},
        "layers 0, 1": heads | second,
        "not numbers": heads | {fc: heads[fc] * mx.nan},
    }
    words = {"one more of": "embed_tokens", "Missing": "fc.weight"}
    for number, (case, weights) in enumerate(cases.items()):
        path = tmp_path / f"{number}.safetensors"
        mx.save_safetensors(str(path), weights)
        told = declined("synthetic:tiny-qwen3_5", f"native_mtp:norms=whole,heads={path}")
        assert words.get(case, case) in told, (case, told)
        assert "say it: norms=offset" in declined(
            "synthetic:tiny-qwen3_5", f"native_mtp:heads={path}"
        )


def test_a_model_with_heads_loads_plain_without_the_switch(folder: Callable[..., str]) -> None:
    loaded = load(resolve(folder("qwen3_5")), "auto", Board((), {}))
    model, _ = tiny.build("qwen3_5", "none")
    assert mx.array_equal(loaded.model(mx.array([PROMPT])), model(mx.array([PROMPT])))
    assert loaded.parameters == sum(one.size for one in published.flat(model).values())


@pytest.mark.parametrize(("family", "kind"), [("qwen3_5", "none"), ("qwen3_5_moe", "mixed")])
def test_it_climbs_the_ladder(folder: Callable[..., str], family: str, kind: str) -> None:
    model = Model(folder(family, kind), "auto" if kind == "none" else "quantized")
    asked = [Asked("native_mtp", {"depth": "3"})]
    (found,) = climb_all([model], asked, Plan(1, 6, (1, 6)), lambda one: None)
    assert found.declined is None
    assert {one.verdict for one in found.outcomes} <= {"passed", "not applicable"}
    assert found.count("passed") >= 4


def test_counting_is_what_the_counting_model_does() -> None:
    model, _, head = taught.counting()
    logits = forward(model, kv.make(model), mx.array(PROMPT))
    following = [(one + taught.STEP) % 512 for one in PROMPT]
    assert mx.argmax(logits, axis=-1).tolist() == following
    assert Counter().told() == {"runs": 0} and head.fc.weight.shape == (64, 128)
