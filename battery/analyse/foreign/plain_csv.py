"""A plain CSV (arm, context, seed, round, metric, value, tokens) as a Sheet.

One line per value. `seed`, `round` and `tokens` may be empty, which means unknown; everything else is needed. The
header is strict, the order of the columns is free. Every InputError names file, line, what is wrong and what to do.
"""

from __future__ import annotations

import csv
import hashlib
import io
import re
from collections.abc import Iterator
from pathlib import Path

from battery.analyse.foreign.rows import Row, Sheet, Source, check
from battery.ledger.errors import InputError
from battery.ledger.strict import nearest

COLUMNS = ("arm", "context", "seed", "round", "metric", "value", "tokens")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,3})?", re.ASCII)
_COUNT = re.compile(r"\d{1,12}", re.ASCII)


def read(path: Path) -> Sheet:
    """The rows of a CSV file; InputError where it is none, or says something that cannot be."""
    try:
        data = path.read_bytes()
    except OSError as refused:
        raise InputError(f"{path}: cannot be read: {refused.strerror or refused}") from refused
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as wrong:
        raise InputError(f"{path}: not UTF-8 text ({wrong}); save it as CSV in UTF-8") from wrong
    lines = _lines(text, path)
    number, header = next(lines, (1, []))
    columns = tuple(header)
    _check_header(columns, f"{path}:{number}")
    rows = tuple(_row(columns, cells, number, f"{path}:{number}") for number, cells in lines)
    check(rows, str(path))
    source = Source(name=path.name, sha256=hashlib.sha256(data).hexdigest())
    return Sheet(sources=(source,), columns=columns, rows=rows)


def _lines(text: str, path: Path) -> Iterator[tuple[int, list[str]]]:
    """Line number and stripped cells of every line that is not blank."""
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        for cells in reader:
            stripped = [cell.strip() for cell in cells]
            if any(stripped):
                yield reader.line_num, stripped
    except csv.Error as broken:
        raise InputError(
            f"{path}:{reader.line_num}: not valid CSV: {broken}; mend its quotes or commas"
        ) from broken


def _check_header(columns: tuple[str, ...], at: str) -> None:
    """InputError unless every column is there once, and no other."""
    wanted = f"the first line must be: {','.join(COLUMNS)}"
    if not columns:
        raise InputError(f"{at}: the file is empty; {wanted}")
    for column in columns:
        if column not in COLUMNS:
            raise InputError(f"{at}: unknown column '{column}'{nearest(column, COLUMNS)}; {wanted}")
        if columns.count(column) > 1:
            raise InputError(f"{at}: column '{column}' stands there twice; {wanted}")
    if missing := [column for column in COLUMNS if column not in columns]:
        raise InputError(f"{at}: missing column '{missing[0]}'; {wanted}")


def _row(columns: tuple[str, ...], cells: list[str], line: int, at: str) -> Row:
    """One line as a Row."""
    if len(cells) != len(columns):
        raise InputError(
            f"{at}: {len(cells)} cells where the header has {len(columns)}; an unknown value is left empty between"
            " its commas, and a number has no comma in it"
        )
    told = dict(zip(columns, cells, strict=True))
    for column, text in told.items():
        if text and not text.isprintable():
            raise InputError(f"{at}: {column} {text!r} has characters that cannot be printed")
    for column in ("arm", "metric"):
        if not told[column]:
            raise InputError(f"{at}: {column} is empty; every value needs one")
    return Row(
        line=line,
        arm=told["arm"],
        context=_count(told["context"], "context", "tokens of context", at),
        seed=told["seed"] or None,
        round=told["round"] or None,
        metric=told["metric"],
        value=_number(told["value"], at),
        tokens=_count(told["tokens"], "tokens", "generated tokens, or nothing where unknown", at)
        if told["tokens"]
        else None,
    )


def _number(text: str, at: str) -> float:
    """A decimal number; its range is checked with the row."""
    if not _NUMBER.fullmatch(text):
        raise InputError(
            f"{at}: value {text!r} is no number; write digits with a decimal point, without unit"
        )
    return float(text)


def _count(text: str, column: str, meaning: str, at: str) -> int:
    """A whole number above 0."""
    if not _COUNT.fullmatch(text) or int(text) == 0:
        raise InputError(f"{at}: {column} {text!r} is no whole number above 0; it is the {meaning}")
    return int(text)
