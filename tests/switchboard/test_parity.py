"""Every probe compares bits, and whatever it breaks off with is a reason and not the end of the boot."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import emulated
import mlx.core as mx
import pytest
from mlx import nn
from mlx.nn.layers.positional_encoding import RoPE

import switchboard
from switchboard import cache as kv
from switchboard import lm, load, parity
from switchboard.board import Board
from switchboard.config import parse_asked
from switchboard.errors import Declined, ModelError, SwitchRefused
from switchboard.joined import Joint
from switchboard.load import apply_switches
from switchboard.registry import Counter, NoOptions, Room
from switchboard.siblings import join
from switchboard.sources import tiny
from switchboard.switches import fast_norm, fused_epilogue, shared_rotary

NAN = float("nan")


def flipped(x: mx.array) -> mx.array:
    """The same values with the other sign on every 0."""
    return mx.where(x == 0, -x, x)


def applied(model: Any, *asked: str, required: bool = False) -> Board:
    board = Board(parse_asked([] if required else [*asked], [*asked] if required else []), {})
    apply_switches(model, board)
    return board


@pytest.mark.parametrize("dtype", [mx.float32, mx.float16, mx.bfloat16, mx.int32, mx.bool_])
def test_the_same_bits_are_the_same(dtype: mx.Dtype) -> None:
    one = mx.array([0, 1, 0, 1]).astype(dtype)
    assert parity.same(one, mx.array(one))
    assert parity.difference(one, one) is None


def test_nan_is_itself_and_the_sign_of_a_zero_counts() -> None:
    one = mx.array([[0.0, NAN], [1.0, 0.0]])
    assert parity.same(one, mx.array([[0.0, NAN], [1.0, 0.0]]))
    assert parity.difference(one, mx.array([[0.0, NAN], [1.0, -0.0]])) == (
        "1 of 4 differ, first at [1, 1], by up to 0"
    )
    assert parity.difference(one, mx.array([[0.0, 2.0], [1.25, 0.0]])) == (
        "2 of 4 differ, first at [0, 1], by up to inf"
    )


@pytest.mark.parametrize(
    ("other", "says"),
    [
        (mx.zeros((3,)), "mlx.core.float32[2] became mlx.core.float32[3]"),
        (mx.zeros((2,), mx.float16), "mlx.core.float32[2] became mlx.core.float16[2]"),
    ],
)
def test_another_shape_or_type_is_a_difference(other: mx.array, says: str) -> None:
    assert parity.difference(mx.zeros((2,)), other) == says


def test_of_two_lists_the_first_difference_is_named_and_none_may_be_missing() -> None:
    a, b = mx.zeros((2,)), mx.ones((2,))
    assert parity.first([a, b], [a, b], str) is None
    assert parity.first([a, b], [a, a], "result {}".format) == (
        "result 1: 2 of 2 differ, first at [0], by up to 1"
    )
    assert parity.first([a, b], [a], str) == "1 results instead of 2"


@pytest.mark.parametrize(
    "kind",
    [
        RuntimeError, ValueError, TypeError, AttributeError, KeyError, IndexError, ZeroDivisionError,
        AssertionError, NotImplementedError, MemoryError, OSError,
    ],
)  # fmt: skip
def test_whatever_a_forward_raises_becomes_a_reason(kind: type[Exception]) -> None:
    def run() -> None:
        raise kind("so it\nis")

    found = parity.attempted(run)
    assert isinstance(found, parity.Broken)
    assert found.startswith(kind.__name__) and "\n" not in found


@pytest.mark.parametrize("kind", [Declined, SwitchRefused, KeyboardInterrupt])
def test_words_of_our_own_and_an_interrupt_go_on(kind: type[BaseException]) -> None:
    def run() -> None:
        raise kind("enough")

    with pytest.raises(kind, match="enough"):
        parity.attempted(run)


def test_no_module_compares_by_value() -> None:
    package = Path(switchboard.__file__).parent
    texts = {
        path.relative_to(package).as_posix(): path.read_text() for path in package.rglob("*.py")
    }
    assert [name for name, text in texts.items() if "array_equal" in text] == []


class Reading:
    """A mixin for an attention that looks at a projection's weight in its forward."""

    def __call__(self, x: mx.array, *more: Any, **how: Any) -> mx.array:
        return super().__call__(x.astype(self.q_proj.weight.dtype), *more, **how)  # type: ignore[attr-defined,misc]


def test_a_model_that_reads_a_weight_of_a_joined_projection_keeps_its_own() -> None:
    model, _ = tiny.build("llama", "none")
    for layer in model.layers:
        layer.self_attn.__class__ = type("Reads", (Reading, type(layer.self_attn)), {})
    board = applied(model, "fused_qkv", "fused_gate_up")
    told = board.positions["fused_qkv"]
    assert told.state == "declined"
    assert "a pass broke off: AttributeError" in str(told.reason)
    assert board.positions["fused_gate_up"].state == "armed"
    with pytest.raises(SwitchRefused, match="AttributeError"):
        applied(model, "fused_qkv", required=True)


def test_a_plain_model_that_cannot_run_is_an_error_of_the_model() -> None:
    model, _ = tiny.build("llama", "none")
    model.layers[0].mlp = None
    with pytest.raises(ModelError, match="plain model broke off: TypeError"):
        applied(model, "fused_qkv")


@pytest.mark.parametrize("kind", [TypeError, KeyError])
def test_products_that_break_off_stay_separate(
    kind: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise kind("no such thing")

    monkeypatch.setattr(Joint, "read", broken)
    model, _ = tiny.build("llama", "none")
    with pytest.raises(Declined, match=f"products broke off: {kind.__name__}"):
        join(model, (("q_proj", "k_proj", "v_proj"),), Counter(), keep_originals=False)


class TwoFoldRoPE(RoPE):
    def __call__(self, x: mx.array, offset: int = 0) -> Any:
        return super().__call__(x[self.missing], offset)


def test_a_rotation_that_breaks_off_stays_and_is_named() -> None:
    model, _ = tiny.build("llama", "none")
    model.layers[2].self_attn.rope = TwoFoldRoPE(32)
    done = shared_rotary.shared_rotary(model, NoOptions(), Counter())
    assert (done.fused, done.eligible) == (3, 4)
    assert "layers.2.self_attn.rope: a rotation broke off: AttributeError" in str(done.note)


class Gated(nn.Module):
    """A norm that cannot be called with one input."""

    def __init__(self) -> None:
        super().__init__()
        self.weight, self.eps = mx.ones((64,)), 1e-5

    def __call__(self, x: mx.array, gate: mx.array) -> mx.array:
        return mx.fast.rms_norm(x, self.weight, self.eps) * gate


def test_a_norm_that_cannot_be_tried_stays_and_is_named() -> None:
    model, _ = tiny.build("gemma3", "none")
    model.layers[1].self_attn.extra_norm = Gated()
    done = fast_norm.fast_norm(model, NoOptions(), Counter())
    assert (done.fused, done.partly, done.eligible, done.modules) == (3, 1, 4, 24)
    assert "1 norms stay; first: Gated: it broke off: TypeError" in str(done.note)


def test_a_joint_that_flips_the_sign_of_a_zero_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    honest: Callable[..., mx.array] = Joint.read
    monkeypatch.setattr(Joint, "read", lambda *given: flipped(honest(*given)))
    model, _ = tiny.build("llama", "none")
    for layer in model.layers:
        layer.self_attn.q_proj.weight = mx.zeros_like(layer.self_attn.q_proj.weight)
    with pytest.raises(Declined, match=r"at length 1: 128 of 128 differ, .*, by up to 0"):
        join(model, (("q_proj", "k_proj", "v_proj"),), Counter(), keep_originals=False)


def test_a_whole_model_that_flips_the_sign_of_a_zero_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    zero = mx.zeros((1, 4))
    seen = iter([[zero], [-zero]])
    monkeypatch.setattr(load, "probe", lambda model: next(seen))
    model, _ = tiny.build("llama", "none")
    told = applied(model, "fused_qkv").positions["fused_qkv"]
    assert "plain model beside it: 4 of 4 differ" in str(told.reason)


def test_a_cache_that_flips_the_sign_of_a_zero_is_found() -> None:
    """A model of zeros, whose sign is the cache's."""
    kinds = lm.caches()
    other = type("Other", (kinds.KVCache,), {})

    def model(ids: mx.array, cache: list[Any]) -> mx.array:
        for entry in cache:
            entry.update_and_fetch(*[mx.zeros((1, 1, ids.shape[1], 4))] * 2)
        zeros = mx.zeros((1, ids.shape[1], 4))
        return -zeros if type(cache[0]) is other else zeros

    wrong = kv.check(model, lambda room: [kinds.KVCache()])
    assert wrong(lambda room: [kinds.KVCache()], "exact") is None
    assert "logits of pass 0" in str(wrong(lambda room: [other()], "exact"))
    assert wrong(lambda room: [other()], "lossy") is None


def test_a_norm_that_flips_the_sign_of_a_zero_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    model, _ = tiny.build("gemma3", "none")
    for module in model.modules():
        if fast_norm.looks_like_a_norm(module):
            # Scaled by one plus its weights, which makes every number a 0.
            module.weight = -mx.ones_like(module.weight)
    honest: Callable[..., mx.array] = fast_norm.ReadyNorm.__call__
    monkeypatch.setattr(fast_norm.ReadyNorm, "__call__", lambda *given: flipped(honest(*given)))
    with pytest.raises(Declined, match=r"other bytes than mx\.fast\.rms_norm: .* by up to 0"):
        fast_norm.fast_norm(model, NoOptions(), Counter())


def test_an_attention_that_does_not_repeat_proves_nothing() -> None:
    model, _ = tiny.build("llama", "none")
    plain, calls = type(model.layers[1].self_attn), [0]

    class Wavering(plain):  # type: ignore[valid-type,misc]
        def __call__(self, x: mx.array, mask: Any = None, cache: Any = None) -> mx.array:
            calls[0] += 1
            return super().__call__(x, mask, cache) * (1 + 1e-6 * calls[0])

    model.layers[1].self_attn.__class__ = Wavering
    done = fused_epilogue.put_on(model, fused_epilogue.Options(), Counter(), emulated.launch)
    assert (done.fused, done.eligible) == (3, 4)
    assert "layers.1.self_attn: plain attention does not repeat here: output at" in str(done.note)


def test_two_probes_on_one_plain_cache_agree_with_it_both_times() -> None:
    model, _ = tiny.build("llama", "none")
    plain = kv.factory(model)
    wrong = kv.check(model, plain)
    assert [wrong(plain, "exact") for _ in range(3)] == [None] * 3


def test_an_attention_that_reshapes_packed_rows_keeps_the_plain_cache() -> None:
    """gemma2 reshapes keys by itself, which fails on the tuples of packed rows."""
    more = {
        "query_pre_attn_scalar": 32.0,
        "attn_logit_softcapping": 50.0,
        "final_logit_softcapping": 30.0,
    }
    model = lm.build(tiny._text("gemma2", **more))
    mx.eval(model.parameters())
    board = Board(parse_asked(["quantized_kv:group=32"], []), {})
    plain = kv.factory(model)
    made = board.apply_cache(plain, kv.check(model, plain))
    told = board.positions["quantized_kv"]
    assert told.state == "declined"
    assert "a pass over it broke off: TypeError" in str(told.reason)
    assert type(made(Room(1, 1))[0]).__name__ == "KVCache"
