"""Joined projections are bitwise the separate ones, or stay separate and say why."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import pytest
from mlx.nn.layers.quantized import QuantizedLinear
from mlx.utils import tree_flatten

from switchboard import cache as kv
from switchboard import joined
from switchboard.board import Board
from switchboard.config import Asked, parse_asked
from switchboard.errors import Declined, SwitchRefused
from switchboard.joined import Joint, Part
from switchboard.load import apply_switches, to_float32
from switchboard.registry import Counter
from switchboard.siblings import join
from switchboard.sources import synthetic

QKV, GATE_UP = (("q_proj", "k_proj", "v_proj"),), (("gate_proj", "up_proj"),)
STEPS = 20


def logits(model: Any) -> list[mx.array]:
    """A prefill of 37 tokens, then 20 steps over the filled cache."""
    cache = kv.make(model)
    out = [model(mx.arange(37)[None], cache=cache)]
    for step in range(STEPS):
        out.append(model(mx.array([[7 * step + 3]]), cache=cache))
    mx.eval(out)
    return out


def same(before: list[mx.array], after: list[mx.array]) -> bool:
    return all(mx.array_equal(old, new).item() for old, new in zip(before, after, strict=True))


def numbers(model: Any) -> int:
    return sum(array.nbytes for _, array in tree_flatten(model.parameters()))


def build(name: str) -> Any:
    model, _ = synthetic.build(name)
    if "-q" not in name.removeprefix("tiny-qwen") and not name.endswith("mixed"):
        to_float32(model)
    return model


@pytest.mark.parametrize("suffix", ["", "-q4", "-q8"])
@pytest.mark.parametrize("shape", ["tiny-llama", "tiny-qwen2", "tiny-qwen3"])
@pytest.mark.parametrize(("narrow", "passes"), [(None, STEPS + 1), (1, STEPS)])
def test_bitwise_over_prefill_and_decode(
    shape: str, suffix: str, narrow: int | None, passes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(joined, "narrow", lambda: narrow)
    model, _ = synthetic.build(shape + suffix)
    before, size, counter = logits(model), numbers(model), Counter()
    for siblings in (QKV, GATE_UP):
        done = join(model, siblings, counter, keep_originals=False)
        assert (done.fused, done.eligible, done.layers) == (4, 4, 4)
        assert done.note is None
    counter.clear()
    assert same(before, logits(model))
    assert counter.runs == 2 * 4 * passes
    assert numbers(model) == size


def test_undo_gives_the_originals_back() -> None:
    model = build("tiny-qwen2")
    before = dict(tree_flatten(model.parameters()))
    join(model, QKV, Counter(), keep_originals=False).undo()
    after = dict(tree_flatten(model.parameters()))
    assert before.keys() == after.keys()
    assert all(mx.array_equal(before[name], after[name]).item() for name in before)


def test_mixed_quantisation_joins_what_agrees_and_names_the_first_layer_that_does_not() -> None:
    model, _ = synthetic.build("tiny-llama-mixed")
    before, size = logits(model), numbers(model)
    done = join(model, QKV, Counter(), keep_originals=False)
    assert done.coverage() == {
        "fused": 2,
        "partly": 2,
        "eligible": 4,
        "unit": "places",
        "modules": 10,
        "layers": 4,
        "classes": {
            "q_proj+k_proj+v_proj q4-g32": {"eligible": 2, "fused": 2, "partly": 0},
            "q_proj+k_proj q4-g32, v_proj q8-g32": {"eligible": 2, "fused": 0, "partly": 2},
        },
    }
    assert done.note == (
        "2 of 4 layers are not joined whole; first: model.layers.2.self_attn: "
        "q_proj has bits 4, v_proj has 8"
    )
    mixed = model.layers[2].self_attn
    assert isinstance(mixed.q_proj, Part)
    assert isinstance(mixed.k_proj, Part)
    assert isinstance(mixed.v_proj, QuantizedLinear)
    assert same(before, logits(model))
    assert numbers(model) == size


def test_where_no_two_siblings_agree_the_switch_declines_with_layer_and_reason() -> None:
    model = build("tiny-llama")
    for layer in model.layers:
        layer.mlp.up_proj = layer.mlp.up_proj.to_quantized(group_size=32, bits=4)
    with pytest.raises(
        Declined, match=r"model\.layers\.0\.mlp: gate_proj has kind Linear, up_proj"
    ):
        join(model, GATE_UP, Counter(), keep_originals=False)


def test_a_sibling_that_breaks_the_bytes_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel that works differently from 130 output rows on: q, k and v break it, q and k do not."""
    honest = Joint.read

    def faulty(joint: Joint, part: int, x: mx.array) -> mx.array:
        return honest(joint, part, x) + 1e-3 * (len(joint.rows) > 2)

    monkeypatch.setattr(Joint, "read", faulty)
    model = build("tiny-llama")
    before = logits(model)
    done = join(model, QKV, Counter(), keep_originals=False)
    assert (done.fused, done.partly) == (0, 4)
    assert "self_attn: joined product at length 1: 128 of 128 differ" in str(done.note)
    assert same(before, logits(model))


def test_one_odd_layer_stays_separate_and_is_named() -> None:
    model = build("tiny-llama")
    odd = model.layers[2].self_attn
    odd.v_proj = odd.v_proj.to_quantized(group_size=32, bits=4)
    before = logits(model)
    done = join(model, QKV, Counter(), keep_originals=False)
    assert (done.fused, done.partly, done.eligible) == (3, 1, 4)
    assert done.note is not None
    assert "model.layers.2.self_attn" in done.note
    assert same(before, logits(model))


def test_a_part_read_with_another_input_is_an_error_not_a_stale_answer() -> None:
    model = build("tiny-llama")
    join(model, QKV, Counter(), keep_originals=False)
    attention = model.layers[0].self_attn
    one, two = mx.ones((1, 1, 64)), mx.zeros((1, 1, 64))
    attention.q_proj(one)
    with pytest.raises(RuntimeError, match="another input"):
        attention.k_proj(two)
    assert attention.q_proj(two).shape == (1, 1, 128)


def test_kept_originals_stay_out_of_the_parameters() -> None:
    model = build("tiny-llama")
    size = numbers(model)
    join(model, QKV, Counter(), keep_originals=True)
    assert numbers(model) == size
    assert model.layers[0].self_attn.k_proj._original[0].weight.shape == (64, 64)


def plant_a_swap(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the joint give k where v was asked and the other way round, and blind the layer's own check."""
    honest = Joint.read
    monkeypatch.setattr("switchboard.joined.unlike", lambda *_, **__: None)
    monkeypatch.setattr(Joint, "read", lambda self, part, x: honest(self, [0, 2, 1][part], x))


def test_a_planted_fault_is_found_and_the_switch_comes_off(monkeypatch: pytest.MonkeyPatch) -> None:
    plant_a_swap(monkeypatch)
    model = build("tiny-llama")
    before = logits(model)
    board = Board(parse_asked(["fused_qkv"], []), {})
    apply_switches(model, board)
    position = board.positions["fused_qkv"]
    assert position.state == "declined"
    assert "parity probe failed" in str(position.reason)
    assert same(before, logits(model))


def test_a_planted_fault_refuses_the_start_of_a_required_switch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plant_a_swap(monkeypatch)
    board = Board(parse_asked([], ["fused_qkv"]), {})
    with pytest.raises(SwitchRefused, match="required"):
        apply_switches(build("tiny-llama"), board)


def test_what_an_interrupted_forward_left_is_forgotten_before_the_next_request() -> None:
    model = build("tiny-llama")
    board = Board((Asked("fused_qkv"),), {})
    board.apply_weights(model, lambda exactness: None)
    attention = model.layers[0].self_attn
    width = int(attention.q_proj.product.weight.shape[-1])
    attention.q_proj(mx.ones((1, 1, width)))
    board.begin()
    one = mx.zeros((1, 1, width))
    for part in (attention.q_proj, attention.k_proj, attention.v_proj):
        part(one)
