"""Every parser on files: what is there is read, what is not is None with a reason, garbage is never 0."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from machines import RecordedNvml, plant, told, write

from battery.bench.sensors import linux, macos, nvidia
from battery.bench.sensors.watch import Watch

PARSERS: list[Callable[[Path], tuple[Any, str | None]]] = [
    linux.temperatures, linux.throttle_counts, linux.pressure, linux.swapped_in, linux.processor_time, linux.clocks,
    linux.on_mains, linux.low_power, linux.fans,
]  # fmt: skip


def test_a_laptop(tmp_path: Path) -> None:
    root = plant("laptop", tmp_path)
    temps, _ = linux.temperatures(root)
    assert temps == {
        "acpitz/temp1": 45.0, "nvme/Composite": 38.85, "coretemp/Package id 0": 52.0, "coretemp/Core 0": 50.0,
        "coretemp/Core 4": 52.0, "iwlwifi_1/temp1": 41.0,
    }  # fmt: skip
    assert linux.fans(root)[0] == {"thinkpad/fan1": 2850, "thinkpad/gpu": 0}
    assert linux.throttle_counts(root) == (
        {"cpu.core_throttle": 30, "cpu.package_throttle": 160}, None,
    )  # fmt: skip
    assert linux.pressure(root)[0] == {
        "psi.cpu_us": 1_000_000, "psi.memory_us": 0, "psi.io_us": 250_000,
    }  # fmt: skip
    assert linux.swapped_in(root) == (100, None)
    assert linux.processor_time(root) == ({"idle": 8100, "steal": 0, "total": 9630}, None)
    assert linux.clocks(root) == ({"mean": 2100.0, "highest": 3600.0, "base": 2100.0}, None)
    assert linux.on_mains(root) == (True, None) and linux.low_power(root) == (False, None)


@pytest.mark.parametrize(
    ("changes", "mains"),
    [
        ({"AC/online": "0", "BAT0/status": "Discharging"}, False),
        ({"AC/online": "0", "BAT0/status": "Unknown"}, None),
        ({"AC/online": "1", "BAT0/status": "Discharging"}, True),
        ({"AC/online": "?", "BAT0/status": "Discharging"}, False),
        ({"AC/online": "?", "BAT0/status": "Full"}, True),
        ({"AC/online": "?", "BAT0/status": ""}, None),
    ],
)
def test_mains_power(tmp_path: Path, changes: dict[str, str], mains: bool | None) -> None:
    root = plant("laptop", tmp_path)
    for path, text in changes.items():
        write(root, f"sys/class/power_supply/{path}", text)
    value, why = linux.on_mains(root)
    assert value is mains and (why is None) == (mains is not None)


def test_low_power_profile(tmp_path: Path) -> None:
    root = plant("laptop", tmp_path)
    write(root, "sys/firmware/acpi/platform_profile", "low-power")
    assert linux.low_power(root) == (True, None)


def test_a_server_keeps_both_sockets_apart_and_no_unwired_input(tmp_path: Path) -> None:
    root = plant("server", tmp_path)
    temps, _ = linux.temperatures(root)
    assert (
        temps is not None and temps["k10temp/Tctl"] == 48.5 and temps["k10temp/Tctl #2"] == 47.125
    )
    assert "nct6775/AUXTIN0" not in temps and temps["nct6775/SYSTIN"] == 36.0
    assert linux.throttle_counts(root) == (None, "no thermal_throttle counters (Intel only)")
    assert linux.clocks(root)[0] == {"mean": 3250.0, "highest": 3250.0}


def test_a_recorded_virtual_machine_has_pressure_and_steal_and_little_else(tmp_path: Path) -> None:
    root = plant("vm", tmp_path)
    assert linux.processor_time(root)[0] == {"idle": 1309303, "steal": 859, "total": 2354208}
    assert linux.pressure(root)[0] == {
        "psi.cpu_us": 668607046, "psi.memory_us": 0, "psi.io_us": 50434568,
    }  # fmt: skip
    assert linux.swapped_in(root) == (0, None)
    for parse in (linux.temperatures, linux.throttle_counts, linux.clocks, linux.on_mains):
        value, why = parse(root)  # type: ignore[operator]
        assert value is None and why


@pytest.mark.parametrize("parse", PARSERS, ids=lambda parse: parse.__name__)
def test_nothing_there_and_garbage_are_none_with_a_reason(
    tmp_path: Path, parse: Callable[[Path], tuple[Any, str | None]]
) -> None:
    for root in (tmp_path / "empty", plant("garbled", tmp_path)):
        value, why = parse(root)
        assert value is None and why, root
    if parse is linux.temperatures:
        assert "4 sensor files, none with a plausible temperature" in str(why)


def test_every_reading_of_a_bare_machine_is_missing_with_its_reason(tmp_path: Path) -> None:
    (tmp_path / "bare").mkdir()
    values = Watch(root=tmp_path / "bare").look()
    missing = values.pop("missing")
    assert values["counters"] == {} and values["temps"] == {} and values["gpus"] == []
    for name in (
        "temp_c",
        "busy",
        "steal",
        "foreign",
        "freq_mhz",
        "base_mhz",
        "on_ac",
        "low_power",
    ):
        assert values[name] is None and missing[name], name
    assert {"throttle", "swap_in", "pressure", "gpu"} <= set(missing)


def test_shares_are_of_the_time_between_two_looks(tmp_path: Path) -> None:
    root = plant("laptop", tmp_path)
    watch = Watch(root=root)
    time.sleep(0.15)
    write(root, "proc/stat", "cpu  1060 10 500 8020 100 0 20 20 0 0")
    write(root, "proc/pressure/cpu", "some avg10=90.00 avg60=0.00 avg300=0.00 total=1000000")
    values = watch.look()
    assert (values["busy"], values["steal"]) == (0.6, 0.2)
    assert values["pressure"]["cpu"] == 0.0, "avg10 is of the past; the total did not move"
    assert values["foreign"] == pytest.approx(0.6, abs=0.05), "the test itself used next to nothing"
    write(root, "proc/stat", "cpu  1000 10 500 8000 100 0 20 0 0 0")
    time.sleep(0.15)
    back = watch.look()
    assert back["busy"] is None and back["missing"]["busy"] == "no processor time passed"
    at_once = watch.look()
    assert at_once["busy"] is None and at_once["pressure"] == {}
    assert "less than" in at_once["missing"]["busy"]


@given(st.text())
def test_macos_tools_that_say_something_else_tell_nothing(text: str) -> None:
    for parse in (
        macos.notifyutil,
        macos.mains,
        macos.low_power,
        macos.speed_limit,
        macos.macmon,
        macos.swapped_in,
    ):
        value, why = parse(text)  # type: ignore[operator]
        assert (value is None) == bool(why)
        if "1" not in text:
            assert value is None


def test_macos_tools_as_they_speak() -> None:
    assert macos.notifyutil(told("notifyutil-nominal.txt")) == ("nominal", None)
    assert macos.notifyutil(told("notifyutil-heavy.txt")) == ("heavy", None)
    assert macos.notifyutil("com.apple.system.thermalpressurelevel 9")[0] is None
    assert macos.notifyutil("com.apple.system.thermalpressurelevel: Failed with code 9")[0] is None
    assert macos.mains(told("pmset-batt-mains.txt")) == (True, None)
    assert macos.mains(told("pmset-batt-battery.txt")) == (False, None)
    assert macos.low_power(told("pmset-settings.txt")) == (False, None)
    assert macos.low_power(told("pmset-settings-low.txt")) == (True, None)
    assert macos.speed_limit(told("pmset-therm-intel-held.txt")) == (62, None)
    value, why = macos.speed_limit(told("pmset-therm-silicon.txt"))
    assert value is None and why and "Apple silicon" in why, "no word of a limit is no limit of 100"
    assert macos.swapped_in(told("vm_stat.txt")) == (640, None)


def test_macmon_of_both_kinds() -> None:
    now, _ = macos.macmon(told("macmon.jsonl"))
    assert now == {
        "temps": {"macmon/cpu": 43.73614, "macmon/gpu": 36.95167}, "fans": {"macmon/fan0": 999.0},
        "freq_mhz": 1800.0, "gpu_clock_mhz": 461.0,
        "gpu_power_w": 0.017451683,
    }  # fmt: skip
    old, _ = macos.macmon(told("macmon-0.7.jsonl"))
    assert old == {"temps": {"macmon/cpu": 51.25}, "freq_mhz": 1974.0, "gpu_power_w": 0.017}
    for odd in (
        '{"temp": 3}',
        "[1]",
        '{"temp": {"cpu_temp_avg": NaN}}',
        '{"temp":{"cpu_temp_avg":"51"}}',
    ):
        assert macos.macmon(odd)[0] is None, odd


def test_nvml_devices_new_and_old() -> None:
    nvml = nvidia.Nvml(RecordedNvml(), asked=None)
    new, old = nvml.read([4100], container=False)
    assert (new["temp_c"], new["power_w"], new["clock_mhz"], new["max_clock_mhz"]) == (
        61,
        412.345,
        1620,
        1980,
    )
    assert new["events"] == ("software power cap",) and not new["event_bits"] & nvidia.FOUL
    assert (new["foreign"], new["foreign_utilisation"], new["utilisation"]) == (1, 0.17, 0.97)
    assert new["missing"] == {}
    assert old["temp_c"] == 44 and old["power_w"] is None
    assert "Not Supported" in old["missing"]["power_w"] and "utilisation" in old["missing"]
    assert old["events"] == ("hardware slowdown", "hardware thermal slowdown")
    assert old["event_bits"] & nvidia.FOUL and old["foreign"] == 0
    assert nvml.counters() == {
        "gpu0.power_cap_ns": 5_000_000_000, "gpu0.sw_thermal_ns": 0, "gpu0.hw_thermal_ns": 0,
        "gpu1.power_cap_ns": 900, "gpu1.thermal_ns": 900,
    }  # fmt: skip


def test_nvml_in_a_container_or_without_a_server_tells_no_stranger() -> None:
    nvml = nvidia.Nvml(RecordedNvml(), asked=None)
    for tree, container in (([4100], True), ([4100], None), (None, False)):
        seen = nvml.read(tree, container)[0]
        assert seen["foreign"] is None and seen["missing"]["foreign"]


def test_nvml_that_is_not_there_says_why() -> None:
    library = RecordedNvml()
    library.started = False
    assert nvidia.Nvml(library).why == "NVML: Driver Not Loaded"
    assert nvidia.Nvml(RecordedNvml(), asked="").why == "NVML: none of 2 devices is visible"


@pytest.mark.parametrize(
    ("asked", "chosen"),
    [
        (None, [0, 1]),
        ("1", [1]),
        ("1,0", [1, 0]),
        ("", []),
        ("0,7,1", [0]),
        ("GPU-2222", [1]),
        ("-1", []),
    ],
)
def test_visible_devices(asked: str | None, chosen: list[int]) -> None:
    uuids = ["GPU-1111", "GPU-2222"]
    assert nvidia.visible(2, asked, lambda index: uuids[index]) == chosen


def test_an_unknown_event_keeps_its_bit() -> None:
    assert nvidia.events(0x4 | 0x800) == ("software power cap", "unknown 0x800")
    assert nvidia.events(0) == ()


def test_a_fault_of_ours_is_no_missing_sensor() -> None:
    class Broken(RecordedNvml):
        def nvmlInit(self) -> None:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        nvidia.Nvml(Broken())


def test_the_look_is_plain_json(tmp_path: Path) -> None:
    assert json.loads(json.dumps(Watch(root=plant("laptop", tmp_path)).look()))["temp_c"] == 52.0
