"""A machine that is disturbed in a cell: the block is measured again whole, as often as the plan allows, and told."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest
from machines import plant, write
from stopped import children

from battery.analyse.findings import analyse
from battery.bench.client import Client
from battery.bench.progress import Progress
from battery.bench.run import Conductor
from battery.interruption import Interrupted
from battery.ledger import store
from battery.ledger.arm import Arm
from battery.ledger.cell import Cell
from battery.ledger.plan import Plan
from battery.ledger.receipt import Receipt
from battery.ledger.store import Campaign
from battery.render import gating, report

Make = Callable[..., Arm]
Wanted = Callable[[Cell, int], bool]
THROTTLE = "sys/devices/system/cpu/cpu0/thermal_throttle/core_throttle_count"


class Planted(Progress):
    """Plants a fault between the first and the last sample of chosen cells, while their request runs."""

    def __init__(self, wanted: Wanted, fault: Callable[[], None]) -> None:
        self.wanted, self.fault = wanted, fault
        self.attempt, self.timed, self.written = 0, None, 0
        self.stop_at: int | None = None

    def window(self, window: object, attempt: int) -> None:
        self.attempt = attempt

    def phase(self, cell: Cell | None, phase: str, detail: str) -> None:
        self.timed = cell if phase == "request" else None

    def cell(self, receipt: Receipt) -> None:
        self.timed = None
        self.written += 1
        if self.written == self.stop_at:
            os.kill(os.getpid(), signal.SIGINT)

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        original = Client.stream

        def stream(client: Client, *args: Any, **options: Any) -> Any:
            if self.timed is not None and self.wanted(self.timed, self.attempt):
                self.fault()
            return original(client, *args, **options)

        monkeypatch.setattr(Client, "stream", stream)


class Throttling:
    """A processor whose throttle count rises by one at every call."""

    def __init__(self, root: Path) -> None:
        self.root, self.count = root, 12

    def __call__(self) -> None:
        self.count += 1
        write(self.root, THROTTLE, str(self.count))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return plant("laptop", tmp_path / "machine")


@pytest.fixture
def steady_plan(small_plan: Plan) -> Plan:
    gate = msgspec.structs.replace(small_plan.gate, need_steady=True, wait_s=8.0)
    return msgspec.structs.replace(small_plan, gate=gate, ladder=(64,))


def conduct(
    folder: Path, plan: Plan, arms: list[Arm], root: Path, progress: Progress
) -> dict[str, int]:
    lock = folder.parent / "battery.lock"
    return Conductor(plan, arms, folder, progress, 4821, lock=lock, sensor_root=root).run()


def events(folder: Path, kind: str) -> list[dict[str, Any]]:
    return [event for event in Campaign(folder).journal() if event["event"] == kind]


def test_a_block_in_which_the_processor_was_throttled_is_measured_again_whole(
    tmp_path: Path, fake_arm: Make, steady_plan: Plan, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hot = Planted(
        lambda cell, attempt: (
            (cell.block, cell.window.position, cell.place, attempt) == (2, 1, 0, 1)
        ),
        Throttling(root),
    )
    hot.install(monkeypatch)
    folder = tmp_path / "c"
    counts = conduct(folder, steady_plan, [fake_arm("A"), fake_arm("C")], root, hot)
    campaign = Campaign(folder)
    receipts, header = campaign.receipts(), campaign.header()
    assert counts == {"ok": 8}
    assert [(r.cell.block, r.attempt) for r in receipts] == [(1, 1)] * 4 + [(2, 1)] * 3 + [
        (2, 2)
    ] * 4
    bad = [r for r in receipts if r.breach]
    assert [r.sequence for r in bad] == [7] and "cpu.core_throttle rose by 1" in bad[0].breach[0]
    assert bad[0].outcome == "ok", "the arm did nothing wrong"
    assert {r.attempt for r in store.complete_blocks(receipts, header)[2]} == {2}
    told = events(folder, "disturbed")
    assert [(e["block"], e["attempt"], e["receipt"], e["then"]) for e in told] == [
        (2, 1, 7, "measured again")
    ]
    assert [(e["block"], e["attempt"]) for e in events(folder, "abandoned")] == [(2, 1)]

    found = analyse(folder)
    assert found.blocks_complete == 2 and [d.counted for d in found.disturbances] == [False]
    assert any("disturbed in 1 attempts" in doubt.what for doubt in found.doubts)
    assert "given up, not pooled" in gating.disturbances(found)
    assert found.journal["disturbed"] == 1
    limits = gating.gates(found)
    assert (
        "`need_steady` | True | gated (processor, swap); not gated: gpu: NVML: a recorded tree"
        in limits
    )
    assert "Disturbed, by sensors that know no arm" in report.markdown(found)
    # the gate saw the count rise too, and waited until it had been steady for half the wait
    again = next(r for r in receipts if (r.cell.block, r.attempt) == (2, 2))
    assert again.gate.verdict == "open" and "need_steady (processor)" in (again.gate.applied or ())


def test_after_the_reruns_the_block_stands_and_is_flagged(
    tmp_path: Path, fake_arm: Make, steady_plan: Plan, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    always = Planted(lambda cell, _: cell.block == 1 and cell.place == 1, Throttling(root))
    always.install(monkeypatch)
    limits = msgspec.structs.replace(steady_plan.limits, reruns=1)
    plan = msgspec.structs.replace(steady_plan, limits=limits)
    folder = tmp_path / "c"
    counts = conduct(folder, plan, [fake_arm("A")], root, always)
    receipts = Campaign(folder).receipts()
    assert counts == {"ok": 4}
    assert [(r.cell.block, r.attempt) for r in receipts] == [(1, 1)] * 2 + [(1, 2)] * 2 + [
        (2, 1)
    ] * 2
    assert [e["then"] for e in events(folder, "disturbed")] == ["measured again", "stands"]
    found = analyse(folder)
    assert [d.counted for d in found.disturbances] == [False, True]
    flagged = [doubt for doubt in found.doubts if "block 1 stands although" in doubt.what]
    assert [doubt.severity for doubt in flagged] == ["warning"]


@pytest.mark.parametrize("stop_at", [4, 5])
def test_reruns_are_counted_over_a_stop_and_a_block_given_up_at_its_last_cell_is_never_pooled(
    tmp_path: Path,
    fake_arm: Make,
    steady_plan: Plan,
    root: Path,
    monkeypatch: pytest.MonkeyPatch,
    stop_at: int,
) -> None:
    """The first attempt has every cell; Ctrl-C comes with its last receipt, or inside the attempt that replaces it."""
    plan = msgspec.structs.replace(steady_plan, blocks=1)
    hot = Planted(
        lambda cell, attempt: (cell.window.position, cell.place, attempt) == (1, 1, 1),
        Throttling(root),
    )
    hot.stop_at = stop_at
    hot.install(monkeypatch)
    folder, arms = tmp_path / "c", [fake_arm("A"), fake_arm("C")]
    with pytest.raises(Interrupted):
        conduct(folder, plan, arms, root, hot)
    campaign = Campaign(folder)
    kept = campaign.receipts()
    assert len(kept) == stop_at and kept[3].breach
    assert store.complete_blocks(kept, campaign.header()) == {}, "whole, but given up"
    assert analyse(folder).blocks_complete == 0
    assert children() == []

    hot.stop_at = None
    counts = conduct(folder, plan, arms, root, hot)
    receipts = campaign.receipts()
    assert counts == {"ok": 4} and receipts[:stop_at] == kept
    pooled = store.complete_blocks(receipts, campaign.header())[1]
    assert {r.attempt for r in pooled} == {2 if stop_at == 4 else 3}
    assert not any(r.breach for r in pooled)


def test_a_stop_does_not_give_a_block_new_reruns(
    tmp_path: Path, fake_arm: Make, steady_plan: Plan, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = msgspec.structs.replace(steady_plan.limits, reruns=1)
    plan = msgspec.structs.replace(steady_plan, blocks=1, limits=limits)
    always = Planted(lambda cell, _: cell.place == 0, Throttling(root))
    always.stop_at = 2  # the rerun's first cell: disturbed too, and the last rerun
    always.install(monkeypatch)
    folder, arms = tmp_path / "c", [fake_arm("A")]
    with pytest.raises(Interrupted):
        conduct(folder, plan, arms, root, always)
    always.stop_at = None
    counts = conduct(folder, plan, arms, root, always)
    receipts = Campaign(folder).receipts()
    assert counts == {"ok": 2} and [r.attempt for r in receipts] == [1, 2, 3, 3]
    assert [e["then"] for e in events(folder, "disturbed")] == [
        "measured again",
        "stands",
        "stands",
    ]


def test_running_out_of_memory_is_a_result_however_much_was_swapped(
    tmp_path: Path, fake_arm: Make, steady_plan: Plan, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pages = [100]

    def swap() -> None:
        pages[0] += 100_000
        write(root, "proc/vmstat", f"pswpin {pages[0]}")

    thrashing = Planted(lambda cell, _: cell.rung == 96, swap)
    thrashing.install(monkeypatch)
    plan = msgspec.structs.replace(steady_plan, blocks=1, ladder=(64, 96), sentinel=False)
    arm = fake_arm("A", "--fault", "oom-at:96")
    counts = conduct(tmp_path / "c", plan, [arm], root, thrashing)
    receipts = Campaign(tmp_path / "c").receipts()
    assert counts == {"ok": 1, "oom": 1} and len(receipts) == 2
    assert receipts[1].breach == () and receipts[1].samples, (
        "the swapping itself stays in the record"
    )


def test_a_gate_that_stays_shut_has_its_block_measured_again_and_then_stands_refused(
    tmp_path: Path, fake_arm: Make, steady_plan: Plan, root: Path
) -> None:
    write(root, "sys/class/power_supply/AC/online", "1")

    class Unplugged(Progress):
        """Pulls the plug once the campaign has begun."""

        def phase(self, cell: object, phase: str, detail: str) -> None:
            if phase == "warm-up":
                write(root, "sys/class/power_supply/AC/online", "0")
                write(root, "sys/class/power_supply/BAT0/status", "Discharging")

    gate = msgspec.structs.replace(steady_plan.gate, need_ac_power=True, wait_s=0.1)
    limits = msgspec.structs.replace(steady_plan.limits, reruns=1)
    plan = msgspec.structs.replace(steady_plan, blocks=1, sentinel=False, gate=gate, limits=limits)
    counts = conduct(tmp_path / "c", plan, [fake_arm("A")], root, Unplugged())
    receipts = Campaign(tmp_path / "c").receipts()
    assert counts == {"refused": 1} and [r.attempt for r in receipts] == [1, 2]
    assert receipts[0].breach == ("the gate stayed shut: on battery power",)


def test_a_sampler_that_dies_costs_samples_and_never_the_campaign(
    tmp_path: Path, fake_arm: Make, steady_plan: Plan, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def kill() -> None:
        ours = [
            child
            for child in psutil.Process().children()
            if "battery.bench.sensors.sampler" in child.cmdline()
        ]
        assert len(ours) == 1
        ours[0].kill()

    killing = Planted(lambda cell, _: cell.place == 0 and cell.block == 1, kill)
    killing.install(monkeypatch)
    plan = msgspec.structs.replace(steady_plan, sentinel=False, seeds=2)
    counts = conduct(tmp_path / "c", plan, [fake_arm("A")], root, killing)
    first, second, *rest = Campaign(tmp_path / "c").receipts()
    assert counts == {"ok": 4}
    assert first.samples == () and "no samples" in (first.no_samples or "")
    assert len(second.samples) >= 2 and second.no_samples is None and len(rest) == 2
    found = analyse(tmp_path / "c")
    unread = [doubt for doubt in found.doubts if "have no samples" in doubt.what]
    assert [(doubt.severity, doubt.evidence) for doubt in unread] == [("warning", (1,))]
