"""Weights column by column: the same matrix in another order, laid out only where it can be joined again."""

from __future__ import annotations

import dataclasses
import os
from typing import Any

import mlx.core as mx
import pytest
from mlx.nn.layers.base import Module
from mlx.nn.layers.embedding import Embedding
from mlx.nn.layers.linear import Linear

from switchboard import joined, layout
from switchboard.board import Board
from switchboard.config import Config, parse_asked
from switchboard.errors import ConfigError
from switchboard.models import resolve
from switchboard.registry import Counter
from switchboard.session import open_session
from switchboard.siblings import join

ROWS = (1, 2, 3, 6, 130)


class Mlp(Module):
    def __init__(self, up: int, gate: int, bias: bool = False) -> None:
        super().__init__()
        self.gate_proj = Linear(32, gate, bias=bias)
        self.up_proj = Linear(32, up, bias=bias)
        self.down_proj = Linear(up, 32, bias=bias)


class Attention(Module):
    def __init__(self) -> None:
        super().__init__()
        self.q_proj = Linear(32, 96)
        self.k_proj = Linear(32, 16)
        self.o_proj = Linear(96, 32)


class Model(Module):
    def __init__(self, *layers: Module, head: bool = False) -> None:
        super().__init__()
        self.layers = list(layers)
        self.embed_tokens = Embedding(200, 32)
        if head:
            self.lm_head = Linear(32, 200, bias=False)


def order(array: mx.array) -> tuple[int, ...]:
    """Bytes from one number to the next, by axis."""
    strides = memoryview(array).strides
    assert strides is not None
    return strides


def test_the_matrix_stays_and_its_order_changes() -> None:
    model = Model(Mlp(64, 64))
    before = {name: mx.array(one) for name, one in _named(model).items()}
    told = layout.lay(model, least_bytes=0)
    after = _named(model)
    assert told.matrices == 3
    assert told.bytes == 4 * (2 * 64 * 32 + 200 * 32)
    assert all(mx.array_equal(before[name], after[name]).item() for name in before)
    assert order(model.layers[0].gate_proj.weight) == (4, 4 * 64)
    assert order(model.layers[0].down_proj.weight) == (4 * 64, 4)
    assert order(model.embed_tokens.weight) == (4, 4 * 200)
    assert str(told.bytes) in told.told() and "3 matrices" in told.told()
    assert layout.NOTHING.told() == "rows"


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        (Model(Attention()), ["embed_tokens"]),
        (Model(Mlp(64, 80)), ["embed_tokens"]),
        (Model(Mlp(40, 40)), ["embed_tokens"]),
        (Model(head=True), ["lm_head"]),
        (Model(Mlp(48, 48), head=True), ["layers.0.gate_proj", "layers.0.up_proj", "lm_head"]),
    ],
    ids=["unlike siblings", "unlike widths", "too narrow", "head apart", "all"],
)  # fmt: skip
def test_only_what_gains_and_can_be_joined_again(model: Model, expected: list[str]) -> None:
    layout.lay(model, least_bytes=0)
    laid = sorted(path for path, module in model.named_modules() if layout.laid(module))
    assert laid == expected


def test_small_and_half_precision_matrices_stay() -> None:
    model = Model(Mlp(64, 64))
    assert layout.lay(model) == layout.NOTHING
    model.apply(lambda array: array.astype(mx.float16))
    assert layout.lay(model, least_bytes=0) == layout.NOTHING


@pytest.mark.parametrize("bias", [False, True])
def test_a_stack_is_its_projections_bit_by_bit_and_comes_apart_again(bias: bool) -> None:
    model = Model(Mlp(64, 64, bias))
    layout.lay(model, least_bytes=0)
    mlp = model.layers[0]
    plain = {name: mlp[name] for name in ("gate_proj", "up_proj")}
    weights = {name: mx.array(one.weight) for name, one in plain.items()}
    inputs = [mx.random.normal((1, count, 32)) for count in ROWS]
    wanted = [(plain["gate_proj"](x), plain["up_proj"](x)) for x in inputs]
    applied = join(model, [("gate_proj", "up_proj")], Counter(), keep_originals=False)
    assert applied.fused == 1
    assert isinstance(mlp.gate_proj.product_of(), layout.Stack)
    for x, (gate, up) in zip(inputs, wanted, strict=True):
        assert mx.array_equal(mlp.gate_proj(x), gate).item()
        assert mx.array_equal(mlp.up_proj(x), up).item()
    assert applied.undo is not None
    applied.undo()
    for name, weight in weights.items():
        assert type(mlp[name]) is Linear and layout.laid(mlp[name])
        assert mx.array_equal(mlp[name].weight, weight).item()
        assert order(mlp[name].weight) == (4, 4 * 64)


def test_joining_laid_projections_leaves_no_copy_behind() -> None:
    model = Model(*(Mlp(512, 512) for _ in range(4)))
    layout.lay(model, least_bytes=0)
    mx.clear_cache()
    before = mx.get_active_memory()
    applied = join(model, [("gate_proj", "up_proj")], Counter(), keep_originals=False)
    assert applied.fused == 4
    for layer in model.layers:
        mx.eval(layer.gate_proj(mx.ones((1, 3, 32))), layer.up_proj(mx.ones((1, 3, 32))))
    mx.clear_cache()
    assert mx.get_active_memory() - before < 512 * 32 * 4


def test_a_stack_in_the_wrong_order_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    model = Model(Mlp(64, 64))
    layout.lay(model, least_bytes=0)
    right = layout.Stack.parts
    monkeypatch.setattr(layout.Stack, "parts", lambda self, x: right(self, x)[::-1])
    parts = [model.layers[0].gate_proj, model.layers[0].up_proj]
    joint = joined.Joint(joined.concatenate(parts), [64, 64], Counter())
    assert "length 1" in (joined.unlike(joint, parts, wide=False) or "")


def test_a_laid_projection_is_not_joined_with_one_that_is_not() -> None:
    laid, other = Linear(32, 64, bias=False), Linear(32, 64, bias=False)
    layout.lay(Model(laid), least_bytes=0)
    holder = Module()
    holder.gate_proj, holder.up_proj = laid, other
    layout.lay(holder, least_bytes=0)
    fresh = Linear(32, 64, bias=False)
    assert "columns together" in (joined.differ(("a", "b"), [fresh, laid]) or "columns together")
    assert joined.traits(fresh) != joined.traits(laid)


def test_layouts_are_two() -> None:
    with pytest.raises(ConfigError, match="auto, rows"):
        Config("smollm2-135m", layout="columns")
    assert Config("m").digest() != Config("m", layout="rows").digest()


@pytest.mark.model
def test_the_model_computes_the_same_either_way_but_for_rounding(monkeypatch: Any) -> None:
    def logits(order: str, *switches: str) -> tuple[list[mx.array], str]:
        config = Config("smollm2-135m", asked=parse_asked([*switches], []), layout=order)
        session = open_session(config, resolve(config.model), Board(config.asked, os.environ))
        model, cache = session.loaded.model, session.make_cache(_room())
        made = [model(mx.array([ids]), cache=cache) for ids in ([5, 11, 3, 250, 7, 42], [9], [10])]
        mx.eval(made)
        return made, session.loaded.layout.told()

    monkeypatch.setattr(layout, "pays", lambda: True)
    rows, told = logits("rows")
    assert told == "rows"
    columns, told = logits("auto")
    assert "61 matrices" in told
    stacked, _ = logits("auto", "fused_gate_up")
    for one, other, third in zip(rows, columns, stacked, strict=True):
        assert mx.abs(one - other).max().item() < 1e-3
        assert mx.array_equal(other, third).item()


def _room() -> Any:
    from switchboard.registry import Room

    return Room(8, 8)


def _named(model: Module) -> dict[str, mx.array]:
    from mlx.utils import tree_flatten

    return dict(tree_flatten(model.parameters()))


def test_laid_is_frozen() -> None:
    assert dataclasses.asdict(layout.Laid(2, 8)) == {"matrices": 2, "bytes": 8}
