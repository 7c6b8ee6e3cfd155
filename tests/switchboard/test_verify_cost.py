"""What passes and guesses cost is what a clock says that passes only where a test lets it, over every kind of cache."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import pytest
from oracle import Oracle

from switchboard import cache as kv
from switchboard import verify_cost
from switchboard.accept.ruling import Drawn
from switchboard.decode import forward
from switchboard.depth import Costs
from switchboard.sampler import Sampler, Sampling
from switchboard.sources import synthetic, tiny


@pytest.fixture(scope="module")
def model() -> Any:
    return synthetic.build("tiny-llama")[0]


def test_rows_are_filled_without_reading_them() -> None:
    for family in ("llama", "gemma3", "qwen3_5"):
        built, _ = tiny.build(family, "none")
        bench = verify_cost.Bench(
            built, lambda room, built=built: kv.make(built), Sampler(Sampling(), ()),
            Oracle([], bool), 4, 300, 2, 0.0,
        )  # fmt: skip
        cache = verify_cost.filled(bench)
        offsets = {one.offset for one in kv.parts(cache) if not kv.is_state(one)}
        assert offsets == {300}
        assert mx.isfinite(forward(built, cache, mx.array([1, 2]))).all().item()


class Clock:
    """A time that only passes where a test lets it."""

    def __init__(self) -> None:
        self.now = 0.0

    def perf_counter(self) -> float:
        return self.now


@pytest.mark.parametrize("family", ["llama", "gemma3", "qwen3_5"])
@pytest.mark.parametrize("draws", [False, True])
def test_what_passes_and_guesses_take_is_what_is_found(
    monkeypatch: pytest.MonkeyPatch, family: str, draws: bool
) -> None:
    clock, made = Clock(), tiny.build(family, "none")[0]
    monkeypatch.setattr(verify_cost, "time", clock)

    def late(tokens: mx.array, cache: Any) -> Any:
        # a pass takes a second, and each of its tokens a tenth
        clock.now += 1 + 0.1 * tokens.size
        return made(tokens, cache=cache)

    class Slow(Oracle):
        def begin(self, prompt: list[int]) -> None:
            super().begin(prompt)
            clock.now += 0.01 * len(prompt)

        def propose(self, limit: int) -> list[int]:
            clock.now += 0.02 * min(limit, 3)
            guesses = [7] * min(limit, 3)
            return Drawn(guesses, mx.ones((len(guesses), 512)) / 512) if draws else guesses

    found = verify_cost.measure(
        verify_cost.Bench(
            late, lambda room: kv.make(made), Sampler(Sampling(), ()), Slow([], bool), 8, 64, 3, 9e9
        )
    )
    assert found.widths == (1, 2, 4) and found.depths == (1, 3)
    again = 1.1 if family == "qwen3_5" else 0.0
    assert found.replays == bool(again)
    assert found.ratios == pytest.approx((1.0, (1.2 + again) / 1.1, (1.4 + again) / 1.1))
    assert found.guessing == pytest.approx((0.02 / 1.1, 0.06 / 1.1))
    assert found.reading == pytest.approx(0.01 / 1.1) and not found.silent


def test_rounds_end_when_the_time_is_used_up_and_a_silent_proposer_is_told(
    monkeypatch: pytest.MonkeyPatch, model: Any
) -> None:
    clock, steps = Clock(), []
    monkeypatch.setattr(verify_cost, "time", clock)
    honest = verify_cost.Walk.steps

    def counted(walk: verify_cost.Walk) -> list[float]:
        honest(walk)
        steps.append(1)
        clock.now += 10
        return [1.0]

    monkeypatch.setattr(verify_cost.Walk, "steps", counted)
    for limit, rounds in ((1.0, 2), (25.0, 3), (9e9, 5)):
        steps.clear()
        bench = verify_cost.Bench(
            model, lambda room: kv.make(model), Sampler(Sampling(), ()), Oracle([], bool), 3, 64, 5, limit
        )  # fmt: skip
        found = verify_cost.measure(bench)
        assert len(steps) == rounds
        assert found.silent and found.deepest == 3


def test_costs_are_the_least_seconds_over_those_of_a_step() -> None:
    sheet = verify_cost.Sheet(
        [4.0, 2.0, 9.0], {2: [5.0, 3.0, 4.0], 4: [8.0, 8.0, 8.0]}, {1: [0.5, 0.1, 0.2], 3: [1.0, 1.0, 1.0]}
    )  # fmt: skip
    assert verify_cost.costs(sheet, 0.02, True) == Costs(
        (1, 2, 4), (1.0, 1.5, 4.0), (1, 3), (0.05, 0.5), 0.01, True
    )
