"""Read a TOML or JSON file strictly.

A key nobody knows is an error that names the file, the key and the nearest known key. These are the
only two doors through which data enters; past them, values are trusted.
"""

from __future__ import annotations

import difflib
import hashlib
import tomllib
import types
import typing
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from battery.ledger.errors import InputError, ReceiptError

T = TypeVar("T")


def nearest(word: str, known: typing.Iterable[str]) -> str:
    """A hint such as ``; did you mean 'seeds'?``, or the list of what is known."""
    names = sorted(known)
    close = difflib.get_close_matches(word, names, n=1, cutoff=0.6)
    return f"; did you mean '{close[0]}'?" if close else f"; known: {', '.join(names) or 'none'}"


def canonical(value: object) -> bytes:
    """JSON bytes with sorted keys and no blanks: what every digest in this project is taken over."""
    return msgspec.json.encode(value, order="deterministic")


def digest(value: object) -> str:
    """sha256 of `value` in canonical JSON, as 64 hexadecimal digits; bytes and text are hashed as they are."""
    if isinstance(value, bytes):
        data = value
    elif isinstance(value, str):
        data = value.encode()
    else:
        data = canonical(value)
    return hashlib.sha256(data).hexdigest()


def read_toml(path: Path) -> dict[str, Any]:
    """The table in a TOML file; InputError names the line when it does not parse."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as missing:
        raise InputError(f"{path}: no such file") from missing
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as broken:
        raise InputError(f"{path}: not valid TOML: {broken}") from broken


def shape(
    table: dict[str, Any], kind: type[T], where: str, error: type[InputError] = InputError
) -> T:
    """`table` as a `kind`; unknown keys and wrong types raise `error` with the file, the key and a remedy."""
    check_keys(table, kind, where, error)
    try:
        return msgspec.convert(table, kind)
    except msgspec.ValidationError as wrong:
        raise error(f"{where}: {wrong}") from wrong


def check_keys(
    table: object, kind: object, where: str, error: type[InputError], at: str = ""
) -> None:
    """Raise `error` for the first key of `table`, however deep, that the struct `kind` does not have."""
    struct = _struct_of(kind)
    if struct is None or not isinstance(table, dict):
        return
    fields = {field.encode_name: field.type for field in msgspec.structs.fields(struct)}
    for key, value in table.items():
        if key not in fields:
            raise error(f"{where}: unknown key '{at}{key}'{nearest(str(key), fields)}")
        check_keys(value, fields[key], where, error, f"{at}{key}.")


def _struct_of(kind: object) -> type[msgspec.Struct] | None:
    """The struct inside `kind` (itself, or one side of an optional), if there is one."""
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return kind
    if isinstance(kind, types.UnionType) or typing.get_origin(kind) is typing.Union:
        for option in typing.get_args(kind):
            found = _struct_of(option)
            if found is not None:
                return found
    return None


def read_json(path: Path, kind: type[T], remedy: str = "restore it from version control") -> T:
    """A JSON file as a `kind`; ReceiptError names the file when it is corrupt or of another shape, and the remedy.

    `Torn` is the ReceiptError of a file that is no JSON at all, as a power cut or a bad disk leaves it.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError as missing:
        raise ReceiptError(f"{path}: no such file; {remedy}") from missing
    return decoded(data, path, kind, remedy)


def decoded(data: bytes, path: Path, kind: type[T], remedy: str) -> T:
    """The bytes of the file at `path` as a `kind`, with the errors of `read_json`."""
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.ValidationError as other:
        raise ReceiptError(
            f"{path}: cannot be read, it is of another shape ({other}); {remedy}, or read it with the battery that"
            " wrote it"
        ) from other
    except (msgspec.DecodeError, UnicodeDecodeError) as broken:
        raise Torn(f"{path}: cannot be read ({len(data)} bytes: {broken}); {remedy}") from broken


class Torn(ReceiptError):
    """A file whose bytes are no JSON: cut off, zeroed or damaged."""
