"""Attention in tiles is the attention of the whole pass, cuts what it can, and says where it cannot."""

from __future__ import annotations

import sys
from typing import Any

import mlx.core as mx
import pytest
from faults import planted
from mlx_lm.models.base import create_causal_mask, scaled_dot_product_attention

from switchboard import cache as kv
from switchboard import tiles
from switchboard.bisect.compare import compare
from switchboard.bisect.ladder import climb
from switchboard.bisect.rungs import Plan, observe
from switchboard.bisect.subject import open_plain
from switchboard.board import Board
from switchboard.config import Asked, parse_asked
from switchboard.errors import ConfigError, Declined
from switchboard.load import apply_switches
from switchboard.registry import Counter, known
from switchboard.sources import tiny
from switchboard.switches import masked_prefill as module
from switchboard.tiles import Cutter

WINDOW = 32
"""Of tiny gemma3's sliding layers."""


def apply(model: Any, counter: Counter, tile: int = 16) -> Any:
    switch = known()["masked_prefill"]
    done = switch.apply(model, switch.parse({"tile": str(tile)}), counter)
    counter.clear()
    return done


def chunks(model: Any) -> dict[str, mx.array]:
    cache = kv.make(model)
    seen = {f"{n}": model(mx.arange(n)[None], cache=cache) for n in (130, 1, 70, 5)}
    mx.eval(list(seen.values()))
    return seen


def heads(rows: int, before: int, window: int | None = None, extra: int = 0) -> dict[str, Any]:
    """Arguments of an attention over `before` rows of cache."""
    q, k, v = (
        mx.random.normal((1, count, length, 8), key=mx.random.key(count + length))
        for count, length in ((4, rows), (2, before + rows), (2, before + rows + extra))
    )
    mask: Any = "causal" if window is None else create_causal_mask(rows, before, window)
    return {"queries": q, "keys": k, "values": v, "cache": None, "scale": 0.3, "mask": mask}


def tiled(rows: int, given: dict[str, Any]) -> tuple[mx.array, list[tuple[int, Any]], Counter]:
    """What the cutter gives, and of each call how many keys and which mask it had."""
    cutter, calls = Cutter(rows, 1 << 20, Counter()), list[tuple[int, Any]]()

    def watched(queries: Any, keys: Any, values: Any, **how: Any) -> mx.array:
        calls.append((keys.shape[2], how["mask"]))
        return scaled_dot_product_attention(queries, keys, values, **how)

    return cutter.attend(watched, **given), calls, cutter.counter


@pytest.mark.parametrize("family", tiny.FAMILIES)
def test_the_same_logits_within_rounding_and_undone_without_a_trace(family: str) -> None:
    model, _ = tiny.build(family, "none")
    classes = [type(one) for one in model.modules()]
    names = dict(vars(sys.modules["mlx_lm.models.base"]))
    wanted, counter = chunks(model), Counter()
    done = apply(model, counter)
    layers = 2 if family.startswith("qwen3_5") else 4
    assert (done.fused, done.eligible, done.note) == (layers, layers, None)
    assert compare(wanted, chunks(model), exact=False).difference is None
    # 130 rows are 9 tiles and 70 are 5; passes of 1 and 5 rows are not cut.
    assert (counter.runs, counter.more["tiles"]) == (2 * layers, 14 * layers)
    assert bool(counter.more["masks_replaced"]) is (family == "gemma3")
    done.undo()
    counter.clear()
    assert compare(wanted, chunks(model), exact=True).difference is None
    assert counter.runs == 0 and [type(one) for one in model.modules()] == classes
    assert vars(sys.modules["mlx_lm.models.base"]) == names


def test_a_causal_tile_sees_the_keys_up_to_its_last_row_and_keeps_the_flag() -> None:
    given = heads(40, before=7)
    out, calls, counter = tiled(16, given)
    assert calls == [(23, "causal"), (39, "causal"), (47, "causal")]
    assert mx.allclose(out, scaled_dot_product_attention(**given), atol=1e-6).item()
    assert counter.told() == {"runs": 1, "tiles": 3, "masks_replaced": 0}


def test_a_window_leaves_out_the_keys_before_it_and_is_a_flag_while_it_reaches_back_to_the_first() -> (
    None
):
    given = heads(64, before=5, window=WINDOW)
    out, calls, counter = tiled(16, given)
    assert [keys for keys, _ in calls] == [21, 16 + WINDOW - 1 - 10, 16 + WINDOW - 1, 47]
    assert [isinstance(mask, str) for _, mask in calls] == [True, False, False, False]
    assert counter.more["masks_replaced"] == 1
    assert mx.allclose(out, scaled_dot_product_attention(**given), atol=1e-6).item()


def test_an_array_that_is_just_causal_becomes_the_flag_and_one_number_less_does_not() -> None:
    given = heads(32, before=4)
    given["mask"] = create_causal_mask(32, 4)
    assert [mask for _, mask in tiled(16, given)[1]] == ["causal", "causal"]
    given["mask"] = given["mask"] & (mx.arange(36)[None] != 3)
    out, calls, _ = tiled(16, given)
    assert all(isinstance(mask, mx.array) for _, mask in calls)
    assert mx.allclose(out, scaled_dot_product_attention(**given), atol=1e-6).item()


@pytest.mark.parametrize("kind", ["blind row", "additive", "per head"])
def test_a_mask_that_is_no_plain_boolean_keeps_what_it_means(kind: str) -> None:
    given = heads(40, before=20, window=10)
    mask = given["mask"]
    if kind == "blind row":
        mask = mask & (mx.arange(40)[:, None] != 20)
    elif kind == "additive":
        mask = mx.where(mask, 0.0, -1e9)
    else:
        mask = mx.stack([mask, mask, create_causal_mask(40, 20), mask])[None]
    given["mask"] = mask
    out, calls, counter = tiled(16, given)
    assert counter.more["masks_replaced"] == 0
    assert [keys for keys, _ in calls] == {
        "blind row": [25, 60, 17],
        "additive": [60, 60, 60],
        "per head": [36, 52, 60],
    }[kind]
    assert mx.allclose(out, scaled_dot_product_attention(**given), atol=1e-6).item()


def test_the_mask_of_the_next_pass_is_looked_at_again() -> None:
    cutter = Cutter(16, 1 << 20, Counter())
    for window in (20, 9):
        given = heads(40, before=3, window=window)
        out = cutter.attend(scaled_dot_product_attention, **given)
        assert mx.allclose(out, scaled_dot_product_attention(**given), atol=1e-6).item()


def test_what_cannot_be_cut_goes_the_plain_way() -> None:
    for change in ({"mask": None}, {"mask": mx.ones((1, 43), mx.bool_)}):
        _, calls, counter = tiled(16, {**heads(40, before=3), **change})
        assert len(calls) == 1 and counter.runs == 0


def one_key_short(mask: Any, count: int, length: int) -> list[tiles.Tile]:
    before = length - count
    return [tiles.Tile(at, at + 1, 0, max(1, before + at), None) for at in range(count)]


def test_a_cut_that_is_one_key_short_is_found_on_the_real_weights(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Cutter, "_plan", lambda self, *given: one_key_short(*given))
    model, _ = tiny.build("llama", "none")
    classes = [type(one) for one in model.modules()]
    board = Board(parse_asked(["masked_prefill"], []), {})
    apply_switches(model, board)
    told = board.positions["masked_prefill"].told()
    assert told["state"] == "declined"
    assert "parity probe failed: logits of 19 tokens" in told["reason"]
    assert [type(one) for one in model.modules()] == classes


def test_the_bisect_finds_a_cut_that_goes_wrong_after_the_probe(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plain = open_plain("synthetic:tiny-llama-none", "auto")
    fault = planted(
        lambda _: monkeypatch.setattr(Cutter, "_plan", lambda self, *given: one_key_short(*given))
    )
    found = climb(plain, observe(plain, Plan(1, 4)), Asked("masked_prefill"), fault)
    assert found.failed[:1] == ["prefill"], found.outcomes


def test_a_hook_that_does_not_cut_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiles, "_odd", lambda *given: True)
    model, _ = tiny.build("llama", "none")
    with pytest.raises(Declined, match="0 of 8 passes of an attention were cut"):
        apply(model, Counter())


def test_an_attention_of_another_kind_declines_with_its_layer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model, _ = tiny.build("llama", "none")
    scope = sys.modules["mlx_lm.models.llama"]
    attend = scope.scaled_dot_product_attention  # type: ignore[attr-defined]
    monkeypatch.delattr(scope, module.NAME)
    with pytest.raises(Declined, match=r"model\.layers\.0\.self_attn attends in another way"):
        apply(model, Counter())
    assert attend is scaled_dot_product_attention


def test_the_name_is_given_back_when_a_pass_breaks_off(monkeypatch: pytest.MonkeyPatch) -> None:
    model, _ = tiny.build("llama", "none")
    done = apply(model, Counter())
    monkeypatch.setattr(Cutter, "attend", lambda *given, **how: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        model(mx.arange(40)[None], cache=kv.make(model))
    done.undo()
    names = vars(sys.modules["mlx_lm.models.llama"])
    assert names[module.NAME] is scaled_dot_product_attention


def test_packed_keys_are_cut_as_well() -> None:
    model, _ = tiny.build("llama", "none")
    packed = [one.to_quantized(32, 8) for one in kv.make(model)]
    wanted = model(mx.arange(40)[None], cache=packed)
    counter = Counter()
    done = apply(model, counter)
    packed = [one.to_quantized(32, 8) for one in kv.make(model)]
    found = compare({"": wanted}, {"": model(mx.arange(40)[None], cache=packed)}, exact=False)
    assert found.difference is None and counter.runs == 4
    done.undo()


def peak(model: Any, rows: int) -> int:
    """Bytes of one long pass beside what was in use, the cache with them."""
    mx.synchronize()
    before = mx.get_active_memory()
    mx.reset_peak_memory()
    cache = kv.make(model)
    model(mx.arange(rows)[None] % 500, cache=cache)
    mx.eval(kv.arrays(cache))
    return mx.get_peak_memory() - before


def test_the_peak_of_a_long_pass_is_below_one_matrix_of_scores() -> None:
    model, _ = tiny.build("llama", "none")
    rows = 2048
    scores = 4 * rows * rows * 4
    assert peak(model, rows) > scores
    switch = known()["masked_prefill"]
    done = switch.apply(model, switch.parse({"ahead_mb": "1"}), Counter())
    assert peak(model, rows) < scores / 2
    done.undo()


def test_the_last_layer_is_left_to_whoever_reads_it(monkeypatch: pytest.MonkeyPatch) -> None:
    model, _ = tiny.build("llama", "none")
    done, waited = apply(model, Counter()), list[bool]()
    honest = Cutter.attend
    monkeypatch.setattr(
        Cutter, "attend", lambda self, *given, **how: waited.append(given[4]) or honest(self, *given, **how),
    )  # fmt: skip
    model(mx.arange(40)[None], cache=kv.make(model))
    assert waited == [False, False, False, True]
    done.undo()


def test_a_tile_as_short_as_a_verify_pass_is_an_error() -> None:
    with pytest.raises(ConfigError, match="tile must be 8 rows or more"):
        Board(parse_asked(["masked_prefill:tile=4"], []), {})


def test_heads_with_a_fused_kernel_stay_whole_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    model, _ = tiny.build("llama", "none")
    monkeypatch.setattr(module, "on_cpu", lambda: False)
    width = model.layers[0].self_attn.head_dim
    with pytest.raises(Declined, match=rf"self_attn has heads of {width} numbers: a fused kernel"):
        apply(model, Counter())
    monkeypatch.setattr(module, "FUSED_UP_TO", width - 1)
    assert apply(model, Counter()).fused == len(model.layers)
