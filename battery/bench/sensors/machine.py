"""What kind of machine this is, without its name: enough to know whether two campaigns may be pooled."""

from __future__ import annotations

import platform
import time
from pathlib import Path
from typing import Any

import psutil

from battery.bench.sensors.nvidia import Nvml
from battery.bench.sensors.watch import Watch


def fingerprint() -> dict[str, Any]:
    """The facts of this machine that its figures depend on."""
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
        "temperature_sensor": "none" if Watch().look()["temp_c"] is None else "present",
        "gpu": next(iter(Nvml().names()), None),
    }
