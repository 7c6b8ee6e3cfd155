"""A Mac as its tools tell it: the whole look, with scripts in place of the tools that print what is on file."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest
from machines import FIXTURES, told

from battery.bench import gate, sensors
from battery.bench.sensors import macos
from battery.bench.sensors.sampling import to_reading
from battery.ledger.plan import Gate
from battery.ledger.receipt import Reading

FILES = {
    "notifyutil": "notifyutil-nominal.txt",
    "vm_stat": "vm_stat.txt",
    "macmon": "macmon.jsonl",
    "batt": "pmset-batt-mains.txt",
    "therm": "pmset-therm-silicon.txt",
    "settings": "pmset-settings.txt",
}


class Mac:
    """The tools in a folder; `says` swaps what one of them prints."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for key in FILES:
            self.says(key, FILES[key])
        for tool in ("notifyutil", "vm_stat", "macmon"):
            self._script(tool, f"cat {folder}/{tool}.txt")
        self._script(
            "pmset",
            f'case "$2" in batt) cat {folder}/batt.txt;; therm) cat {folder}/therm.txt;;'
            f" *) cat {folder}/settings.txt;; esac",
        )

    def _script(self, tool: str, body: str) -> None:
        path = self.folder / tool
        path.write_text(f"#!/bin/sh\n{body}\n")
        path.chmod(0o755)

    def says(self, key: str, name: str) -> None:
        text = (FIXTURES / "macos" / name).read_text() if name else ""
        (self.folder / f"{key}.txt").write_text(text)


@pytest.fixture
def mac(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Mac:
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return Mac(tmp_path)


def look() -> Reading:
    return to_reading(sensors.Watch().look(), 0.0)


def test_a_mac_at_rest(mac: Mac) -> None:
    now = look()
    assert now.temps == {"macmon/cpu": 43.73614, "macmon/gpu": 36.95167} and now.temp_c == 43.73614
    assert now.fans == {"macmon/fan0": 999.0}
    assert (now.on_ac, now.low_power, now.thermal_pressure) == (True, False, "nominal")
    assert (now.freq_mhz, now.gpu_clock_mhz, now.gpu_power_w) == (1800.0, 461.0, 0.017451683)
    assert now.counters == {"swap_in_pages": 640} and now.speed_limit is None
    assert "Apple silicon" in now.missing["speed_limit"]
    for elsewhere in ("throttle", "pressure", "base_mhz"):
        assert now.missing[elsewhere] == "told on Linux only"
    judged = gate.judge(now, Gate(temp_band_c=5, max_busy=None), {"temps": now.temps})
    assert judged.reasons == []
    assert "need_steady (thermal pressure)" in judged.applied
    assert "Apple silicon never does" in judged.ungated["need_steady (processor)"]
    assert "need_ac_power (low-power mode)" in judged.applied


@pytest.mark.parametrize(
    ("key", "name", "reason"),
    [
        ("notifyutil", "notifyutil-heavy.txt", "thermal pressure is heavy"),
        ("batt", "pmset-batt-battery.txt", "on battery power"),
        ("settings", "pmset-settings-low.txt", "low-power mode"),
        ("therm", "pmset-therm-intel-held.txt", "the processor is held to 62 % of its speed"),
    ],
)
def test_a_mac_that_is_held_down(mac: Mac, key: str, name: str, reason: str) -> None:
    mac.says(key, name)
    assert gate.judge(look(), Gate(max_busy=None), {}).reasons == [reason]


def test_a_mac_whose_tools_say_nothing_is_not_nominal(mac: Mac) -> None:
    for key in FILES:
        mac.says(key, "")
    now = look()
    for name in ("on_ac", "low_power", "speed_limit", "thermal_pressure", "temp_c", "freq_mhz"):
        assert getattr(now, name) is None and now.missing[name], name
    judged = gate.judge(now, Gate(max_busy=None), {})
    for limit in ("max_temp_c", "need_ac_power", "need_steady (thermal pressure)"):
        assert limit in judged.ungated and limit not in judged.applied


def test_a_mac_without_macmon_says_how_to_get_it(mac: Mac) -> None:
    (mac.folder / "macmon").unlink()
    assert look().missing["temp_c"] == "macmon is not installed (brew install macmon)"


def test_mains_is_asked_seldom_inside_a_cell(mac: Mac, monkeypatch: pytest.MonkeyPatch) -> None:
    watch = sensors.Watch()
    assert watch.look()["on_ac"] is True
    mac.says("batt", "pmset-batt-battery.txt")
    assert watch.look()["on_ac"] is True
    monkeypatch.setattr(sensors.watch, "MACOS_PAUSE_S", 0.0)
    assert watch.look()["on_ac"] is False


def test_a_streaming_macmon_is_read_and_ended(mac: Mac) -> None:
    mac._script("macmon", f"while cat {mac.folder}/macmon.txt; do sleep 0.05; done")
    one, value = macos.Macmon(stream=True), None
    deadline = time.monotonic() + 20
    while value is None and time.monotonic() < deadline:
        value, _why = one.look()
        time.sleep(0.02)
    one.close()
    assert value and value["temps"]["macmon/cpu"] == 43.73614
    assert told("macmon.jsonl").endswith("\n")
