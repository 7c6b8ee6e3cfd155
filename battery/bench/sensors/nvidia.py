"""What NVML tells of the visible NVIDIA devices: heat, power, clocks, why clocks are held down, and who computes there.

Every reading stands alone: a call that this driver or board does not know leaves None with NVML's own words, and the
others go on. The mask of event reasons is an instant; the counters beside it (nanoseconds since the driver started)
also hold what came and went between two looks.

Source: nvml.h and nvidia-ml-py 13 (the names), whose `ClocksThrottleReasons` are the old words for event reasons.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any

from battery.bench.sensors.told import Told

EVENTS: dict[int, str] = {
    0x1: "idle",
    0x2: "application clocks",
    0x4: "software power cap",
    0x8: "hardware slowdown",
    0x10: "sync boost",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "power brake",
    0x100: "display clocks",
}
FOUL = 0x8 | 0x20 | 0x40 | 0x80
"""Events that void a block. The software power cap (0x4) is daily life under load and is only recorded."""

COUNTERS: dict[int, str] = {
    74: "power_cap_ns",
    269: "sw_thermal_ns",
    270: "hw_thermal_ns",
    271: "power_brake_ns",
}
"""Field ids of the time spent under each reason; the first belongs to 0x4."""
_VIOLATIONS = {0: "power_cap_ns", 1: "thermal_ns"}
"""Performance policies that older drivers tell instead: power, and heat of whatever kind."""
FOUL_COUNTERS = ("sw_thermal_ns", "hw_thermal_ns", "power_brake_ns", "thermal_ns")

_TYPES = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")
"""Which member of a field's union holds the value, by its type."""


def events(bits: int) -> tuple[str, ...]:
    """The reasons in a mask, in words; bits without a name keep their number."""
    known = tuple(word for bit, word in EVENTS.items() if bits & bit)
    rest = bits & ~sum(EVENTS)
    return (*known, f"unknown {rest:#x}") if rest else known


def visible(count: int, asked: str | None, uuids: Callable[[int], str]) -> list[int]:
    """Indices of the devices that CUDA_VISIBLE_DEVICES leaves, all of them where it is not set.

    As CUDA does, the list ends at the first entry that names no device.
    """
    if asked is None:
        return list(range(count))
    chosen: list[int] = []
    for word in (part.strip() for part in asked.split(",")):
        if word.isdigit() and int(word) < count:
            chosen.append(int(word))
            continue
        named = [i for i in range(count) if word and uuids(i).startswith(word)]
        if len(named) != 1:
            break
        chosen += named
    return chosen


class Nvml:
    """The NVML library, opened once; `why` says why there is none."""

    def __init__(self, library: Any = None, asked: str | None = None) -> None:
        self.why: str | None = None
        self._devices: list[tuple[int, Any]] = []
        self._seen_us: dict[int, int] = {}
        self._lib = library
        try:
            if library is None:
                import pynvml  # type: ignore[import-untyped,unused-ignore]

                self._lib = pynvml
            asked = os.environ.get("CUDA_VISIBLE_DEVICES") if asked is None else asked
            self._open(asked)
        except ImportError:
            self.why = "nvidia-ml-py is not installed (extra: cuda)"
        except Exception as none:  # NVML's errors are of the library's own class
            self._own(none)
            self.why = f"NVML: {none}"

    def _open(self, asked: str | None) -> None:
        """Find the visible devices; NVML's error where there is no driver."""
        lib = self._lib
        lib.nvmlInit()
        handles = [
            lib.nvmlDeviceGetHandleByIndex(index) for index in range(lib.nvmlDeviceGetCount())
        ]
        chosen = visible(
            len(handles), asked, lambda index: _word(lib.nvmlDeviceGetUUID(handles[index]))
        )
        self._devices = [(index, handles[index]) for index in chosen]
        if not self._devices:
            self.why = f"NVML: none of {len(handles)} devices is visible"

    def _own(self, error: Exception) -> None:
        """Pass NVML's errors on to the caller's record; anything else is a fault of ours and goes up."""
        if not isinstance(error, (self._lib.NVMLError, AttributeError)):
            raise error

    def names(self) -> list[str]:
        """What the visible devices are called."""
        found = [self._try(handle, "nvmlDeviceGetName")[0] for _, handle in self._devices]
        return [_word(name) for name in found if name is not None]

    def _try(self, handle: Any, *names: str, args: tuple[Any, ...] = ()) -> Told[Any]:
        """The answer of the first of these functions that this library and driver know."""
        why = ""
        for name in names:
            try:
                return getattr(self._lib, name)(handle, *args), None
            except Exception as none:  # NVML's errors are of the library's own class
                self._own(none)
                why = f"{name}: {none}"
        return None, why

    def read(self, tree: Iterable[int] | None, container: bool | None) -> list[dict[str, Any]]:
        """One record per visible device; `tree` holds the pids that may compute there."""
        return [self._device(index, handle, tree, container) for index, handle in self._devices]

    def _device(
        self, index: int, handle: Any, tree: Iterable[int] | None, container: bool | None
    ) -> dict[str, Any]:
        """Every reading of one device, with the reasons for those that are missing."""
        lib = self._lib
        sm = (getattr(lib, "NVML_CLOCK_SM", 1),)
        heat = (getattr(lib, "NVML_TEMPERATURE_GPU", 0),)
        asked: dict[str, Told[Any]] = {
            "temp_c": self._try(
                handle, "nvmlDeviceGetTemperatureV", "nvmlDeviceGetTemperature", args=heat
            ),
            "power_mw": self._try(handle, "nvmlDeviceGetPowerUsage"),
            "clock_mhz": self._try(handle, "nvmlDeviceGetClockInfo", args=sm),
            "max_clock_mhz": self._try(handle, "nvmlDeviceGetMaxClockInfo", args=sm),
            "event_bits": self._try(
                handle,
                "nvmlDeviceGetCurrentClocksEventReasons",
                "nvmlDeviceGetCurrentClocksThrottleReasons",
            ),
            "utilisation": self._try(handle, "nvmlDeviceGetUtilizationRates"),
            "foreign": self._foreign(handle, tree, container),
            "foreign_utilisation": self._foreign_work(index, handle, tree, container),
        }
        value = {key: told[0] for key, told in asked.items()}
        rates, bits, power = value.pop("utilisation"), value["event_bits"], value.pop("power_mw")
        return {
            "index": index,
            **value,
            "power_w": None if power is None else power / 1000,
            "utilisation": None if rates is None else rates.gpu / 100,
            "events": () if bits is None else events(int(bits)),
            "missing": {
                "power_w" if key == "power_mw" else key: told[1]
                for key, told in asked.items()
                if told[1]
            },
        }

    def counters(self) -> dict[str, int]:
        """Nanoseconds that each visible device spent under each reason, since its driver started."""
        return {
            f"gpu{index}.{name}": spent
            for index, handle in self._devices
            for name, spent in (self._counters(handle)[0] or {}).items()
        }

    def _counters(self, handle: Any) -> Told[dict[str, int]]:
        """Nanoseconds under each reason; from the violation status where the driver has no such fields."""
        told, why = self._try(handle, "nvmlDeviceGetFieldValues", args=(list(COUNTERS),))
        found: dict[str, int] = {}
        for field in told if told is not None else ():
            name = COUNTERS.get(field.fieldId)
            if name and field.nvmlReturn == 0 and field.valueType < len(_TYPES):
                found[name] = int(getattr(field.value, _TYPES[field.valueType]))
        for policy, name in _VIOLATIONS.items() if not set(found) & set(FOUL_COUNTERS) else ():
            if name not in found:
                status, _ = self._try(handle, "nvmlDeviceGetViolationStatus", args=(policy,))
                if status is not None:
                    found[name] = int(status.violationTime)
        return (found, None) if found else (None, why or "no field or violation time is known here")

    def _foreign(
        self, handle: Any, tree: Iterable[int] | None, container: bool | None
    ) -> Told[int]:
        """How many processes outside `tree` hold a compute context on the device."""
        unknown = _pids_unknown(tree, container)
        if unknown or tree is None:
            return None, unknown
        running, why = self._try(handle, "nvmlDeviceGetComputeRunningProcesses")
        if running is None:
            return None, why
        return len({process.pid for process in running} - set(tree)), None

    def _foreign_work(
        self, index: int, handle: Any, tree: Iterable[int] | None, container: bool | None
    ) -> Told[float]:
        """Share of the device that processes outside `tree` used since the last look."""
        unknown = _pids_unknown(tree, container)
        if unknown or tree is None:
            return None, unknown
        since = self._seen_us.get(index, 0)
        samples, why = self._try(handle, "nvmlDeviceGetProcessUtilization", args=(since,))
        if samples is None:
            return None, why
        own = set(tree)
        self._seen_us[index] = max((int(s.timeStamp) for s in samples), default=since)
        newest = {s.pid: s for s in sorted(samples, key=lambda s: int(s.timeStamp))}
        return sum(s.smUtil for pid, s in newest.items() if pid not in own) / 100, None


def _pids_unknown(tree: Iterable[int] | None, container: bool | None) -> str | None:
    """Why pids of NVML cannot be held against our own; None when they can."""
    if tree is None:
        return "no server runs yet, so no process can be told from a foreign one"
    if container is None:
        return "whether pids here are those of the host cannot be told, so neither can foreign processes"
    if container:
        return "in a container NVML tells pids of the host, so foreign processes cannot be told"
    return None


def _word(value: object) -> str:
    """Text from NVML, whose older bindings answer in bytes."""
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)
