"""What NVML tells of the GPU memory that a server holds: per process, and as a fallback per device.

Both are looks, not peaks. Per process is right wherever process ids mean the same to the driver as to us: not in a
container with its own. Device used minus what was used before the server started is right for a single tenant only.
An engine that takes its memory in advance (vLLM) shows that, not what a request needed. Run on one H200: 3.000 GB
allocated were found as 3.001, per process and per device.
"""

from __future__ import annotations

import abc
import functools
import importlib
import os
from collections.abc import Set
from typing import Any

from battery.bench.memory.source import Value
from battery.bench.sensors.nvidia import visible
from battery.ledger.receipt import How

NOISE = 64_000_000
"""Bytes by which device memory may move without a reason: contexts of others, the driver's own."""


@functools.cache
def library() -> tuple[Any, str | None]:
    """The initialised `pynvml` module of nvidia-ml-py, or None with the reason."""
    try:
        nvml = importlib.import_module("pynvml")
    except ImportError:
        return None, "nvidia-ml-py is not installed (extra: cuda)"
    try:
        nvml.nvmlInit()
        if nvml.nvmlDeviceGetCount() == 0:
            return None, "NVML knows no device"
    except nvml.NVMLError as none:
        return None, f"NVML: {none}"
    return nvml, None


def devices(nvml: Any) -> list[Any]:
    """A handle for every device."""
    return [nvml.nvmlDeviceGetHandleByIndex(at) for at in range(nvml.nvmlDeviceGetCount())]


def ours(nvml: Any) -> list[Any]:
    """A handle for every device that CUDA_VISIBLE_DEVICES leaves us: what others do on theirs is not our server's."""
    every = devices(nvml)
    asked = os.environ.get("CUDA_VISIBLE_DEVICES")
    left = visible(len(every), asked, lambda at: str(nvml.nvmlDeviceGetUUID(every[at])))
    return [every[at] for at in left]


def used(nvml: Any = None) -> int | None:
    """Bytes in use on our devices together; None where NVML does not tell."""
    nvml = nvml or library()[0]
    if nvml is None:
        return None
    try:
        return sum(int(nvml.nvmlDeviceGetMemoryInfo(device).used) for device in ours(nvml))
    except nvml.NVMLError:
        return None


class _Nvml(abc.ABC):
    """The largest figure seen between reset and read."""

    includes_file_cache = False
    how: How = "sampled"

    def __init__(self, nvml: Any = None) -> None:
        self._nvml, self._absent = (nvml, None) if nvml else library()
        self._pids = frozenset[int]()
        self._most: int | None = None
        self._reason: str | None = self._absent

    @property
    def there(self) -> bool:
        """Whether NVML answers at all."""
        return self._nvml is not None

    def reset(self, pids: Set[int]) -> str | None:
        """Begin with the present figure; it needs no counter."""
        self._pids, self._most, self._reason = frozenset(pids), None, self._absent
        self.look()
        return None

    def look(self) -> None:
        """One sample."""
        if self._nvml is None:
            return
        try:
            now, reason = self._now()
        except self._nvml.NVMLError as broken:
            now, reason = None, f"NVML: {broken}"
        if now is not None:
            self._most = max(now, self._most or 0)
        self._reason = reason

    def read(self) -> Value:
        """The largest figure seen, the one at this moment included."""
        self.look()
        if self._most is None:
            return Value(None, self._reason)
        return Value(self._most, None, self.note())

    def note(self) -> str | None:
        """What a reader of the value must know."""
        return None

    @abc.abstractmethod
    def _now(self) -> tuple[int | None, str | None]:
        """The figure at this moment, or why there is none."""


class PerProcess(_Nvml):
    """GPU memory of the server's processes, on all devices."""

    name = "nvml"

    def _now(self) -> tuple[int | None, str | None]:
        """The sum over our processes, or why there is none."""
        nvml = self._nvml
        seen: dict[tuple[int, int], int | None] = {}
        for at, device in enumerate(devices(nvml)):
            running = [
                *nvml.nvmlDeviceGetComputeRunningProcesses(device),
                *nvml.nvmlDeviceGetGraphicsRunningProcesses(device),
            ]
            seen |= {(at, one.pid): one.usedGpuMemory for one in running}
        told = [bytes_ for (_, pid), bytes_ in seen.items() if pid in self._pids]
        known = [int(bytes_) for bytes_ in told if bytes_]
        if known:
            return sum(known), None
        if told:
            return None, "the driver does not tell memory per process"
        others = f" ({len(seen)} processes are, with other ids)" if seen else ""
        return None, f"none of the server's processes is on a device{others}"


class PerDevice(_Nvml):
    """What the devices use beyond what they used before the server started: a fallback, for a single tenant."""

    name = "nvml-device"

    def __init__(self, before: int | None, nvml: Any = None) -> None:
        super().__init__(nvml)
        self._before = before

    def note(self) -> str | None:
        """Whose memory it is, is not told."""
        return "our devices minus their use before the server started: right only while nobody else uses them"

    def _now(self) -> tuple[int | None, str | None]:
        """The rise since before the start, or why there is none."""
        now = used(self._nvml)
        if now is None or self._before is None:
            return None, "NVML did not tell the devices' memory before the server started"
        rise = now - self._before
        if rise < NOISE:
            return None, f"the devices' memory rose by {rise} bytes only: the server is not on them"
        return rise, None
