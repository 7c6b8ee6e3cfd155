"""Norms that are more than one fast call are replaced when the bytes stay the same, and only then."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import pytest
from mlx import nn

from switchboard.board import Board
from switchboard.config import parse_asked
from switchboard.errors import Declined
from switchboard.load import apply_switches
from switchboard.registry import Counter, NoOptions
from switchboard.sources import tiny
from switchboard.switches.fast_norm import ReadyNorm, fast_norm, is_fast, looks_like_a_norm


class Spelled(nn.Module):
    """RMSNorm in plain operations, as the fast one computes it where it has no kernel."""

    def __init__(self, scale: float) -> None:
        super().__init__()
        self.weight = mx.random.normal((64,), key=mx.random.key(1))
        self.eps = 1e-5
        self.scale = scale

    def __call__(self, x: mx.array) -> mx.array:
        mean = mx.mean(mx.square(x), axis=-1, keepdims=True)
        return self.weight * (x * mx.rsqrt(mean + self.scale * self.eps))


class Layer(nn.Module):
    def __init__(self, norm: Any) -> None:
        super().__init__()
        self.norm = norm


class Model(nn.Module):
    def __init__(self, *norms: Any) -> None:
        super().__init__()
        self.layers = [Layer(norm) for norm in norms]


def test_gemmas_sum_is_made_once() -> None:
    model, _ = tiny.build("gemma3", "q4-g32")
    counter = Counter()
    done = fast_norm(model, NoOptions(), counter)
    # Six in each of four layers, and the last one.
    assert done.coverage()["classes"] == {"RMSNorm": {"eligible": 25, "fused": 25}}
    counter.clear()
    model(mx.arange(3)[None])
    assert counter.runs == 25
    done.undo()
    assert not any(isinstance(module, ReadyNorm) for module in model.modules())


def test_a_norm_written_out_is_replaced_when_the_bytes_are_the_same() -> None:
    model = Model(Spelled(1.0), nn.RMSNorm(64), Spelled(3.0))
    assert [is_fast(layer.norm) for layer in model.layers] == [False, True, False]
    done = fast_norm(model, NoOptions(), Counter())
    kinds = [type(layer.norm).__name__ for layer in model.layers]
    assert kinds == ["ReadyNorm", "RMSNorm", "Spelled"]
    assert (done.fused, done.eligible, done.layers) == (1, 2, 3)
    assert "1 norms stay; first: Spelled: other bytes than mx.fast.rms_norm" in str(done.note)


def test_where_none_keeps_its_bytes_the_switch_declines() -> None:
    with pytest.raises(Declined, match=r"first: Spelled: other bytes than mx\.fast"):
        fast_norm(Model(Spelled(3.0)), NoOptions(), Counter())


def test_what_is_no_norm_is_left_alone() -> None:
    assert looks_like_a_norm(nn.RMSNorm(8))
    assert not looks_like_a_norm(nn.LayerNorm(8))
    assert not looks_like_a_norm(nn.Linear(8, 8))
    assert not looks_like_a_norm([nn.RMSNorm(8)])


def test_a_wrong_epsilon_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = ReadyNorm.__init__

    def wrong(self: ReadyNorm, weight: mx.array, eps: float, *more: Any) -> None:
        honest(self, weight, 100 * eps, *more)

    monkeypatch.setattr(ReadyNorm, "__init__", wrong)
    model, _ = tiny.build("gemma3", "none")
    board = Board(parse_asked(["fast_norm"], []), {})
    apply_switches(model, board)
    assert "RMSNorm: other bytes" in str(board.positions["fast_norm"].reason)
