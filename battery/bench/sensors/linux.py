"""What Linux tells under /sys and /proc: temperatures, clocks, throttle counters, pressure, swap, steal, mains.

Every function takes the root folder, so that a recorded tree reads like a machine. It returns a value and no reason,
or None and the reason: a file that is missing, empty or garbled is never read as 0.

Source: Documentation/hwmon/sysfs-interface, admin-guide/pm/cpufreq, accounting/psi in the kernel's tree;
throttle counters: arch/x86/kernel/cpu/mce/therm_throt.c (Intel only).
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from battery.bench.sensors.told import Told, plausible


def _read(path: Path) -> str | None:
    """The text of a file in /sys or /proc; None where it cannot be read (drivers answer EIO and ENODATA too)."""
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return None


def _whole(text: str | None) -> int | None:
    """A whole number, or None for anything else."""
    try:
        return int(text) if text is not None else None
    except ValueError:
        return None


def _celsius(path: Path) -> float | None:
    """A temperature file's millidegrees in °C; None where there is no plausible one."""
    raw = _whole(_read(path))
    return plausible(None if raw is None else raw / 1000)


def temperatures(root: Path) -> Told[dict[str, float]]:
    """°C per sensor, named by driver and label; thermal zones where no hwmon chip tells any."""
    found: dict[str, float] = {}
    files = 0
    for path in sorted(root.glob("sys/class/hwmon/hwmon*/temp*_input")):
        files += 1
        value = _celsius(path)
        stem = path.name.removesuffix("_input")
        label = _read(path.with_name(f"{stem}_label")) or stem
        if value is not None:
            _add(found, f"{_read(path.with_name('name')) or path.parent.name}/{label}", value)
    if not found:
        for path in sorted(root.glob("sys/class/thermal/thermal_zone*/temp")):
            files += 1
            value = _celsius(path)
            if value is not None:
                _add(found, f"zone/{_read(path.with_name('type')) or path.parent.name}", value)
    if found:
        return found, None
    return None, (
        "no hwmon sensor and no thermal zone"
        if not files
        else f"{files} sensor files, none with a plausible temperature"
    )


def _add(found: dict[str, float], name: str, value: float) -> None:
    """Keep a value under a name of its own: two sockets have a `coretemp/Core 0` each."""
    number, free = 2, name
    while free in found:
        free, number = f"{name} #{number}", number + 1
    found[free] = value


def fans(root: Path) -> Told[dict[str, float]]:
    """Turns a minute per fan, named by driver and label; a fan that stands still tells 0."""
    found: dict[str, float] = {}
    for path in sorted(root.glob("sys/class/hwmon/hwmon*/fan*_input")):
        turns, stem = _whole(_read(path)), path.name.removesuffix("_input")
        label = _read(path.with_name(f"{stem}_label")) or stem
        if turns is not None and turns >= 0:
            _add(found, f"{_read(path.with_name('name')) or path.parent.name}/{label}", turns)
    return (found, None) if found else (None, "no hwmon fan")


def throttle_counts(root: Path) -> Told[dict[str, int]]:
    """How often cores and packages were throttled for heat since the system started (Intel only)."""
    found: dict[str, int] = {}
    for kind in ("core", "package"):
        pattern = f"sys/devices/system/cpu/cpu[0-9]*/thermal_throttle/{kind}_throttle_count"
        known = [
            n for p in sorted(root.glob(pattern)) if (n := _whole(_read(p))) is not None and n >= 0
        ]
        if known:
            # every core of a package repeats the package's count: the sum moves when any does
            found[f"cpu.{kind}_throttle"] = sum(known)
    return (found, None) if found else (None, "no thermal_throttle counters (Intel only)")


def pressure(root: Path) -> Told[dict[str, int]]:
    """Microseconds since the system started in which some task waited for processor, memory or disk.

    The kernel brings `total` up to date when the file is read, so differences of two looks hold just the time
    between them; `avg10` would lag by ten seconds and still hold the cell before.
    """
    found: dict[str, int] = {}
    for kind in ("cpu", "memory", "io"):
        for line in (_read(root / "proc/pressure" / kind) or "").splitlines():
            words = dict(word.partition("=")[::2] for word in line.split()[1:])
            total = _whole(words.get("total"))
            if line.startswith("some ") and total is not None and total >= 0:
                found[f"psi.{kind}_us"] = total
    if found:
        return found, None
    return None, "no /proc/pressure (kernel without PSI, or it is switched off)"


def swapped_in(root: Path) -> Told[int]:
    """Pages that were read back from swap since the system started."""
    for line in (_read(root / "proc/vmstat") or "").splitlines():
        name, _, value = line.partition(" ")
        pages = _whole(value)
        if name == "pswpin" and pages is not None and pages >= 0:
            return pages, None
    return None, "no pswpin in /proc/vmstat"


def processor_time(root: Path) -> Told[dict[str, int]]:
    """Ticks of all processors together since the system started: `idle`, `steal` and `total`."""
    first = (_read(root / "proc/stat") or "").partition("\n")[0].split()
    ticks = [_whole(word) for word in first[1:9]]
    known = [tick for tick in ticks if tick is not None and tick >= 0]
    if first[:1] != ["cpu"] or len(known) != 8:
        return None, "no line of eight times for `cpu` in /proc/stat"
    # user nice system idle iowait irq softirq steal; guest time, behind them, is in user already
    return {"idle": known[3] + known[4], "steal": known[7], "total": sum(known)}, None


def clocks(root: Path) -> Told[dict[str, float]]:
    """MHz now: `mean` and `highest` over the cores, and `base`, the clock that the maker promises under load."""
    folders = "sys/devices/system/cpu/cpu[0-9]*/cpufreq"
    now = _khz(root.glob(f"{folders}/scaling_cur_freq"))
    if not now:
        return None, "no cpufreq"
    found = {"mean": sum(now) / len(now), "highest": max(now)}
    base = _khz(root.glob(f"{folders}/base_frequency"))
    if base:
        found["base"] = max(base)
    return found, None


def _khz(paths: Iterable[Path]) -> list[float]:
    """MHz from files in kHz, garbled and zero ones left out."""
    return [n / 1000 for path in paths if (n := _whole(_read(path))) is not None and n > 0]


def on_mains(root: Path) -> Told[bool]:
    """Whether the machine runs from mains: a supply that is plugged in, else what the batteries tell."""
    online: list[bool] = []
    draining: list[bool] = []
    for supply in sorted(root.glob("sys/class/power_supply/*")):
        if _read(supply / "scope") == "Device":
            continue  # the battery of a mouse
        kind, plugged = _read(supply / "type"), _whole(_read(supply / "online"))
        if kind in ("Mains", "USB") and plugged is not None:
            online.append(plugged > 0)
        status = _read(supply / "status")
        if kind == "Battery" and status not in (None, "", "Unknown"):
            draining.append(status == "Discharging")
    if any(online):
        return True, None
    if draining:
        return not (online or any(draining)), None
    # a supply that is off beside no battery at all is a second socket: no machine runs on that
    return None, "no battery reports here"


def low_power(root: Path) -> Told[bool]:
    """Whether the firmware's platform profile holds the machine down."""
    profile = _read(root / "sys/firmware/acpi/platform_profile")
    if not profile:
        return None, "no platform_profile"
    return profile == "low-power", None


def in_container(root: Path) -> bool | None:
    """Whether pids here are not the host's: the first pid namespace has a fixed inode; None where it is not told."""
    try:
        return (root / "proc/self/ns/pid").readlink().name != "pid:[4026531836]"
    except OSError:
        return None
