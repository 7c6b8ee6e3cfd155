"""Every family in every quantisation: it runs, and each switch leaves its logits alone or says why it stays off."""

from __future__ import annotations

import contextlib
import re
from functools import cache
from typing import Any

import mlx.core as mx
import pytest
from mlx.utils import tree_flatten

from switchboard import cache as kv
from switchboard import joined
from switchboard.board import Board
from switchboard.config import Asked
from switchboard.errors import Declined, ModelError
from switchboard.load import apply_switches, load
from switchboard.models import resolve
from switchboard.registry import Counter, known
from switchboard.sources import tiny

pytestmark = pytest.mark.families
PROMPT, STEPS = 37, 8
ALL = ("fused_qkv", "fused_gate_up", "fused_experts", "fast_norm")
CELLS = [(family, kind) for family in tiny.FAMILIES for kind in tiny.QUANTISATIONS]
Numbers = tuple[int, int, int]
"""Layers that are joined whole, in part, and that could be."""

DENSE, UPPER, NONE = (4, 0, 4), (2, 0, 4), (0, 0, 0)
EVEN = {
    "llama": (DENSE, DENSE, NONE, NONE),
    "qwen2": (DENSE, DENSE, NONE, NONE),
    "qwen3": (DENSE, DENSE, NONE, NONE),
    "qwen3_moe": (DENSE, NONE, DENSE, NONE),
    "qwen3_5": (DENSE, DENSE, NONE, NONE),
    "qwen3_5_moe": (DENSE, DENSE, DENSE, NONE),
    "qwen3_vl": (DENSE, DENSE, NONE, NONE),
    "qwen3_vl_moe": (DENSE, (1, 0, 1), (3, 0, 3), NONE),
    "gemma3": (DENSE, DENSE, NONE, DENSE),
}
# In the upper two layers v stays apart from q and k; the four of linear attention fall into two pairs.
MIXED = {
    "llama": ((2, 2, 4), UPPER, NONE, NONE),
    "qwen2": ((2, 2, 4), UPPER, NONE, NONE),
    "qwen3": ((2, 2, 4), UPPER, NONE, NONE),
    "qwen3_moe": ((2, 2, 4), NONE, UPPER, NONE),
    "qwen3_5": ((3, 1, 4), UPPER, NONE, NONE),
    "qwen3_5_moe": ((3, 1, 4), UPPER, UPPER, NONE),
    "qwen3_vl": ((2, 2, 4), UPPER, NONE, NONE),
    "qwen3_vl_moe": ((2, 2, 4), (1, 0, 1), (1, 0, 3), NONE),
    "gemma3": ((2, 2, 4), UPPER, NONE, DENSE),
}
DECLINES = {
    "fused_gate_up": r"side by side; \d layers hold them for routed experts",
    "fused_experts": "no layer routes its input to experts with gate_proj, up_proj",
    "fast_norm": r"each of the \d+ norms \(.*RMSNorm.*\) already is one mx\.fast\.rms_norm",
}


def logits(model: Any) -> list[mx.array]:
    """A prefill that fills gemma's window, then steps over the filled cache."""
    entries = kv.make(model)
    out = [model(mx.arange(PROMPT)[None], cache=entries)]
    for step in range(STEPS):
        out.append(model(mx.array([[7 * step + 3]]), cache=entries))
    mx.eval(out)
    return out


def same(before: list[mx.array], after: list[mx.array]) -> bool:
    return all(mx.array_equal(old, new).item() for old, new in zip(before, after, strict=True))


@cache
def plain(family: str, kind: str) -> list[mx.array]:
    return logits(tiny.build(family, kind)[0])


def switched(model: Any, *names: str) -> Board:
    board = Board(tuple(Asked(name) for name in names), {})
    apply_switches(model, board)
    return board


def told(board: Board, name: str) -> Numbers:
    coverage = board.positions[name].coverage or {}
    return tuple(coverage.get(key, 0) for key in ("fused", "partly", "eligible"))  # type: ignore[return-value]


@pytest.fixture(params=[1, None], ids=["narrow", "wide"])
def narrow(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joined, "narrow", lambda: request.param)


@pytest.mark.parametrize(("family", "kind"), CELLS)
def test_it_builds_prefills_and_decodes(family: str, kind: str) -> None:
    asked = "quantized" if kind != "none" else "auto"
    loaded = load(resolve(f"synthetic:tiny-{family}-{kind}"), asked, Board((), {}))
    assert loaded.family == family
    assert loaded.context == 2048
    assert loaded.format.startswith(
        "float32" if kind == "none" else "q4" if "8" not in kind else "q8"
    )
    out = plain(family, kind)
    assert out[0].shape == (1, PROMPT, 512)
    assert all(mx.isfinite(one).all().item() for one in out)


@pytest.mark.parametrize(("family", "kind"), CELLS)
def test_each_switch_is_bitwise_or_declines(family: str, kind: str) -> None:
    expected = (MIXED if kind == "mixed" else EVEN)[family]
    for name, numbers in zip(ALL, expected, strict=True):
        model, _ = tiny.build(family, kind)
        board = switched(model, name)
        position = board.positions[name]
        assert told(board, name) == numbers, name
        if numbers == NONE:
            assert position.state == "declined"
            assert re.search(DECLINES[name], position.reason or ""), position.reason
            continue
        board.begin()
        assert same(plain(family, kind), logits(model)), name
        board.end()
        assert position.state == "engaged"


@pytest.mark.parametrize(("family", "kind"), CELLS)
@pytest.mark.usefixtures("narrow")
def test_all_switches_together_are_bitwise(family: str, kind: str) -> None:
    model, _ = tiny.build(family, kind)
    board = switched(model, *ALL)
    assert same(plain(family, kind), logits(model))
    expected = (MIXED if kind == "mixed" else EVEN)[family]
    assert [told(board, name) for name in ALL] == list(expected)


@pytest.mark.parametrize("family", ["qwen3_5_moe", "qwen2", "gemma3"])
@pytest.mark.parametrize("kind", ["none", "mixed"])
def test_everything_comes_off_again(family: str, kind: str) -> None:
    model, _ = tiny.build(family, kind)
    before = dict(tree_flatten(model.parameters()))
    done = []
    for name in ALL:
        switch = known()[name]
        with contextlib.suppress(Declined):
            done.append(switch.apply(model, switch.parse({}), Counter()))
    assert len(done) >= 2
    for one in reversed(done):
        one.undo()
    after = dict(tree_flatten(model.parameters()))
    assert before.keys() == after.keys()
    assert all(mx.array_equal(before[name], after[name]).item() for name in before)


def test_the_four_projections_of_linear_attention_are_one_product() -> None:
    model, _ = tiny.build("qwen3_5", "none")
    board = switched(model, "fused_qkv")
    classes = (board.positions["fused_qkv"].coverage or {})["classes"]
    assert set(classes) == {
        "q_proj+k_proj+v_proj float32",
        "in_proj_qkv+in_proj_z+in_proj_b+in_proj_a float32",
    }
    linear = model.layers[0].linear_attn
    # Gated q of twice the width: 4 heads of 32, twice; then two heads each of k and v.
    assert model.layers[1].self_attn.q_proj.product.weight.shape == (256 + 64 + 64, 64)
    assert linear.in_proj_qkv.product.weight.shape == (256 + 128 + 4 + 4, 64)


def test_an_unknown_name_says_which_are_known() -> None:
    with pytest.raises(ModelError, match="did you mean 'tiny-qwen3_moe'"):
        resolve("synthetic:tiny-qwen3_mo")
    with pytest.raises(ModelError, match="did you mean 'q4-g32'"):
        resolve("synthetic:tiny-llama-q4-g23")
    assert (
        resolve("synthetic:tiny-llama-q4").digest == resolve("synthetic:tiny-llama-q4-g32").digest
    )
