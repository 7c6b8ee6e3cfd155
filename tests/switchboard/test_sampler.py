"""Filters, masks and seeds of the sampler."""

from __future__ import annotations

import mlx.core as mx
import numpy as np
import pytest

from switchboard.sampler import Sampler, Sampling

LOGITS = mx.array([[2.0, 1.0, 0.5, 0.0, -1.0, -3.0]])


def reference(sampling: Sampling) -> np.ndarray:
    """The same rules in float64, written another way."""
    scaled = np.array(LOGITS[0], dtype=np.float64) / sampling.temperature
    shares = np.exp(scaled - scaled.max())
    order = np.argsort(-shares)
    if sampling.top_k:
        shares[order[sampling.top_k :]] = 0
    shares /= shares.sum()
    before = 0.0
    for token in order:
        if before >= sampling.top_p:
            shares[token] = 0
        before += shares[token]
    shares[shares < sampling.min_p * shares.max()] = 0
    return shares / shares.sum()


@pytest.mark.parametrize(
    "sampling",
    [
        Sampling(),
        Sampling(temperature=0.5),
        Sampling(top_k=3),
        Sampling(top_p=0.7),
        Sampling(min_p=0.2),
        Sampling(temperature=1.7, top_k=5, top_p=0.8, min_p=0.15),
    ],
)
def test_the_distribution_after_filters(sampling: Sampling) -> None:
    got = np.array(Sampler(sampling, ()).distributions(LOGITS))[0]
    assert np.abs(got - reference(sampling)).max() < 1e-6


def test_draws_follow_the_distribution_and_the_seed() -> None:
    sampling = Sampling(temperature=1.0, top_k=4, seed=5)
    rows = mx.repeat(LOGITS, 4000, axis=0)
    first = np.array(Sampler(sampling, ()).choose(rows, 0))
    again = np.array(Sampler(sampling, ()).choose(rows, 0))
    other = np.array(Sampler(Sampling(top_k=4, seed=6), ()).choose(rows, 0))
    assert (first == again).all()
    assert (first != other).any()
    share = np.bincount(first, minlength=6) / 4000
    assert np.abs(share - reference(sampling)).sum() / 2 < 0.03


def test_the_law_draws_from_the_filtered_distribution() -> None:
    sampling = Sampling(temperature=0.8, top_k=4)
    rows = mx.repeat(LOGITS, 2, axis=0)
    counts = np.zeros(6)
    sampler = Sampler(sampling, ())
    for place in range(1500):
        verdict = sampler.judge(rows, [1], place)
        counts[1 if verdict.accepted else verdict.following] += 1
    assert np.abs(counts / 1500 - reference(sampling)).sum() / 2 < 0.04


def test_rows_that_may_not_end_yet_lose_the_end_token() -> None:
    rows = mx.repeat(LOGITS, 3, axis=0)
    sampler = Sampler(Sampling(temperature=0.0, min_tokens=7), (0,))
    # Five tokens are made: rows 0 and 1 are tokens six and seven, row 2 is free.
    assert sampler.choose(rows, 5).tolist() == [1, 1, 0]
    assert Sampler(Sampling(temperature=0.0, ignore_eos=True), (0,)).choose(rows, 99).tolist() == [
        1,
        1,
        1,
    ]
    biased = Sampler(Sampling(temperature=0.0, logit_bias={4: 50.0}), (0,))
    assert biased.choose(rows, 0).tolist() == [4, 4, 4]


def test_the_law_chooses_what_the_plain_loop_would_choose_at_every_place() -> None:
    rng = np.random.default_rng(3)
    rows = mx.array(rng.normal(size=(6, 40)).astype(np.float32))
    sampling = Sampling(temperature=0.9, top_p=0.9, seed=11)
    plain = Sampler(sampling, ())
    own = [int(plain.choose(rows[place : place + 1], 4 + place).item()) for place in range(6)]
    for stands in range(6):
        draft = [*own[:stands], (own[stands] + 1) % 40, 0, 0, 0, 0][:5]
        verdict = Sampler(sampling, ()).judge(rows, draft, 4)
        assert verdict.accepted == stands and verdict.following == own[stands]
