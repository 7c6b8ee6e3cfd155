from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from synthetic import World, build, trace

from battery.analyse.findings import analyse
from battery.ledger.receipt import Clearance, Receipt
from battery.ledger.store import Campaign
from battery.ledger.trace import Trace
from battery.render.report import markdown

NEVER = [
    Clearance(verdict="not tried", waited_s=0.0),
    Clearance(verdict="refused", waited_s=0.0, reasons=("the window had failed before",)),
    Clearance(verdict="refused", waited_s=0.0, reasons=("not tried: the window had failed before",)),
]  # fmt: skip


def unsent(receipt: Receipt, gate: Clearance, outcome: str) -> Receipt:
    """The receipt of a cell whose request never left; what it says of engagement is of an earlier request."""
    engagement = msgspec.structs.replace(receipt.engagement, verdict="disengaged")
    return msgspec.structs.replace(
        receipt, gate=gate, outcome=outcome, reason="planted", trace=Trace(), text=None, engagement=engagement
    )  # fmt: skip


@pytest.mark.parametrize("gate", NEVER)
def test_cells_that_were_never_tried_are_no_refused_gates_and_prove_nothing(
    gate: Clearance, tmp_path: Path
) -> None:
    def change(receipt: Receipt) -> Receipt:
        cell = receipt.cell
        gone = (cell.arm, cell.block, cell.rung) == ("C", 2, 384)
        return unsent(receipt, gate, "oom") if gone else receipt

    found = analyse(build(tmp_path, World(change=change)))
    assert (found.gates.cells, found.gates.refused) == (58, 0)
    control, candidate = found.arms
    assert control.engagement == {"engaged": 30} and candidate.engagement == {"engaged": 28}
    assert [(one.arm, one.verdicts) for one in found.switches] == [("C", {"engaged": 28})]
    told = found.outcome("C", 384)
    assert told.ended == {"oom": 2} and told.phases == ("not tried",)


def test_a_gate_that_refused_is_counted_as_such(tmp_path: Path) -> None:
    shut = Clearance(verdict="refused", waited_s=20.0, reasons=("busy 0.9 is above 0.5",))

    def change(receipt: Receipt) -> Receipt:
        return unsent(receipt, shut, "refused") if receipt.sequence == 9 else receipt

    found = analyse(build(tmp_path, World(change=change)))
    gates = found.gates
    assert (gates.cells, gates.refused, gates.longest_s) == (60, 1, 20.0)
    assert sum(arm.engagement["engaged"] for arm in found.arms) == 59
    assert ("gate",) in [one.phases for one in found.outcomes]


def test_a_request_to_which_no_token_came_was_sent(tmp_path: Path) -> None:
    def change(receipt: Receipt) -> Receipt:
        if receipt.sequence != 9:
            return receipt
        return msgspec.structs.replace(receipt, outcome="timeout", trace=Trace())

    found = analyse(build(tmp_path, World(change=change)))
    assert sum(arm.engagement["engaged"] for arm in found.arms) == 60
    assert sum(arm.cold["cold"] for arm in found.arms) == 59


def test_the_resolved_environment_is_compared(tmp_path: Path) -> None:
    said = {
        "A": {"OMP_NUM_THREADS": "1", "LANG": "C"},
        "C": {"OMP_NUM_THREADS": "2", "LANG": "C", "MLX_FAST": "1"},
    }

    def change(receipt: Receipt) -> Receipt:
        return msgspec.structs.replace(receipt, environment=said[receipt.cell.arm])

    world = World(change=change, env={"C": {"MLX_FAST": "1"}})
    found = analyse(build(tmp_path, world))
    rows = {one.what: (one.control_has, one.candidate_has, one.declared) for one in found.differences}  # fmt: skip
    assert rows["environment.OMP_NUM_THREADS"] == ("1", "2", False)
    assert rows["environment.MLX_FAST"] == ("absent", "1", True)
    assert "environment.LANG" not in rows
    warned = [doubt.what for doubt in found.doubts if "also differ in environment" in doubt.what]
    assert len(warned) == 1 and "OMP_NUM_THREADS" in warned[0]


def test_the_sentinel_is_read_in_the_order_of_the_run(tmp_path: Path) -> None:
    """An attempt that is measured last may bear the number of the first window."""
    folder = build(tmp_path, World(noise=0.0, content=0.0))
    store = Campaign(folder)
    first = next(r for r in store.receipts() if r.cell.arm == "A" and r.cell.sentinel)
    assert first.cell.window.number == 1
    store.write(msgspec.structs.replace(first, sequence=901, attempt=2, trace=trace(80)))
    sentinel = analyse(folder).drift.sentinels[0]
    assert sentinel.windows == 7
    assert sentinel.last_first == pytest.approx(1.0) and sentinel.bracket == pytest.approx(1.0)


def test_a_peak_is_a_lower_bound_only_where_an_allocation_failed(tmp_path: Path) -> None:
    """Who crossed the plan's own cap told its whole peak; it is in the reason, and no "more than" is said of it."""

    def change(receipt: Receipt) -> Receipt:
        crossed = receipt.cell.arm == "C" and receipt.cell.rung == 384
        reason = "peak 0.32 GB crossed the plan's cap of 0.3 GB"
        return (
            msgspec.structs.replace(receipt, outcome="oom", reason=reason) if crossed else receipt
        )

    found = analyse(build(tmp_path, World(change=change)))
    assert found.outcome("C", 384).ended == {"oom": 12}
    assert found.outcome("C", 384).peak_over is None
    page = markdown(found)
    assert (
        "crossed the plan's cap" in page
        and "| > " not in page.partition("### 1.5")[0].partition("### 1.4")[2]
    )


def test_what_ended_ok_is_said_of_what_was_looked_at(tmp_path: Path) -> None:
    def change(receipt: Receipt) -> Receipt:
        failed = receipt.cell.sentinel and receipt.cell.block == 2
        return (
            msgspec.structs.replace(receipt, outcome="timeout", reason="planted")
            if failed
            else receipt
        )

    page = markdown(analyse(build(tmp_path, World(change=change))))
    assert "Every cell of the attempts that count ended `ok` (sentinels apart)." in page
