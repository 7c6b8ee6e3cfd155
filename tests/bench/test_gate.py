from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import msgspec
import pytest
from machines import plant, write

from battery.bench import gate, sensors
from battery.bench.judge import breach
from battery.ledger.plan import Gate
from battery.ledger.receipt import Gpu, Reading

LIMITS = Gate(
    wait_s=3,
    max_temp_c=80,
    temp_band_c=5,
    max_busy=0.2,
    max_steal=0.1,
    min_free_gb=1,
    calibration=0.1,
    max_pressure=0.05,
)
CORE, DISK = "coretemp/Package id 0", "nvme/Composite"
BASELINE: dict[str, Any] = {
    "temp_c": 50.0, "temps": {CORE: 50.0, DISK: 40.0, "gpu0": 45.0}, "median_s": 0.02, "mad_share": 0.01,
}  # fmt: skip
GPU = Gpu(index=0, temp_c=46, event_bits=4, foreign=0)
CALM = Reading(
    at_s=0,
    temp_c=52,
    temps={CORE: 52.0, DISK: 71.0},
    busy=0.05,
    steal=0.0,
    pressure={"cpu": 0.01, "memory": 0.9},
    available_bytes=8 * 10**9,
    calibration_s=0.0202,
    calibration_mhz=3000,
    base_mhz=2100,
    on_ac=True,
    low_power=False,
    counters={"cpu.core_throttle": 30, "swap_in_pages": 100, "gpu0.sw_thermal_ns": 5},
    gpus=(GPU,),
    missing={"thermal_pressure": "told on macOS only"},
)


def change(**values: Any) -> Reading:
    return msgspec.structs.replace(CALM, **values)


def change_gpu(**values: Any) -> Gpu:
    return msgspec.structs.replace(GPU, **values)


def test_a_calm_machine_passes() -> None:
    judged = gate.judge(CALM, LIMITS, BASELINE)
    assert judged.reasons == []
    assert set(judged.ungated) == {"calibration (gpu)"}, (
        "battery has no work for a GPU, and says so"
    )
    limits = {name.split(" (")[0] for name in judged.applied}
    assert limits == {*msgspec.structs.asdict(LIMITS)} - {"wait_s", "baseline_s"}


@pytest.mark.parametrize(
    ("values", "complaint"),
    [
        ({"temp_c": 81.0}, "max_temp_c 81 above 80"),
        ({"temps": {CORE: 56.0}}, f"temp_band_c ({CORE}) 56 above 55"),
        ({"temps": {CORE: 44.0}}, f"temp_band_c ({CORE}) 44 below 45"),
        ({"gpus": (change_gpu(temp_c=51),)}, "temp_band_c (gpu0) 51 above 50"),
        ({"gpu_temp_c": 84.0}, "max_temp_c (gpu) 84 above 80"),
        ({"busy": 0.5}, "max_busy 0.5 above 0.2"),
        ({"steal": 0.3}, "max_steal 0.3 above 0.1"),
        ({"available_bytes": 10**8}, "min_free_gb 0.1 below 1"),
        ({"calibration_s": 0.03}, "calibration +50% over its baseline"),
        ({"calibration_s": 0.01}, "calibration -50% under its baseline"),
        ({"calibration_mhz": 1500.0}, "min_clock_share 0.7143 below 0.75"),
        ({"pressure": {"cpu": 0.2}}, "max_pressure 0.2 above 0.05"),
        ({"low_power": True}, "low-power mode"),
        ({"speed_limit": 62}, "the processor is held to 62 % of its speed"),
        ({"thermal_pressure": "moderate"}, "thermal pressure is moderate"),
        (
            {"rose": {"cpu.package_throttle": 2}},
            "cpu.package_throttle rose by 2: the processor was throttled for heat",
        ),
        ({"rose": {"swap_in_pages": 257}}, "257 pages were swapped in"),
        (
            {"rose": {"gpu0.hw_thermal_ns": 3_000_000}},
            "gpu0.hw_thermal_ns rose by 3 ms: the GPU was slowed down",
        ),
        ({"gpus": (change_gpu(event_bits=0x24),)}, "gpu0 is under software thermal slowdown"),
        ({"gpus": (change_gpu(foreign=2),)}, "2 foreign processes compute on gpu0"),
        ({"on_ac": False}, "on battery power"),
    ],
)
def test_each_limit_can_close_the_gate(values: dict[str, Any], complaint: str) -> None:
    assert gate.judge(change(**values), LIMITS, BASELINE).reasons == [complaint]


@pytest.mark.parametrize(
    "values",
    [
        {"rose": {"swap_in_pages": 256, "psi.cpu_us": 10**9, "gpu0.power_cap_ns": 10**9}},
        {"gpus": (change_gpu(event_bits=0x4 | 0x1 | 0x100),)},
        {"gpus": (change_gpu(temp_c=20),)},
        {"temps": {CORE: 52.0, DISK: 10.0}},
    ],
)
def test_what_says_nothing_about_speed_keeps_no_gate_shut(values: dict[str, Any]) -> None:
    """The power cap of a GPU is daily life; a disk's heat is its own; battery cannot warm a GPU."""
    assert gate.judge(change(**values), LIMITS, BASELINE).reasons == []


def test_a_gpu_that_is_too_cold_is_told_as_not_gated() -> None:
    judged = gate.judge(change(gpus=(change_gpu(temp_c=20),)), LIMITS, BASELINE)
    assert "nothing that warms a GPU" in judged.ungated["temp_band_c (gpu0), below"]


def test_loosened_limits_are_told_as_such_and_stop_nothing() -> None:
    open_wide = Gate(
        max_temp_c=None, temp_band_c=None, max_busy=None, max_steal=None, min_free_gb=None, calibration=None,
        need_ac_power=False, max_pressure=None, min_clock_share=None, need_steady=False, need_own_gpu=False,
    )  # fmt: skip
    awful = change(
        temp_c=120, busy=1.0, rose={"cpu.core_throttle": 9}, on_ac=False, gpus=(change_gpu(foreign=3),)
    )  # fmt: skip
    judged = gate.judge(awful, open_wide, BASELINE)
    assert judged.reasons == [] and not judged.applied
    assert set(judged.ungated.values()) == {"the plan sets no limit", gate._UNLOADED} - {
        gate._UNLOADED
    }


def test_a_missing_reading_is_ungated_with_its_reason_never_nominal() -> None:
    blind = Reading(
        at_s=0,
        missing={
            "temp_c": "no hwmon sensor", "steal": "not told", "on_ac": "no battery", "pressure": "no PSI",
            "throttle": "no counters", "gpu": "no NVML", "thermal_pressure": "told on macOS only",
        },
    )  # fmt: skip
    judged = gate.judge(blind, LIMITS, {})
    reasons, ungated = judged.reasons, judged.ungated
    assert reasons == [] and not judged.applied
    assert ungated["max_pressure"] == "no PSI" and ungated["min_clock_share"] == "no reading"
    assert ungated["need_steady (processor)"] == "no counters"
    assert ungated["need_steady (gpu)"] == ungated["need_own_gpu"] == "no NVML"
    assert "need_steady (thermal pressure)" not in ungated, "no Mac, nothing missing"
    assert ungated["max_temp_c"] == ungated["temp_band_c"] == "no hwmon sensor"
    assert ungated["max_steal"] == "not told" and ungated["need_ac_power"] == "no battery"
    assert ungated["calibration"] == "not run"


def test_a_noisy_machine_makes_the_calibration_gate_infeasible_and_says_so() -> None:
    noisy = {**BASELINE, "mad_share": 0.2}
    judged = gate.judge(change(calibration_s=1.0), LIMITS, noisy)
    assert judged.reasons == [] and judged.ungated["calibration"].startswith("INFEASIBLE")
    assert "calibration" not in judged.applied, "infeasible is not passed"


def test_waiting_opens_when_the_machine_calms_and_refuses_when_it_does_not() -> None:
    now = [0.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds

    looks = iter([change(busy=0.9), change(busy=0.9), CALM])
    opened = gate.wait(LIMITS, BASELINE, lambda: next(looks), clock=lambda: now[0], sleep=sleep)
    assert (opened.verdict, opened.waited_s) == ("open", 2.0)
    now[0] = 0.0
    shut = gate.wait(LIMITS, BASELINE, lambda: change(busy=0.9), clock=lambda: now[0], sleep=sleep)
    assert (shut.verdict, shut.waited_s) == ("refused", 3.0) and "max_busy" in shut.reasons[0]


def test_a_cold_machine_is_warmed_and_not_waited_for() -> None:
    warm: list[float] = []
    looks = iter([change(temps={CORE: 40.0}), change(temps={CORE: 40.0}, busy=0.9), CALM])
    idle: list[float] = []
    opened = gate.wait(LIMITS, BASELINE, lambda: next(looks), sleep=idle.append, heat=warm.append)
    assert opened.verdict == "open" and len(warm) == 1, "cold alone is warmed"
    assert len(idle) == 1, "cold and busy is waited for"


def test_real_readings_name_what_is_missing() -> None:
    reading = sensors.glance()
    assert reading.available_bytes and reading.available_bytes > 0
    for field in ("temp_c", "steal", "on_ac", "busy", "foreign", "low_power"):
        assert (getattr(reading, field) is None) == (field in reading.missing), field


def test_looks_tell_what_rose_over_the_time_that_must_be_steady(tmp_path: Path) -> None:
    root = plant("laptop", tmp_path)
    glances = sensors.Glances(root, steady_s=0.6)
    count = "sys/devices/system/cpu/cpu0/thermal_throttle/core_throttle_count"
    assert glances.look().rose == {}
    write(root, count, "19")
    assert glances.look().rose == {"cpu.core_throttle": 7}
    late = [glances.look() for _ in range(4)]
    assert late[-1].rose == {} and (late[-1].rose_over_s or 0) >= 0.6, (
        "it was steady for long enough"
    )


def test_the_clock_under_the_fixed_work_is_read(tmp_path: Path) -> None:
    reading = sensors.Glances(plant("laptop", tmp_path)).look(calibrate=True)
    assert reading.calibration_s and (reading.calibration_mhz, reading.base_mhz) == (3600.0, 2100.0)


def test_the_baseline_holds_every_sensor(tmp_path: Path) -> None:
    found = sensors.baseline(plant("laptop", tmp_path), 0.0, calibrate=False)
    assert found["temp_c"] == 52.0 and found["temps"]["nvme/Composite"] == 38.85
    begun = time.monotonic()
    sensors.baseline(tmp_path, 60.0, calibrate=False, stop=lambda: True)
    assert time.monotonic() - begun < 30, "Ctrl-C does not wait for a long baseline"


def cell(*readings: Reading) -> tuple[Reading, ...]:
    """Samples half a second apart, from a moment before the request."""
    return tuple(
        msgspec.structs.replace(one, at_s=0.5 * i - 0.01) for i, one in enumerate(readings)
    )


@pytest.mark.parametrize(
    ("values", "complaint"),
    [
        ({"counters": {"cpu.core_throttle": 31}}, "cpu.core_throttle rose by 1: the processor was throttled for heat"),
        ({"counters": {"swap_in_pages": 1000}}, "900 pages were swapped in"),
        ({"counters": {"gpu0.sw_thermal_ns": 2_000_005}}, "gpu0.sw_thermal_ns rose by 2 ms: the GPU was slowed down"),
        ({"gpus": (change_gpu(event_bits=0x80),)}, "gpu0 is under power brake"),
        ({"gpus": (change_gpu(foreign=1),)}, "a foreign process computed on gpu0"),
        ({"thermal_pressure": "heavy"}, "thermal pressure was heavy"),
        ({"on_ac": False}, "on battery power"),
        ({"low_power": True}, "low-power mode"),
        ({"speed_limit": 62}, "the processor is held to 62 % of its speed"),
        ({"foreign": 0.9}, "other processes used 45% of the processors, above 20%"),
        ({"steal": 0.4}, "the hypervisor took 20% of the processors, above 10%"),
    ],
)  # fmt: skip
def test_each_disturbance_of_a_cell_is_a_breach(values: dict[str, Any], complaint: str) -> None:
    quiet = change(foreign=0.0)
    assert breach.judge(cell(quiet, quiet, change(**{"foreign": 0.0, **values})), LIMITS) == (
        complaint,
    )


def test_what_an_arm_does_itself_is_no_breach() -> None:
    """All processors busy, tasks waiting, another clock, warmer, its GPU at its power cap."""
    quiet = change(foreign=0.0)
    own = change(
        foreign=0.02, busy=1.0, pressure={"cpu": 0.9, "memory": 0.2}, freq_mhz=900.0, temp_c=94.0,
        gpus=(change_gpu(event_bits=4, temp_c=84),), thermal_pressure="moderate",
    )  # fmt: skip
    assert breach.judge(cell(quiet, own, own, own), LIMITS) == ()
    assert breach.judge((), LIMITS) == breach.judge(cell(quiet), LIMITS) == ()


def test_shares_of_a_moment_are_no_evidence() -> None:
    quiet, loud = change(foreign=0.0), change(foreign=0.9, steal=0.5)
    assert breach.judge(cell(quiet, loud), LIMITS) == (), "half a second of hundredths"
    assert len(breach.judge(cell(quiet, loud, loud), LIMITS)) == 2


def test_the_calibration_work_takes_time_and_repeats() -> None:
    baseline = sensors.calibration_baseline(5)
    assert baseline["median_s"] > 0.001 and baseline["rounds"] == 5
