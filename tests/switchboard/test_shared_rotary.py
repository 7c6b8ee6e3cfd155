"""Shared rotary angles give the same bytes, are never stale, and stay off where the model does more than rotate."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import pytest
from mlx.nn import RoPE

from switchboard import cache as kv
from switchboard.board import Board
from switchboard.config import Asked
from switchboard.errors import Declined
from switchboard.load import apply_switches, to_float32
from switchboard.registry import Counter, NoOptions
from switchboard.sources import tiny
from switchboard.switches import shared_rotary as rotary

LAYERS = {"qwen3_5": 2, "qwen3_5_moe": 2}
"""Layers with attention, where not all have it."""


def logits(model: Any) -> list[mx.array]:
    """Two prefill pieces, then steps, then another text from its beginning: the angles must follow."""
    entries, out = kv.make(model), []
    for ids in (range(37), range(5)):
        out.append(model(mx.array([list(ids)]), cache=entries))
    out += [model(mx.array([[7 * step + 3]]), cache=entries) for step in range(4)]
    out.append(model(mx.array([[1, 2, 3]]), cache=kv.make(model)))
    mx.eval(out)
    return out


def same(before: list[mx.array], after: list[mx.array]) -> bool:
    return all(mx.array_equal(old, new).item() for old, new in zip(before, after, strict=True))


@pytest.mark.parametrize("kind", ["none", "q4-g32"])
@pytest.mark.parametrize("family", tiny.FAMILIES)
def test_bitwise_in_every_family(family: str, kind: str) -> None:
    model, _ = tiny.build(family, kind)
    before, counter = logits(model), Counter()
    done = rotary.shared_rotary(model, NoOptions(), counter)
    counter.clear()
    assert same(before, logits(model))
    assert counter.runs == 2 * 7 * done.fused
    assert (done.fused, done.eligible) == (LAYERS.get(family, 4),) * 2
    done.undo()
    assert not any(isinstance(one, rotary.SharedRotary) for one in model.modules())
    assert same(before, logits(model))


def test_two_kinds_of_layers_keep_their_own_angles() -> None:
    model, _ = tiny.build("gemma3", "none")
    model.layers[1].self_attn.rope = RoPE(32, base=1e6)
    before, places = logits(model), rotary.find(model)
    rotary.shared_rotary(model, NoOptions(), Counter())
    shared = {id(getattr(one.parent, one.name)._angles) for one in places}
    assert len(shared) == len({one.rotation.base for one in places}) == 2
    assert same(before, logits(model))


def test_angles_are_made_once_a_pass_and_follow_position_length_and_type() -> None:
    asked: list[tuple[int, int]] = []

    class Watched(RoPE):
        def __call__(self, x: mx.array, offset: int = 0) -> Any:
            asked.append((offset, x.shape[-2]))
            return super().__call__(x, offset)

    rotation = Watched(8)
    module = rotary.SharedRotary(rotary.Angles(rotation), rotation, Counter())
    x = mx.random.normal((1, 2, 3, 8))
    for offset in (4, 4, 5):
        assert mx.array_equal(module(x, offset=offset), RoPE(8)(x, offset)).item()
    assert asked == [(4, 3), (5, 3)]
    half = x.astype(mx.float16)
    assert mx.array_equal(module(half, offset=5), RoPE(8)(half, 5)).item()
    assert module(x[:, :, :1], offset=5).shape == (1, 2, 1, 8) and len(asked) == 4


def test_a_part_of_a_head_is_rotated_and_positions_of_their_own_go_the_models_way() -> None:
    rotation, counter = RoPE(8), Counter()
    module = rotary.SharedRotary(rotary.Angles(rotation), rotation, counter)
    x = mx.random.normal((1, 2, 3, 16))
    assert mx.array_equal(module(x, offset=2), rotation(x, 2)).item()
    assert counter.runs == 1
    assert mx.array_equal(module(x, offset=mx.array(2)), rotation(x, mx.array(2))).item()
    assert counter.runs == 1


def test_a_rotation_that_also_scales_stays_as_it_is() -> None:
    class ScalingRoPE(RoPE):
        def __call__(self, x: mx.array, offset: int = 0) -> Any:
            return super().__call__(0.7 * x, offset)

    model, _ = tiny.build("llama", "none")
    for layer in model.layers[1:]:
        layer.self_attn.rope = ScalingRoPE(32)
    before = logits(model)
    done = rotary.shared_rotary(model, NoOptions(), Counter())
    assert (done.fused, done.eligible) == (1, 4)
    why = "first: model.layers.1.self_attn.rope: shared angles at position 0: "
    assert f"3 of 4 rotations stay; {why}" in (done.note or "")
    assert same(before, logits(model))


@pytest.mark.parametrize("fault", ["stale", "swapped", "sign"])
def test_planted_faults_are_caught_by_the_probe(
    fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = rotary.Angles.factors

    def wrong(self: Any, offset: int, length: int, dtype: Any) -> tuple[mx.array, mx.array]:
        cos, sin = honest(self, 0 if fault == "stale" else offset, length, dtype)
        return {"stale": (cos, sin), "swapped": (sin, cos), "sign": (cos, -sin)}[fault]

    monkeypatch.setattr(rotary.Angles, "factors", wrong)
    model, _ = tiny.build("llama", "none")
    with pytest.raises(
        Declined, match=r"layers\.0.*shared angles at position \d+: \d+ of \d+ differ"
    ):
        rotary.shared_rotary(model, NoOptions(), Counter())


def test_it_goes_on_and_off_by_the_board() -> None:
    def state(environ: dict[str, str]) -> Any:
        model, _ = tiny.build("qwen3", "none")
        to_float32(model)
        board = Board((Asked("shared_rotary"), Asked("fused_qkv")), environ)
        apply_switches(model, board)
        board.begin()
        logits(model)
        board.end()
        return board.positions["shared_rotary"]

    on = state({})
    assert on.state == "engaged" and on.coverage["fused"] == 4
    assert state({"SWITCHBOARD_SHARED_ROTARY": "0"}).state == "off"
