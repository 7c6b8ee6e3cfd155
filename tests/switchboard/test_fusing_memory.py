"""What joining costs in memory: nothing with the originals dropped, a copy with them kept, one layer on the way."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import mlx.core as mx
import pytest
from mlx.utils import tree_flatten

from switchboard import lm, memory, siblings
from switchboard.board import Board
from switchboard.config import parse_asked
from switchboard.joined import ARRAYS, Part
from switchboard.load import apply_switches
from switchboard.registry import Counter, known
from switchboard.sources import tiny

EVERY = ("fused_qkv", "fused_gate_up", "fused_experts")
NAMES = ("q_proj", "k_proj", "v_proj", "gate_proj", "up_proj")


def active() -> int:
    gc.collect()
    mx.clear_cache()
    return mx.get_active_memory()


def size(model: Any, *names: str) -> int:
    flat: Any = tree_flatten(model.parameters())
    return sum(array.nbytes for path, array in flat if not names or path.split(".")[-2] in names)


def joined_all(model: Any, keep: bool) -> list[Any]:
    switches = [known()[name] for name in EVERY]
    asked = {"keep_originals": str(keep).lower()}
    return [one.apply(model, one.parse(asked), Counter()) for one in switches]


@pytest.fixture
def limit() -> Iterator[Any]:
    before = memory.limit()
    yield mx.set_memory_limit
    mx.set_memory_limit(before)


@pytest.mark.parametrize("kind", ["none", "q4-g32"])
def test_dropping_costs_nothing_and_keeping_costs_the_copy(kind: str) -> None:
    # Of this family every layer has all the siblings: attention, a dense or shared MLP, routed experts.
    for keep in (False, True):
        model, _ = tiny.build("qwen3_vl_moe", kind)
        before, copied = active(), size(model, *NAMES)
        done = joined_all(model, keep)
        grown = active() - before
        expected = copied if keep else 0
        # what tests before this one left may be let go meanwhile, so less is no fault
        assert -0.05 <= (grown - expected) / size(model) <= 0.01, f"keep_originals={keep}"
        assert [one.fused for one in done] == [4, 1, 3]
        del model, done


def test_the_peak_is_one_layers_copy_above_the_model() -> None:
    # So many experts that the parity check's own inputs and outputs do not count.
    many = {"num_experts": 64, "moe_intermediate_size": 256}
    model = lm.build({**tiny.CONFIGS["qwen3_moe"], **many})
    mx.eval(model.parameters())
    (largest,) = {size(layer.mlp.switch_mlp, "gate_proj", "up_proj") for layer in model.layers}
    before = active()
    memory.reset_peak()
    switch = known()["fused_experts"]
    switch.apply(model, switch.parse({}), Counter())
    assert largest <= memory.peak() - before < 1.5 * largest


def test_experts_are_joined_within_the_limit_or_not_at_all(limit: Any) -> None:
    model, _ = tiny.build("qwen3_moe", "q8-g64")
    experts = model.layers[0].mlp.switch_mlp
    needed = sum(
        part[name].nbytes
        for part in (experts.gate_proj, experts.up_proj)
        for name in ARRAYS
        if part.get(name) is not None
    )
    before = size(model)
    limit(active() + needed - 1)
    board = Board(parse_asked(["fused_experts"], []), {})
    apply_switches(model, board)
    told = board.positions["fused_experts"]
    assert told.state == "declined"
    assert f"switch_mlp: joining needs {needed} bytes beside the " in str(told.reason)
    assert not any(isinstance(module, Part) for module in model.modules())
    assert size(model) == before
    limit(active() + 2 * needed)
    apply_switches(model, board)
    assert told.state == "armed"
    assert told.reason is None
    assert size(model) == before


def test_keeping_the_originals_asks_for_a_copy_of_all() -> None:
    model, _ = tiny.build("qwen3_moe", "none")
    asked: list[int] = []
    pair = (("gate_proj", "up_proj"),)
    for keep in (False, True):
        done = siblings.join(
            model, pair, Counter(), keep, experts=True, afford=lambda need, _: asked.append(need)
        )
        done.undo()
    assert asked[1] == len(model.layers) * asked[0]
