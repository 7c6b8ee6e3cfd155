"""What the machine is and how it is: the only file that reads sensors.

A reading that does not exist here is None, with its reason in `missing`; nothing is ever assumed to be nominal.
"""

from __future__ import annotations

import hashlib
import platform
import statistics
import sys
import threading
import time
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import psutil

from battery.ledger.receipt import Reading

_BLOCK = bytes(range(256)) * 16_384  # 4 MiB
_STREAM = 4_000_000  # doubles: 32 MB, beyond any cache of a small machine


def calibrate() -> float:
    """Seconds for a fixed piece of work on one core: hashing 8 MiB and streaming 64 MB through memory.

    The same on every machine and for every arm; it tells whether the machine runs as fast as it did before.
    """
    source = np.ones(_STREAM)
    start = time.perf_counter_ns()
    for _ in range(2):
        hashlib.sha256(_BLOCK).digest()
    for _ in range(2):
        np.add(source, 1.0, out=source)
    return (time.perf_counter_ns() - start) / 1e9


def calibration_baseline(rounds: int = 20) -> dict[str, float]:
    """Median of the fixed work over `rounds` goes, and the median absolute deviation as a share of it."""
    took = [calibrate() for _ in range(rounds)]
    middle = statistics.median(took)
    spread = statistics.median(abs(value - middle) for value in took)
    return {"median_s": middle, "mad_share": spread / middle, "rounds": rounds}


def hottest() -> tuple[float | None, str | None]:
    """Temperature of the hottest sensor in degrees Celsius, or None with the reason."""
    if not hasattr(psutil, "sensors_temperatures"):
        return None, f"psutil reads no temperatures on {sys.platform}"
    values = [entry.current for group in psutil.sensors_temperatures().values() for entry in group]
    zones = Path("/sys/class/thermal").glob("thermal_zone*/temp") if not values else ()
    for zone in zones:
        try:
            values.append(int(zone.read_text()) / 1000)
        except (OSError, ValueError):
            continue
    return (max(values), None) if values else (None, "no hwmon sensor and no thermal zone")


class CpuShare:
    """Shares of all cores since the last look: in use, and taken away by the hypervisor."""

    def __init__(self) -> None:
        self._last = psutil.cpu_times()

    def look(self) -> tuple[float | None, float | None]:
        """(busy, steal) since the last look, each 0 to 1; None where no time has passed or steal is not told."""
        now, before = psutil.cpu_times(), self._last
        self._last = now
        # guest time is counted inside user time already
        fields = [name for name in now._fields if not name.startswith("guest")]
        spent = {name: max(0.0, getattr(now, name) - getattr(before, name)) for name in fields}
        total = sum(spent.values())
        if total <= 0:
            return None, None
        idle = spent.get("idle", 0.0) + spent.get("iowait", 0.0) + spent.get("steal", 0.0)
        return 1 - idle / total, spent["steal"] / total if "steal" in spent else None


def on_ac_power() -> tuple[bool | None, str | None]:
    """Whether the machine runs from mains; None with the reason where there is no battery to ask."""
    battery = psutil.sensors_battery() if hasattr(psutil, "sensors_battery") else None
    if battery is None or battery.power_plugged is None:
        return None, "no battery reports here"
    return bool(battery.power_plugged), None


def group_rss(root: int) -> int | None:
    """Resident bytes of a process and its descendants; None when it is gone."""
    try:
        process = psutil.Process(root)
        tree = [process, *process.children(recursive=True)]
    except psutil.Error:
        return None
    total = 0
    for member in tree:
        try:
            total += member.memory_info().rss
        except psutil.Error:
            continue
    return total


def read(
    cpu: CpuShare, at_s: float, server: int | None = None, calibrated: float | None = None
) -> Reading:
    """One look at the machine; `cpu` holds the moment since which shares are counted."""
    temp, no_temp = hottest()
    ac, no_ac = on_ac_power()
    busy, steal = cpu.look()
    freq = psutil.cpu_freq() if hasattr(psutil, "cpu_freq") else None
    gpu, no_gpu = _gpu()
    missing = {
        "temp_c": no_temp,
        "on_ac": no_ac,
        "gpu": no_gpu,
        "busy": "no processor time passed" if busy is None else None,
        "steal": "not told by this system" if steal is None else None,
        "freq_mhz": "no cpufreq" if freq is None else None,
    }
    return Reading(
        at_s=round(at_s, 4),
        temp_c=temp,
        busy=_round(busy),
        steal=_round(steal),
        available_bytes=psutil.virtual_memory().available,
        freq_mhz=freq.current if freq else None,
        rss_bytes=group_rss(server) if server else None,
        gpu_temp_c=gpu.get("temp_c"),
        gpu_power_w=gpu.get("power_w"),
        gpu_clock_mhz=gpu.get("clock_mhz"),
        calibration_s=_round(calibrated, 6),
        on_ac=ac,
        missing={name: reason for name, reason in missing.items() if reason},
    )


def glance(server: int | None = None) -> Reading:
    """One reading whose load is counted over a quarter of a second."""
    cpu = CpuShare()
    time.sleep(0.25)
    return read(cpu, 0.0, server)


def _round(value: float | None, digits: int = 4) -> float | None:
    """Sensors are not exact to 17 digits; receipts need not carry them."""
    return None if value is None else round(value, digits)


def _gpu() -> tuple[dict[str, float], str | None]:
    """Temperature, power and SM clock of the first NVIDIA device through NVML, or the reason why not."""
    try:
        import pynvml  # type: ignore[import-untyped,unused-ignore]
    except ImportError:
        return {}, "nvidia-ml-py is not installed (extra: cuda)"
    try:
        pynvml.nvmlInit()
        device = pynvml.nvmlDeviceGetHandleByIndex(0)
        return {
            "temp_c": float(pynvml.nvmlDeviceGetTemperature(device, pynvml.NVML_TEMPERATURE_GPU)),
            "power_w": pynvml.nvmlDeviceGetPowerUsage(device) / 1000,
            "clock_mhz": float(pynvml.nvmlDeviceGetClockInfo(device, pynvml.NVML_CLOCK_SM)),
        }, None
    except pynvml.NVMLError as none:
        return {}, f"NVML: {none}"


def fingerprint() -> dict[str, Any]:
    """What kind of machine this is, without its name: enough to know whether two campaigns may be pooled."""
    info = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").is_file() else ""
    model = next(
        (
            line.split(":", 1)[1].strip()
            for line in info.splitlines()
            if line.startswith("model name")
        ),
        None,
    )
    clock = Path("/sys/devices/system/clocksource/clocksource0/current_clocksource")
    hypervisor = any(
        " hypervisor" in line for line in info.splitlines() if line.startswith("flags")
    )
    return {
        "cpu": model or platform.processor() or platform.machine(),
        "cores_logical": psutil.cpu_count(),
        "cores_physical": psutil.cpu_count(logical=False),
        "memory_bytes": psutil.virtual_memory().total,
        "os": f"{platform.system()} {platform.release()}",
        "machine": platform.machine(),
        "virtualised": hypervisor if info else None,
        "clock_source": clock.read_text().strip() if clock.is_file() else None,
        "python_clock": time.get_clock_info("perf_counter").implementation,
        "temperature_sensor": "present" if hottest()[0] is not None else "none",
        "gpu": _gpu_name(),
    }


def _gpu_name() -> str | None:
    """Name of the first NVIDIA device, or None."""
    try:
        import pynvml
    except ImportError:
        return None
    try:
        pynvml.nvmlInit()
        return str(pynvml.nvmlDeviceGetName(pynvml.nvmlDeviceGetHandleByIndex(0)))
    except pynvml.NVMLError:
        return None


class Sampling:
    """Readings at 2 Hz in a thread of their own while a cell runs: `with Sampling(pid) as taken: …`."""

    def __init__(self, server: int, every_s: float = 0.5) -> None:
        self._server, self._every_s = server, every_s
        self._taken: list[tuple[int, Reading]] = []
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._loop, name="sensors", daemon=True)

    def __enter__(self) -> Sampling:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join(timeout=5)

    def _loop(self) -> None:
        cpu = CpuShare()
        while not self._end.wait(self._every_s):
            self._taken.append((time.perf_counter_ns(), read(cpu, 0.0, self._server)))

    def readings(self, send_ns: int) -> tuple[Reading, ...]:
        """What was read, `at_s` counted from `send_ns`; the gate's reading says why values are missing."""
        return tuple(
            msgspec.structs.replace(reading, at_s=round((at - send_ns) / 1e9, 3), missing={})
            for at, reading in self._taken
        )
