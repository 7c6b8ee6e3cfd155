"""Peak memory of a server over one cell, from every source this platform has, the best one first.

Best first: the engine's own counter; NVML per process; the GPUs' rise where a process cannot be told; the server's
own cgroup; macOS's physical footprint; the kernel's high-water mark of the processes (VmHWM); and, too low for
unified memory and the last resort, sizes that were looked at now and then. Every source is in the receipt, with its
bytes or its reason, and the one used is named.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence, Set
from typing import Any

from battery.bench.memory import cgroup, proc
from battery.bench.memory.cgroup import CgroupPeak
from battery.bench.memory.darwin import Footprint
from battery.bench.memory.limit import Limit
from battery.bench.memory.nvml import PerDevice, PerProcess
from battery.bench.memory.source import Source, Value
from battery.ledger.receipt import How, Memory, PeakSource

LOOK_S = 0.5
"""Between two looks at what only has to be remembered in case the server dies."""
OFTEN = 5
"""So many times as often looks a source that has no mark of its own and is the best there is: NVML, at 10 Hz."""


class EngineCounter:
    """The engine's own counter, as its health tells it under memory.peak."""

    name, includes_file_cache = "engine", False
    how: How = "true peak"

    def __init__(self, reset: Callable[[], str | None]) -> None:
        self._reset, self._refusal = reset, "it was never reset"
        self.health: dict[str, Any] = {}
        """The document after the cell; it is asked for once, for this and for other things."""

    def reset(self, pids: Set[int]) -> str | None:
        """Ask the engine to begin a new high-water mark."""
        self._refusal = self._reset() or ""
        return self._refusal or None

    def look(self) -> None:
        """Nothing: the engine counts."""

    def read(self) -> Value:
        """The engine's figure."""
        told = (self.health.get("memory") or {}).get("peak")
        if self._refusal:
            return Value(None, f"the engine's counter cannot be reset per cell: {self._refusal}")
        if not isinstance(told, int) or isinstance(told, bool) or told <= 0:
            return Value(None, f"health gives no memory.peak (it says {told!r})")
        return Value(told, None, _engine_note(self.health))


def _engine_note(health: dict[str, Any]) -> str | None:
    """What the engine says its counter counts."""
    source = (health.get("memory") or {}).get("source")
    return f"as {source} counts" if isinstance(source, str) else None


def sources(
    engine: EngineCounter, limit: Limit | None = None, gpu_before: int | None = None
) -> list[Source]:
    """Every source, best first."""
    return [
        engine, PerProcess(), PerDevice(gpu_before), CgroupPeak(limit.group if limit else None),
        Footprint(), proc.VmHwm(), proc.Sampled("pss"), proc.Sampled("rss"),
    ]  # fmt: skip


class Peaks:
    """The sources over one cell: `begin()`, then `with peaks:` around the request, then `end(health)`."""

    def __init__(
        self,
        engine: EngineCounter,
        members: Callable[[], set[int]],
        limit: Limit | None = None,
        gpu_before: int | None = None,
        every: Sequence[Source] | None = None,
    ) -> None:
        self._engine, self._members, self._limit = engine, members, limit
        self._sources = list(every or sources(engine, limit, gpu_before))
        self._pids: set[int] = set()
        self._faults: dict[int, int] = {}
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def begin(self) -> None:
        """Reset every source for the processes that the server has now."""
        self._pids = self._members()
        for source in self._sources:
            source.reset(self._pids)
        self._faults = _faults(self._pids)

    def __enter__(self) -> Peaks:
        self._stop.clear()
        self._thread = threading.Thread(target=self._loop, name="memory", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join(timeout=5)

    def _loop(self) -> None:
        often = [
            one for one in self._sources if isinstance(one, PerProcess | PerDevice) and one.there
        ]
        turns = OFTEN if often else 1
        turn = 0
        while not self._stop.wait(LOOK_S / turns):
            turn += 1
            for source in self._sources if turn % turns == 0 else often:
                source.look()

    def end(self, health: dict[str, Any]) -> Memory:
        """What every source says, the one used, the cap, and what was paged; `health` is of after the cell."""
        self._engine.health = health
        told = {source.name: _told(source) for source in self._sources}
        used = next((name for name, source in told.items() if source.bytes is not None), None)
        after = _faults(self._pids)
        faults = [after[pid] - self._faults[pid] for pid in after if pid in self._faults]
        swapped = [proc.status(pid).get("VmSwap") for pid in self._pids]
        known = [bytes_ for bytes_ in swapped if bytes_ is not None]
        return Memory(
            peak=told[used].bytes if used else None,
            source=used,
            sources=told,
            **cap(self._limit, health),
            major_faults=sum(faults) if faults else None,
            swapped_bytes=sum(known) if known else None,
        )


def _told(source: Source) -> PeakSource:
    """A source as receipts keep it."""
    value = source.read()
    if isinstance(source, CgroupPeak):
        source.close()
    return PeakSource(
        bytes=value.bytes,
        how=source.how,
        reason=value.reason,
        includes_file_cache=source.includes_file_cache,
        note=value.note,
    )


def _faults(pids: Iterable[int]) -> dict[int, int]:
    """Major faults so far of every process that tells them."""
    told = {pid: proc.major_faults(pid) for pid in pids}
    return {pid: count for pid, count in told.items() if count is not None}


def cap(limit: Limit | None, health: dict[str, Any]) -> dict[str, Any]:
    """What limits the server's memory, as fields of a receipt's Memory: our limit, else the engine's own."""
    if limit is not None:
        return {"cap": limit.bytes, "cap_kind": limit.told}
    told = (health.get("memory") or {}).get("limit")
    return {"cap": told, "cap_kind": "engine"} if isinstance(told, int) else {}


def at_death(limit: Limit | None) -> Memory:
    """What is known of a server that ran out of memory outside a cell: its own cgroup's peak, if it had one."""
    if limit is None or limit.group is None:
        return Memory(peak=None, source=None, **cap(limit, {}))
    group = limit.group
    file = "memory.peak" if group.version == 2 else "memory.max_usage_in_bytes"
    peak = group.number(file)
    told = PeakSource(
        bytes=peak, how="true peak", includes_file_cache=True, note=f"{group.label}, since its start",
        reason=None if peak is not None else f"{group.label} tells no peak",
    )  # fmt: skip
    return Memory(
        peak=peak,
        source=cgroup.CgroupPeak.name if peak is not None else None,
        lower_bound=peak is not None,
        sources={"cgroup": told},
        **cap(limit, {}),
    )
