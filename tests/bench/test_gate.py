from __future__ import annotations

from typing import Any

import pytest

from battery.bench import gate, sensors
from battery.ledger.plan import Gate
from battery.ledger.receipt import Reading

LIMITS = Gate(
    wait_s=3,
    max_temp_c=80,
    temp_band_c=5,
    max_busy=0.2,
    max_steal=0.1,
    min_free_gb=1,
    calibration=0.1,
)
BASELINE = {"temp_c": 50.0, "median_s": 0.02, "mad_share": 0.01}
CALM = Reading(
    at_s=0,
    temp_c=52,
    busy=0.05,
    steal=0.0,
    available_bytes=8 * 10**9,
    calibration_s=0.0202,
    on_ac=True,
)


def change(**values: Any) -> Reading:
    import msgspec

    return msgspec.structs.replace(CALM, **values)


def test_a_calm_machine_passes() -> None:
    assert gate.judge(CALM, LIMITS, BASELINE) == ([], {})


@pytest.mark.parametrize(
    ("values", "complaint"),
    [
        ({"temp_c": 81.0}, "max_temp_c 81 above 80"),
        ({"temp_c": 56.0}, "temp_band_c 56 above 55"),
        ({"gpu_temp_c": 84.0}, "max_temp_c (gpu) 84 above 80"),
        ({"busy": 0.5}, "max_busy 0.5 above 0.2"),
        ({"steal": 0.3}, "max_steal 0.3 above 0.1"),
        ({"available_bytes": 10**8}, "min_free_gb 0.1 below 1"),
        ({"calibration_s": 0.03}, "calibration +50% over its baseline"),
        ({"on_ac": False}, "on battery power"),
    ],
)
def test_each_limit_can_close_the_gate(values: dict[str, Any], complaint: str) -> None:
    reasons, _ = gate.judge(change(**values), LIMITS, BASELINE)
    assert complaint in reasons


def test_a_missing_reading_is_ungated_with_its_reason_never_nominal() -> None:
    blind = Reading(
        at_s=0, missing={"temp_c": "no hwmon sensor", "steal": "not told", "on_ac": "no battery"}
    )
    reasons, ungated = gate.judge(blind, LIMITS, {})
    assert reasons == []
    assert ungated["max_temp_c"] == ungated["temp_band_c"] == "no hwmon sensor"
    assert ungated["max_steal"] == "not told" and ungated["need_ac_power"] == "no battery"
    assert ungated["calibration"] == "not run"


def test_a_noisy_machine_makes_the_calibration_gate_infeasible_and_says_so() -> None:
    noisy = {**BASELINE, "mad_share": 0.2}
    reasons, ungated = gate.judge(change(calibration_s=1.0), LIMITS, noisy)
    assert reasons == [] and ungated["calibration"].startswith("INFEASIBLE")


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


def test_real_readings_name_what_is_missing() -> None:
    reading = sensors.read(sensors.CpuShare(), 0.0)
    assert reading.available_bytes and reading.available_bytes > 0
    for field in ("temp_c", "steal", "on_ac"):
        assert (getattr(reading, field) is None) == (field in reading.missing)


def test_the_calibration_work_takes_time_and_repeats() -> None:
    baseline = sensors.calibration_baseline(5)
    assert baseline["median_s"] > 0.001 and baseline["rounds"] == 5
