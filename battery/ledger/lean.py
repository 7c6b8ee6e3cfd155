"""Receipts to be held by the hundred thousand: equal parts once, long parts packed, nothing that is only for eyes.

A receipt as it is read takes some 30 kB of objects, most of them the same in every receipt of its arm (the arm, the
build, the machine) or a row of numbers (when each token came, each look at the machine). A lean one takes about 5 kB
and answers every question of an analysis as the whole one does. It is never written, and lacks what `LEFT_OUT` names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Generic, TypeVar, cast, overload

import msgspec
from msgspec.structs import replace

from battery.ledger.receipt import Engagement, Memory, Reading, Receipt, Text
from battery.ledger.trace import Event, Trace

T = TypeVar("T")
LEFT_OUT = (
    "trace.usage", "trace.sampler", "text.ids", "text.head", "text.tail", "engagement.switches[].counters",
    "memory.sources[].bytes", "gate.reading.counters", "gate.reading.temps",
    *(f"samples[].{name}" for name in ("temps", "fans", "pressure", "counters", "rose", "missing")),
)  # fmt: skip
"""Fields of a receipt that a lean one has empty: no analysis reads them."""
_EVENTS = msgspec.msgpack.Decoder(tuple[Event, ...])
_READINGS = msgspec.msgpack.Decoder(tuple[Reading, ...])


class Packed(Sequence[T], Generic[T]):
    """A row of structs as bytes, of which the ends are at hand and the rest is unpacked whenever it is asked for."""

    __slots__ = ("_decoder", "_ends", "_length", "data")

    def __init__(self, data: bytes, decoder: Any, row: Sequence[T] | None = None) -> None:
        whole: Sequence[T] = decoder.decode(data) if row is None else row
        self.data, self._decoder, self._length = data, decoder, len(whole)
        # a rate is first event to last, and is asked for by many formulas
        self._ends = (whole[0], whole[-1]) if whole and decoder is _EVENTS else ()

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, place: int) -> T: ...
    @overload
    def __getitem__(self, place: slice) -> tuple[T, ...]: ...

    def __getitem__(self, place: int | slice) -> Any:
        if self._ends and place in (0, -1):
            return self._ends[0 if place == 0 else 1]
        return self._decoder.decode(self.data)[place]

    def __iter__(self) -> Iterator[T]:
        return iter(self._decoder.decode(self.data))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and tuple(self) == tuple(other)

    __hash__ = None  # type: ignore[assignment]


def events_of(data: bytes, row: Sequence[Event] | None = None) -> tuple[Event, ...]:
    """Packed token events; `row` are the same unpacked, where they are at hand."""
    # a sequence that stands in for the tuple: whoever reads a trace goes through it, or looks at its ends
    return cast("tuple[Event, ...]", Packed(data, _EVENTS, row))


def readings_of(data: bytes, row: Sequence[Reading] | None = None) -> tuple[Reading, ...]:
    """Packed samples."""
    return cast("tuple[Reading, ...]", Packed(data, _READINGS, row))


def packed(row: Sequence[Any]) -> bytes:
    """The bytes of events or samples, packed already or not."""
    return row.data if isinstance(row, Packed) else msgspec.msgpack.encode(row)


class Lean:
    """Makes receipts lean; those of one maker share their equal parts."""

    def __init__(self) -> None:
        self._known: dict[tuple[type, bytes], Any] = {}

    def share(self, value: T) -> T:
        """The first value that was given that is equal to this one, to the order of its keys."""
        try:
            key = (type(value), msgspec.msgpack.encode(value))
        except OverflowError:  # a number of more than 64 bits somewhere in it: it stays by itself
            return value
        return cast("T", self._known.setdefault(key, value))

    def receipt(self, whole: Receipt) -> Receipt:
        """A receipt, lean."""
        share, gate, request = self.share, whole.gate, whole.request
        return replace(
            whole,
            campaign=share(whole.campaign), arm=share(whole.arm), arm_digest=share(whole.arm_digest),
            plan_digest=share(whole.plan_digest), command=share(whole.command), environment=share(whole.environment),
            evidence=share(whole.evidence), cold=share(whole.cold), machine=share(whole.machine),
            versions=share(whole.versions), model=share(whole.model),
            request=replace(
                request, body_digest=share(request.body_digest), prompt_digest=share(request.prompt_digest),
                sampler=share(request.sampler),
            ),
            trace=_trace(whole.trace), text=_text(whole.text), engagement=share(_engagement(whole.engagement)),
            memory=replace(whole.memory, sources=share(_sources(whole.memory))),
            gate=replace(
                gate, ungated=share(gate.ungated), applied=share(gate.applied), reading=self._reading(gate.reading)
            ),
            samples=_fewer(tuple(map(_sample, whole.samples)), readings_of),
        )  # fmt: skip

    def _reading(self, reading: Reading | None) -> Reading | None:
        """A reading whose tables of reasons and sensors are shared."""
        if reading is None:
            return None
        return replace(reading, missing=self.share(reading.missing), counters={}, temps={})


def _trace(trace: Trace) -> Trace:
    """A trace with its events packed, without what the server sent to be looked at."""
    return replace(trace, events=_fewer(trace.events, events_of), usage=None, sampler=None)


def _fewer(
    row: tuple[T, ...], pack: Callable[[bytes, Sequence[T]], tuple[T, ...]]
) -> tuple[T, ...]:
    """A row packed; as it is where it is empty, or holds a number of more than 64 bits."""
    try:
        return pack(packed(row), row) if row else row
    except OverflowError:
        return row


def _sample(sample: Reading) -> Reading:
    """A sample without its tables: what is said of the time inside a cell comes from its figures."""
    return replace(sample, temps={}, fans={}, pressure={}, counters={}, rose={}, missing={})


def _text(text: Text | None) -> Text | None:
    """A text by its digests."""
    return replace(text, ids=None, head="", tail="") if text else None


def _engagement(engagement: Engagement) -> Engagement:
    """What was engaged, without how often it ran."""
    switches = tuple(replace(switch, counters=None) for switch in engagement.switches)
    return replace(engagement, switches=switches)


def _sources(memory: Memory) -> dict[str, Any]:
    """How each source of the peak knows it."""
    return {name: replace(source, bytes=None) for name, source in memory.sources.items()}
