"""Real deaths for want of memory: a server under a kernel's limit climbs a ladder that crosses it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import psutil
import pytest
from growing import own_group

from battery.analyse.findings import analyse
from battery.bench import schedule
from battery.bench.memory import cgroup, settle
from battery.bench.run import Conductor
from battery.ledger.arm import Arm
from battery.ledger.errors import LaunchError
from battery.ledger.plan import Plan
from battery.ledger.receipt import Receipt
from battery.ledger.store import Campaign
from battery.render.charts import CHARTS, render_charts
from battery.render.report import markdown

Make = Callable[..., Arm]
GROWS = ("--fault", "bare-health", "--touch-kb-per-token")
LADDER = (64, 128, 192)


@pytest.fixture
def limit_kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The kind of limit that the test runs under; skips where this machine cannot put it on a process."""
    if request.param == "cgroup":
        own_group().lift()  # skips where none can be made
    else:
        if sys.platform != "linux":
            pytest.skip(f"RLIMIT_AS is not enforced on {sys.platform}")
        monkeypatch.setattr(cgroup, "make", lambda _name: (None, "left out by the test"))
    return str(request.param)


def limited(plan: Plan, gigabytes: float, **changes: object) -> Plan:
    limits = msgspec.structs.replace(plan.limits, memory_limit_gb=gigabytes)
    changes = {"ladder": LADDER, "sentinel": False, "limits": limits, **changes}
    return msgspec.structs.replace(plan, **changes)


def conduct(folder: Path, plan: Plan, *arms: Arm) -> list[Receipt]:
    Conductor(plan, arms, folder, None, 4821, lock=folder.parent / "battery.lock").run()
    return Campaign(folder).receipts()


def no_group_is_left() -> bool:
    own = cgroup.of()
    return own is None or not list(own.path.glob(f"battery-{os.getpid()}-*"))


@pytest.mark.parametrize(
    ("limit_kind", "when", "gigabytes", "phase"),
    [
        ("cgroup", "prefill", 0.11, "prefill"),
        ("cgroup", "decode", 0.11, "first decode"),
        ("rlimit", "prefill", 0.6, "prefill"),
        ("rlimit", "decode", 0.6, "first decode"),
    ],
    indirect=["limit_kind"],
)
def test_a_ladder_that_crosses_a_limit_ends_in_oom_and_the_campaign_goes_on(
    tmp_path: Path,
    fake_arm: Make,
    small_plan: Plan,
    limit_kind: str,
    when: str,
    gigabytes: float,
    phase: str,
) -> None:
    # of memory a cgroup counts what is used, RLIMIT_AS what is mapped: threads and arenas too
    per_token = "1000" if limit_kind == "cgroup" else "4000"
    grows = fake_arm("C", *GROWS, per_token, "--touch-when", when)
    folder = tmp_path / "receipts" / "crossing"
    folder.parent.mkdir()
    plan = limited(small_plan, gigabytes)
    receipts = conduct(folder, plan, fake_arm("A"), grows)
    assert [r.outcome for r in receipts if r.cell.arm == "A"] == ["ok"] * 6
    for block in (1, 2):
        fits, first, second = (r for r in receipts if r.cell.arm == "C" and r.cell.block == block)
        assert (fits.outcome, first.outcome, second.outcome) == ("ok", "oom", "oom")
        assert second.evidence == {"inherited_from": first.sequence}
        assert first.evidence["phase"] == phase
        assert len(first.trace.events) == (1 if phase == "first decode" else 0)
        by_kernel = limit_kind == "cgroup"
        assert (first.evidence["exit_status"] == -signal.SIGKILL) is by_kernel
        told = first.evidence["oom"]
        assert ("own cgroup" if by_kernel else "MemoryError") in told["text"]
        memory = first.memory
        assert memory.lower_bound and memory.peak and memory.source
        if by_kernel:
            assert 0.9 * gigabytes * 1e9 < memory.peak <= gigabytes * 1e9
            assert memory.source == "cgroup"
        assert fits.memory.peak and not fits.memory.lower_bound
        kind = (memory.cap_kind or "").split(" (")[0]
        assert kind == ("RLIMIT_AS" if limit_kind == "rlimit" else kind)
        assert memory.cap == pytest.approx(gigabytes * 1e9, abs=8192)
        assert second.memory.cap == memory.cap and second.memory.peak is None
    settled = [e for e in Campaign(folder).journal() if e["event"] == "settled"]
    # before the window behind each that lost its server
    dead = {r.cell.window.number for r in Campaign(folder).receipts() if r.outcome == "oom"}
    last = max(r.cell.window.number for r in Campaign(folder).receipts())
    assert {e["window"] for e in settled} == dead - {last} and all(e["settled"] for e in settled)
    assert no_group_is_left()
    _report_marks_it(folder, tmp_path / "charts", limit_kind)


def _report_marks_it(folder: Path, charts: Path, limit_kind: str) -> None:
    """The strip of the chart and the table of the report say oom, with the lower bound."""
    findings = analyse(folder)
    render_charts(findings, charts)
    drawn = (charts / "peak_memory.svg").read_text()
    assert drawn.count("✕ oom 2/2") == 2
    told = CHARTS["peak_memory"].alt(findings)
    assert re.search(r"Arm C: [\d.]+ at 64; oom 2, more than 0\.\d+ at 128; oom 2 at 192", told), (
        told
    )
    text = markdown(findings)
    row = next(line for line in text.splitlines() if line.startswith("| C | 128 |"))
    assert "0 of 2" in row and "oom 2" in row and "> 0." in row
    source = "cgroup" if limit_kind == "cgroup" else "VmHWM"
    assert f"{source} (true peak, with file cache)" in text


@pytest.mark.parametrize("limit_kind", ["cgroup", "rlimit"], indirect=True)
def test_no_memory_to_load_is_a_result_once_the_arm_has_loaded_before(
    tmp_path: Path, small_plan: Plan, limit_kind: str
) -> None:
    marker, script = tmp_path / "launches", tmp_path / "growing_engine.py"
    engine = Path(__file__).parents[1] / "fake_engine.py"
    script.write_text(
        "import os, sys, pathlib\n"
        f"marker = pathlib.Path({str(marker)!r})\n"
        "count = int(marker.read_text()) if marker.exists() else 0\n"
        "marker.write_text(str(count + 1))\n"
        "more = ['--touch-mb-at-start', '900'] if count == 2 else []\n"
        f"os.execv(sys.executable, [sys.executable, {str(engine)!r}, *sys.argv[1:], *more])\n"
    )
    command = ["{python}", str(script), "--port", "{port}", "--model", "{model}"]
    arm = Arm(name="A", backend="command", model="tiny", command=command)
    receipts = conduct(tmp_path / "c", limited(small_plan, 0.6, ladder=(64,)), arm)
    first, second = receipts
    assert first.outcome == "ok" and second.outcome == "oom"
    assert second.evidence["phase"] == "load" and (second.reason or "").startswith("during load: ")
    if limit_kind == "cgroup":
        assert second.memory.lower_bound and (second.memory.peak or 0) > 500_000_000
    assert second.memory.cap == pytest.approx(600_000_000, abs=8192)
    assert no_group_is_left()


def test_a_first_start_without_the_memory_is_no_result_but_an_error(
    tmp_path: Path, fake_arm: Make, small_plan: Plan
) -> None:
    if sys.platform != "linux":
        pytest.skip("no limit can be put on a server here")
    arm = fake_arm("A", "--touch-mb-at-start", "900")
    killed = cgroup.make("probe")[0]
    if killed is not None:
        killed.remove()
    words = "killed for memory: oom_kill of the server's own cgroup" if killed else "MemoryError"
    with pytest.raises(LaunchError, match=words):
        conduct(tmp_path / "c", limited(small_plan, 0.6), arm)
    assert no_group_is_left() and not (tmp_path / "c").exists()


def test_a_smaller_second_cell_does_not_show_the_firsts_peak(
    tmp_path: Path, fake_arm: Make, small_plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    if sys.platform != "linux":
        pytest.skip("VmHWM is read under /proc")
    upwards = schedule.cells
    monkeypatch.setattr(schedule, "cells", lambda *of: upwards(*of)[::-1])
    plan = limited(small_plan, 1.5, ladder=(64, 256), blocks=1)
    large, small = conduct(tmp_path / "c", plan, fake_arm("A", *GROWS, "1000"))
    assert (large.cell.rung, small.cell.rung) == (256, 64)
    for name in ("VmHWM", "cgroup"):
        before, after = large.memory.sources[name].bytes, small.memory.sources[name].bytes
        if before is None or after is None:
            assert name == "cgroup" and large.memory.sources[name].reason
            continue
        assert before - after == pytest.approx(192_000_000, rel=0.05)


def test_sigkill_of_the_battery_leaves_no_group(
    tmp_path: Path, fake_arm: Make, small_plan: Plan
) -> None:
    own_group().lift()
    arm = fake_arm("A", "--itl-ms", "30")
    spec = tmp_path / "spec.json"
    plan = limited(small_plan, 0.6)
    spec.write_bytes(msgspec.json.encode({"plan": plan, "arm": arm}))
    script = (
        "import msgspec, pathlib\n"
        "from battery.bench.run import Conductor\n"
        "from battery.ledger.plan import Plan\nfrom battery.ledger.arm import Arm\n"
        f"spec = msgspec.json.decode(pathlib.Path({str(spec)!r}).read_bytes())\n"
        "plan, arm = msgspec.convert(spec['plan'], Plan), msgspec.convert(spec['arm'], Arm)\n"
        f"root = pathlib.Path({str(tmp_path)!r})\n"
        "Conductor(plan, [arm], root / 'c', None, 4821, lock=root / 'battery.lock').run()\n"
    )
    parent = cgroup.of()
    assert parent is not None
    with subprocess.Popen([sys.executable, "-c", script]) as running:
        deadline = time.monotonic() + 30
        while len(Campaign(tmp_path / "c").paths()) < 1 and time.monotonic() < deadline:
            time.sleep(0.02)
        groups = list(parent.path.glob(f"battery-{running.pid}-*"))
        left = psutil.Process(running.pid).children(recursive=True)
        running.kill()
    assert groups and left
    _, alive = psutil.wait_procs(left, timeout=10)
    deadline = time.monotonic() + 10
    while any(group.exists() for group in groups) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not alive and not any(group.exists() for group in groups)


def test_memory_that_does_not_come_back_is_waited_for_and_told() -> None:
    levels = [
        {"available_bytes": 1_000_000_000, "gpu_used_bytes": 9_000_000_000},
        {"available_bytes": 20_000_000_000, "gpu_used_bytes": 9_000_000_000},
        {"available_bytes": 20_000_000_000, "gpu_used_bytes": 1_000_000_000},
    ]
    baseline = levels[-1]
    came = settle.wait(baseline, 5.0, lambda: levels.pop(0) if len(levels) > 1 else levels[0])
    assert came["settled"] and came["waited_s"] > 0 and "short" not in came
    never = settle.wait(baseline, 0.3, lambda: {"available_bytes": 1_000, "gpu_used_bytes": None})
    assert not never["settled"] and "20.00 GB less memory" in never["short"]
    # a campaign that was begun before this was recorded has nothing to come back to
    nothing = settle.wait({}, 5.0, lambda: {"available_bytes": 1_000, "gpu_used_bytes": 7})
    assert nothing["settled"] is None  # there was nothing to compare with
