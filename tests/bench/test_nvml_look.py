"""The look at NVML that is taken on a machine with a GPU: what it prints can be replayed as a recording."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from machines import FIXTURES, RecordedNvml

from battery.bench.sensors.nvidia import Nvml, events

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "nvml_look.py"
STUB = """
import sys
sys.path.insert(0, {here!r})
from machines import RecordedNvml
NVMLError = RecordedNvml.NVMLError
_library = RecordedNvml()
def nvmlSystemGetDriverVersion(): return b"1.2"
def nvmlSystemGetNVMLVersion(): return "13.1"
def __getattr__(name): return getattr(_library, name)
"""
RECORDED = sorted(
    path for path in FIXTURES.glob("nvml-*.json") if "looks" in json.loads(path.read_text())
)


def look(*paths: Path) -> dict[str, Any]:
    path = os.pathsep.join(map(str, paths))
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "0.1"],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": path},
    )
    told: dict[str, Any] = json.loads(done.stdout)
    return told


def test_it_says_what_there_is_or_why_not() -> None:
    told = look(SCRIPT.parents[1])
    assert told.get("why") or told["looks"][0]["ours"]


def test_what_it_prints_is_a_recording(tmp_path: Path) -> None:
    (tmp_path / "pynvml.py").write_text(STUB.format(here=str(Path(__file__).parent)))
    told = look(tmp_path, SCRIPT.parents[1])
    one = told["looks"][0]
    again = Nvml(RecordedNvml(one["raw"]), asked=None)
    assert again.counters() == one["counters"]
    seen = json.loads(json.dumps(again.read([told["own_pid"]], False)))
    assert seen == one["ours"]
    assert "1111" not in json.dumps(told["devices"]), "no board is named"


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.stem)
def test_recordings_are_read_whole(path: Path) -> None:
    told = json.loads(path.read_text())
    for one in told["looks"]:
        nvml = Nvml(RecordedNvml(one["raw"]), asked=None)
        for raw, seen in zip(one["raw"], nvml.read([told["own_pid"]], False), strict=True):
            assert seen["temp_c"] == raw["nvmlDeviceGetTemperatureV"] or seen["missing"]["temp_c"]
            assert 0 < seen["temp_c"] < 110 and seen["power_w"] > 0
            assert 0 < seen["clock_mhz"] <= seen["max_clock_mhz"]
            assert seen["events"] == events(seen["event_bits"])
            assert 0 <= seen["utilisation"] <= 1
        assert any(name.endswith("thermal_ns") for name in nvml.counters())
