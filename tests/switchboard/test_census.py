"""Operations are counted as they stand in the graph, and what a switch changes adds up."""

from __future__ import annotations

import mlx.core as mx
import pytest

from switchboard.census import VIEWS, Change, operations, table, take
from switchboard.config import Asked

LAYERS = 4


def test_a_hand_made_graph_has_known_counts() -> None:
    a, b = mx.ones((4, 4)), mx.ones((4, 4))
    mx.eval(a, b)
    one, two = mx.split(a @ b, 2, axis=-1)
    total = mx.exp(one) + mx.exp(two) * one
    assert operations([total]) == {"Exp": 2, "Add": 1, "Matmul": 1, "Multiply": 1, "Split": 1}


def test_every_call_of_a_compiled_function_counts() -> None:
    @mx.compile
    def folded(x: mx.array) -> mx.array:
        return mx.exp(x) * 2 + 1

    a = mx.ones((4,))
    mx.eval(a)
    counts = operations([folded(a) + folded(folded(a))])
    assert sorted(counts.values()) == [1, 3] and counts["Add"] == 1


def test_what_is_there_already_is_not_counted() -> None:
    a = mx.ones((4, 4)) @ mx.ones((4, 4))
    mx.eval(a)
    assert operations([mx.exp(a)]) == {"Exp": 1}
    assert operations([a]) == {}


def test_a_shared_part_is_counted_once() -> None:
    a = mx.ones((4,))
    mx.eval(a)
    b = mx.exp(a)
    assert operations([b + b, b * b]) == {"Add": 1, "Exp": 1, "Multiply": 1}


@pytest.mark.parametrize(
    ("name", "format", "product"),
    [
        ("synthetic:tiny-llama-none", "auto", "Matmul"),
        ("synthetic:tiny-llama-q4-g32", "quantized", "QuantizedMatmul"),
    ],
)
def test_joining_removes_products_and_brings_splits(name: str, format: str, product: str) -> None:
    census = take(name, format, [Asked("fused_qkv"), Asked("fused_gate_up")])
    qkv, gate_up = census.changes
    assert (qkv.gone[product], gate_up.gone[product]) == (2 * LAYERS, LAYERS)
    assert (qkv.came["Split"], gate_up.came["Split"]) == (LAYERS, LAYERS)
    assert "Split" in VIEWS
    assert all(one.reconciles(census.plain) for one in census.changes)
    assert (qkv.layers, census.layers) == (LAYERS, LAYERS)
    assert sum(count for name, count in census.plain.items() if name.startswith("Comp")) == LAYERS
    lines = "\n".join(table(census))
    assert f"{-2 * LAYERS:+}  {product}, -2 in each of 4 layers" in lines
    assert f"{LAYERS:+}  Split (view), +1 in each of 4 layers" in lines


def test_a_draft_and_a_declined_switch_say_why_nothing_was_counted() -> None:
    census = take(
        "synthetic:tiny-llama-none", "auto", [Asked("prompt_lookup"), Asked("fused_experts")]
    )
    assert all(one.declined for one in census.changes)
    assert (census.launches, bool(census.launches_unknown)) == (None, True)


def test_a_change_that_does_not_add_up_is_seen() -> None:
    change = Change("x", None, {"Add": 2}, {"Exp": 1}, {"Add": 1}, 1)
    assert change.reconciles({"Add": 1, "Exp": 1})
    assert not change.reconciles({"Add": 2, "Exp": 1})
