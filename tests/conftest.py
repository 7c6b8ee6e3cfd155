"""What many tests start from: an arm on the fake engine, and a plan that takes seconds."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from calls import Said

from battery.cli import main
from battery.ledger.arm import Arm, Switch
from battery.ledger.plan import Gate, Limits, Plan, Sampler

TESTS = Path(__file__).parent
sys.path.insert(0, str(TESTS))


@pytest.fixture
def fake_arm() -> Callable[..., Arm]:
    """Make an arm that runs the fake engine: `fake_arm("A", "--fault", "stall:3", switches={…})`."""

    def make(
        name: str, *options: str, switches: dict[str, Switch] | None = None, model: str = "tiny"
    ) -> Arm:
        asked = Arm(name=name, backend="command", model=model, switches=switches or {})
        flags = [word for switch in asked.asked for word in ("--switch", switch)]
        script = str(TESTS / "fake_engine.py")
        command = ["{python}", script, "--port", "{port}", "--model", "{model}", *flags, *options]
        return Arm(
            name=name, backend="command", model=model, switches=switches or {}, command=command
        )

    return make


@pytest.fixture
def say(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Said]:
    """Call the command line in this process, in a folder: `say(root, "plan")`, for what starts nothing."""

    def run(root: Path, *words: str) -> Said:
        monkeypatch.chdir(root)
        with pytest.raises(SystemExit) as ended:
            main(words)
        told = capfd.readouterr()
        return Said(int(ended.value.code or 0), told.out, told.err)

    return run


@pytest.fixture
def small_plan() -> Plan:
    """Two blocks over two rungs, no waiting at the gate."""
    return Plan(
        name="small",
        ladder=(64, 96),
        blocks=2,
        sampler=Sampler(max_tokens=12, min_tokens=12),
        gate=Gate(
            wait_s=0.5, max_busy=None, max_steal=None, calibration=None, min_free_gb=None, max_temp_c=None,
            temp_band_c=None, need_ac_power=False, max_pressure=None, min_clock_share=None, need_steady=False,
            need_own_gpu=False, baseline_s=0,
        ),
        limits=Limits(launch_s=10, request_s=10, stop_s=3),
    )  # fmt: skip
