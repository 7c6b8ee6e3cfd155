"""Which format a file is of, told by its content alone, and what is taken out of it."""

from __future__ import annotations

from pathlib import Path

import msgspec

from battery.analyse.foreign.formats import known_formats, load_format
from battery.analyse.foreign.plain_csv import COLUMNS
from battery.analyse.foreign.reading.document import Document, document
from battery.analyse.foreign.reading.taken import Taken
from battery.analyse.foreign.rows import LARGEST, SMALLEST
from battery.analyse.rows import MEASURES
from battery.ledger.errors import InputError

CSV = "csv"
LARGEST_FILE = 512 * 2**20
"""Bytes; JSON takes about ten times its size once it is read."""
_MOST_SHOWN = 12
_LIKE_OURS = 3
"""Columns of ours that a first line must have to be meant for a plain CSV."""


class Found(msgspec.Struct, frozen=True):
    """A file of another tool: its document, its format, and what was taken out of it."""

    document: Document
    format: str
    taken: Taken


def recognise(path: Path, forced: str | None = None) -> Found | None:
    """A file of another tool; None where it is a plain CSV, InputError where it is nothing that is known."""
    if forced == CSV:
        return None
    read = load_format(forced).read if forced else None
    data = _bytes(path)
    found = document(path, data)
    if found is None:
        if forced is None and _like_ours(data):
            return None
        head = data.decode("utf-8", "replace").strip().splitlines()[:1]
        what = f"its first line is {head[0][:80]!r}" if head else "it is empty"
        wanted = f"JSON, as {forced} writes it" if forced else "known format"
        raise InputError(f"{path}: no {wanted}: {what}; {known()}")
    if forced and read:
        return Found(found, forced, _checked(read(found), path))
    for name in known_formats():
        if load_format(name).recognises(found):
            return Found(found, name, _checked(load_format(name).read(found), path))
    keys = sorted({key for node in found.nodes for key in node.value})
    shown = ", ".join(key if key.isprintable() else repr(key) for key in keys[:_MOST_SHOWN])
    more = f" and {len(keys) - _MOST_SHOWN} more" if len(keys) > _MOST_SHOWN else ""
    raise InputError(f"{path}: no known format: its keys are {shown}{more}; {known()}")


def _bytes(path: Path) -> bytes:
    """What is in a file; InputError where it cannot be read, or is too large to be taken apart in memory."""
    try:
        with path.open("rb") as file:
            data = file.read(LARGEST_FILE + 1)
    except OSError as refused:
        raise InputError(f"{path}: cannot be read: {refused.strerror or refused}") from refused
    if len(data) > LARGEST_FILE:
        raise InputError(
            f"{path}: larger than {LARGEST_FILE // 2**20} MiB, which is no result of one run; export it without texts"
            " and details, or fewer requests"
        )
    return data


def _checked(taken: Taken, path: Path) -> Taken:
    """The same; InputError for a value that was computed out of the figures of a file and cannot be."""
    if not any(run.values for run in taken.runs):
        raise InputError(
            f"{path}: none of its figures is a metric that is known here; there is nothing to compare"
        )
    for run in taken.runs:
        for one in run.values:
            if not SMALLEST <= one.value <= LARGEST:
                raise InputError(
                    f"{path}: its figures make {one.metric} {one.value:g} {MEASURES[one.metric].unit}, outside"
                    f" {SMALLEST:g} to {LARGEST:g}: a slip of the unit?"
                )
    return taken


def _like_ours(data: bytes) -> bool:
    """Whether a first line is meant for our columns, right or not."""
    lines = [line for line in data.decode("utf-8-sig").splitlines() if line.strip()]
    cells = {cell.strip(' "') for cell in lines[0].replace(";", ",").split(",")} if lines else set()
    return len(cells & set(COLUMNS)) >= _LIKE_OURS


def known() -> str:
    """What can be read, for messages."""
    titles = "; ".join(f"{name} ({load_format(name).title})" for name in known_formats())
    return f"known: {titles}; {CSV} (columns {','.join(COLUMNS)})"
