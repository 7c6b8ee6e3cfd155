"""Look at every sensor of this machine at once: plain values by the names that a receipt's Reading has.

Imports little and computes little, since it also runs twice a second beside a timed request, in a process of its own.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

from battery.bench.sensors import linux, macos
from battery.bench.sensors.nvidia import Nvml
from battery.bench.sensors.told import Told, only

ROOT = Path("/")
_TICKS_PER_S = os.sysconf("SC_CLK_TCK") if sys.platform == "linux" else 100
"""In which processor time is counted; psutil's seconds are taken in hundredths."""
TELLING_S = 0.1
"""Ten ticks: over less than this a share of processor time says nothing."""
MACOS_PAUSE_S = 10.0
"""Mains and low-power mode are asked of a tool on macOS, which starts a process each time: seldom inside a cell."""


_ASKED: tuple[tuple[str, tuple[str, ...], Callable[[str], Told[Any]]], ...] = (
    ("on_ac", ("pmset", "-g", "batt"), macos.mains),
    ("low_power", ("pmset", "-g"), macos.low_power),
    ("speed_limit", ("pmset", "-g", "therm"), macos.speed_limit),
)
"""What pmset is asked on macOS."""


class Watch:
    """Reads this machine; shares and pressures are counted since the last look.

    `server` is the process whose tree is measured, `own` are the processes that measure: what neither uses is foreign.
    """

    def __init__(
        self,
        server: int | None = None,
        root: Path = ROOT,
        own: tuple[int, ...] = (),
        stream: bool = False,
    ) -> None:
        self.root, self.own = root, own or (os.getpid(),)
        self.linux = root != ROOT or sys.platform == "linux"
        self.macmon = macos.Macmon(stream) if sys.platform == "darwin" and not self.linux else None
        self.nvml = Nvml() if root == ROOT else Nvml(_Nothing())
        self.container = linux.in_container(root) if self.linux else False
        self._slow: tuple[float, dict[str, Told[Any]]] | None = None
        self.aim(server)

    def aim(self, server: int | None) -> None:
        """Watch this server from now on, shares counted anew."""
        self.server = server
        self._at = time.perf_counter()
        self._cpu, self._psi = self._processors(), self._pressures()
        self._used = self._worked(self._tree())

    def look(self) -> dict[str, Any]:
        """Everything that can be read now, with the reasons for what cannot."""
        now, before = time.perf_counter(), self._at
        self._at, span = now, now - before
        tree = self._tree()
        soc, no_soc = self.macmon.look() if self.macmon else only("macOS")
        counters, uncounted = self.counters()
        told: dict[str, Told[Any]] = {
            **self._shares(tree, span),
            **self._slow_ones(now),
            "temps": self._temperatures(soc, no_soc),
            "fans": linux.fans(self.root) if self.linux else ((soc or {}).get("fans"), no_soc),
            "freq_mhz": self._clocks("mean", soc),
            "base_mhz": self._clocks("base", None),
            "thermal_pressure": macos.thermal_pressure() if self.macmon else only("macOS"),
            "rss_bytes": _resident(tree),
        }
        gpus = self.nvml.read(
            None if tree is None else [member.pid for member in tree], self.container
        )
        value = {key: one[0] for key, one in told.items()}
        temps = value.pop("temps")
        missing = {**uncounted, **{key: one[1] for key, one in told.items() if one[1]}}
        if "temps" in missing:
            missing["temp_c"] = missing.pop("temps")
        overall = _overall(gpus) if gpus else {key: soc.get(key) for key in _OVERALL} if soc else {}
        if not gpus:
            missing["gpu"] = self.nvml.why or "no device"
        return {
            **value,
            "temp_c": max(temps.values()) if temps else None,
            "temps": temps or {},
            "fans": value["fans"] or {},
            "available_bytes": psutil.virtual_memory().available,
            "counters": counters,
            "gpus": gpus,
            **overall,
            "missing": missing,
        }

    def counters(self) -> tuple[dict[str, int], dict[str, str]]:
        """What only ever rises while the machine is up, and why parts of it are missing."""
        throttle = linux.throttle_counts(self.root) if self.linux else only("Linux")
        swap, waited = self._swapped_in(), self._pressures()
        pages = None if swap[0] is None else {"swap_in_pages": swap[0]}
        found = {
            **(throttle[0] or {}),
            **(pages or {}),
            **(waited[0] or {}),
            **self.nvml.counters(),
        }
        told = {"throttle": throttle[1], "swap_in": swap[1], "pressure": waited[1]}
        return found, {key: why for key, why in told.items() if why}

    def _tree(self) -> list[psutil.Process] | None:
        """The server and its descendants; none where no server runs yet, None when it is gone."""
        if self.server is None:
            return []
        try:
            process = psutil.Process(self.server)
            return [process, *process.children(recursive=True)]
        except psutil.Error:
            return None

    def _worked(self, tree: list[psutil.Process] | None) -> float | None:
        """Processor seconds of the server's tree and of those that measure, since they started."""
        if tree is None:
            return None
        total = 0.0
        for pid in (*(member.pid for member in tree), *self.own):
            try:
                spent = psutil.Process(pid).cpu_times()
            except psutil.Error:
                continue
            total += spent.user + spent.system
            if pid not in self.own:
                # those that ended are counted by the parent that waited for them
                total += getattr(spent, "children_user", 0.0)
                total += getattr(spent, "children_system", 0.0)
        return total

    def _processors(self) -> Told[dict[str, int]]:
        """Ticks of all processors; from psutil, in hundredths, where there is no /proc/stat."""
        if self.linux:
            return linux.processor_time(self.root)
        now = psutil.cpu_times()
        ticks = {name: round(100 * getattr(now, name)) for name in now._fields}
        return {"idle": ticks.get("idle", 0), "total": sum(ticks.values())}, None

    def _pressures(self) -> Told[dict[str, int]]:
        """Waiting times of the kernel."""
        return linux.pressure(self.root) if self.linux else only("Linux")

    def _shares(self, tree: list[psutil.Process] | None, span: float) -> dict[str, Told[Any]]:
        """Busy, steal, foreign and pressure since the last look, each 0 to 1."""
        (cpu, why), (before, _) = self._processors(), self._cpu
        (psi, no_psi), (waited, _) = self._pressures(), self._psi
        used, earlier = self._worked(tree), self._used
        self._cpu, self._psi, self._used = (cpu, why), (psi, no_psi), used
        found: dict[str, Told[Any]] = {"busy": (None, why), "steal": (None, why)}
        found["pressure"] = ({}, no_psi or "no reading before")
        if span < TELLING_S:
            reason = f"less than {TELLING_S} s after the look before"
            found["pressure"] = ({}, no_psi or reason)
            return {**found, **{k: (None, why or reason) for k in ("busy", "steal", "foreign")}}
        if psi and waited:
            shares = {
                key[4:-3]: round(min(1.0, max(0, value - waited[key]) / 1e6 / span), 4)
                for key, value in psi.items()
                if key in waited
            }
            found["pressure"] = (shares, None)
        spent = cpu["total"] - before["total"] if cpu and before else 0
        if not cpu or not before or spent <= 0:
            reason = why or "no processor time passed"
            return {**found, **{k: (None, reason) for k in ("busy", "steal", "foreign")}}
        idle, stolen = cpu["idle"] - before["idle"], None
        if "steal" in cpu:
            stolen = (cpu["steal"] - before["steal"]) / spent
            idle += cpu["steal"] - before["steal"]
        busy = min(1.0, max(0.0, 1 - idle / spent))
        found["busy"] = (round(busy, 4), None)
        found["steal"] = (
            (None, "not told by this system")
            if stolen is None
            else (round(max(0.0, stolen), 4), None)
        )
        if used is None or earlier is None:
            found["foreign"] = (None, "the server is gone")
        else:
            # both in ticks: over a short look the ticks are coarser than any clock
            ours = max(0.0, used - earlier) * _TICKS_PER_S / spent
            found["foreign"] = (round(max(0.0, busy - ours), 4), None)
        return found

    def _temperatures(
        self, soc: dict[str, Any] | None, no_soc: str | None
    ) -> Told[dict[str, float]]:
        """°C per sensor."""
        if self.linux:
            return linux.temperatures(self.root)
        if self.macmon is None:
            return None, f"no temperatures are read on {sys.platform}"
        temps = soc.get("temps") if soc else None
        return (temps, None) if temps else (None, no_soc or "macmon told no temperature")

    def _swapped_in(self) -> Told[int]:
        """Pages read back from swap."""
        if self.linux:
            return linux.swapped_in(self.root)
        if self.macmon is None:
            return only("Linux and macOS")
        text, why = macos.ask("vm_stat")
        return (None, why) if text is None else macos.swapped_in(text)

    def _clocks(self, which: str, soc: dict[str, Any] | None) -> Told[float]:
        """One of the processor's clocks in MHz."""
        if soc and "freq_mhz" in soc:
            return soc["freq_mhz"], None
        if not self.linux:
            return only("Linux")
        told, why = linux.clocks(self.root)
        if told is None:
            return None, why
        return told.get(which), None if which in told else "no base_frequency"

    def _slow_ones(self, now: float) -> dict[str, Told[Any]]:
        """Mains, low-power mode and speed limit."""
        if self.linux:
            return {
                "on_ac": linux.on_mains(self.root),
                "low_power": linux.low_power(self.root),
                "speed_limit": only("macOS"),
            }
        if self.macmon is None:
            return dict.fromkeys(("on_ac", "low_power", "speed_limit"), only("Linux and macOS"))
        if self._slow is None or now - self._slow[0] > MACOS_PAUSE_S:
            found: dict[str, Told[Any]] = {}
            for key, words, parse in _ASKED:
                text, why = macos.ask(*words)
                found[key] = (None, why) if text is None else parse(text)
            self._slow = (now, found)
        return self._slow[1]


class _Nothing:
    """An NVML that is not there: a recorded tree has no devices."""

    NVMLError = OSError

    def nvmlInit(self) -> None:
        """Refuse, as a machine without a driver does."""
        raise OSError("a recorded tree has no devices")


def _resident(tree: list[psutil.Process] | None) -> Told[int]:
    """Resident bytes of a process tree."""
    if not tree:
        return None, "no server runs yet" if tree is not None else "the server is gone"
    total = 0
    for member in tree:
        try:
            total += member.memory_info().rss
        except psutil.Error:
            continue
    return total, None


_OVERALL = ("gpu_temp_c", "gpu_power_w", "gpu_clock_mhz")


def _overall(gpus: list[dict[str, Any]]) -> dict[str, float | None]:
    """All devices in one figure each: the hottest, all their power, the slowest clock."""
    known = {
        key: [float(gpu[key]) for gpu in gpus if gpu[key] is not None]
        for key in ("temp_c", "power_w", "clock_mhz")
    }
    hot, power, clock = known["temp_c"], known["power_w"], known["clock_mhz"]
    return {
        "gpu_temp_c": max(hot, default=None),
        "gpu_power_w": sum(power) if power else None,
        "gpu_clock_mhz": min(clock, default=None),
    }
