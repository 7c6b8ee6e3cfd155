from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from scipy.stats import fisher_exact
from statsmodels.stats.proportion import proportion_confint
from synthetic import World, build, fails

from battery.analyse.findings import Findings, analyse
from battery.analyse.findings import found as together
from battery.analyse.fits import Fit, barnard
from battery.ledger.receipt import Clearance, Receipt
from battery.ledger.store import Campaign
from battery.render.report import markdown


def fit(found: Findings, arm: str, rung: int) -> Fit:
    (one,) = [one for one in found.fits if (one.arm, one.rung) == (arm, rung)]
    return one


def launches(fitting: int, of: int) -> Fit:
    return Fit(
        arm="x", rung=1, fit=fitting, tried=of, inherited=0, other={}, launches_fit=fitting, launches=of,
        claim="cannot be told",
    )  # fmt: skip


def test_barnard_known_answers() -> None:
    assert barnard(launches(3, 3), launches(0, 3)) == pytest.approx(0.03125)
    six = barnard(launches(6, 6), launches(0, 6))
    assert six is not None and six < 0.002 and six < fisher_exact([[6, 0], [0, 6]]).pvalue
    assert barnard(launches(2, 3), launches(4, 6)) is None
    assert barnard(launches(0, 0), launches(3, 3)) is None and barnard(None, launches(1, 2)) is None
    # Groups are columns: two of twelve against none of three is nothing.
    few = barnard(launches(2, 12), launches(0, 3))
    assert few is not None and few > 0.4


def at(arm: str, rung: int, blocks: range = range(1, 99)) -> Callable[[Receipt], bool]:
    return lambda r: (r.cell.arm, r.cell.rung) == (arm, rung) and r.cell.block in blocks


def test_launches_are_the_unit(tmp_path: Path) -> None:
    found = analyse(build(tmp_path, World(blocks=3, seeds=4, change=fails("oom", at("C", 384)))))
    one, control = fit(found, "C", 384), fit(found, "A", 384)
    assert (one.fit, one.tried, one.launches_fit, one.launches) == (0, 12, 0, 3)
    assert (control.fit, control.tried, control.launches_fit, control.launches) == (12, 12, 3, 3)
    assert one.barnard_p == pytest.approx(0.03125) and control.barnard_p is None
    assert (one.claim, control.claim) == ("does not fit", "fits")
    assert (control.low, control.high) == pytest.approx(proportion_confint(3, 3, method="wilson"))
    assert fit(found, "C", 128).claim == "fits" and fit(found, "C", 128).barnard_p is None
    page = markdown(found)
    assert "| C | 384 | 0 of 12 | — | — | 0 of 3 |" in page and "| .0312 | does not fit |" in page
    assert "| A | 128 |" not in page.split("Which contexts fit.")[1].split("###")[0]


def test_one_cell_out_of_memory_is_not_fitting(tmp_path: Path) -> None:
    change = fails("oom", lambda r: at("C", 384)(r) and r.cell.seed == 110_201)
    one = fit(analyse(build(tmp_path, World(change=change))), "C", 384)
    assert (one.fit, one.tried, one.launches_fit, one.launches) == (11, 12, 5, 6)
    assert one.claim == "fits sometimes"


def test_what_was_inherited_was_not_tried(tmp_path: Path) -> None:
    never = Clearance(verdict="not tried", waited_s=0.0)

    def change(receipt: Receipt) -> Receipt:
        if at("C", 128)(receipt) and receipt.cell.place == 1:
            return fails("oom", lambda _: True)(receipt)
        if receipt.cell.arm == "C" and not receipt.cell.sentinel:
            inherited = fails("oom", lambda _: True, "inherited", inherited_from=1)(receipt)
            return msgspec.structs.replace(inherited, gate=never)
        return receipt

    found = analyse(build(tmp_path, World(change=change)))
    low, high = fit(found, "C", 128), fit(found, "C", 384)
    assert (low.fit, low.tried, low.inherited, low.claim) == (0, 6, 6, "does not fit")
    assert (high.tried, high.inherited, high.launches, high.claim) == (0, 12, 0, "cannot be told")
    assert high.why == "no cell was tried" and high.barnard_p is None and high.low is None


def test_a_launch_that_never_came_to_a_cell_does_not_fit(tmp_path: Path) -> None:
    never = Clearance(verdict="not tried", waited_s=0.0)

    def change(receipt: Receipt) -> Receipt:
        if receipt.cell.arm == "A":
            return receipt
        return msgspec.structs.replace(fails("oom", lambda _: True)(receipt), gate=never)

    one = fit(analyse(build(tmp_path, World(change=change))), "C", 384)
    assert (one.tried, one.launches_fit, one.launches, one.claim) == (0, 0, 6, "does not fit")
    assert one.barnard_p is not None and one.barnard_p < 0.002


@pytest.mark.parametrize(
    ("world", "why"),
    [
        (World(blocks=1), "needs 2 launches"),
        (World(change=fails("timeout", at("C", 384, range(1, 2)))), "some cells ended otherwise"),
        (World(change=fails("lost", at("C", 384))), "no cell came to its end"),
    ],
)
def test_what_cannot_be_told(world: World, why: str, tmp_path: Path) -> None:
    found = analyse(build(tmp_path, world))
    one = fit(found, "C", 384)
    assert (one.claim, one.why) == ("cannot be told", why)
    assert "Every cell that was tried to its end fitted into memory (sentinels apart)." in markdown(
        found
    )


def test_out_of_memory_counts_whatever_happened_to_its_block(tmp_path: Path) -> None:
    """In block 2 the candidate ran out of memory, then another cell was disturbed, and all fitted the second time."""
    campaign = Campaign(build(tmp_path, World(seeds=1)))
    receipts, last = campaign.receipts(), len(campaign.paths())
    run, again = [], []
    for receipt in receipts:
        if receipt.cell.block == 2:
            again.append(
                msgspec.structs.replace(receipt, sequence=last + len(again) + 1, attempt=2)
            )
            if receipt.cell.arm == "A" and receipt.cell.rung == 384:
                receipt = msgspec.structs.replace(receipt, breach=("throttled",))
        run.append(fails("oom", lambda r: r.cell.block == 2 and at("C", 384)(r))(receipt))
    found = together([*run, *again], campaign.header())
    one, other = fit(found, "C", 384), fit(found, "C", 128)
    assert (one.fit, one.tried, one.launches_fit, one.launches) == (6, 7, 6, 7)
    assert one.claim == "fits sometimes" and other.claim == fit(found, "A", 384).claim == "fits"
    told = found.outcome("C", 384)
    assert (told.ok, told.ended, told.reasons) == (6, {}, ("planted",))
    assert told.oom_besides == (next(r.sequence for r in run if r.outcome == "oom"),)
    page = markdown(found)
    assert "| C | 384 | 6 of 6 (planned 6) | oom 1 in an attempt that was measured again |" in page
    assert "Every cell of every arm ended" not in page and "| fits sometimes |" in page
    assert found.primary[0].pairs == 6, "timing rests on the attempt that counts"


def test_what_a_window_inherited_in_an_attempt_given_up_counts_nowhere(tmp_path: Path) -> None:
    campaign = Campaign(build(tmp_path, World(seeds=1)))
    receipts = campaign.receipts()
    never = Clearance(verdict="not tried", waited_s=0.0)
    first = [r for r in receipts if r.cell.block == 6 and r.cell.arm == "C"]
    head = [r for r in receipts if r.cell.block < 6]
    tried = fails("oom", lambda _: True)(first[1])
    inherited = msgspec.structs.replace(
        fails("oom", lambda _: True, "inherited", inherited_from=tried.sequence)(first[2]),
        gate=never,
    )
    found = together([*head, first[0], tried, inherited], campaign.header())
    more = msgspec.structs.replace(first[0], attempt=2, sequence=60)
    after = together([*head, first[0], tried, inherited, more], campaign.header())
    assert [fit(x, "C", 128).launches for x in (found, after)] == [6, 6]
    assert (fit(after, "C", 384).tried, fit(after, "C", 384).launches) == (5, 5)
    assert after.outcome("C", 128).oom_besides == (tried.sequence,)
    assert after.outcome("C", 384).oom_besides == ()
