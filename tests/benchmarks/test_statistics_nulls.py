"""Two hundred batteries in which nothing differs, through the analysis that judges campaigns."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from battery.analyse import speed, stats
from battery.analyse.self_test import SELF_TEST_ALPHA
from benchmarks.statistics import nulls
from benchmarks.statistics.receipts import DECODE, battery, trace
from benchmarks.statistics.rules import against_themselves, block_level
from benchmarks.statistics.simulate import World, draw

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def judged() -> list[nulls.Null]:
    return list(nulls.judged())


def test_at_most_eighteen_of_two_hundred_are_called_different(judged: list[nulls.Null]) -> None:
    told = nulls.summary(judged)
    assert told["batteries"] == 200 and told["most"] == 18
    assert int(str(told["rejections"])) <= 18


def test_every_battery_was_judged_and_voids_are_no_passes(judged: list[nulls.Null]) -> None:
    words = {one.word for one in judged}
    assert words <= {"undecided", "equivalent", "faster", "slower", "invalid"}
    told = nulls.summary(judged)
    quiet = sum(one.word in nulls.QUIET for one in judged)
    assert quiet + int(str(told["rejections"])) == 200
    assert (
        int(str(told["voided"])) == sum((one.self_p or 1) < SELF_TEST_ALPHA for one in judged) <= 2
    )


def test_every_mixture_comes_equally_often(judged: list[nulls.Null]) -> None:
    counts = np.unique(
        [f"{one.arms} {one.drift} {one.carry} {one.outliers}" for one in judged], return_counts=True
    )[1]
    assert len(counts) == 40 and set(counts) == {5}


def test_the_rules_of_the_table_see_the_same_batteries(judged: list[nulls.Null]) -> None:
    """Simulated numbers judged directly, against receipts with traces judged as a campaign."""
    same = nulls.together()
    assert block_level(same).tolist() == [one.p < 0.05 for one in judged]
    assert against_themselves(same).tolist() == [
        (one.self_p or 1) < SELF_TEST_ALPHA for one in judged
    ]


def test_the_committed_verdicts_are_those_of_this_analysis(judged: list[nulls.Null]) -> None:
    each = json.loads((ROOT / "reports" / "statistics.json").read_text())["nulls"]["each"]
    assert [one.word for one in judged] == [word for word, _, _ in each]
    assert [one.p for one in judged] == pytest.approx([p for _, p, _ in each], rel=1e-5)


def test_an_analysis_that_counts_seeds_as_blocks_is_found_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Planted fault: every block difference enters four times, as if four seeds were independent."""
    real = stats.paired
    monkeypatch.setattr(
        stats, "sign_flip", lambda d: None
    )  # never used for a verdict, slow for many
    monkeypatch.setattr(
        speed.stats,
        "paired",
        lambda d, *rest, **named: real([*d] * 4 if len(d) > 1 else d, *rest, **named),
    )
    told = nulls.summary(list(nulls.judged(40)))
    assert int(str(told["rejections"])) > int(str(told["most"]))


def test_a_true_difference_is_found_where_it_is() -> None:
    world = World(blocks=8, seeds=2, rungs=4, effect=0.08)
    header, receipts = battery(
        draw(world, 1, np.random.default_rng(3)), 0, np.random.default_rng(4)
    )
    found = nulls.real(receipts, header)
    (primary,) = found.primary
    assert primary.verdict.word == "faster" and primary.rung == header.plan.ladder[-1]
    assert primary.estimate is not None and primary.estimate.low is not None
    assert primary.estimate.low < np.exp(0.08) < (primary.estimate.high or 0)


def test_a_trace_has_the_rate_it_was_made_for() -> None:
    decode = speed.MEASURES["decode"].of(trace(DECODE, 0.2, 1024))
    assert decode == pytest.approx(DECODE, rel=1e-6)
