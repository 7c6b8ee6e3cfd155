"""Counts the kernels that a piece of work starts on an NVIDIA GPU, by name, from the driver's own activity records.

CUPTI tells one record for every kernel that ran, those inside a CUDA graph included, which is how MLX starts all of
its own; no root and no hardware counters are needed for that. Its library comes with CUDA's toolkit and with the
package nvidia-cuda-cupti; `SWITCHBOARD_CUPTI` names another place. It is loaded when a count is asked for, never in a
server that only serves, and it must be opened before the work that it is to see is prepared.

Only what is the same in every version since CUDA 9 is read of a record: its kind, the first four bytes, and where the
name of a kernel stands (104 bytes in). A count with records that were dropped is an error, not a smaller count.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import mlx.core as mx

NAMES = ("libcupti.so.13", "libcupti.so.12", "libcupti.so")
TOOLKITS = ("/usr/local/cuda/extras/CUPTI/lib64", "/usr/local/cuda/lib64")
KINDS = {1: "copies", 2: "fills", 3: "kernels", 10: "kernels"}
"""Kinds of record: memory copies, memory fills, kernels that run alone, kernels that may overlap."""
ENABLED = (10, 1, 2)
NO_MORE = 12
NAME_AT = 104
BUFFER = 4 << 20
FLUSH_FORCED = 1

Requested = ctypes.CFUNCTYPE(
    None,
    ctypes.POINTER(ctypes.c_void_p),
    ctypes.POINTER(ctypes.c_size_t),
    ctypes.POINTER(ctypes.c_size_t),
)
Completed = ctypes.CFUNCTYPE(
    None, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t
)


class Absent(Exception):
    """There is no such counter here; the message says why."""


@dataclass
class Seen:
    """What the driver started: kernels, copies and fills, and the kernels by name."""

    kinds: Counter[str] = field(default_factory=Counter)
    names: Counter[str] = field(default_factory=Counter)


class Library:
    """CUPTI with its records on: every record goes into `seen`, which `during` starts anew."""

    def __init__(self, path: str) -> None:
        try:
            self._calls = ctypes.CDLL(path)
        except OSError as error:
            raise Absent(f"CUPTI cannot be loaded: {error}") from error
        self.seen = Seen()
        self._buffers: dict[int, Any] = {}
        self._wrong: str | None = None
        self._hooks = (Requested(self._requested), Completed(self._completed))
        self._call("cuptiActivityRegisterCallbacks", *self._hooks)
        for kind in ENABLED:
            self._call("cuptiActivityEnable", ctypes.c_int(kind))

    def _call(self, name: str, *given: Any) -> None:
        status = getattr(self._calls, name)(*given)
        if status:
            raise Absent(f"{name} answered {status}: {self._said(status)}")

    def _said(self, status: int) -> str:
        text = ctypes.c_char_p()
        self._calls.cuptiGetResultString(ctypes.c_int(status), ctypes.byref(text))
        return (text.value or b"no such status").decode()

    def _requested(self, buffer: Any, size: Any, most: Any) -> None:
        held = ctypes.create_string_buffer(BUFFER + 8)
        start = (ctypes.addressof(held) + 7) // 8 * 8
        self._buffers[start] = held
        buffer[0], size[0], most[0] = start, BUFFER, 0

    def _completed(self, context: int, stream: int, buffer: int, size: int, valid: int) -> None:
        record = ctypes.c_void_p()
        given = (ctypes.c_void_p(buffer), ctypes.c_size_t(valid), ctypes.byref(record))
        while valid:
            status = self._calls.cuptiActivityGetNextRecord(*given)
            if status or record.value is None:
                if status != NO_MORE:
                    self._wrong = f"a record could not be read: {self._said(status)}"
                break
            self._note(record.value)
        dropped = ctypes.c_size_t()
        self._calls.cuptiActivityGetNumDroppedRecords(
            ctypes.c_void_p(context), ctypes.c_uint32(stream), ctypes.byref(dropped)
        )
        if dropped.value:
            self._wrong = f"{dropped.value} records were dropped"
        self._buffers.pop(buffer, None)

    def _note(self, place: int) -> None:
        kind = KINDS.get(ctypes.c_uint32.from_address(place).value)
        if kind is None:
            return
        self.seen.kinds[kind] += 1
        if kind == "kernels":
            name = ctypes.c_char_p.from_address(place + NAME_AT).value
            self.seen.names[(name or b"without a name").decode(errors="replace")] += 1

    def during(self, run: Callable[[], None]) -> Seen:
        """What the driver started while `run` ran; it must leave nothing unfinished on the device."""
        self._call("cuptiActivityFlushAll", ctypes.c_uint32(FLUSH_FORCED))
        self.seen, self._wrong = Seen(), None
        run()
        self._call("cuptiActivityFlushAll", ctypes.c_uint32(FLUSH_FORCED))
        if self._wrong:
            raise Absent(self._wrong)
        return self.seen


def places() -> Iterator[str]:
    """Where the library may lie, most particular first."""
    named = os.environ.get("SWITCHBOARD_CUPTI")
    if named:
        yield named
        return
    spec = importlib.util.find_spec("nvidia")
    for root in spec.submodule_search_locations or () if spec else ():
        for name in NAMES:
            yield from map(str, sorted(Path(root).glob(f"*/lib/{name}")))
    for folder in TOOLKITS:
        for name in NAMES:
            if (Path(folder) / name).exists():
                yield str(Path(folder) / name)


@cache
def library() -> Library | str:
    """The counter of this process, opened once, or why there is none."""
    if not mx.cuda.is_available() or mx.default_device() == mx.Device(mx.cpu):
        return "the driver of an NVIDIA GPU counts them; this is none"
    reason = "CUPTI is not installed (package nvidia-cuda-cupti, or CUDA's toolkit)"
    for place in places():
        try:
            return Library(place)
        except Absent as absent:
            reason = str(absent)
    return reason


def each(run: Callable[[], None], times: int) -> list[Seen] | str:
    """What the driver started in each of so many runs, or why it is not known; no kernel at all counts as not known."""
    counter = library()
    if isinstance(counter, str):
        return counter
    try:
        seen = [counter.during(run) for _ in range(times)]
    except Absent as absent:
        return str(absent)
    if not all(one.kinds["kernels"] for one in seen):
        return "CUPTI saw no kernel"
    return seen
