from __future__ import annotations

import math
import random
from collections.abc import Callable
from pathlib import Path

import msgspec
import numpy as np
import pytest
from scipy.stats import spearmanr
from statsmodels.regression.linear_model import OLS
from synthetic import World, build, trace

from battery.analyse.findings import Findings, analyse
from battery.analyse.self_test import self_test
from battery.analyse.series import Mean, step, trend
from battery.bench.schedule import orders
from battery.ledger.receipt import Receipt
from battery.ledger.store import Campaign
from battery.render.report import markdown

Change = Callable[[Receipt], Receipt]


def paced(log: Callable[[Receipt], float]) -> Change:
    """Every cell decodes at 40 tok/s times the exponential of this."""

    def change(receipt: Receipt) -> Receipt:
        rate = 40 * math.exp(log(receipt))
        return msgspec.structs.replace(receipt, trace=trace(rate, prompt=receipt.cell.rung))

    return change


def noise(*key: object) -> float:
    return random.Random(repr(key)).gauss(0, 0.004)


def texts(found: Findings) -> str:
    return "\n".join(doubt.what for doubt in found.doubts)


def test_the_ratio_without_the_order_effect_by_hand(tmp_path: Path) -> None:
    ripple = [0.010, 0.004, 0.013, -0.002, 0.007, 0.001, 0.009, 0.003]

    def log(receipt: Receipt) -> float:
        own = receipt.cell.arm == "C"
        return (0.05 + ripple[receipt.cell.block - 1]) * own + 0.01 * receipt.cell.window.position

    found = analyse(build(tmp_path, World(blocks=8, seeds=1, change=paced(log))))
    (order,) = found.drift.order
    # Odd blocks run A C: the candidate stands second in them, and gains .01.
    signs = np.asarray([1.0, -1.0] * 4)
    d = 0.05 + np.asarray(ripple) + 0.01 * signs
    fit = OLS(d, np.column_stack([np.ones(8), signs])).fit()
    (low, high), slope = fit.conf_int(0.05)[0], fit.params[1]
    assert order.ratio == pytest.approx(math.exp(slope), rel=1e-6)
    assert (order.adjusted, order.adjusted_low, order.adjusted_high) == pytest.approx(
        (math.exp(fit.params[0]), math.exp(low), math.exp(high)), rel=1e-6
    )
    (one,) = found.primary
    assert one.estimate and one.estimate.low and order.adjusted_low
    assert one.estimate.ratio == pytest.approx(order.adjusted, rel=1e-6)
    assert order.flagged and one.estimate.low < order.adjusted_low
    assert "ratio of C without the order effect" in markdown(found)


def test_blocks_that_follow_each_other_are_told(tmp_path: Path) -> None:
    def wander(receipt: Receipt) -> float:
        wave = 0.05 * math.sin(receipt.cell.block / 2)
        return wave * (receipt.cell.arm == "C") + noise(receipt.sequence)

    (order,) = analyse(build(tmp_path / "a", World(blocks=16, change=paced(wander)))).drift.order
    assert order.durbin_watson and order.durbin_watson < 1
    assert order.ljung_box_p is not None and order.ljung_box_p < 0.01
    (honest,) = analyse(build(tmp_path / "b", World(blocks=16))).drift.order
    assert honest.durbin_watson and 1 < honest.durbin_watson < 3
    assert honest.ljung_box_p is not None and honest.ljung_box_p > 0.05


def test_a_step_points_at_its_window_and_deletes_nothing(tmp_path: Path) -> None:
    def log(receipt: Receipt) -> float:
        late = receipt.cell.window.number >= 8
        return (0.1 if receipt.cell.arm == "C" else 0) - 0.05 * late + noise(receipt.sequence)

    found = analyse(build(tmp_path, World(blocks=8, change=paced(log))))
    told = found.drift.step
    assert (told.series, told.window, told.flagged) == ("sentinel", 8, True)
    assert told.share == pytest.approx(math.expm1(-0.05), abs=0.006)
    assert "the level changed for good at about window 8" in texts(found)
    (one,) = found.primary
    assert len(one.by_block) == 8 and one.verdict.word == "faster"
    assert "likeliest at window 8" in markdown(found)
    quiet = analyse(build(tmp_path / "quiet", World(blocks=8)))
    assert not quiet.drift.step.flagged and "changed for good" not in texts(quiet)


def test_without_a_sentinel_blocks_are_the_series(tmp_path: Path) -> None:
    def change(receipt: Receipt) -> Receipt | None:
        if receipt.cell.sentinel:
            return None
        return paced(lambda r: -0.1 * (r.cell.block >= 5) + noise(r.sequence))(receipt)

    world = World(blocks=12, change=change, plan={"sentinel": False})
    told = analyse(build(tmp_path, world)).drift.step
    assert (told.series, told.window, told.flagged) == ("blocks", 9, True)


def test_steps_are_flagged_as_rarely_as_said() -> None:
    dice = np.random.default_rng(5)
    flags = sum(
        step([Mean(n, "A" if n % 2 else "C", x, n) for n, x in enumerate(dice.normal(size=16), 1)], [], 2).flagged
        for _ in range(400)
    )  # fmt: skip
    assert flags <= 0.05 * 400 + 3 * math.sqrt(400 * 0.05 * 0.95)


def test_few_windows_have_no_series() -> None:
    few = [Mean(1, "A", 0.0, 1), Mean(2, "C", 0.1, 2), Mean(3, "C", 0.2, 3)]
    assert trend(few).why == "fewer than four windows"
    assert step(few, [], 2).why == "3 sentinels of 2 arms are too few"
    assert step([], few, 2).why == "2 blocks are too few"
    eight = [Mean(n, arm, 0.1 * n, n) for n, arm in enumerate("ABCDEFGH", start=1)]
    assert step(eight, [], 8).why == "8 sentinels of 8 arms are too few"
    flat = [Mean(n, "A", 1.0, n) for n in range(1, 9)]
    assert (step(flat, [], 1).p, step(flat, [], 1).window) == (1.0, None)
    assert trend(flat).kendall_p == 1.0


def test_a_slow_first_seed_asks_for_warm_up(tmp_path: Path) -> None:
    def log(receipt: Receipt) -> float:
        first = receipt.cell.seed % 100 == 1 and receipt.cell.arm == "C"
        return -0.2 * first + noise(receipt.sequence)

    found = analyse(build(tmp_path, World(seeds=3, change=paced(log))))
    told = {(one.arm, one.metric): one for one in found.drift.warm_ups}
    assert set(told) == {("A", "decode"), ("A", "ttft"), ("C", "decode"), ("C", "ttft")}
    cold = told["C", "decode"]
    assert (
        cold.flagged and cold.windows == 6 and cold.ratio == pytest.approx(math.exp(-0.2), rel=0.01)
    )
    assert not told["A", "decode"].flagged
    (doubt,) = [one for one in found.doubts if "first seed" in one.what]
    assert doubt.arm == "C" and "warm_up_tokens" in doubt.remedy and "(−18 %)" in doubt.what


def test_one_seed_has_no_first_and_rest(tmp_path: Path) -> None:
    found = analyse(build(tmp_path, World(seeds=1)))
    assert {one.why for one in found.drift.warm_ups} == {"one seed has no rest"}


def test_readings_are_held_against_the_ratios(tmp_path: Path) -> None:
    heat = [3.0, -2.0, 1.0, 4.0, -1.0, 0.5, 2.0, -3.0]

    def change(receipt: Receipt) -> Receipt:
        own = receipt.cell.arm == "C"
        hot = heat[receipt.cell.block - 1] * own
        # pressure says nothing: it is the same in every window, and has no rank
        reading = msgspec.structs.replace(
            receipt.gate.reading, temp_c=50 + hot, busy=0.1 + noise("busy", receipt.sequence), pressure={"cpu": 0.2}
        )  # fmt: skip
        gate = msgspec.structs.replace(receipt.gate, reading=reading)
        paced_ = paced(lambda r: -0.01 * hot + noise(r.sequence))(receipt)
        return msgspec.structs.replace(paced_, gate=gate)

    found = analyse(build(tmp_path, World(blocks=8, change=change)))
    told = {one.reading: one for one in found.drift.covariates}
    assert set(told) == {"temperature", "busy"}
    (one,) = found.primary
    logs = [math.log(ratio) for _, ratio in one.by_block]
    wanted = spearmanr(heat, logs)
    assert told["temperature"].rho == pytest.approx(wanted.statistic) and wanted.statistic < -0.9
    assert told["temperature"].p == pytest.approx(wanted.pvalue)
    page = markdown(found)
    assert "p (one of 2)" in page and "every row below is a look" in page


def test_the_self_test_says_why_there_is_none(tmp_path: Path) -> None:
    few = analyse(build(tmp_path / "few", World(blocks=4))).drift.self_test
    assert few.pairs == 3 and "the order of 2 arms over 4 blocks" in few.why
    gone = World(blocks=8, change=lambda r: r if r.cell.block < 4 else None)
    lost = analyse(build(tmp_path / "gone", gone)).drift.self_test
    assert lost.why == "needs 4 pairs of neighbouring windows of one arm"


@pytest.mark.parametrize(("arms", "pairs"), [(2, 11), (3, 4), (4, 0), (5, 0), (6, 0)])
def test_which_orders_hold_an_arm_next_to_itself(arms: int, pairs: int, tmp_path: Path) -> None:
    names = tuple("ABCDEF"[:arms])
    folder = build(tmp_path, World(arms=names, ladder=(128,), blocks=6, seeds=1))
    header = msgspec.structs.replace(Campaign(folder).header(), order=orders(names, 12, 0))
    run = [arm for row in header.order for arm in row]
    told = self_test(
        [Mean(n, arm, 0.001 * (n % 5), n) for n, arm in enumerate(run, start=1)], header
    )
    assert told.pairs == pairs
    why = f"the order of {arms} arms over 12 blocks puts an arm next to itself too seldom"
    assert (told.p is None) == (pairs == 0) and told.why.startswith(why if pairs == 0 else "")
