"""Look at this machine before measuring: what can be read and gated here, what is missing, and how to get it."""

from __future__ import annotations

import os
import platform
import sys
import time
from pathlib import Path
from typing import Any

from battery.bench import memory, sensors
from battery.bench.backends import load_backend
from battery.bench.memory import limit
from battery.bench.memory.cgroup import CgroupPeak
from battery.bench.sensors.told import ELSEWHERE
from battery.ledger.arm import known_arms, load_arm
from battery.ledger.errors import BatteryError
from battery.ledger.plan import known_plans, load_plan
from battery.ledger.receipt import Gpu, Reading

REMEDY = {
    "temp_c": "; the calibration work and interleaving stand in",
    "on_ac": "; nothing to do on a desktop or server",
    "pressure": "; boot with psi=1",
}
"""What to do about a sensor that says nothing, behind its own reason."""


def examine(root: Path) -> dict[str, Any]:
    """Facts about machine, sensors, noise, arms and plans, each a value or the reason why there is none."""
    machine = sensors.fingerprint()
    noise = sensors.calibration_baseline()
    steady = 3 * noise["mad_share"]
    return {
        "python": platform.python_version(),
        "machine": f"{machine['cpu']}, {machine['cores_logical']} cores, {machine['memory_bytes'] / 1e9:.1f} GB",
        "system": f"{machine['os']}, virtualised: {machine['virtualised']}",
        "clock": f"{machine['python_clock']} (source {machine['clock_source']})",
        **_sensors(sensors.glance()),
        "sampler": _sampler(),
        "peak memory": peak_memory(),
        "memory limit": memory_limit(),
        "calibration": f"{noise['median_s'] * 1e3:.1f} ms, three deviations are {steady:.0%}: {_advice(steady)}",
        "fast BLAS": fast_blas(),
        "arms": _each(known_arms(root / "arms"), lambda name: _arm(name, root)),
        "plans": _each(known_plans(root / "plans"), lambda name: load_plan(name, root / "plans")),
    }


def _sensors(now: Reading) -> dict[str, str]:
    """Each sensor by name: what it says now, or why it says nothing and how to get it."""
    temps = ", ".join(f"{name} {value:.0f} C" for name, value in sorted(now.temps.items()))
    counted = {name.partition(".")[0] for name in now.counters}
    pressure = ", ".join(f"{name} {share:.1%}" for name, share in now.pressure.items())
    gpus = "; ".join(_gpu(gpu) for gpu in now.gpus)
    found = {
        "temp_c": ("temperature", temps),
        "throttle": ("throttle counters", "read" if "cpu" in counted else ""),
        "freq_mhz": ("clock rate", f"{now.freq_mhz:.0f} MHz" if now.freq_mhz else ""),
        "base_mhz": ("base clock", f"{now.base_mhz:.0f} MHz" if now.base_mhz else ""),
        "thermal_pressure": ("thermal pressure", now.thermal_pressure or ""),
        "speed_limit": ("speed limit", f"{now.speed_limit} %" if now.speed_limit else ""),
        "pressure": ("waiting tasks", pressure),
        "steal": ("steal", "" if now.steal is None else f"{now.steal:.1%}"),
        "swap_in": ("swap-in", "read" if "swap_in_pages" in now.counters else ""),
        "on_ac": ("mains power", {True: "yes", False: "no", None: ""}[now.on_ac]),
        "low_power": ("low-power mode", {True: "on", False: "off", None: ""}[now.low_power]),
        "gpu": ("gpu", gpus),
    }
    told = {}
    for key, (name, value) in found.items():
        why = now.missing.get(key, "no reading")
        if value or not why.startswith(ELSEWHERE):
            told[name] = value or f"not gated: {why}{REMEDY.get(key, '')}"
    return told


def _gpu(gpu: Gpu) -> str:
    """One GPU on a line."""
    parts = [
        f"{value:.0f} {unit}"
        for value, unit in ((gpu.temp_c, "C"), (gpu.power_w, "W"), (gpu.clock_mhz, "MHz"))
        if value is not None
    ]
    gaps = [f"no {name}: {why}" for name, why in gpu.missing.items()]
    return f"gpu{gpu.index}: {', '.join([*parts, *gpu.events, *gaps])}"


def _sampler() -> str:
    """Whether readings inside a cell work here, and what one costs."""
    with sensors.Sampler() as sampler, sampler.during(os.getpid()) as taken:
        time.sleep(sensors.EVERY_S * 1.2)
    found, spent = taken.readings(0), taken.processor_s
    if taken.why or spent is None or not found:
        return taken.why or "no samples"
    each = spent / len(found)
    share = each / sensors.EVERY_S
    return f"a process of its own; {each * 1e3:.1f} ms of processor time a look, {share:.1%} of one core at 2 Hz"


def peak_memory() -> str:
    """Which sources of a server's peak memory there are here, best first, and why the others are not."""
    told = ["engine (where its health tells one)"]
    for source in memory.sources(memory.EngineCounter(lambda: None))[1:]:
        refusal = source.reset({os.getpid()})
        value = source.read()
        if isinstance(source, CgroupPeak):
            told.append("cgroup (of a server under limits.memory_limit_gb)")
        elif value.bytes is not None and refusal is None:
            told.append(source.name if source.how == "true peak" else f"{source.name} (sampled)")
        else:
            told.append(f"not {source.name}: {value.reason or refusal}")
    return "; ".join(told)


def memory_limit() -> str:
    """Which kinds of limit a plan's limits.memory_limit_gb can put on a server here, best first."""
    return "; ".join(kind if why is None else f"not {kind}: {why}" for kind, why in limit.kinds())


def _advice(steady: float) -> str:
    """What the noise of the idle machine means for a calibration gate."""
    if steady > 0.5:
        return "a calibration gate is INFEASIBLE here; interleaving and blocks carry the verdict"
    return f"a calibration limit from {max(0.03, steady):.0%} on can work"


def _arm(name: str, root: Path) -> None:
    """Raise what is wrong with an arm."""
    arm = load_arm(name, root / "arms")
    load_backend(arm.backend).command(arm, "127.0.0.1", 1)


def _each(names: list[str], load: Any) -> str:
    """Names, each with its complaint if it cannot be used."""
    words = []
    for name in names:
        try:
            load(name)
            words.append(name)
        except BatteryError as wrong:
            words.append(f"{name} (broken: {wrong})")
    return ", ".join(words) or "none"


def fast_blas() -> str:
    """Whether a BLAS that a CPU engine can preload is here; the reference one is about 20 times slower."""
    if sys.platform != "linux":
        return "not needed on this system"
    places = [
        Path(sys.prefix) / "lib",
        Path("/usr/lib/x86_64-linux-gnu"),
        Path("/usr/lib/aarch64-linux-gnu"),
    ]
    for place in places:
        for pattern in ("libmkl_rt.so*", "libopenblas.so*"):
            found = sorted(place.glob(pattern))
            if found:
                return f"{found[0].name} found"
    return "none: install the wheel 'mkl' (x86-64) or Debian's libopenblas0-pthread, or CPU engines crawl"
