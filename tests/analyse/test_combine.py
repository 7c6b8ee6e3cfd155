"""Campaigns combined: known answers of the pooling, planted truths, and every reason for which one is left out."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import synthetic
from hypothesis import given
from hypothesis import strategies as some
from scipy import optimize
from scipy import stats as scipy_stats

from battery.analyse import findings, pooling
from battery.analyse.combine import Combination, Combined, combine
from battery.analyse.findings import Findings
from battery.ledger.claims import Stopping
from battery.ledger.plan import Margins
from battery.ledger.receipt import Receipt
from battery.render import combining


def test_two_campaigns_by_hand() -> None:
    # both variances .0004: Paule and Mandel's Σ(y − m)²/(v + τ²) = 1 gives v + τ² = 2 · .05² = .005
    found = pooling.pool([0.0, 0.1], [0.0004, 0.0004], [6, 6])
    assert math.log(found.ratio) == pytest.approx(0.05)
    assert found.tau**2 == pytest.approx(0.0046, rel=1e-4)
    assert found.se == pytest.approx(0.05, rel=1e-4)
    assert math.log(found.low) == pytest.approx(0.05 - 12.7062 * 0.05, rel=1e-4)
    assert (found.q, found.i2) == (pytest.approx(12.5), pytest.approx(0.92))
    assert found.q_p == pytest.approx(float(scipy_stats.chi2.sf(12.5, 1)))
    assert found.p == pytest.approx(0.5, abs=1e-4)  # t = 1 on one degree of freedom
    # fixed: se √.0002, Meier's 1 + 4 · 2 · ¼/5 = 1.4, Welch and Satterthwaite's 10 degrees
    assert math.log(found.fixed_ratio) == pytest.approx(0.05)
    reach = 2.22814 * math.sqrt(0.0002 * 1.4)
    assert math.log(found.fixed_high) == pytest.approx(0.05 + reach, rel=1e-4)


def test_unequal_campaigns_solve_the_estimating_equation() -> None:
    y, v = np.array([0.02, 0.05, 0.11, -0.01]), np.array([1e-4, 4e-4, 9e-4, 2e-4])

    def excess(tau2: float) -> float:
        w = 1 / (v + tau2)
        return float((w * (y - (w * y).sum() / w.sum()) ** 2).sum() - 3)

    tau2 = optimize.brentq(excess, 0, 1)
    w = 1 / (v + tau2)
    found = pooling.pool(list(y), list(v), [6, 8, 12, 6])
    assert found.tau == pytest.approx(math.sqrt(tau2), rel=1e-4)
    assert math.log(found.ratio) == pytest.approx((w * y).sum() / w.sum(), rel=1e-4)
    assert found.se == pytest.approx(math.sqrt(1 / w.sum()), rel=1e-4)


def test_campaigns_that_agree_have_no_spread_and_are_not_narrowed_by_it() -> None:
    same = pooling.pool([0.05, 0.05, 0.05], [4e-4] * 3, [6] * 3)
    assert same.tau == same.i2 == 0
    assert (same.q, same.q_p) == (pytest.approx(0, abs=1e-12), pytest.approx(1))
    assert same.se == pytest.approx(math.sqrt(4e-4 / 3))
    near = pooling.pool([0.05, 0.051, 0.049], [4e-4] * 3, [6] * 3)
    assert near.tau == 0 and near.se == pytest.approx(same.se) and near.high / near.low > 1
    assert pooling.equivalence(same, 0.2) < 0.05 < pooling.equivalence(same, 0.05)


def test_what_cannot_be_pooled_is_refused() -> None:
    for logs, variances in (([0.1], [0.1]), ([0.1, 0.2], [0.1, 0.0])):
        with pytest.raises(ValueError, match="two campaigns"):
            pooling.pool(logs, variances, [6] * len(logs))


@given(some.lists(some.tuples(some.floats(-3, 3), some.floats(1e-8, 1)), min_size=2, max_size=8))
def test_any_campaigns_have_a_finite_answer(told: list[tuple[float, float]]) -> None:
    found = pooling.pool([y for y, _ in told], [v for _, v in told], [6] * len(told))
    assert found.tau >= 0 and 0 <= found.i2 <= 1 and found.se > 0
    assert min(y for y, _ in told) - 1e-9 <= math.log(found.ratio)
    assert math.log(found.ratio) <= max(y for y, _ in told) + 1e-9
    assert found.low <= found.ratio <= found.high


def test_random_effects_cover_where_campaigns_differ() -> None:
    dice = np.random.default_rng(2)
    held = 0
    for _ in range(400):
        drawn = [dice.normal(dice.normal(0.05, 0.02), sd, 6) for sd in (0.01, 0.02, 0.01, 0.03)]
        found = pooling.pool(
            [float(d.mean()) for d in drawn], [float(d.var(ddof=1)) / 6 for d in drawn], [6] * 4
        )
        held += found.low <= math.exp(0.05) <= found.high
    assert scipy_stats.binomtest(held, 400, 0.95).pvalue > 0.001


def campaign(root: Path, name: str, seed: int, effect: float = 1.05, **world: Any) -> Findings:
    """One campaign of a true effect, with prompts of its own."""
    made = synthetic.World(effect={"C": effect}, random_seed=seed, **world)
    found = findings.analyse(synthetic.build(root, made, name))
    return msgspec.structs.replace(found, seed=seed, seeds={1: (seed,)})


def main(found: Combination) -> Combined:
    (one,) = found.primary
    return one


def test_two_campaigns_of_one_truth_hold_it(tmp_path: Path) -> None:
    calm, noisy = campaign(tmp_path, "calm", 1), campaign(tmp_path, "noisy", 2, noise=0.02)
    found = combine({"calm": calm, "noisy": noisy})
    one = main(found)
    assert one.pooled is not None and one.pooled.low < 1.05 < one.pooled.high
    assert one.pooled.fixed_low < 1.05 < one.pooled.fixed_high
    assert any("so few" in said for said in found.warnings)
    assert any("one description" in said for said in found.warnings)
    assert not any("seeds" in said for said in found.warnings)
    calm_weight = abs(math.log(one.pooled.fixed_ratio) - math.log(one.studies[0].ratio))
    assert calm_weight < abs(math.log(one.pooled.fixed_ratio) - math.log(one.studies[1].ratio))
    # the other rung and the other metrics come along, corrected by Holm
    assert {(x.metric, x.rung) for x in found.comparisons} >= {("decode", 128), ("ttft", 384)}
    assert msgspec.json.decode(msgspec.json.encode(found))["control"] == "A"


def test_campaigns_that_differ_have_a_spread_and_a_wide_interval(tmp_path: Path) -> None:
    effects = (1.02, 1.12, 0.95, 1.06)
    told = {
        f"m{seed}": campaign(tmp_path, f"m{seed}", seed, effect)
        for seed, effect in enumerate(effects)
    }
    one = main(combine(told)).pooled
    assert one is not None
    assert one.tau > 0.03 and one.i2 > 0.8 and one.q_p < 0.01
    assert one.low < 1 < one.high and main(combine(told)).verdict.word == "undecided"
    assert one.high / one.low > one.fixed_high / one.fixed_low


def test_four_campaigns_of_one_truth_are_faster_and_of_none_equivalent(tmp_path: Path) -> None:
    told = {f"f{seed}": campaign(tmp_path, f"f{seed}", seed) for seed in range(4)}
    assert main(combine(told)).verdict.word == "faster"
    none = {f"n{seed}": campaign(tmp_path, f"n{seed}", seed, 1.0) for seed in range(4)}
    verdict = main(combine(none)).verdict
    assert (verdict.word, verdict.qualifier) == ("equivalent", "within 2 %")


def test_what_may_not_speak_alone_is_left_out_with_its_reason(tmp_path: Path) -> None:
    whole = campaign(tmp_path, "whole", 1)
    pilot = campaign(tmp_path, "pilot", 2, blocks=4)
    cut = campaign(tmp_path, "cut", 3, change=lambda r: r if r.cell.block < 6 else None)
    other = msgspec.structs.replace(campaign(tmp_path, "other", 4), control="X")
    oom = campaign(tmp_path, "oom", 5, change=synthetic.fails("oom", lambda r: r.cell.arm == "C"))
    found = combine({"whole": whole, "pilot": pilot, "cut": cut, "other": other, "oom": oom})
    assert dict(found.left_out) == {
        "pilot": "a pilot of 4 blocks",
        "cut": "not finished: 5 of 6 blocks",
        "other": "its control is X, not A",
    }
    one = main(found)
    assert one.pooled is None and one.verdict.word == "not comparable"
    assert [name for name, _ in one.left_out] == ["oom"] and "not comparable" in one.left_out[0][1]
    text = "\n".join(combining.lines(found))
    assert "left out: pilot, a pilot of 4 blocks" in text and "oom" in text


def test_a_campaign_without_noise_cannot_be_weighed(tmp_path: Path) -> None:
    told = {name: campaign(tmp_path, name, seed) for seed, name in enumerate(("one", "two"))}
    memory = [one for one in combine(told).comparisons if one.metric == "peak_memory"]
    assert memory and all(one.pooled is None for one in memory)  # planted without any noise
    assert all("noise is not known" in why for one in memory for _, why in one.left_out)


def test_a_campaign_of_hardly_any_noise_leaves_the_disagreement_right() -> None:
    found = pooling.pool([0.05, 0.06], [1e-20, 1e-4], [6, 6])
    assert found.q == pytest.approx(1.0, rel=1e-6)


def test_a_campaign_that_lost_many_pairs_adds_nothing(tmp_path: Path) -> None:
    lossy = campaign(
        tmp_path, "lossy", 1,
        change=synthetic.fails("timeout", lambda r: r.cell.arm == "C" and r.cell.block < 3 and r.cell.seed % 2 == 0),
    )  # fmt: skip
    one = main(combine({"lossy": lossy, "usual": campaign(tmp_path, "usual", 2)}))
    assert one.pooled is None and [name for name, _ in one.left_out] == ["lossy"]
    assert "missing" in one.left_out[0][1]


def test_what_makes_campaigns_unlike_is_told(tmp_path: Path) -> None:
    first = campaign(tmp_path, "first", 1)
    second = campaign(tmp_path, "second", 2, env={"C": {"THREADS": "4"}}, seeds=3)
    plan = msgspec.structs.replace(second.plan, margins=Margins(decode=0.01))
    second = msgspec.structs.replace(second, plan=plan, machine={"cpu": "Other"})
    told = "\n".join(combine({"first": first, "second": second}).warnings)
    assert "arm C differs between first and second in env.THREADS" in told
    assert "differ in seeds, margins; the smaller margin holds" in told
    assert "one description" not in told


def test_copies_and_repeats_are_no_new_evidence(tmp_path: Path) -> None:
    first = campaign(tmp_path, "first", 1)
    again = msgspec.structs.replace(campaign(tmp_path, "again", 2), seeds=first.seeds)
    edits = msgspec.structs.replace(
        again, plan=msgspec.structs.replace(again.plan, workload="edit")
    )
    found = combine({"first": first, "copy": first, "again": again, "edits": edits})
    assert [name for name, _ in found.left_out] == ["copy", "again"]
    assert all("prompts of first again" in why for _, why in found.left_out)
    assert [study.campaign for study in main(found).studies] == ["first", "edits"]


def test_screens_add_nothing_and_intervals_are_at_one_level(tmp_path: Path) -> None:
    told = {f"m{seed}": campaign(tmp_path, f"m{seed}", seed) for seed in range(3)}
    told["m2"] = msgspec.structs.replace(told["m2"], screen="knockout")
    looks = Stopping(rule="looks", looks=(6, 8))
    told["m1"] = msgspec.structs.replace(
        told["m1"], plan=msgspec.structs.replace(told["m1"].plan, stopping=looks)
    )
    found = combine(told)
    assert dict(found.left_out)["m2"].startswith("a screen (knockout)") and found.alpha == 0.025
    own = told["m0"].comparison("C", "decode", 384)
    assert own and own.estimate and own.estimate.low
    assert main(found).studies[0].low < own.estimate.low, "its own interval was at 95 %"


def test_memory_read_from_two_sources_is_not_one_quantity(tmp_path: Path) -> None:
    def wanders(receipt: Receipt) -> Receipt:
        peak = (receipt.memory.peak or 0) + 1000 * (receipt.sequence * 7919 % 100)
        memory = msgspec.structs.replace(receipt.memory, peak=peak)
        return msgspec.structs.replace(receipt, memory=memory)

    first = campaign(tmp_path, "first", 1, change=wanders)
    second = campaign(tmp_path, "second", 2, change=wanders)
    both = combine({"first": first, "second": second}).comparisons
    assert all(one.pooled for one in both if one.metric == "peak_memory")
    levels = tuple(
        msgspec.structs.replace(one, source="NVML") if one.metric == "peak_memory" else one
        for one in second.levels
    )
    second = msgspec.structs.replace(second, levels=levels)
    found = combine({"first": first, "second": second})
    memory = [one for one in found.comparisons if one.metric == "peak_memory"]
    assert memory and all(one.pooled is None for one in memory)
    assert all("read from NVML" in dict(one.left_out)["second"] for one in memory)
