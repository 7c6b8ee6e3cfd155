"""Lean receipts as the columns of a Parquet file, and back: what `index` writes and reads.

One column per field of a receipt holds it as JSON; fields that thousands of receipts share are dictionaries, so that
each value is there once. Token events and samples are packed as in `lean`. The first columns repeat coordinates, for
whoever looks at the file with another tool; they are not read back.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as parquet
from msgspec.structs import replace

from battery.ledger.lean import events_of, packed, readings_of
from battery.ledger.receipt import Clearance, PeakSource, Receipt

ROWS = 5_000
"""Receipts that are turned into columns at a time: so many, and not all, are in memory twice."""
SHARED = (
    "schema", "campaign", "attempt", "outcome", "reason", "evidence", "arm", "arm_digest", "plan_digest", "command",
    "environment", "cold", "engagement", "no_samples", "breach", "machine", "versions", "model",
)  # fmt: skip
"""Fields that many receipts have alike."""
OWN = ("sequence", "cell", "request", "text", "memory", "gate", "started", "ended", "trace")
"""Fields that every receipt has for itself."""
_TYPES: dict[str, Any] = {field.name: field.type for field in msgspec.structs.fields(Receipt)}
_PLAIN: tuple[tuple[str, Any], ...] = (
    ("number", pa.int64()), ("block", pa.int64()), ("window", pa.int64()), ("arm_name", pa.string()),
    ("rung", pa.int64()), ("seed", pa.int64()), ("sentinel", pa.bool_()), ("outcome_word", pa.string()),
)  # fmt: skip
_BINARY = pa.dictionary(pa.int32(), pa.binary())


class Rest(msgspec.Struct, frozen=True):
    """What gates and memory records have alike: reasons and sources."""

    ungated: dict[str, str]
    applied: tuple[str, ...] | None
    missing: dict[str, str]
    sources: dict[str, PeakSource]


def write(
    files: Mapping[str, tuple[Any, Sequence[Any]]],
    receipts: Iterable[Receipt | None],
    metadata: dict[str, str],
) -> bytes:
    """The file: a row per receipt, None where it could not be read; `files` are further columns, with their types."""
    schema = _schema({name: kind for name, (kind, _) in files.items()}, metadata)
    sink, rows, start = io.BytesIO(), iter(receipts), 0
    with parquet.ParquetWriter(
        sink, schema, compression="zstd", write_page_checksum=True
    ) as writer:
        while here := list(islice(rows, ROWS)):
            own = [
                pa.array(values[start : start + len(here)], kind) for kind, values in files.values()
            ]
            columns = [*own, *_plain(here), *_shared(here), *_own(here)]
            writer.write_table(pa.table(columns, schema=schema))
            start += len(here)
    return sink.getvalue()


def _schema(files: Mapping[str, Any], metadata: dict[str, str]) -> Any:
    """The columns in their order."""
    fields = [
        *files.items(), *_PLAIN, *((name, _BINARY) for name in (*SHARED, "rest")),
        *((name, pa.binary()) for name in (*OWN, "events", "samples")),
    ]  # fmt: skip
    return pa.schema([pa.field(name, kind) for name, kind in fields], metadata=metadata)


def _plain(here: Sequence[Receipt | None]) -> list[Any]:
    """Coordinates."""
    told: list[tuple[Any, ...]] = [
        (
            r.sequence, r.cell.block, r.cell.window.number, r.cell.arm, r.cell.rung, r.cell.seed, r.cell.sentinel,
            r.outcome,
        )
        if r
        else (None,) * len(_PLAIN)
        for r in here
    ]  # fmt: skip
    return [
        pa.array(column, kind)
        for (_, kind), column in zip(_PLAIN, zip(*told, strict=True), strict=True)
    ]


def _shared(here: Sequence[Receipt | None]) -> list[Any]:
    """Dictionaries of the fields that are alike, each value encoded once per object."""
    found = []
    for name in SHARED:
        found.append(_dictionary([getattr(one, name) if one else None for one in here], here))
    return [*found, _dictionary([_rest(one) if one else None for one in here], here)]


def _dictionary(values: Sequence[Any], here: Sequence[Receipt | None]) -> Any:
    """One dictionary column; null where there is no receipt."""
    by_object: dict[int, int] = {}
    by_bytes: dict[bytes, int] = {}
    places: list[int | None] = []
    for value, receipt in zip(values, here, strict=True):
        if receipt is None:
            places.append(None)
            continue
        place = by_object.get(id(value))
        if place is None:
            place = by_bytes.setdefault(msgspec.json.encode(value), len(by_bytes))
            by_object[id(value)] = place
        places.append(place)
    return pa.DictionaryArray.from_arrays(
        pa.array(places, pa.int32()), pa.array(list(by_bytes), pa.binary())
    )


def _rest(receipt: Receipt) -> Rest:
    """What a receipt's gate and memory have in common with others."""
    gate = receipt.gate
    missing = gate.reading.missing if gate.reading else {}
    return Rest(gate.ungated, gate.applied, missing, receipt.memory.sources)


def _own(here: Sequence[Receipt | None]) -> list[Any]:
    """The fields that a receipt has for itself, events and samples last."""
    encode = msgspec.json.encode
    lone = [_alone(one) if one else None for one in here]
    own = [
        pa.array([encode(getattr(one, name)) if one else None for one in lone], pa.binary())
        for name in OWN
    ]
    events = [packed(one.trace.events) if one else None for one in here]
    samples = [packed(one.samples) if one else None for one in here]
    return [*own, pa.array(events, pa.binary()), pa.array(samples, pa.binary())]


def _alone(receipt: Receipt) -> Receipt:
    """The receipt without what stands in other columns."""
    gate = receipt.gate
    reading = replace(gate.reading, missing={}) if gate.reading else None
    return replace(
        receipt,
        gate=replace(gate, ungated={}, applied=None, reading=reading),
        memory=replace(receipt.memory, sources={}), trace=replace(receipt.trace, events=()),
    )  # fmt: skip


def read(file: Any) -> Iterator[Receipt | None]:
    """The receipts of a file, in order; None where there was none to read."""
    known: dict[tuple[str, bytes], Any] = {}
    decoders = {name: msgspec.json.Decoder(_TYPES[name]) for name in (*SHARED, *OWN)}
    decoders["rest"] = msgspec.json.Decoder(Rest)
    names = [*SHARED, "rest", *OWN, "events", "samples"]
    for group in range(file.num_row_groups):
        table = file.read_row_group(group, columns=names)
        columns = [
            _alike(table.column(name), name, decoders[name], known) for name in (*SHARED, "rest")
        ]
        columns += [
            [data if data is None else decoders[name].decode(data) for data in table.column(name).to_pylist()]
            for name in OWN
        ]  # fmt: skip
        columns += [table.column(name).to_pylist() for name in ("events", "samples")]
        for values in zip(*columns, strict=True):
            row = dict(zip(names, values, strict=True))
            yield _receipt(row) if row["cell"] is not None else None


def _alike(column: Any, name: str, decoder: Any, known: dict[tuple[str, bytes], Any]) -> list[Any]:
    """A column of few values, each decoded once for the whole file."""
    found: list[Any] = []
    for chunk in column.chunks:
        values = []
        for data in chunk.dictionary.to_pylist():
            if (name, data) not in known:
                known[name, data] = decoder.decode(data)
            values.append(known[name, data])
        found += [None if place is None else values[place] for place in chunk.indices.to_pylist()]
    return found


def _receipt(row: dict[str, Any]) -> Receipt:
    """One receipt from its columns."""
    rest: Rest = row.pop("rest")
    gate: Clearance = row["gate"]
    events, samples = row.pop("events"), row.pop("samples")
    reading = replace(gate.reading, missing=rest.missing) if gate.reading else None
    row["gate"] = replace(gate, ungated=rest.ungated, applied=rest.applied, reading=reading)
    row["memory"] = replace(row["memory"], sources=rest.sources)
    row["trace"] = replace(row["trace"], events=events_of(events))
    return Receipt(**row, samples=readings_of(samples))
