"""The doctor names every sensor: what it says, or why it says nothing and how to get it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent / "bench"))
from machines import RecordedNvml, plant

from battery import doctor
from battery.bench import sensors
from battery.bench.sensors.nvidia import Nvml
from battery.ledger.receipt import Gpu


def test_a_laptop(tmp_path: Path) -> None:
    told = doctor._sensors(sensors.glance(root=plant("laptop", tmp_path)))
    assert "coretemp/Package id 0 52 C" in told["temperature"]
    assert (told["throttle counters"], told["swap-in"]) == ("read", "read")
    assert (told["clock rate"], told["base clock"]) == ("2100 MHz", "2100 MHz")
    assert (told["mains power"], told["low-power mode"]) == ("yes", "off")
    assert told["waiting tasks"] == "cpu 0.0%, memory 0.0%, io 0.0%"
    assert "thermal pressure" not in told and "speed limit" not in told, "a Mac's"


def test_nothing_there_is_not_gated_with_its_reason(tmp_path: Path) -> None:
    told = doctor._sensors(sensors.glance(root=tmp_path))
    assert set(told) == {
        "temperature", "throttle counters", "clock rate", "base clock", "waiting tasks", "steal", "swap-in",
        "mains power", "low-power mode", "gpu",
    }  # fmt: skip
    assert all(value.startswith("not gated: ") for value in told.values()), told
    assert told["waiting tasks"].endswith("boot with psi=1")


def test_gpus_with_their_gaps() -> None:
    new, old = (Gpu(**one) for one in Nvml(RecordedNvml(), asked=None).read([4100], False))
    assert doctor._gpu(new) == "gpu0: 61 C, 412 W, 1620 MHz, software power cap"
    assert "hardware thermal slowdown" in doctor._gpu(old) and "no power_w: " in doctor._gpu(old)


def test_the_sampler_is_tried() -> None:
    assert "a process of its own" in doctor._sampler()


@pytest.mark.parametrize(
    ("steady", "words"), [(0.6, "INFEASIBLE"), (0.2, "from 20% on can work"), (0.0, "from 3% on")]
)
def test_what_the_noise_means_for_the_calibration_gate(steady: float, words: str) -> None:
    assert words in doctor._advice(steady)
