from __future__ import annotations

import math

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binomtest, ttest_1samp
from scipy.stats import t as student
from statsmodels.stats.multitest import multipletests

from battery.analyse import stats

SIX = [0.04, 0.05, 0.06, 0.05, 0.03, 0.07]


def test_interval_by_hand() -> None:
    found = stats.paired(SIX)
    assert found is not None and found.low and found.high
    sd = math.sqrt(sum((x - 0.05) ** 2 for x in SIX) / 5)
    half = float(student.ppf(0.975, 5)) * sd / math.sqrt(6)
    assert found.ratio == pytest.approx(math.exp(0.05))
    assert (found.low, found.high) == pytest.approx((math.exp(0.05 - half), math.exp(0.05 + half)))
    assert found.sd == pytest.approx(sd)
    assert found.p == pytest.approx(2 * float(student.sf(0.05 / (sd / math.sqrt(6)), 5)))
    assert found.sign_flip_p == pytest.approx(2 / 64)


def test_one_block_has_a_ratio_and_no_interval() -> None:
    found = stats.paired([0.1])
    assert found is not None
    assert (found.low, found.high, found.p, found.sd) == (None, None, None, None)
    assert "one block" in found.note
    assert stats.paired([]) is None


@pytest.mark.parametrize("value, p, word", [(0.0, 1.0, "equivalent"), (0.03, 0.0, "faster")])
def test_no_spread_is_said_and_never_nan(value: float, p: float, word: str) -> None:
    found = stats.paired([value] * 6)
    assert found is not None
    assert (found.low, found.high, found.p, found.sd) == (found.ratio, found.ratio, p, 0.0)
    assert "no width" in found.note
    tost = stats.equivalence([value] * 6, 0.02)
    assert stats.judge(found, found.p, tost, 0.02, ("faster", "slower")).word == word


def test_holm_by_hand_and_against_statsmodels() -> None:
    assert stats.holm([0.01, None, 0.04, 0.03]) == pytest.approx([0.03, None, 0.06, 0.06])
    ps = [0.2, 0.001, 0.03, 0.04, 0.9, 0.011]
    assert stats.holm(ps) == pytest.approx(list(multipletests(ps, method="holm")[1]))
    assert stats.holm([None]) == [None]


def test_equivalence_against_two_one_sided_tests() -> None:
    d, bound = np.asarray([0.001, -0.002, 0.003, 0.0, -0.001, 0.002]), math.log1p(0.02)
    se = d.std(ddof=1) / math.sqrt(6)
    upper = float(student.cdf((d.mean() - bound) / se, 5))
    lower = float(student.sf((d.mean() + bound) / se, 5))
    assert stats.equivalence(list(d), 0.02) == pytest.approx(max(upper, lower))
    assert stats.equivalence([0.1], 0.02) is None


def verdict(d: list[float], margin: float = 0.02) -> stats.Verdict:
    found = stats.paired(d)
    assert found is not None
    tost, away = stats.equivalence(d, margin), stats.beyond(found, margin)
    return stats.judge(found, found.p, tost, margin, ("faster", "slower"), beyond_p=away)


def test_verdicts() -> None:
    assert (verdict(SIX).word, verdict(SIX).qualifier) == ("faster", "by at least 2 %")
    assert verdict([-x for x in SIX]).word == "slower"
    small = [0.005, 0.006, 0.004, 0.005, 0.006, 0.004]
    assert (verdict(small).word, verdict(small).qualifier) == ("faster", "within 2 %")
    middling = [0.02, 0.03, 0.01, 0.02, 0.028, 0.015]
    assert (verdict(middling).word, verdict(middling).qualifier) == ("faster", "")
    assert verdict([0.001, -0.001, 0.002, -0.002, 0.0, 0.0]).word == "equivalent"
    noisy = verdict([0.05, -0.06, 0.02, -0.03, 0.07, -0.05])
    assert noisy.word == "undecided"
    assert "blocks" in noisy.why and "nan" not in noisy.why


def test_fewer_than_six_blocks_is_a_pilot_whatever_the_numbers() -> None:
    for count in range(1, 6):
        assert verdict([0.5 + 0.001 * i for i in range(count)]).word == "pilot"


def test_a_difference_that_does_not_survive_correction_is_undecided() -> None:
    d = [0.05, 0.01, 0.06, 0.02, 0.05, 0.0]
    found = stats.paired(d)
    assert found is not None and found.p is not None and found.p < 0.05
    told = stats.judge(found, 0.2, 1.0, 0.02, ("faster", "slower"))
    assert told.word == "undecided"
    assert "after Holm" in told.why


def test_why_undecided_says_only_what_is_so() -> None:
    found = stats.Estimate(blocks=12, ratio=1.0, low=0.985, high=1.0175, sd=0.02, p=0.9)

    def why(low: float, correction: str) -> str:
        one = msgspec.structs.replace(found, low=low)
        told = stats.judge(one, 0.9, 0.06, 0.02, ("faster", "slower"), correction=correction)
        assert told.word == "undecided"
        return told.why.partition(";")[0]

    inside = "the interval holds 1 inside ±2 %, but the p of equivalence after Holm over 3 contexts is 0.060"
    assert why(0.985, "Holm over 3 contexts") == inside
    assert why(0.985, "").endswith("but the p of equivalence is 0.060")
    assert why(0.97, "Holm over 3 contexts") == "the interval holds 1 and is not inside ±2 %"


def test_beyond_the_margin_is_the_interval_clear_of_it() -> None:
    for d in (
        SIX,
        [-x for x in SIX],
        [0.02, 0.03, 0.01, 0.02, 0.028, 0.015],
        [0.001] * 5 + [0.002],
    ):
        found = stats.paired(d)
        assert found is not None and found.low is not None and found.high is not None
        for margin in (0.001, 0.01, 0.02, 0.03, 0.04, 0.05):
            p = stats.beyond(found, margin)
            clear = found.low > 1 + margin or found.high < 1 / (1 + margin)
            assert p is not None and (p < 0.05) == clear
    low = stats.paired(SIX)
    side = ttest_1samp(SIX, math.log1p(0.02), alternative="greater").pvalue
    assert stats.beyond(low, 0.02) == pytest.approx(2 * side)
    assert stats.beyond(stats.paired([0.1]), 0.02) is None and stats.beyond(None, 0.02) is None


def test_by_at_least_the_margin_is_corrected_too() -> None:
    found = stats.paired(SIX)
    assert found is not None
    told = stats.judge(found, 0.001, 1.0, 0.02, ("faster", "slower"), beyond_p=0.06)
    assert (told.word, told.qualifier) == ("faster", "")


def test_power_against_the_table_of_the_design() -> None:
    """Detectable effects at 80 % in spreads of the block differences: K=6 1.43, 8 1.16, 12 .89."""
    for blocks, effect in ((4, 2.13), (6, 1.43), (8, 1.16), (12, 0.89)):
        found = stats.detectable(0.01, blocks)
        assert found is not None
        assert math.log1p(found) / 0.01 == pytest.approx(effect, abs=0.01)
    assert stats.blocks_needed(0.0, 0.02) == 6
    assert stats.blocks_needed(0.005, 0.02) == 6
    needed = stats.blocks_needed(0.02, 0.02)
    assert needed is not None and needed % 2 == 0 and needed > 8
    assert stats.blocks_needed(1.0, 0.02) is None
    assert stats.blocks_needed(None, 0.02) is None


def test_arm_mean_is_geometric_over_windows() -> None:
    found = stats.geometric([math.log(x) for x in (10.0, 40.0)])
    assert found is not None and found.low is not None
    assert found.value == pytest.approx(20.0)
    assert found.low < 10
    one = stats.geometric([math.log(5)])
    assert one is not None and (one.low, one.n) == (None, 1)
    assert stats.geometric([]) is None


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.floats(-3, 3, allow_nan=False).map(lambda x: round(x, 6)), min_size=0, max_size=9)
)
def test_no_input_gives_nan(d: list[float]) -> None:
    found = stats.paired(d)
    if found is None:
        assert not d
        return
    numbers = [found.ratio, found.low, found.high, found.sd, found.p, found.sign_flip_p]
    assert all(math.isfinite(x) for x in numbers if x is not None)
    tost = stats.equivalence(d, 0.02)
    assert tost is None or math.isfinite(tost)
    told = stats.judge(found, found.p, tost, 0.02, ("faster", "slower"))
    assert "nan" not in told.why


def null_battery(dice: np.random.Generator, blocks: int = 6, seeds: int = 3) -> list[float]:
    """Block differences of two equal arms: launch effects, prompts, rounding luck, a random walk, ABBA."""
    level, d = 0.0, []
    for block in range(blocks):
        rate = {}
        prompts = dice.normal(0, 0.03, seeds)
        for arm in ("AC", "CA")[block % 2]:
            level += dice.normal(0, 0.005) - 0.01
            launch = dice.normal(0, 0.007)
            own = dice.normal(0, 0.052, seeds)
            rate[arm] = level + launch + prompts + own + dice.normal(0, 0.005, seeds)
        d.append(float(np.mean(rate["C"] - rate["A"])))
    return d


def test_null_batteries_are_called_different_no_more_often_than_promised() -> None:
    dice = np.random.default_rng(20260102)
    words = [verdict(null_battery(dice)).word for _ in range(300)]
    false = sum(word in ("faster", "slower") for word in words)
    assert binomtest(false, 300, 0.05, alternative="greater").pvalue >= 0.01


def test_linear_drift_cancels_over_an_even_number_of_blocks() -> None:
    steps = [0.01 if block % 2 == 0 else -0.01 for block in range(6)]
    found = stats.paired([0.05 + step for step in steps])
    assert found is not None and found.ratio == pytest.approx(math.exp(0.05))


@given(st.lists(st.floats(0, 1), min_size=1, max_size=30))
@settings(max_examples=60, deadline=None)
def test_corrections_are_those_of_statsmodels(ps: list[float]) -> None:
    for ours, method in ((stats.holm, "holm"), (stats.false_discovery, "fdr_bh")):
        wanted = multipletests(ps, method=method)[1]
        assert ours(ps) == pytest.approx(list(wanted), abs=1e-12)
        # what is unknown takes no part
        assert ours([None, *ps, None]) == [None, *ours(ps), None]
