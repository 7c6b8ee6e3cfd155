"""Looks for the gate: load over a quarter of a second, and what its counters did in the half minute before."""

from __future__ import annotations

import statistics
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from battery.bench.sensors.calibration import calibrated, calibration_baseline
from battery.bench.sensors.sampling import to_reading
from battery.bench.sensors.watch import ROOT, Watch

if TYPE_CHECKING:
    from battery.ledger.receipt import Reading

GLANCE_S = 0.25


class Glances:
    """One look after another at the same machine; each tells by how much the counters rose over the last `steady_s`."""

    def __init__(self, root: Path = ROOT, steady_s: float = 30.0) -> None:
        self.root, self._watch, self._steady_s = root, Watch(root=root), steady_s
        self._before: list[tuple[float, dict[str, int]]] = []

    def look(self, server: int | None = None, calibrate: bool = False) -> Reading:
        """One reading; `calibrate` runs the fixed work behind it."""
        self._watch.aim(server)
        self._keep(self._watch.counters()[0])
        time.sleep(GLANCE_S)
        values = self._watch.look()
        rose, over = self._rise(values["counters"])
        if calibrate:
            values |= calibrated(self.root)
        return to_reading({**values, "rose": rose, "rose_over_s": round(over, 3)}, 0.0)

    def _keep(self, counters: dict[str, int]) -> None:
        """Remember counters, and of the old ones no more than the look that is just old enough."""
        now = time.monotonic()
        self._before.append((now, counters))
        old = [i for i, (at, _) in enumerate(self._before) if now - at >= self._steady_s]
        self._before = self._before[old[-1] if old else 0 :]

    def _rise(self, counters: dict[str, int]) -> tuple[dict[str, int], float]:
        """By how much counters rose since the look that is just old enough, else the oldest; and over how long."""
        at, before = self._before[0]
        rose = {
            key: value - before[key]
            for key, value in counters.items()
            if key in before and value > before[key]
        }
        return rose, time.monotonic() - at


def glance(server: int | None = None, root: Path = ROOT) -> Reading:
    """One reading whose load is counted over a quarter of a second."""
    return Glances(root).look(server)


def baseline(
    root: Path = ROOT,
    seconds: float = 2.0,
    calibrate: bool = True,
    stop: Callable[[], bool] = lambda: False,
) -> dict[str, Any]:
    """What the gate compares with: the mean of every temperature over `seconds` of idleness, and the fixed work."""
    seen: dict[str, list[float]] = defaultdict(list)
    watch, end = Watch(root=root), time.monotonic() + seconds
    while True:
        values = watch.look()
        for name, value in values["temps"].items():
            seen[name].append(value)
        for gpu in values["gpus"]:
            if gpu["temp_c"] is not None:
                seen[f"gpu{gpu['index']}"].append(float(gpu["temp_c"]))
        if time.monotonic() >= end or stop():
            break
        time.sleep(min(0.5, max(0.0, end - time.monotonic())))
    temps = {name: round(statistics.fmean(here), 2) for name, here in seen.items()}
    processor = [value for name, value in temps.items() if not name.startswith("gpu")]
    found: dict[str, Any] = {"temp_c": max(processor, default=None), "temps": temps}
    if root != ROOT:
        found["sensors"] = "of another folder than this machine's: a test"
    return {**found, **calibration_baseline()} if calibrate else found
