"""Decide whether the machine is calm enough to time.

A gate compares readings with limits and waits. It launches nothing and measures nothing itself, and it hands its
readings on, so that every receipt shows why its cell was allowed to begin. It looks only at the state before a
cell and at sensors that do not know the arm: gating on a result would select the results.

A limit whose reading does not exist here is `ungated`, with the reason, and never counts as held.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from battery.bench import sensors
from battery.bench.judge import breach
from battery.bench.sensors.told import ELSEWHERE
from battery.ledger.plan import Gate
from battery.ledger.receipt import Clearance, Reading

PAUSE_S = 1.0
STEADY_S = 30.0
"""How long nothing may have been throttled before a cell."""
ASIDE = ("nvme/", "drivetemp/", "iwlwifi", "ath", "mt79", "BAT", "ucsi", "zone/iwlwifi")
"""Sensors of disks, radios and batteries: recorded, but they say nothing about how fast the processor is."""
_UNLIMITED = "the plan sets no limit"
_UNLOADED = "nothing loads the GPU at the gate: battery knows no GPU library; its clocks and events are watched"


def steady_s(gate: Gate) -> float:
    """Half a minute, or half the wait where that is shorter: a machine must be able to become steady by waiting."""
    return min(STEADY_S, gate.wait_s / 2)


class Judgement:
    """One reading held against the limits of a plan and the campaign's own baseline."""

    def __init__(self, reading: Reading, gate: Gate, baseline: dict[str, Any]) -> None:
        self.reading, self.gate, self.baseline = reading, gate, baseline
        self.reasons: list[str] = []
        """To wait."""
        self.ungated: dict[str, str] = {}
        """Limits that could not be applied."""
        self.applied: dict[str, None] = {}
        self.cold = 0
        """How many of the reasons are sensors colder than their baseline, which waiting does not mend."""
        for rule in (self._heat, self._load, self._calibration, self._power, self._steady):
            rule()
        self._own_gpu()

    def limit(
        self, name: str, key: str, value: float | None, bar: float | None, above: bool = True
    ) -> None:
        """A number that must not be above its bar, or below it."""
        if bar is None:
            self.ungated[name] = _UNLIMITED
        elif value is None:
            self.ungated[name] = self.reading.missing.get(key, "no reading")
        else:
            self.applied[name] = None
            if (value > bar) if above else (value < bar):
                self.reasons.append(f"{name} {value:.4g} {'above' if above else 'below'} {bar:.4g}")

    def need(self, name: str, key: str, known: bool, complaints: list[str]) -> None:
        """A state that must hold: known and without complaint."""
        if known:
            self.applied[name] = None
            self.reasons += complaints
        else:
            why = self.reading.missing.get(key, "no reading")
            # a sensor that only another system has is not missing here
            if not why.startswith(ELSEWHERE):
                self.ungated[name] = why

    def _heat(self) -> None:
        """Temperatures: a ceiling, and a band around the baseline on both sides."""
        reading, gate = self.reading, self.gate
        self.limit("max_temp_c", "temp_c", reading.temp_c, gate.max_temp_c)
        if reading.gpus or reading.gpu_temp_c is not None:
            told = (reading.gpu_temp_c, *(gpu.temp_c for gpu in reading.gpus))
            hottest = max((temp for temp in told if temp is not None), default=None)
            self.limit("max_temp_c (gpu)", "gpu", hottest, gate.max_temp_c)
        if gate.temp_band_c is None:
            self.ungated["temp_band_c"] = _UNLIMITED
            return
        known = dict(self.baseline.get("temps") or {})
        now: dict[str, float | None] = dict(reading.temps)
        now |= {f"gpu{gpu.index}": gpu.temp_c for gpu in reading.gpus}
        if not known and self.baseline.get("temp_c") is not None:
            known, now = {"": self.baseline["temp_c"]}, {"": reading.temp_c}
        known = {name: value for name, value in known.items() if not name.startswith(ASIDE)}
        for name, usual in known.items():
            self._band(f"temp_band_c ({name})" if name else "temp_band_c", name, usual, now)
        if not known:
            why = reading.missing.get("temp_c", "no baseline temperature")
            self.ungated["temp_band_c"] = why

    def _band(self, label: str, name: str, usual: float, now: dict[str, float | None]) -> None:
        """One sensor against its own baseline."""
        width, value = self.gate.temp_band_c or 0.0, now.get(name)
        self.limit(label, "temp_c", value, usual + width)
        if value is None or value >= usual - width:
            return
        if name.startswith("gpu"):
            self.ungated[f"{label}, below"] = (
                "colder than its baseline, and battery has nothing that warms a GPU"
            )
            return
        self.limit(label, "temp_c", value, usual - width, above=False)
        self.cold += 1

    def _load(self) -> None:
        """What others do on this machine."""
        reading, gate = self.reading, self.gate
        free = None if reading.available_bytes is None else reading.available_bytes / 1e9
        self.limit("max_busy", "busy", reading.busy, gate.max_busy)
        self.limit("max_steal", "steal", reading.steal, gate.max_steal)
        self.limit("max_pressure", "pressure", reading.pressure.get("cpu"), gate.max_pressure)
        self.limit("min_free_gb", "available_bytes", free, gate.min_free_gb, above=False)

    def _calibration(self) -> None:
        """The fixed work must take what it took at the start, where that can be told at all, at a decent clock."""
        reading, bar = self.reading, self.gate.calibration
        middle, spread = self.baseline.get("median_s"), self.baseline.get("mad_share")
        took, reached, base = reading.calibration_s, reading.calibration_mhz, reading.base_mhz
        if bar is None:
            self.ungated["calibration"] = _UNLIMITED
        elif middle is None or spread is None or took is None:
            self.ungated["calibration"] = "not run"
        elif 3 * spread > bar:
            self.ungated["calibration"] = (
                f"INFEASIBLE: three deviations of the idle machine itself ({3 * spread:.0%}) exceed the limit"
                f" {bar:.0%}"
            )
        else:
            self.applied["calibration"] = None
            if abs(took / middle - 1) > bar:
                side = "over" if took > middle else "under"
                self.reasons.append(f"calibration {took / middle - 1:+.0%} {side} its baseline")
        share = None if reached is None or not base else reached / base
        self.limit("min_clock_share", "base_mhz", share, self.gate.min_clock_share, above=False)
        if bar is not None and (reading.gpus or reading.gpu_clock_mhz is not None):
            self.ungated["calibration (gpu)"] = _UNLOADED

    def _power(self) -> None:
        """Mains, and no low-power mode."""
        on_ac, low = self.reading.on_ac, self.reading.low_power
        if not self.gate.need_ac_power:
            self.ungated["need_ac_power"] = _UNLIMITED
            return
        complaint = ["on battery power"] if on_ac is False else []
        self.need("need_ac_power", "on_ac", on_ac is not None, complaint)
        complaint = ["low-power mode"] if low else []
        self.need("need_ac_power (low-power mode)", "low_power", low is not None, complaint)

    def _steady(self) -> None:
        """Nothing throttled, slowed down or swapped in of late."""
        reading, pressure = self.reading, self.reading.thermal_pressure
        if not self.gate.need_steady:
            self.ungated["need_steady"] = _UNLIMITED
            return
        counted = {name.partition(".")[0] for name in reading.counters}
        told = [gpu for gpu in reading.gpus if gpu.event_bits is not None]
        self.reasons += breach.held_down(reading.rose, reading)
        limited = reading.speed_limit is not None
        elsewhere = reading.missing.get("throttle", "").startswith(ELSEWHERE)
        key = "speed_limit" if elsewhere else "throttle"
        self.need("need_steady (processor)", key, "cpu" in counted or limited, [])
        self.need("need_steady (swap)", "swap_in", "swap_in_pages" in counted, [])
        self.need("need_steady (gpu)", "gpu", bool(told), [])
        complaint = [f"thermal pressure is {pressure}"] if pressure not in (None, "nominal") else []
        self.need(
            "need_steady (thermal pressure)", "thermal_pressure", pressure is not None, complaint
        )

    def _own_gpu(self) -> None:
        """No stranger on the GPU."""
        if not self.gate.need_own_gpu:
            self.ungated["need_own_gpu"] = _UNLIMITED
            return
        for gpu in self.reading.gpus:
            name = f"need_own_gpu (gpu{gpu.index})"
            if gpu.foreign is None:
                self.ungated[name] = gpu.missing.get("foreign", "no reading")
                continue
            self.applied[name] = None
            if gpu.foreign:
                self.reasons.append(f"{gpu.foreign} foreign processes compute on gpu{gpu.index}")
        if not self.reading.gpus:
            self.ungated["need_own_gpu"] = self.reading.missing.get("gpu", "no reading")


def judge(reading: Reading, gate: Gate, baseline: dict[str, Any]) -> Judgement:
    """Reasons to wait, and which limits were applied and which could not be, for one reading."""
    return Judgement(reading, gate, baseline)


def wait(
    gate: Gate,
    baseline: dict[str, Any],
    look: Callable[[], Reading],
    stop: Callable[[], bool] = lambda: False,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
    heat: Callable[[float], None] = sensors.heat,
) -> Clearance:
    """Look until the limits hold, or `gate.wait_s` is over (then `refused`, with what stood in the way).

    A machine that is too cold is warmed by the fixed work instead of being waited for.
    """
    start = clock()
    while True:
        reading = look()
        judged = judge(reading, gate, baseline)
        waited = round(clock() - start, 3)
        over = waited >= gate.wait_s or stop()
        if not judged.reasons or over:
            return Clearance(
                verdict="refused" if judged.reasons else "open",
                waited_s=waited,
                reading=reading,
                reasons=tuple(judged.reasons),
                ungated=judged.ungated,
                applied=tuple(judged.applied),
            )
        pause = heat if judged.cold == len(judged.reasons) else sleep
        pause(min(PAUSE_S, max(0.0, gate.wait_s - waited)))
