"""Routed experts' gate and up in one gathered product: bytes, faults, biases, and the way back."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import pytest
from mlx.utils import tree_flatten

from switchboard import joined, lm
from switchboard.board import Board
from switchboard.config import parse_asked
from switchboard.errors import Declined
from switchboard.joined import Joint, Part
from switchboard.load import apply_switches
from switchboard.registry import Applied, Counter, known
from switchboard.sources import tiny

MODES = [None, ("affine", 32, 4), ("affine", 64, 8), ("mxfp4", 32, 4), ("mxfp8", 32, 8)]


class Holder:
    """What join needs of a model: its modules and its layers."""

    def __init__(self, module: Any) -> None:
        self.layers = [module]

    def named_modules(self) -> list[tuple[str, Any]]:
        return [("model.layers.0.mlp", self.layers[0])]


def glu(mode: tuple[str, int, int] | None, bias: bool) -> Any:
    mx.random.seed(3)
    made = lm.experts().SwitchGLU(64, 64, 8, bias=bias)
    for name in ("gate_proj", "up_proj", "down_proj"):
        part = made[name]
        if bias:
            part.bias = mx.random.normal(part.bias.shape)
        if mode is not None:
            kind, group, bits = mode
            setattr(made, name, part.to_quantized(group_size=group, bits=bits, mode=kind))
    mx.eval(made.parameters())
    return made


def outputs(made: Any) -> list[mx.array]:
    """One token, a few, and so many that mlx-lm sorts the choices of experts first."""
    out = []
    for length in (1, 5, 50):
        key = mx.random.key(length)
        chosen = mx.random.randint(0, 8, (1, length, 2), key=key).astype(mx.uint32)
        out.append(made(mx.random.normal((1, length, 64), key=key), chosen))
    mx.eval(out)
    return out


def fuse(model: Any, **options: str) -> tuple[Applied, Counter]:
    switch, counter = known()["fused_experts"], Counter()
    return switch.apply(model, switch.parse(options), counter), counter


@pytest.mark.parametrize("bias", [False, True], ids=["plain", "bias"])
@pytest.mark.parametrize("mode", MODES, ids=str)
@pytest.mark.parametrize("narrow", [1, None])
def test_every_kind_of_experts_is_bitwise_and_comes_apart_again(
    mode: tuple[str, int, int] | None,
    bias: bool,
    narrow: int | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(joined, "narrow", lambda: narrow)
    made = glu(mode, bias)
    before, arrays = outputs(made), dict(tree_flatten(made.parameters()))
    done, counter = fuse(Holder(made))
    assert isinstance(made.gate_proj, Part)
    counter.clear()
    after = outputs(made)
    assert counter.runs == (3 if narrow is None else 1)
    assert all(mx.array_equal(old, new).item() for old, new in zip(before, after, strict=True))
    done.undo()
    back = dict(tree_flatten(made.parameters()))
    assert back.keys() == arrays.keys()
    assert all(mx.array_equal(arrays[name], back[name]).item() for name in arrays)


def test_gate_and_up_in_each_others_place_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = Joint.read
    monkeypatch.setattr(
        Joint, "read", lambda self, part, *more, **how: honest(self, 1 - part, *more, **how)
    )
    made = glu(None, False)
    with pytest.raises(
        Declined, match=r"layers\.0\.mlp: joined product at length 1: \d+ of \d+ differ"
    ):
        fuse(Holder(made))
    monkeypatch.setattr(joined, "unlike", lambda *_, **__: None)
    model, _ = tiny.build("qwen3_moe", "q4-g32")
    board = Board(parse_asked(["fused_experts"], []), {})
    apply_switches(model, board)
    assert "parity probe failed: logits of pass 0" in str(board.positions["fused_experts"].reason)
    assert not any(isinstance(module, Part) for module in model.modules())


def test_another_choice_of_experts_is_an_error_not_a_stale_answer() -> None:
    made = glu(("affine", 32, 4), False)
    fuse(Holder(made))
    x, one = mx.ones((1, 1, 1, 1, 64)), mx.array([[[0, 1]]], mx.uint32)
    made.up_proj(x, one)
    with pytest.raises(RuntimeError, match="another input"):
        made.gate_proj(x, mx.array([[[2, 3]]], mx.uint32))
    first = made.up_proj(x, one)
    assert first.shape == made.gate_proj(x, one).shape


def test_different_quantisation_of_gate_and_up_declines() -> None:
    made = glu(None, False)
    made.up_proj = made.up_proj.to_quantized(group_size=32, bits=8)
    with pytest.raises(Declined, match="gate_proj has kind SwitchLinear, up_proj has Quantized"):
        fuse(Holder(made))
