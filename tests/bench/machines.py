"""Machines on file: a recorded /sys and /proc as a folder, and NVML answers as a library."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

FIXTURES = Path(__file__).parents[1] / "fixtures" / "sensors"


def plant(name: str, folder: Path) -> Path:
    """Unpack the files of a machine (`grep -H .` lines) into a folder that stands for its root."""
    found: dict[str, list[str]] = defaultdict(list)
    for line in (FIXTURES / f"{name}.tree").read_text().splitlines():
        path, _, content = line.partition(":")
        found[path].append(content)
    root = folder / name
    for path, lines in found.items():
        write(root, path, "\n".join(lines))
    return root


def write(root: Path, path: str, text: str) -> None:
    """Set one file of a machine, whole at every moment, as the kernel's are."""
    place = root / path
    place.parent.mkdir(parents=True, exist_ok=True)
    fresh = place.with_name(f".{place.name}.new")
    fresh.write_text(text + "\n")
    fresh.replace(place)


def told(name: str) -> str:
    """The words of a macOS tool."""
    return (FIXTURES / "macos" / name).read_text()


class RecordedNvml:
    """A library that answers as the recording says; functions that it lacks do not exist."""

    class NVMLError(Exception):
        """NVML's own."""

    NVML_CLOCK_SM, NVML_TEMPERATURE_GPU = 1, 0

    def __init__(self, devices: list[dict[str, Any]] | None = None) -> None:
        told = json.loads((FIXTURES / "nvml-transcribed.json").read_text())
        self.devices: list[dict[str, Any]] = told["devices"] if devices is None else devices
        self.started = True

    def nvmlInit(self) -> None:
        if not self.started:
            raise self.NVMLError("Driver Not Loaded")

    def nvmlDeviceGetCount(self) -> int:
        return len(self.devices)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        return index

    def __getattr__(self, name: str) -> Any:
        known = {key.partition("(")[0] for device in self.__dict__["devices"] for key in device}
        if name not in known:
            raise AttributeError(name)

        def answer(handle: int, *args: Any) -> Any:
            device = self.devices[handle]
            said = device.get(name, {"error": "Function Not Found"})
            if args:  # a recording holds one answer for each policy
                said = device.get(f"{name}({args[0]})", said)
            if isinstance(said, dict) and "error" in said:
                raise self.NVMLError(said["error"])
            if name == "nvmlDeviceGetFieldValues":
                return [_field(*one) for one in said]
            if isinstance(said, list):
                return [SimpleNamespace(**one) for one in said]
            return SimpleNamespace(**said) if isinstance(said, dict) else said

        return answer


def _field(number: int, kind: int, status: int, value: float) -> SimpleNamespace:
    names = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")
    union = SimpleNamespace(**{names[kind]: value})
    return SimpleNamespace(fieldId=number, valueType=kind, nvmlReturn=status, value=union)
