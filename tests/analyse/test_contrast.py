"""Two campaigns side by side: known answers of the tests, planted truths, and every reason not to pool."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import synthetic
from scipy import stats as scipy_stats

from battery.analyse import contrast as contrasting
from battery.analyse import findings
from battery.analyse.contrast import Contrast, Row, contrast
from battery.analyse.findings import Findings
from battery.ledger.errors import InputError
from battery.ledger.plan import Sampler
from battery.render import contrasting as telling


def campaign(root: Path, name: str, seed: int, effect: float = 1.05, **world: Any) -> Findings:
    """One campaign of a true effect, with prompts of its own."""
    made = synthetic.World(effect={"C": effect}, random_seed=seed, **{"ladder": (128,), **world})
    found = findings.analyse(synthetic.build(root, made, name))
    return msgspec.structs.replace(found, seed=seed, seeds={1: (seed,)})


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Findings:
    return campaign(tmp_path_factory.mktemp("first"), "first", 1)


def primary(found: Contrast) -> Row:
    (row,) = (row for row in found.rows if row.primary)
    return row


def test_it_is_welchs_test() -> None:
    dice = np.random.default_rng(4)
    one, other = dice.normal(0.05, 0.01, 6), dice.normal(0.07, 0.04, 12)
    means = [
        contrasting._Mean(float(x.mean()), float(x.var(ddof=1)) / x.size, x.size)
        for x in (one, other)
    ]
    found = contrasting._apart(*means, margin=0.02, alpha=0.05)
    wanted = scipy_stats.ttest_ind(other, one, equal_var=False)
    interval = wanted.confidence_interval(0.95)
    assert found.p == pytest.approx(wanted.pvalue) and found.df == pytest.approx(wanted.df)
    assert math.log(found.ratio) == pytest.approx(other.mean() - one.mean())
    assert math.log(found.low) == pytest.approx(interval.low)
    assert math.log(found.high) == pytest.approx(interval.high)
    bound = math.log1p(0.02)
    sides = (
        scipy_stats.ttest_ind(other - bound, one, equal_var=False, alternative="less").pvalue,
        scipy_stats.ttest_ind(other + bound, one, equal_var=False, alternative="greater").pvalue,
    )
    assert found.tost_p == pytest.approx(max(sides))


def test_campaigns_of_one_truth_agree(first: Findings, tmp_path: Path) -> None:
    found = contrast(("first", "second"), first, campaign(tmp_path, "second", 2))
    row = primary(found)
    assert row.agreement == "agree" and row.apart and row.apart.low < 1 < row.apart.high
    assert row.one and row.other and row.one.ratio == first.primary[0].estimate.ratio  # type: ignore[union-attr]
    assert found.refused == () and found.pooled is not None
    both = next(one for one in found.pooled.comparisons if one.primary).pooled
    assert both and both.low < 1.05 < both.high
    text = "\n".join(telling.lines(found))
    assert "agree within 2 %" in text and "May be pooled" in text and "second / first" in text
    assert {(x.part, x.field) for x in found.settings} == {("campaign", "seed")}


def test_campaigns_of_two_truths_differ(first: Findings, tmp_path: Path) -> None:
    found = contrast(("first", "second"), first, campaign(tmp_path, "second", 2, effect=1.15))
    row = primary(found)
    assert row.agreement == "differ" and row.apart
    assert row.apart.low < 1.15 / 1.05 < row.apart.high and row.apart.low > 1
    assert found.refused == (), "they may be pooled all the same: random effects are for that"


def test_noise_agrees_with_nothing(first: Findings, tmp_path: Path) -> None:
    found = contrast(("first", "noisy"), first, campaign(tmp_path, "noisy", 2, noise=0.05))
    assert primary(found).agreement == "undecided"


def test_one_way_is_the_other_turned_round(first: Findings, tmp_path: Path) -> None:
    second = campaign(tmp_path, "second", 2, effect=1.1, noise=0.01)
    there, back = (
        primary(contrast(("a", "b"), *pair)) for pair in ((first, second), (second, first))
    )
    assert there.apart and back.apart
    assert there.apart.ratio == pytest.approx(1 / back.apart.ratio)
    assert there.apart.low == pytest.approx(1 / back.apart.high)
    assert there.p_corrected == pytest.approx(back.p_corrected)


def test_what_differs_is_told_by_part_and_field(first: Findings, tmp_path: Path) -> None:
    def other(receipt: Any) -> Any:
        return msgspec.structs.replace(
            receipt,
            versions={**receipt.versions, "engine": {"mlx": "0.33.0"}},
            model={"name": "small", "digest": ("e" if receipt.cell.arm == "C" else "d") * 64},
        )

    second = campaign(tmp_path, "second", 2, change=other, env={"C": {"THREADS": "4"}})
    second = msgspec.structs.replace(second, machine={"cpu": "Other", "cores_logical": 2})
    found = contrast(("first", "second"), first, second)
    told = {(x.part, x.field): (x.one, x.other) for x in found.settings}
    assert told["arm C", "env.THREADS"] == (None, "4")
    assert told["model of C", "digest"] == ("d" * 64, "e" * 64)
    assert ("model of A", "digest") not in told
    assert told["builds of A", "engine.mlx"] == ("0.32.4", "0.33.0")
    assert told["machine", "cpu"] == ("Example CPU", "Other")
    assert told["machine", "memory_bytes"][1] is None
    assert found.pooled is None
    assert "arm C is another one: env.THREADS" in found.refused
    assert "arm C ran on another model" in found.refused and len(found.refused) == 2
    text = "\n".join(telling.lines(found))
    assert "May not be pooled" in text and "env.THREADS" in text and "0.33.0" in text


def changed(found: Findings, **plan: Any) -> Findings:
    return msgspec.structs.replace(found, plan=msgspec.structs.replace(found.plan, **plan))


def test_every_reason_not_to_pool(first: Findings, tmp_path: Path) -> None:
    second = campaign(tmp_path, "second", 2)
    for other, why in (
        (changed(second, workload="edit"), "workload prose, not edit"),
        (
            changed(second, sampler=Sampler(temperature=0.0, max_tokens=48, min_tokens=16)),
            "another sampler: temperature 0.7, not 0.0",
        ),
        (msgspec.structs.replace(second, seeds=first.seeds), "the prompts of first again"),
        (msgspec.structs.replace(second, screen="knockout"), "a screen (knockout)"),
        (msgspec.structs.replace(second, pilot=True), "a pilot of 6 blocks"),
        (msgspec.structs.replace(second, status="incomplete"), "not finished"),
        (msgspec.structs.replace(second, control="X"), "its control is X, not A"),
    ):
        found = contrast(("first", "second"), first, other)
        assert len(found.refused) == 1 and why in found.refused[0], found.refused
        assert found.pooled is None
        assert (found.rows == ()) == (other.control == "X")


def test_machines_builds_and_seeds_are_what_pooling_is_for(first: Findings, tmp_path: Path) -> None:
    second = campaign(tmp_path, "second", 2, seeds=3)
    arms = tuple(
        msgspec.structs.replace(arm, versions={"engine": {"mlx": "9"}}) for arm in second.arms
    )
    second = msgspec.structs.replace(second, machine={"cpu": "Other"}, arms=arms)
    found = contrast(("first", "second"), first, second)
    assert found.refused == () and found.pooled is not None
    assert ("plan", "seeds") in {(x.part, x.field) for x in found.settings}


def test_what_has_no_noise_is_not_compared(first: Findings, tmp_path: Path) -> None:
    found = contrast(("first", "second"), first, campaign(tmp_path, "second", 2))
    memory = [row for row in found.rows if row.metric == "peak_memory"]
    assert memory and all(row.agreement == "not compared" and row.apart is None for row in memory)
    assert all("noise is not known" in row.why for row in memory)


def test_arms_that_are_not_there_twice_are_no_pair(first: Findings, tmp_path: Path) -> None:
    other = campaign(tmp_path, "other", 2, arms=("X", "Y"))
    with pytest.raises(InputError, match=r"no arm in common \(A, C; X, Y\)"):
        contrast(("first", "other"), first, other)


def test_p_values_are_corrected_within_a_metric(tmp_path: Path) -> None:
    pair = [
        campaign(tmp_path, name, seed, ladder=(128, 256, 384), noise=0.02)
        for seed, name in enumerate(("one", "two"))
    ]
    rows = contrast(("one", "two"), *pair).rows
    apart = [row for row in rows if row.metric == "decode"]
    assert [row.primary for row in apart] == [False, False, True]
    single = [row.apart.p for row in apart if row.apart]
    assert apart[2].p_corrected == pytest.approx(single[2])
    low, high = sorted(single[:2])
    assert sorted(row.p_corrected or 0 for row in apart[:2]) == pytest.approx(
        [min(1, 2 * low), max(min(1, 2 * low), high)]
    )
