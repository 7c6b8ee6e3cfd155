from __future__ import annotations

import math
import random
from pathlib import Path

import msgspec
import numpy as np
import pytest
from scipy.stats import bootstrap, ttest_1samp, wilcoxon
from synthetic import World, build

from battery.analyse.findings import analyse
from battery.analyse.pairs import Pair, Pairs
from battery.analyse.sensitivity import sensitivity
from battery.render.report import markdown


def pairs(logs: list[list[float]], metric: str = "decode") -> Pairs:
    """Per block, per pair the log ratio; the control's own logs ripple from seed to seed."""
    kept = []
    for block, here in enumerate(logs, start=1):
        for seed, log in enumerate(here):
            control = math.exp(0.1 * seed)
            kept.append(
                Pair(block=block, control=control, candidate=control * math.exp(log), cut=False, receipts=(1, 2))
            )  # fmt: skip
    return Pairs(kept=tuple(kept), planned=len(kept), lost={}, metric=metric)


def test_wilcoxon_is_scipys_and_exact() -> None:
    d = [0.04, 0.051, 0.062, 0.053, 0.034, 0.075]
    found = sensitivity(pairs([[x] for x in d]), 0.05)
    assert found.wilcoxon_p == pytest.approx(2 / 64)
    mixed = [0.04, -0.051, 0.062, -0.013, 0.034, 0.075, 0.011, -0.002]
    assert sensitivity(pairs([[x] for x in mixed]), 0.05).wilcoxon_p == pytest.approx(
        float(wilcoxon(mixed, method="exact").pvalue)
    )


@pytest.mark.parametrize("d", [[0.0] * 6, [0.0, 0.0, 0.1, 0.1, -0.1, 0.2], [0.1], [0.1, 0.1]])
def test_ties_zeros_and_few_blocks_raise_no_warning(d: list[float]) -> None:
    found = sensitivity(pairs([[x] for x in d]), 0.05)
    assert found.wilcoxon_p is None if len(d) < 2 else 0 < float(found.wilcoxon_p or 0) <= 1
    assert (found.bca_low, found.bca_high) == (None, None)


def test_the_bootstrap_is_seeded_and_shown_from_twelve_blocks_on() -> None:
    dice = random.Random(3)
    d = [dice.gauss(0.05, 0.02) for _ in range(12)]
    assert sensitivity(pairs([[x] for x in d[:11]]), 0.05).bca_low is None
    found = sensitivity(pairs([[x] for x in d]), 0.018)
    assert found == sensitivity(pairs([[x] for x in d]), 0.018)
    wanted = bootstrap(
        (np.asarray(d),), np.mean, confidence_level=0.982, n_resamples=1999, method="BCa", vectorized=True,
        rng=np.random.default_rng(1),
    ).confidence_interval  # fmt: skip
    assert (found.bca_low, found.bca_high) == pytest.approx((math.exp(wanted.low), math.exp(wanted.high)))  # fmt: skip
    assert found.bca_low and found.bca_high and found.bca_low < math.exp(0.05) < found.bca_high
    flat = sensitivity(pairs([[0.05]] * 12), 0.05)
    assert flat.bca_low is None


def test_medians_by_hand() -> None:
    # Controls' logs are 0, .1, .2; one pair of each block is far off and moves the mean alone.
    logs = [[0.05 + 0.001 * block, 0.05, 3.0] for block in range(6)]
    found = sensitivity(pairs(logs), 0.05)
    # Candidates' logs: about .05, .15 and 3.2, median .15; controls' median .1.
    assert found.median_ratio == pytest.approx(math.exp(0.05))
    several = [[0.05 + 0.01 * block] for block in range(6)]
    wanted = ttest_1samp([row[0] for row in several], 0).pvalue
    assert sensitivity(pairs(several), 0.05).median_p == pytest.approx(float(wanted))


def test_shown_beside_the_estimate_and_used_by_no_verdict(tmp_path: Path) -> None:
    found = analyse(build(tmp_path, World(blocks=12, effect={"C": 1.05}, speculates=("A", "C"))))
    for one in found.comparisons:
        main = one.metric in ("decode", "prefill", "ttft", "peak_memory")
        assert (one.sensitivity is not None) == main
    (one,) = found.primary
    assert one.sensitivity and one.sensitivity.bca_low and one.estimate
    assert one.sensitivity.median_ratio == pytest.approx(1.05, rel=0.01)
    assert (
        one.sensitivity.wilcoxon_p == pytest.approx(2 / 2**12)
        and one.estimate.sign_flip_p is not None
    )
    page = markdown(found)
    assert "| Wilcoxon p | bootstrap BCa [95 %] | by medians |" in page
    assert msgspec.to_builtins(one.sensitivity).keys() >= {"wilcoxon_p", "median_p"}
