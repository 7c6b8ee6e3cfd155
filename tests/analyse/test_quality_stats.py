"""Quality receipts to figures: known answers, planted faults, and properties that hold for any verdicts."""

from __future__ import annotations

import random
from math import comb
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from graded import LETTERS, SMALL, found, graded, keep, line, only, scores
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats as scipy_stats
from statsmodels.stats.proportion import proportion_confint
from synthetic import World, build

from battery.analyse import asked, tasks_changed
from battery.analyse.findings import Findings, analyse, read, write
from battery.analyse.shares import mean, pass_at, share
from battery.analyse.tasks_changed import Told, family, judge, margin_p, paired
from battery.ledger.claims import Bar, quality_margin
from battery.ledger.plan import Plan


def told(letters: str, suite: str = "humaneval") -> Told:
    """One answer a task; the letters of `graded`, `c` cut off."""
    ids = tuple(f"{suite}/{place}" for place in range(len(letters)))
    return Told(
        ids,
        tuple(family(suite, one) for one in ids),
        [np.array([letter == "p"]) for letter in letters],
        [np.array([letter in "cx"]) for letter in letters],
    )


@pytest.mark.parametrize(
    ("suite", "passed", "cut", "of", "strict", "completed", "rate", "wilson"),
    [
        ("humaneval", 159, 5, 164, 0.9695, 1.0000, 3.0, (0.931, 0.987)),
        ("humaneval", 158, 3, 164, 0.9634, 0.9814, 1.8, (0.922, 0.983)),
        ("mbpp", 404, 16, 427, 0.9461, 0.9830, 3.7, (0.920, 0.964)),
    ],
)
def test_the_published_figures(
    folder: Path, suite: Any, passed: int, cut: int, of: int, strict: float, completed: float, rate: float,
    wilson: tuple[float, float],
) -> None:  # fmt: skip
    graded(folder, "A", suite, line(passed, cut, of))
    (row,) = found(folder).rows
    assert row.strict.value and row.completed.value and row.truncation.value and row.strict.low
    assert (round(row.strict.value, 4), round(row.completed.value, 4)) == (strict, completed)
    assert round(100 * row.truncation.value, 1) == rate
    assert (round(row.strict.low, 3), round(row.strict.high or 0, 3)) == wilson
    assert row.upper.value == (passed + cut) / of and row.completed.of == of - cut
    assert row.tokens_most == 512 and row.errors == 0 and row.empty.count == 0


def test_an_answer_that_was_cut_off_is_no_pass_whatever_its_code_does(folder: Path) -> None:
    one = scores(folder, "A", "humaneval", "ppf")
    late = msgspec.structs.replace(one.graded[0], truncated=True)
    keep(folder, msgspec.structs.replace(one, graded=(late, *one.graded[1:])))
    (row,) = found(folder).rows
    assert (row.strict.count, row.completed.count, row.completed.of, row.upper.count) == (
        1,
        1,
        2,
        2,
    )


def test_one_task_worse_is_no_evidence_either_way(folder: Path) -> None:
    """159 against 158 of 164 with seven tasks that changed: about −3.8 to +2.6 points."""
    graded(folder, "A", "humaneval", "p" * 159 + "f" * 5)
    graded(folder, "C", "humaneval", "f" * 4 + "p" * 155 + "p" * 3 + "f" * 2)
    one = only(folder)
    pair = one.paired
    assert pair and (len(pair.lost), len(pair.gained)) == (4, 3)
    assert (round(100 * pair.low, 1), round(100 * pair.high, 1)) == (-3.8, 2.6)
    d = np.array([-1.0] * 4 + [1.0] * 3 + [0.0] * 157)
    wide, narrow = (scipy_stats.ttest_1samp(d, 0).confidence_interval(x) for x in (0.95, 0.90))
    assert (pair.low, pair.high) == pytest.approx((wide.low, wide.high))
    assert (pair.strict.low, pair.strict.high) == pytest.approx((narrow.low, narrow.high))
    assert pair.mcnemar_p == pytest.approx(scipy_stats.binomtest(3, 7).pvalue)
    assert one.verdict.word == "non-inferior" and one.verdict.qualifier == "within 5 points"
    assert judge(pair, 0.03).word == "undecided" and "across −3 points" in judge(pair, 0.03).why


def test_no_task_changed_is_no_certainty(folder: Path) -> None:
    for arm in "AC":
        graded(folder, arm, "humaneval", line(10))
    pair = only(folder).paired
    assert pair and not pair.lost and not pair.gained and pair.mcnemar_p == 1.0
    bound = proportion_confint(0, 164, alpha=0.1, method="beta")[1]
    assert (pair.strict.low, pair.strict.high) == pytest.approx((-bound, bound))
    assert 0.0180 < bound < 0.0182 and pair.method.startswith("Clopper-Pearson")
    assert judge(pair, 0.05).word == "non-inferior" and judge(pair, 0.015).word == "undecided"
    few = paired(told("p" * 12), told("p" * 12))
    assert judge(few, 0.05).word == "undecided"


def test_every_task_lost_is_inferior_and_a_few_are_undecided() -> None:
    assert judge(paired(told("p" * 164), told("f" * 164)), 0.05).word == "inferior"
    floor = judge(paired(told("p" * 5 + "f" * 159), told("p" * 5 + "f" * 159)), 0.05)
    assert floor.word == "undecided" and "0.0305, no more than the margin" in floor.why
    assert (
        judge(paired(told("p" * 9 + "f" * 155), told("p" * 9 + "f" * 155)), 0.05).word
        == "non-inferior"
    )
    assert judge(paired(told("p" * 164), told("p" * 134 + "f" * 30)), 0.05).word == "inferior"
    some = judge(paired(told("p" * 164), told("p" * 154 + "f" * 10)), 0.05)
    assert some.word == "undecided" and "below 0 as a whole" in some.why


def test_cut_off_answers_may_turn_a_verdict(folder: Path) -> None:
    graded(folder, "A", "humaneval", "p" * 155 + "p" * 4 + "c" * 5)
    graded(folder, "C", "humaneval", "p" * 155 + "f" * 3 + "c" * 3 + "p" * 3)
    one = only(folder)
    pair = one.paired
    assert pair and one.verdict.word == "non-inferior"
    assert one.verdict.qualifier == "within 5 points, under strict only"
    assert "failed in the arm and passed in the control" in one.verdict.why
    # by hand: control 159 + 5 cut off, arm 158 + 3 cut off
    assert [round(164 * scenario.difference) for scenario in pair.scenarios] == [-1, -3, -6, 2]
    # cut off in either: tasks 158 to 163
    assert pair.both and (pair.both.tasks, pair.both.control) == (158, 1.0)
    assert len(pair.both.lost) == 3 and not pair.both.gained


def test_the_spread_that_the_margin_itself_would_have(folder: Path) -> None:
    """Four lost and none gained: the t interval alone would clear 5 points, as it does far too often at the margin."""
    pair = paired(told("p" * 164), told("p" * 160 + "f" * 4))
    assert pair.strict.low > -0.05 and margin_p(pair.strict, pair, 0.05) > 0.05
    assert judge(pair, 0.05).word == "undecided" and "too few tasks" in judge(pair, 0.05).why
    assert margin_p(pair.strict, pair, 0.05) < margin_p(pair.strict, pair, 0.04)


def test_at_the_margin_itself_false_non_inferiority_is_rare() -> None:
    """The arm loses each task with a chance of just the margin: how often it passes, by enumeration."""
    law, passes, plain = scipy_stats.binom(164, 0.05), 0.0, 0.0
    for lost in range(12):
        pair = paired(told("p" * 164), told("f" * lost + "p" * (164 - lost)))
        passes += law.pmf(lost) * (judge(pair, 0.05).word == "non-inferior")
        plain += law.pmf(lost) * (pair.strict.low > -0.05)
    assert 0.01 < passes < 0.05 < 0.08 < plain


def test_a_pool_clusters_the_variants_of_a_task(folder: Path) -> None:
    dice = random.Random(3)
    base = {arm: "".join(dice.choices("pf", (8, 2), k=164)) for arm in "AC"}
    for arm in "AC":
        graded(folder, arm, "humaneval", base[arm])
        graded(folder, arm, "humaneval+", base[arm])
        graded(folder, arm, "mbpp", "".join(dice.choices("pf", (7, 3), k=427)))
    pool = only(folder, "pool")
    assert (
        pool.paired and pool.suites == ("humaneval", "humaneval+", "mbpp") and pool.margin == 0.03
    )
    assert (pool.paired.tasks, pool.paired.clusters) == (164 + 164 + 427, 164 + 427)
    assert pool.paired.mcnemar_p is None and "clustered" in pool.paired.method
    alone = only(folder).paired
    twice = paired(
        tasks_changed.joined([told(base["A"]), told(base["A"], "humaneval+")]),
        tasks_changed.joined([told(base["C"]), told(base["C"], "humaneval+")]),
    )
    assert alone and twice.clusters == 164
    # the same tasks twice tell nothing new, but for the sandwich's small-sample factor
    assert twice.strict.se == pytest.approx(alone.strict.se, rel=0.01)


def test_clusters_of_one_are_a_plain_t_test() -> None:
    d = np.random.default_rng(4).integers(-1, 2, 50).astype(float)
    at, se, df = mean(d, range(50))
    test = scipy_stats.ttest_1samp(d, 0)
    assert at / se == pytest.approx(test.statistic) and df == test.df
    doubled = mean(np.repeat(d, 2), np.repeat(np.arange(50), 2).tolist())
    assert doubled[1] == pytest.approx(se, rel=0.01) and doubled[2] == 49


@pytest.mark.parametrize("samples, k", [(5, 2), (5, 5), (10, 5)])
def test_pass_at_k_is_the_product_form(samples: int, k: int) -> None:
    passes = [0, 1, samples // 2, samples]
    one = next(x for x in pass_at(passes, samples) if x.k == k)
    assert one.value == pytest.approx(
        sum(1 - comb(samples - c, k) / comb(samples, k) for c in passes) / len(passes)
    )
    assert pass_at(passes, 1) == ()


def test_samples_of_a_task_are_a_cluster(folder: Path) -> None:
    """Five answers that always agree tell no more of a task than one."""
    dice = random.Random(8)
    letters = "".join(dice.choices("pf", k=60))
    graded(folder, "A", "humaneval", [letters] * 5)
    (row,) = found(folder).rows
    single = share([letter == "p" for letter in letters], range(60))
    assert row.samples == 5 and row.strict.of == 300 and row.strict.value == single.value
    assert row.strict.low and single.low and row.strict.low == pytest.approx(single.low, abs=0.02)
    assert [one.k for one in row.pass_at] == [2, 5]
    assert [one.value for one in row.pass_at] == pytest.approx([single.value] * 2)
    all_alike = share([True] * 20, [place // 5 for place in range(20)])
    assert all_alike.low == pytest.approx(proportion_confint(4, 4, method="wilson")[0])


def test_three_arms_have_cochrans_q(tmp_path: Path) -> None:
    folder = build(tmp_path, World(arms=("A", "C", "D"), ladder=(128,), blocks=2, seeds=1))
    graded(folder, "A", "humaneval", line(150))
    graded(folder, "C", "humaneval", line(150))
    graded(folder, "D", "humaneval", line(120))
    (one,) = found(folder).together
    # by hand: 120 tasks all pass, 14 all fail, 30 pass in two of three arms
    wanted = 2 * 3 * ((150 - 140) ** 2 * 2 + (120 - 140) ** 2) / (3 * 420 - (120 * 9 + 30 * 4))
    assert one.q == pytest.approx(wanted) and one.p == pytest.approx(scipy_stats.chi2.sf(wanted, 2))
    graded(folder, "D", "humaneval", line(150))
    (one,) = found(folder).together
    assert one.p is None and one.why


def test_bars_of_quality_are_decided(tmp_path: Path) -> None:
    bars = (
        Bar(suite="humaneval", within=0.05), Bar(suite="mbpp", within=0.03), Bar(suite="pool", within=0.001),
        Bar(suite="mbpp+", within=0.03),
    )  # fmt: skip
    folder = build(tmp_path, World(ladder=(128,), blocks=2, seeds=1, plan={"bars": bars}))
    assert {bar.why for bar in analyse(folder).bars} == {"quality was not run"}
    graded(folder, "A", "humaneval", line(159))
    graded(folder, "C", "humaneval", line(159))
    graded(folder, "A", "mbpp", line(400, of=427))
    graded(folder, "C", "mbpp", line(300, of=427))
    told = analyse(folder)
    assert [(bar.metric, bar.outcome) for bar in told.bars] == [
        ("humaneval", "met"), ("mbpp", "failed"), ("pool", "failed"), ("mbpp+", "undecided"),
    ]  # fmt: skip
    assert all(bar.sealed and bar.why for bar in told.bars) and told.bars[3].low is None
    assert told.bars[0].low == pytest.approx(-0.0181, abs=1e-4)
    (named,) = told.held_against([Bar(suite="humaneval", within=0.01)])
    assert named.outcome == "undecided" and "across −1 points" in named.why
    assert told.graded and told.graded.changes[-1].margin == 0.001
    graded(folder, "C", "humaneval", "p" * 155 + "c" * 9)
    graded(folder, "A", "humaneval", "p" * 155 + "f" * 9)
    one = analyse(folder).bars[0]
    assert one.outcome == "met"
    graded(folder, "A", "humaneval", "p" * 154 + "f" + "c" * 9)
    one = analyse(folder).bars[0]
    assert one.outcome == "undecided" and "under strict only" in one.why


def test_the_margin_is_the_plans_where_it_has_a_bar() -> None:
    plan = Plan(
        ladder=(64,), blocks=6,
        bars=(Bar(suite="humaneval", within=0.02), Bar(suite="humaneval", within=0.01, candidate="D")),
    )  # fmt: skip
    assert quality_margin(plan, "C", "humaneval", ("humaneval",)) == 0.02
    assert quality_margin(plan, "D", "humaneval", ("humaneval",)) == 0.01
    assert quality_margin(plan, "C", "mbpp", ("mbpp",)) == 0.03
    assert quality_margin(plan, "C", "pool", ("humaneval", "humaneval+")) == 0.05


def test_findings_of_speed_alone_have_no_field_of_quality(bare: Path, tmp_path: Path) -> None:
    told = analyse(bare)
    assert told.graded is None
    path = write(told, tmp_path / "one.json")
    assert b'"quality"' not in path.read_bytes() and read(path) == told


def test_findings_with_quality_are_kept_and_read_again(tmp_path: Path) -> None:
    folder = build(tmp_path, SMALL)
    graded(folder, "A", "humaneval", line(100, 5))
    graded(folder, "C", "humaneval", line(99, 5))
    told = analyse(folder)
    assert told.graded and isinstance(told, Findings)
    assert read(write(told, tmp_path / "one.json")) == told


VERDICTS = st.text(alphabet=sorted(LETTERS), min_size=2, max_size=40)


@settings(max_examples=60, deadline=None)
@given(VERDICTS, st.randoms(use_true_random=False))
def test_the_order_of_tasks_is_irrelevant(letters: str, dice: random.Random) -> None:
    other = "".join(dice.sample(letters, len(letters)))
    one = paired(told(letters), told(other))
    order = dice.sample(range(len(letters)), len(letters))

    def shuffled(whole: Told) -> Told:
        return Told(*(type(part)(part[i] for i in order) for part in whole))

    again = paired(shuffled(told(letters)), shuffled(told(other)))
    assert (set(one.lost), set(one.gained)) == (set(again.lost), set(again.gained))
    for a, b in zip(one.scenarios, again.scenarios, strict=True):
        assert (a.low, a.difference, a.high) == pytest.approx((b.low, b.difference, b.high))
    assert judge(one, 0.05).word == judge(again, 0.05).word


@settings(max_examples=60, deadline=None)
@given(VERDICTS)
def test_truth_is_bracketed_and_a_swap_turns_the_sign(letters: str) -> None:
    whole = told(letters)
    passed = [bool(row[0]) for row in whole.passed]
    cut = [bool(row[0]) for row in whole.open]
    tasks = range(len(letters))
    strict, upper = (
        share(passed, tasks),
        share([a or b for a, b in zip(passed, cut, strict=True)], tasks),
    )
    done = share([a for a, b in zip(passed, cut, strict=True) if not b], range(cut.count(False)))
    assert strict.value is not None and upper.value is not None and strict.value <= upper.value
    assert done.value is None or strict.value <= done.value <= upper.value + 1e-12
    assert strict.low is not None and strict.high is not None
    assert -1e-12 <= strict.low <= strict.value <= strict.high + 1e-12
    other = told(letters[::-1])
    one, back = paired(whole, other), paired(other, whole)
    assert one.strict.difference == pytest.approx(-back.strict.difference)
    assert (one.strict.low, one.strict.high) == pytest.approx((-back.strict.high, -back.strict.low))
    assert one.lost == back.gained and one.mcnemar_p == pytest.approx(back.mcnemar_p)
    assert min(x.difference for x in one.scenarios) == one.scenarios[2].difference
    assert one.scenarios[2].difference <= one.strict.difference <= one.scenarios[3].difference


def test_a_task_and_its_variant_are_one_family() -> None:
    assert family("humaneval", "HumanEval/32") == family("humaneval+", "HumanEval/032")
    assert family("mbpp", "8") == family("mbpp+", "Mbpp/8") != family("humaneval", "HumanEval/8")
    assert asked.FOLDER == "quality"
