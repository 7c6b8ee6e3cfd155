"""A known slowdown, measured over real HTTP, arrives in the verdict; a wrong one would show."""

from __future__ import annotations

import math

import numpy as np
import pytest

from battery.analyse.findings import Findings
from battery.ledger.plan import check
from benchmarks.statistics import control, nulls
from benchmarks.statistics.receipts import battery
from benchmarks.statistics.simulate import World, draw


def simulated(ratio: float) -> Findings:
    """Findings of six blocks of exact arms whose true ratio is `ratio`."""
    world = World(drift="none", rungs=2, effect=math.log(ratio))
    header, receipts = battery(
        draw(world, 1, np.random.default_rng(2)), 0, np.random.default_rng(1)
    )
    return nulls.real(receipts, header)


def test_the_real_campaign_finds_the_slowdown_of_three_per_cent() -> None:
    said: list[str] = []
    told = control.positive(said.append)
    assert told["found"], told["campaigns"]
    assert told["verdict"].startswith("slower") and told["low"] <= 0.97 <= told["high"]
    assert told["blocks"] == 6 and told["high"] < 1
    assert said[0] == "positive control: window 1 of 12"


@pytest.mark.parametrize(("ratio", "found"), [(0.97, True), (0.92, False), (1.03, False)])
def test_another_slowdown_is_not_taken_for_it(ratio: float, found: bool) -> None:
    assert control.judged(simulated(ratio))["found"] is found


def test_a_miss_is_repeated_once_and_both_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    for ratios, found in (((0.92, 0.97), True), ((0.92, 0.92), False), ((0.97,), True)):
        left = list(ratios)
        monkeypatch.setattr(control, "campaign", lambda *_, left=left: simulated(left.pop(0)))
        told = control.positive(lambda _: None)
        assert not left and len(told["campaigns"]) == len(ratios) and told["found"] is found


def test_the_arms_differ_in_the_interval_alone_and_by_exactly_that() -> None:
    check(control.plan(), "control")
    one, other = control.arms()
    differ = [pair for pair in zip(one.command, other.command, strict=True) if pair[0] != pair[1]]
    ((slow, slower),) = differ
    assert float(slow) / float(slower) == pytest.approx(0.97, rel=1e-12)
