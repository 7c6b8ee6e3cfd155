"""Decide whether the machine is calm enough to time.

A gate compares readings with limits and waits. It launches nothing and measures nothing itself, and it hands its
readings on, so that every receipt shows why its cell was allowed to begin. It looks only at the state before a
cell and at sensors that do not know the arm: gating on a result would select the results.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from battery.ledger.plan import Gate
from battery.ledger.receipt import Clearance, Reading

PAUSE_S = 1.0


def judge(
    reading: Reading, gate: Gate, baseline: dict[str, Any]
) -> tuple[list[str], dict[str, str]]:
    """(reasons to wait, limits that could not be applied with their reasons) for one reading."""
    reasons: list[str] = []
    ungated: dict[str, str] = {}

    def limit(
        name: str, key: str, value: float | None, bar: float | None, above: bool = True
    ) -> None:
        if bar is None:
            ungated[name] = "the plan sets no limit"
        elif value is None:
            ungated[name] = reading.missing.get(key, "no reading")
        elif (value > bar) if above else (value < bar):
            reasons.append(f"{name} {value:.4g} {'above' if above else 'below'} {bar:.4g}")

    cool = baseline.get("temp_c")
    band = cool + gate.temp_band_c if cool is not None and gate.temp_band_c is not None else None
    free = None if reading.available_bytes is None else reading.available_bytes / 1e9
    limit("max_temp_c", "temp_c", reading.temp_c, gate.max_temp_c)
    if gate.temp_band_c is not None and cool is None:
        ungated["temp_band_c"] = reading.missing.get("temp_c", "no baseline temperature")
    else:
        limit("temp_band_c", "temp_c", reading.temp_c, band)
    if reading.gpu_temp_c is not None:
        limit("max_temp_c (gpu)", "gpu", reading.gpu_temp_c, gate.max_temp_c)
    limit("max_busy", "busy", reading.busy, gate.max_busy)
    limit("max_steal", "steal", reading.steal, gate.max_steal)
    limit("min_free_gb", "available_bytes", free, gate.min_free_gb, above=False)
    if gate.need_ac_power and reading.on_ac is False:
        reasons.append("on battery power")
    if reading.on_ac is None:
        ungated["need_ac_power"] = reading.missing.get("on_ac", "no reading")
    _calibration(reading, gate, baseline, reasons, ungated)
    return reasons, ungated


def _calibration(
    reading: Reading,
    gate: Gate,
    baseline: dict[str, Any],
    reasons: list[str],
    ungated: dict[str, str],
) -> None:
    """The fixed work must take what it took at the start, within the plan's share, where that can be told at all."""
    middle, spread = baseline.get("median_s"), baseline.get("mad_share")
    if gate.calibration is None:
        ungated["calibration"] = "the plan sets no limit"
    elif middle is None or spread is None or reading.calibration_s is None:
        ungated["calibration"] = "not run"
    elif 3 * spread > gate.calibration:
        ungated["calibration"] = (
            f"INFEASIBLE: three deviations of the idle machine itself ({3 * spread:.0%}) exceed the limit"
            f" {gate.calibration:.0%}"
        )
    elif reading.calibration_s > middle * (1 + gate.calibration):
        reasons.append(f"calibration {reading.calibration_s / middle - 1:+.0%} over its baseline")


def wait(
    gate: Gate,
    baseline: dict[str, Any],
    look: Callable[[], Reading],
    stop: Callable[[], bool] = lambda: False,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Clearance:
    """Look until the limits hold, or `gate.wait_s` is over (then `refused`, with what stood in the way)."""
    start = clock()
    while True:
        reading = look()
        reasons, ungated = judge(reading, gate, baseline)
        waited = round(clock() - start, 3)
        if not reasons:
            return Clearance(verdict="open", waited_s=waited, reading=reading, ungated=ungated)
        if waited >= gate.wait_s or stop():
            return Clearance(
                verdict="refused",
                waited_s=waited,
                reading=reading,
                reasons=tuple(reasons),
                ungated=ungated,
            )
        sleep(min(PAUSE_S, max(0.0, gate.wait_s - waited)))
