from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from scipy.stats import ttest_1samp
from synthetic import World, build, trace

from battery.analyse.findings import Findings, analyse
from battery.ledger.receipt import Receipt

UNSTEADY = [0.05, 0.01, 0.06, 0.02, 0.05, 0.0]
"""Block differences with p = .026: found alone, not found as one of two."""


def planted(differences: dict[str, list[float]]) -> Callable[[Receipt], Receipt]:
    """A change that gives the arms these log ratios per block, at every rung, and the others none."""

    def change(receipt: Receipt) -> Receipt:
        log = differences.get(receipt.cell.arm, [0.0] * 99)[receipt.cell.block - 1]
        return msgspec.structs.replace(
            receipt, trace=trace(40 * math.exp(log), prompt=receipt.cell.rung)
        )

    return change


def told(found: Findings) -> dict[str, tuple[str, float | None]]:
    return {one.candidate: (one.verdict.word, one.p_corrected) for one in found.primary}


def test_one_candidate_is_one_test(tmp_path: Path) -> None:
    found = analyse(build(tmp_path, World(change=planted({"C": UNSTEADY}))))
    (one,) = found.primary
    p = float(ttest_1samp(UNSTEADY, 0).pvalue)
    assert one.estimate and one.estimate.p == pytest.approx(p, rel=1e-4) and 0.025 < p < 0.05
    assert one.p_corrected == one.estimate.p and one.tost_p_corrected == one.tost_p
    assert one.verdict.word == "faster"


def test_the_primary_endpoint_of_several_candidates_is_several_tests(tmp_path: Path) -> None:
    world = World(arms=("A", "B", "C"), change=planted({"C": UNSTEADY}))
    found = analyse(build(tmp_path, world))
    p = float(ttest_1samp(UNSTEADY, 0).pvalue)
    assert told(found)["C"] == ("undecided", pytest.approx(2 * p, rel=1e-4))
    assert told(found)["B"] == ("equivalent", 1.0)
    (why,) = [one.verdict.why for one in found.primary if one.candidate == "C"]
    assert "p after Holm" in why
    both = analyse(build(tmp_path / "both", World(arms=("A", "B", "C"), effect={"C": 1.05})))
    ps = {one.candidate: one.estimate.p for one in both.primary if one.estimate}
    assert ps["B"] and ps["C"] and ps["C"] < ps["B"]
    assert told(both)["C"] == ("faster", pytest.approx(2 * ps["C"]))
    assert told(both)["B"][1] == pytest.approx(ps["B"])
    # Equivalence is tested as often as difference is.
    tosts = {one.candidate: (one.tost_p, one.tost_p_corrected) for one in both.primary}
    assert tosts["B"][1] == pytest.approx(2 * float(tosts["B"][0] or 0))


def without_the_last_block(receipt: Receipt) -> Receipt | None:
    return receipt if receipt.cell.block <= 10 else None


def test_no_verdict_before_every_planned_block_is_complete(tmp_path: Path) -> None:
    world = World(blocks=11, seeds=1, effect={"C": 1.05}, change=without_the_last_block, seal=False)
    found = analyse(build(tmp_path, world))
    assert found.blocks_complete == 10 and not found.pilot
    assert {one.verdict.word for one in found.comparisons} == {"undecided"}
    (one,) = found.primary
    assert one.estimate and one.estimate.blocks == 10
    assert one.verdict.why.startswith("10 of 11 planned blocks") and "peeking" in one.verdict.why
    assert {one.standing for one in found.ladders} == {"unfinished: 10 of 11 planned blocks"}


@pytest.mark.parametrize("blocks, word, pilot", [(6, "undecided", False), (5, "pilot", True)])
def test_an_early_look_is_a_pilot_only_where_a_pilot_was_planned(
    blocks: int, word: str, pilot: bool, tmp_path: Path
) -> None:
    world = World(
        blocks=blocks, seeds=1, effect={"C": 1.5}, seal=False,
        change=lambda receipt: receipt if receipt.cell.block <= 3 else None,
    )  # fmt: skip
    found = analyse(build(tmp_path, world))
    assert {one.verdict.word for one in found.comparisons} == {word} and found.pilot is pilot


def test_the_interval_over_the_ladder_says_whether_it_stands(tmp_path: Path) -> None:
    whole = analyse(build(tmp_path / "whole", World(effect={"C": 1.05})))
    assert {one.standing for one in whole.ladders} == {""}
    pilot = analyse(build(tmp_path / "pilot", World(blocks=2)))
    assert {one.standing for one in pilot.ladders} == {"pilot"}

    def sampled_otherwise(receipt: Receipt) -> Receipt:
        request = msgspec.structs.replace(receipt.request, honoured="changed")
        return msgspec.structs.replace(receipt, request=request)

    void = analyse(build(tmp_path / "void", World(effect={"C": 1.05}, change=sampled_otherwise)))
    assert all(one.standing.startswith("invalid: 48 pooled cells were") for one in void.ladders)
