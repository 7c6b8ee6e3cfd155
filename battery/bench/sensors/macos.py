"""What macOS tells without root: thermal pressure, mains, low-power mode, speed limit, and macmon's figures.

Parsers are pure functions of the tools' words; what they do not know is None with a reason, never nominal. Thermal
pressure is told in five levels by a Darwin notification; it alone is no proof of full speed, since chips throttle
heavily at `nominal` too (llama.cpp #10444), so the calibration work stays the gate that counts.

Source: notify(3), pmset(1), macmon's readme (its JSON), OSThermalNotification.h.
"""

from __future__ import annotations

import ctypes
import json
import re
import shutil
import subprocess
import threading
from typing import Any

from battery.bench.sensors.told import Told, plausible

PRESSURE = "com.apple.system.thermalpressurelevel"
LEVELS = ("nominal", "moderate", "heavy", "trapping", "sleeping")
HEAVY = LEVELS[2:]
"""From here on the system slows work down by force."""


def pressure_level(level: int | None) -> Told[str]:
    """The word for a level of thermal pressure."""
    if level is None or not 0 <= level < len(LEVELS):
        return None, f"thermal pressure level {level} is not one of 0 to {len(LEVELS) - 1}"
    return LEVELS[level], None


def notifyutil(text: str) -> Told[str]:
    """The thermal pressure in the answer of `notifyutil -g com.apple.system.thermalpressurelevel`."""
    found = re.search(rf"{re.escape(PRESSURE)}\s+(\d+)\s*$", text, re.MULTILINE)
    if not found:
        return None, f"notifyutil did not tell a level: {text.strip()[:60]!r}"
    return pressure_level(int(found[1]))


def mains(text: str) -> Told[bool]:
    """Whether the machine runs from mains, by `pmset -g batt`."""
    found = re.search(r"Now drawing from '([^']+)'", text)
    known = {"AC Power": True, "Battery Power": False, "UPS Power": False}
    if not found or found[1] not in known:
        return None, f"pmset -g batt did not tell the source: {text.strip()[:60]!r}"
    return known[found[1]], None


def low_power(text: str) -> Told[bool]:
    """Whether low-power mode is on, by the settings in use that `pmset -g` lists."""
    found = re.search(r"^\s*(lowpowermode|powermode)\s+(\d+)\s*$", text, re.MULTILINE)
    if not found:
        return None, "pmset -g lists no low-power mode (older system or desktop)"
    return found[2] == "1", None  # powermode: 0 automatic, 1 low, 2 high


def speed_limit(text: str) -> Told[int]:
    """The processor's speed limit in percent, by `pmset -g therm`; Apple silicon tells none."""
    found = re.search(r"CPU_Speed_Limit\s*=\s*(\d+)", text)
    if not found:
        return None, "pmset -g therm tells no CPU_Speed_Limit (Apple silicon never does)"
    return int(found[1]), None


def macmon(line: str) -> Told[dict[str, Any]]:
    """Temperatures, fans, power and clocks of one line of `macmon pipe`."""
    try:
        told = json.loads(line)
    except ValueError:
        return None, f"macmon's line is no JSON: {line.strip()[:60]!r}"
    if not isinstance(told, dict):
        return None, "macmon's line is no object"
    room = told.get("temp")
    temp = room if isinstance(room, dict) else {}
    temps = {
        f"macmon/{name}": value
        for name in ("cpu", "gpu")
        # it averages the sensors that answered: 0 means that none did
        if (value := plausible(_number(temp.get(f"{name}_temp_avg")))) is not None and value != 0
    }
    turning = told.get("fans")
    fans = {
        f"macmon/{fan['name']}": rpm
        for fan in (turning if isinstance(turning, list) else ())
        if isinstance(fan, dict) and "name" in fan and (rpm := _number(fan.get("rpm"))) is not None
    }
    found: dict[str, Any] = {
        "temps": temps,
        "fans": fans,
        # a pair of clock and share until 0.7, names of their own since
        "freq_mhz": _clock(told, "pcpu"),
        "gpu_clock_mhz": _clock(told, "gpu"),
        "gpu_power_w": _number(told.get("gpu_power")),
    }
    kept = {key: value for key, value in found.items() if value not in (None, {})}
    return (kept, None) if kept else (None, "macmon's line holds none of the known figures")


def _number(value: object) -> float | None:
    """A finite number as it is, anything else as None."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if abs(value) < 1e12 else None


def _clock(told: dict[str, Any], part: str) -> float | None:
    """The clock of `pcpu` or `gpu` under either of macmon's names; 0 is a part that slept, so no clock."""
    pair = told.get(f"{part}_usage")
    old = pair[0] if isinstance(pair, list) and pair else None
    return _number(told.get(f"{part}_freq_mhz", old)) or None


def thermal_pressure() -> Told[str]:
    """The thermal pressure now, straight from the notification centre; by `notifyutil` where that does not answer."""
    level, why = _notified()
    if level is not None:
        return level, None
    text, no_tool = ask("notifyutil", "-g", PRESSURE)
    return (None, f"{why}; {no_tool}") if text is None else notifyutil(text)


def _notified() -> Told[str]:
    """The level as the notification centre holds it: no process is started for it."""
    try:
        system = ctypes.CDLL("/usr/lib/libSystem.dylib")
        token, level = ctypes.c_int(), ctypes.c_uint64()
        if system.notify_register_check(PRESSURE.encode(), ctypes.byref(token)) != 0:
            return None, "notify_register_check refused the thermal pressure"
        try:
            if system.notify_get_state(token, ctypes.byref(level)) != 0:
                return None, "notify_get_state did not tell the thermal pressure"
        finally:
            system.notify_cancel(token)
    except (OSError, AttributeError) as none:
        return None, f"no notification centre: {none}"
    return pressure_level(level.value)


def ask(*command: str, within_s: float = 5.0) -> Told[str]:
    """What a tool of the system prints, or why there is nothing."""
    program = shutil.which(command[0])
    if program is None:
        return None, f"{command[0]} is not installed"
    try:
        done = subprocess.run(
            [program, *command[1:]], capture_output=True, text=True, timeout=within_s
        )
    except (OSError, subprocess.TimeoutExpired) as failed:
        return None, f"{command[0]}: {type(failed).__name__}"
    if done.returncode != 0:
        return None, f"{command[0]} exited with {done.returncode}: {done.stderr.strip()[:60]}"
    return done.stdout, None


class Macmon:
    """macmon's figures: of a run of its own for every look, or out of a stream that runs beside a cell."""

    def __init__(self, stream: bool = False) -> None:
        self._stream = stream
        self._running: subprocess.Popen[str] | None = None
        self._line: str | None = None

    def look(self) -> Told[dict[str, Any]]:
        """What macmon tells now."""
        if shutil.which("macmon") is None:
            return None, "macmon is not installed (brew install macmon)"
        if not self._stream:
            text, why = ask("macmon", "pipe", "-s", "1", "-i", "250")
            return (None, why) if text is None else macmon((text.splitlines() or [""])[-1])
        if self._running is None:
            # it ends when nobody reads its pipe any more: with this process, whatever ends that
            self._running = subprocess.Popen(
                ["macmon", "pipe", "-i", "500"], stdout=subprocess.PIPE, text=True
            )
            self._ear = threading.Thread(target=self._listen, args=(self._running,), daemon=True)
            self._ear.start()
        if self._line is None:
            return None, "macmon has told nothing yet"
        return macmon(self._line)

    def _listen(self, running: subprocess.Popen[str]) -> None:
        """Keep the last line."""
        for line in running.stdout or ():
            self._line = line
        self._line = None

    def close(self) -> None:
        """End the stream."""
        if self._running is not None:
            self._running.kill()
            self._running.wait()
            self._ear.join()
            self._running.stdout.close()  # type: ignore[union-attr]


def swapped_in(text: str) -> Told[int]:
    """Pages read back from swap since the system started, by `vm_stat`."""
    found = re.search(r"^Swapins:\s+(\d+)\.$", text, re.MULTILINE)
    return (int(found[1]), None) if found else (None, "vm_stat tells no Swapins")
