"""Whole campaigns against the fake engine over real HTTP: outcomes, resume, interruption."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import msgspec
import psutil
import pytest
from stopped import children

from battery.bench import measure, preflight, sensors
from battery.bench.lock import MachineLock
from battery.bench.progress import Progress
from battery.bench.run import Conductor
from battery.interruption import Interrupted
from battery.ledger import store
from battery.ledger.arm import Arm
from battery.ledger.errors import Busy, GateRefused, LaunchError, PlanError, ReceiptError
from battery.ledger.plan import Limits, Plan
from battery.ledger.receipt import Clearance, Receipt
from battery.ledger.store import Campaign

Make = Callable[..., Arm]


def conduct(
    folder: Path, plan: Plan, *arms: Arm, progress: Progress | None = None, seed: int = 4821
) -> tuple[Counter[str], list[Receipt]]:
    lock = folder.parent / "battery.lock"
    counts = Conductor(plan, arms, folder, progress, seed, lock=lock).run()
    return counts, Campaign(folder).receipts()


def only(plan: Plan, **changes: object) -> Plan:
    """One block, one rung, no sentinel."""
    small = {"ladder": (64,), "blocks": 1, "sentinel": False, **changes}
    return msgspec.structs.replace(plan, **small)


def test_a_campaign_leaves_one_receipt_per_cell_and_a_seal(
    tmp_path: Path, fake_arm: Make, small_plan: Plan
) -> None:
    lookup = fake_arm("C", switches={"prompt_lookup": True})
    counts, receipts = conduct(tmp_path / "c", small_plan, fake_arm("A"), lookup)
    assert counts == {"ok": 12} and len(receipts) == 12
    assert [r.sequence for r in receipts] == list(range(1, 13))
    orders = [[r.cell.arm for r in receipts if r.cell.block == block] for block in (1, 2)]
    assert orders[0] == orders[1][::-1]
    by_seed: dict[tuple[int, int], set[str]] = {}
    for r in receipts:
        by_seed.setdefault((r.cell.rung, r.cell.seed), set()).add(r.request.body_digest)
        assert r.outcome == "ok" and r.cold.value == "cold" and r.request.honoured == "honoured"
        assert r.trace.prompt_tokens == r.request.prompt_tokens == r.cell.rung
        assert r.trace.completion_tokens == 12 and r.trace.count_source == "server"
        assert r.memory.peak and r.memory.source == "engine"
        assert r.engagement.verdict == "engaged"
    assert all(len(digests) == 1 for digests in by_seed.values())
    assert [s.name for s in receipts[0].engagement.switches].count("prompt_lookup") == 1
    campaign = Campaign(tmp_path / "c")
    assert campaign.sealed() == campaign.chain()
    assert all(not os.access(p, os.W_OK) or p.stat().st_mode & 0o222 == 0 for p in campaign.paths())


@pytest.mark.parametrize(
    ("fault", "outcome", "words"),
    [
        ("armed-never-runs:prompt_lookup", "disengaged", "prompt_lookup: asked for, but its state"),
        ("unasked-runs:fused_qkv", "disengaged", "fused_qkv: not asked for"),
        ("declined:prompt_lookup", "disengaged", "prompt_lookup"),
        ("incoherent", "incoherent", "repeats itself"),
        ("no-terminal", "error", ""),
        ("error-in-stream:3", "error", ""),
        ("finish-error", "error", ""),
        ("close-mid-stream:3", "error", ""),
        ("bad-json", "error", ""),
        ("http-500", "error", "500"),
        ("empty-answer", "error", ""),
        ("wrong-prompt-count:30", "error", "prompt tokens"),
        ("sampler-changed", "error", "the sampler was not honoured"),
        ("clamp-max-tokens:7", "error", "the sampler was not honoured"),
        ("short:7", "short", "7 of at least 12 tokens came"),
        ("stall:3", "timeout", "deadline"),
    ],
)
def test_each_fault_gets_its_outcome(
    tmp_path: Path, fake_arm: Make, small_plan: Plan, fault: str, outcome: str, words: str
) -> None:
    limits = Limits(launch_s=30, request_s=1.0 if fault.startswith("stall") else 30, stop_s=3)
    # wake, coherence and the two cache probes come first; the fault meets the timed request
    options = ["--fault", fault]
    if fault.split(":")[0] not in ("armed-never-runs", "unasked-runs", "declined", "incoherent"):
        options += ["--after", "5"]
    arm = fake_arm("C", *options, switches={"prompt_lookup": True})
    counts, receipts = conduct(tmp_path / "c", only(small_plan, limits=limits), arm)
    assert counts == {outcome: 1}
    assert words in (receipts[0].reason or "")
    assert receipts[0].reason


def test_no_sense_is_asked_of_weights_that_are_declared_random(
    tmp_path: Path, fake_arm: Make, small_plan: Plan
) -> None:
    arm = fake_arm("K", "--fault", "incoherent", model="synthetic:wide-kv")
    counts, receipts = conduct(tmp_path / "c", only(small_plan), arm)
    assert counts == {"ok": 1}
    assert receipts[0].arm.model == "synthetic:wide-kv"


def test_a_cache_that_says_so_is_warm(tmp_path: Path, fake_arm: Make, small_plan: Plan) -> None:
    # every prompt is cold the first time; the second seed of the same server shares no prefix either
    arm = fake_arm("A", "--fault", "warm-cache")
    counts, receipts = conduct(tmp_path / "cold", only(small_plan), arm)
    assert counts == {"ok": 1} and "cached" in receipts[0].cold.evidence

    class Spoil(Progress):
        """Sends the cell's own prompt to the server a moment before it is timed."""

        def phase(self, cell: object, phase: str, detail: str) -> None:
            self.last = (cell, phase)

    original = measure.Measuring._timed

    def twice(self: measure.Measuring, body: dict, *rest: object) -> object:  # type: ignore[type-arg]
        self.client.stream(self.server.backend.chat, body, deadline_s=5)
        return original(self, body, *rest)  # type: ignore[arg-type]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(measure.Measuring, "_timed", twice)
        counts, receipts = conduct(tmp_path / "warm", only(small_plan), arm)
    assert counts == {"warm": 1} and receipts[0].cold.value == "warm"


def test_a_server_that_says_nothing_of_its_cache_is_unverified(
    tmp_path: Path, fake_arm: Make, small_plan: Plan
) -> None:
    arm = fake_arm("A", "--fault", "no-usage", "--fault", "no-timings")
    _, receipts = conduct(tmp_path / "c", only(small_plan), arm)
    assert receipts[0].cold.value == "unverified" and "cache probe" in receipts[0].cold.evidence
    assert receipts[0].trace.count_source != "usage" and receipts[0].request.honoured == "unknown"


def test_oom_is_a_result_inherited_upwards_and_the_campaign_goes_on(
    tmp_path: Path, fake_arm: Make, small_plan: Plan
) -> None:
    plan = msgspec.structs.replace(small_plan, ladder=(64, 96, 128), sentinel=False)
    counts, receipts = conduct(
        tmp_path / "c", plan, fake_arm("A"), fake_arm("C", "--fault", "oom-at:96")
    )
    assert counts == {"ok": 8, "oom": 4}
    first, second = [r for r in receipts if r.cell.arm == "C" and r.cell.block == 1][1:]
    assert (
        "Insufficient Memory" in (first.reason or "") and first.evidence["phase"] == "first decode"
    )
    assert first.memory.lower_bound and first.evidence["exit_status"] == -signal.SIGABRT
    assert second.evidence == {"inherited_from": first.sequence}


def test_a_server_that_dies_mid_window_is_lost_and_the_rest_inherit(
    tmp_path: Path, fake_arm: Make, small_plan: Plan
) -> None:
    counts, receipts = conduct(
        tmp_path / "c", only(small_plan, ladder=(64, 96)), fake_arm("A", "--fault", "die-after:4")
    )
    assert counts == {"lost": 2} and "exited with 1" in (receipts[0].reason or "")


def test_a_memory_cap_makes_an_oom(tmp_path: Path, fake_arm: Make, small_plan: Plan) -> None:
    limits = msgspec.structs.replace(small_plan.limits, memory_cap_gb=0.001)
    counts, receipts = conduct(tmp_path / "c", only(small_plan, limits=limits), fake_arm("A"))
    assert counts == {"oom": 1} and "cap" in (receipts[0].reason or "")


def test_a_plan_too_long_for_the_model_is_refused_before_measuring(
    tmp_path: Path, fake_arm: Make, small_plan: Plan
) -> None:
    with pytest.raises(PlanError, match="holds 100; shorten the ladder"):
        conduct(tmp_path / "c", small_plan, fake_arm("A", "--context", "100"))
    assert not (tmp_path / "c").exists()


def test_an_arm_that_does_not_start_is_an_error_before_anything_is_written(
    tmp_path: Path, fake_arm: Make, small_plan: Plan
) -> None:
    good, bad = fake_arm("A"), fake_arm("C", "--fault", "die-at-start")
    with pytest.raises(LaunchError, match="arm C: the server exited with 3"):
        conduct(tmp_path / "c", small_plan, good, bad)
    assert not (tmp_path / "c").exists()


class StopAfter(Progress):
    """Presses Ctrl-C once a number of receipts are written."""

    def __init__(self, receipts: int, times: int = 1) -> None:
        self.left, self.times = receipts, times

    def cell(self, receipt: Receipt) -> None:
        self.left -= 1
        if self.left == 0:
            for _ in range(self.times):
                os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.parametrize("after", [1, 3, 7])
def test_ctrl_c_keeps_what_is_done_and_the_same_command_finishes(
    tmp_path: Path, fake_arm: Make, small_plan: Plan, after: int
) -> None:
    arms = (fake_arm("A"), fake_arm("C", switches={"prompt_lookup": True}))
    with pytest.raises(Interrupted):
        conduct(tmp_path / "c", small_plan, *arms, progress=StopAfter(after))
    campaign = Campaign(tmp_path / "c")
    kept = campaign.receipts()
    assert len(kept) == after and campaign.sealed() is None
    assert campaign.journal()[-1]["event"] == "interrupted"
    assert children() == []

    counts, receipts = conduct(tmp_path / "c", small_plan, *arms)
    header = campaign.header()
    assert counts == {"ok": 12} and receipts[:after] == kept
    finished = store.complete_blocks(kept, header)
    for block in finished:
        assert len([r for r in receipts if r.cell.block == block]) == 6, (
            "a finished block was repeated"
        )
    complete = store.complete_blocks(receipts, header)
    assert sorted(complete) == [1, 2] and all(len(cells) == 6 for cells in complete.values())
    assert [e["event"] for e in campaign.journal()].count("finished") == 1


def test_a_finished_campaign_measures_nothing_again(
    tmp_path: Path, fake_arm: Make, small_plan: Plan
) -> None:
    arm = fake_arm("A")
    _, first = conduct(tmp_path / "c", only(small_plan), arm)
    _, again = conduct(tmp_path / "c", only(small_plan), arm)
    assert first == again


def test_a_campaign_of_another_plan_or_arm_is_not_gone_on_with(
    tmp_path: Path, fake_arm: Make, small_plan: Plan
) -> None:
    conduct(tmp_path / "c", only(small_plan), fake_arm("A"))
    with pytest.raises(ReceiptError, match="other plan"):
        conduct(tmp_path / "c", only(small_plan, seeds=2), fake_arm("A"))
    with pytest.raises(ReceiptError, match="other arms"):
        conduct(tmp_path / "c", only(small_plan), fake_arm("A", "--itl-ms", "9"))


def test_a_second_battery_is_told_who_holds_the_machine(
    tmp_path: Path, fake_arm: Make, small_plan: Plan
) -> None:
    with (
        MachineLock("other-campaign", tmp_path / "battery.lock"),
        pytest.raises(Busy, match="other-campaign"),
    ):
        conduct(tmp_path / "c", only(small_plan), fake_arm("A"))


def scripted(folder: Path, fault: str) -> Arm:
    """An arm whose server may differ from launch to launch: `fault` sets a list from `count`, the launches so far."""
    marker, script = folder / "launches", folder / "scripted.py"
    engine = Path(__file__).parents[1] / "fake_engine.py"
    script.write_text(
        "import os, sys, pathlib\n"
        f"marker = pathlib.Path({str(marker)!r})\n"
        "count = int(marker.read_text()) if marker.exists() else 0\n"
        "marker.write_text(str(count + 1))\n"
        f"{fault}\n"
        f"os.execv(sys.executable, [sys.executable, {str(engine)!r}, *sys.argv[1:], *fault])\n"
    )
    command = ["{python}", str(script), "--port", "{port}", "--model", "{model}"]
    return Arm(name="A", backend="command", model="tiny", command=command)


def test_another_model_under_the_same_name_is_noticed(tmp_path: Path, small_plan: Plan) -> None:
    arm = scripted(tmp_path, "fault = ['--fault', 'wrong-model-digest:feed'] if count >= 2 else []")
    with pytest.raises(LaunchError, match="its weights changed on disk"):
        conduct(tmp_path / "c", only(small_plan, blocks=2), arm)


def test_sigkill_of_the_battery_leaves_no_server_and_resume_works(
    tmp_path: Path, fake_arm: Make, small_plan: Plan
) -> None:
    arm = fake_arm("A", "--itl-ms", "30")
    spec = tmp_path / "spec.json"
    spec.write_bytes(msgspec.json.encode({"plan": small_plan, "arm": arm}))
    script = (
        "import sys, msgspec, pathlib\n"
        "from battery.bench.run import Conductor\n"
        "from battery.ledger.plan import Plan\nfrom battery.ledger.arm import Arm\n"
        f"spec = msgspec.json.decode(pathlib.Path({str(spec)!r}).read_bytes())\n"
        "plan, arm = msgspec.convert(spec['plan'], Plan), msgspec.convert(spec['arm'], Arm)\n"
        f"root = pathlib.Path({str(tmp_path)!r})\n"
        "Conductor(plan, [arm], root / 'c', None, 4821, lock=root / 'battery.lock').run()\n"
    )
    with subprocess.Popen([sys.executable, "-c", script]) as running:
        campaign = Campaign(tmp_path / "c")
        deadline = time.monotonic() + 20
        while len(campaign.paths()) < 2 and time.monotonic() < deadline:
            time.sleep(0.02)
        left = psutil.Process(running.pid).children(recursive=True)
        running.kill()
    assert len(campaign.paths()) >= 2 and left
    _, alive = psutil.wait_procs(left, timeout=10)
    assert not alive, alive
    counts, _ = conduct(tmp_path / "c", small_plan, arm)
    assert counts == {"ok": 6}


def test_the_whole_order_is_told_while_it_runs(
    tmp_path: Path, fake_arm: Make, small_plan: Plan
) -> None:
    class Heard(Progress):
        def __init__(self) -> None:
            self.words: list[str] = []

        def phase(self, cell: object, phase: str, detail: str) -> None:
            self.words.append(phase)

    heard = Heard()
    conduct(tmp_path / "c", only(small_plan), fake_arm("A"), progress=heard)
    assert heard.words == [
        "gate", "calibration", "launch", "sizing prompts", "launch", "warm-up", "gate", "request",
    ]  # fmt: skip
    assert "sensors" not in {thread.name for thread in threading.enumerate()}


def test_receipts_hold_no_path_of_this_machine_and_no_secret(
    tmp_path: Path, fake_arm: Make, small_plan: Plan
) -> None:
    arm = fake_arm("A", "--fault", "die-after:5")
    arm = msgspec.structs.replace(
        arm, env={"ENGINE_API_KEY": "hunter2", "ENGINE_CACHE": str(Path.home() / "cache")}
    )
    conduct(tmp_path / "c", msgspec.structs.replace(small_plan, ladder=(64,)), arm)
    for path in (tmp_path / "c").iterdir():
        text = path.read_text()
        for private in (str(Path.home()) + "/", str(tmp_path), sys.prefix, "hunter2"):
            assert private not in text, (path.name, private)
    receipt = Campaign(tmp_path / "c").receipts()[0]
    assert receipt.command[0].startswith("python")
    assert receipt.environment["ENGINE_API_KEY"] == "<redacted>"


def test_a_sealed_campaign_is_not_touched_again(
    tmp_path: Path, fake_arm: Make, small_plan: Plan
) -> None:
    conduct(tmp_path / "c", only(small_plan), fake_arm("A"))
    before = {path.name: path.read_bytes() for path in (tmp_path / "c").iterdir()}
    counts, _ = conduct(tmp_path / "c", only(small_plan), fake_arm("A"))
    assert counts == {"ok": 1}
    assert {path.name: path.read_bytes() for path in (tmp_path / "c").iterdir()} == before


def test_a_campaign_of_another_machine_is_not_gone_on_with(
    tmp_path: Path, fake_arm: Make, small_plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(Interrupted):
        conduct(tmp_path / "c", small_plan, fake_arm("A"), progress=StopAfter(1))
    other = {**sensors.fingerprint(), "cpu": "another one"}
    monkeypatch.setattr(sensors, "fingerprint", lambda: other)
    with pytest.raises(ReceiptError, match="on another machine"):
        conduct(tmp_path / "c", small_plan, fake_arm("A"))


def test_a_machine_that_is_never_idle_refuses_before_anything_is_written(
    tmp_path: Path, fake_arm: Make, small_plan: Plan
) -> None:
    busy = msgspec.structs.replace(small_plan.gate, max_busy=-1.0, wait_s=0.0)
    with pytest.raises(GateRefused, match="the machine is not idle"):
        conduct(tmp_path / "c", msgspec.structs.replace(small_plan, gate=busy), fake_arm("A"))
    assert not (tmp_path / "c").exists()


def test_a_gate_that_shuts_refuses_the_cell_with_its_reason(
    tmp_path: Path, fake_arm: Make, small_plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    shut = Clearance(verdict="refused", waited_s=1.0, reasons=("max_busy 0.9 above 0.2",))
    monkeypatch.setattr(measure.gate, "wait", lambda *_: shut)
    monkeypatch.setattr(preflight, "wait_quiet", lambda *_: None)
    counts, receipts = conduct(tmp_path / "c", only(small_plan), fake_arm("A"))
    assert counts == {"refused": 1} and receipts[0].reason == "max_busy 0.9 above 0.2"


def test_a_launch_that_fails_later_is_no_result_and_can_be_measured_again(
    tmp_path: Path, small_plan: Plan
) -> None:
    arm = scripted(tmp_path, "fault = ['--fault', 'die-at-start'] if count == 2 else []")
    with pytest.raises(LaunchError, match="exited with 3"):
        conduct(tmp_path / "c", only(small_plan, blocks=2), arm)
    counts, receipts = conduct(tmp_path / "c", only(small_plan, blocks=2), arm)
    assert counts == {"ok": 2} and len(receipts) == 2
