"""Chances that a guess stands, against what the sampler and the law really do."""

from __future__ import annotations

import mlx.core as mx
import numpy as np
import pytest

from benchmarks.cut_acceptance import main, stands
from switchboard.accept.ruling import Drawn
from switchboard.sampler import Sampler, Sampling


def test_chances_by_hand() -> None:
    one, other = np.array([[0.5, 0.3, 0.2]]), np.array([[0.2, 0.3, 0.5]])
    # shares on the line: 0-.5-.8-1 against 0-.2-.5-1
    assert stands(one, other) == pytest.approx((0.7, 0.2 + 0.0 + 0.2, 0.0))
    assert stands(one, one) == pytest.approx((1.0, 1.0, 1.0))


def test_chances_are_how_often_guesses_stand() -> None:
    rng = np.random.default_rng(1)
    logits = rng.normal(size=(2, 6)).astype(np.float32)
    both = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    drawn, coupled, _ = stands(both[:1].astype(float), both[1:].astype(float))
    stood = [0, 0]
    pass_of_two = mx.array(np.repeat(logits[:1], 2, axis=0))
    for seed in range(600):
        sampler = Sampler(Sampling(seed=seed), ())
        guess = int(sampler.choose(mx.array(logits[1:]), 0).item())
        stood[1] += sampler.judge(pass_of_two, [guess], 0).accepted
        free, row = sampler.draw(mx.array(logits[1:]), 0)
        stood[0] += sampler.judge(pass_of_two, Drawn([int(free.item())], row[None]), 0).accepted
    assert stood[0] / 600 == pytest.approx(drawn, abs=0.07)
    assert stood[1] / 600 == pytest.approx(coupled, abs=0.07)


def test_the_table_of_a_tiny_model(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--model", "synthetic:tiny-llama", "--layers", "1,3"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].endswith("places, 4 layers") and len(lines) == 5
