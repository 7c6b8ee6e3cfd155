"""A file of JSON, or of JSON lines, as a cursor that knows where it stands: no value is used unchecked.

Every InputError names the file, the place in it (`benchmarks[0].e2e_ttft.values[2]`), what is wrong and what to do.
Bare `Infinity` and `NaN`, which some tools write, are read as such, and refused only where a number is needed.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from battery.analyse.foreign.rows import LARGEST, SMALLEST
from battery.ledger.errors import InputError
from battery.ledger.strict import nearest

MOST = 10**12
"""No count of tokens or requests is larger."""
NEAR = 0.01
"""Share by which two figures of a file that say the same may differ: rounding, but no slip of a unit."""

_DEEP = "nested too deep for a result file"


class Node(msgspec.Struct, frozen=True):
    """One value of a document and where it stands."""

    value: Any
    file: str
    path: str = ""

    @property
    def at(self) -> str:
        """File and place, for messages."""
        return f"{self.file}: {self.path}" if self.path else self.file

    def __getitem__(self, key: str) -> Node:
        """What stands under a key; InputError where there is none, or null."""
        found = self.get(key)
        if found is None:
            keys = [one for one in self.value if one.isprintable()]
            why = "is null" if key in keys else f"is missing{nearest(key, keys)}"
            raise InputError(
                f"{self.at}: '{key}' {why}; the file is cut, or of a version that is not known"
            )
        return found

    def get(self, key: str) -> Node | None:
        """What stands under a key; None for nothing and for null alike."""
        if not isinstance(self.value, dict):
            raise InputError(f"{self.at}: {_kind(self.value)} where an object with '{key}' is due")
        value = self.value.get(key)
        place = f"{self.path}.{key}" if self.path else key
        return None if value is None else Node(value, self.file, place)

    def has(self, *keys: str) -> bool:
        """Whether it is an object with all of these keys."""
        return isinstance(self.value, dict) and all(key in self.value for key in keys)

    def items(self) -> list[Node]:
        """The items of a list, null ones too."""
        if not isinstance(self.value, list):
            raise InputError(f"{self.at}: {_kind(self.value)} where a list is due")
        return [
            Node(one, self.file, f"{self.path}[{place}]") for place, one in enumerate(self.value)
        ]

    def text(self) -> str:
        """A text that can be printed."""
        if not isinstance(self.value, str) or not self.value.isprintable():
            raise InputError(
                f"{self.at}: {_kind(self.value)} where a text that can be printed is due"
            )
        return self.value

    def raw(self) -> str:
        """Any text, as it is: to be hashed, not shown."""
        if not isinstance(self.value, str):
            raise InputError(f"{self.at}: {_kind(self.value)} where a text is due")
        return self.value

    def number(self) -> float:
        """A finite number."""
        if isinstance(self.value, bool) or not isinstance(self.value, int | float):
            raise InputError(f"{self.at}: {_kind(self.value)} where a number is due")
        try:
            value = float(self.value)
        except OverflowError:
            value = math.inf
        if not math.isfinite(value):
            raise InputError(f"{self.at}: {value} is no measured value; leave its run out")
        return value

    def positive(self) -> float:
        """A number that a ratio can be taken of."""
        value = self.number()
        if value <= 0:
            raise InputError(
                f"{self.at}: {value:g}: a measured value is above 0; a run that measured nothing is to be left out"
            )
        if not SMALLEST <= value <= LARGEST:
            raise InputError(
                f"{self.at}: {value:g} is outside {SMALLEST:g} to {LARGEST:g}: a slip of the unit?"
            )
        return value

    def waited(self) -> float:
        """A time that may be 0."""
        return self.positive() if self.number() else 0.0

    def count(self) -> int:
        """A whole number, 0 or above."""
        value = self.number()
        if not 0 <= value <= MOST or value != int(value):
            raise InputError(f"{self.at}: {value:g} where a count is due")
        return int(value)


class Document(msgspec.Struct, frozen=True, kw_only=True):
    """A file's objects: one, those of a list, or one a line; and the digest of its bytes."""

    name: str
    sha256: str
    nodes: tuple[Node, ...]

    def all(self, *keys: str) -> bool:
        """Whether there are objects, and all have these keys."""
        return bool(self.nodes) and all(node.has(*keys) for node in self.nodes)


def document(path: Path, data: bytes) -> Document | None:
    """The objects of a file's bytes; None where it does not begin like JSON, InputError where it is broken JSON."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as wrong:
        raise InputError(
            f"{path}: not UTF-8 text ({wrong}); give the file as it was saved"
        ) from wrong
    if text.lstrip()[:1] not in ("{", "["):
        return None
    nodes = tuple(_nodes(text, str(path)))
    for node in nodes:
        if not isinstance(node.value, dict):
            raise InputError(f"{node.at}: {_kind(node.value)} where a result (an object) is due")
    if not nodes or not any(node.value for node in nodes):
        raise InputError(f"{path}: nothing in it; the run that should have written it did not end")
    return Document(name=path.name, sha256=hashlib.sha256(data).hexdigest(), nodes=nodes)


def _nodes(text: str, file: str) -> Iterator[Node]:
    """The objects of one JSON value, or of one on every line."""
    try:
        whole = json.loads(text)
    except ValueError as broken:
        # an object a line: what follows the first one is no part of it
        if not isinstance(broken, json.JSONDecodeError) or not broken.msg.startswith("Extra data"):
            raise InputError(f"{file}: {_broken(broken)}") from broken
    except RecursionError as deep:
        raise InputError(f"{file}: {_DEEP}") from deep
    else:
        if isinstance(whole, list):
            yield from Node(whole, file).items()
        else:
            yield Node(whole, file)
        return
    # not splitlines: it would break a line at some characters that a JSON text may hold
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            try:
                yield Node(json.loads(line), f"{file}:{number}")
            except ValueError as broken:
                raise InputError(f"{file}:{number}: {_broken(broken)}") from broken
            except RecursionError as deep:
                raise InputError(f"{file}:{number}: {_DEEP}") from deep


def _broken(wrong: ValueError) -> str:
    """What is said of JSON that does not parse."""
    return f"not valid JSON ({wrong}); was it cut while it was written or copied?"


def _kind(value: object) -> str:
    """What stands there, in a word."""
    names: dict[type, str] = {
        dict: "an object", list: "a list", str: "a text", bool: "true or false", int: "a number", float: "a number",
    }  # fmt: skip
    return "null" if value is None else names[type(value)]


def mean(values: Sequence[float]) -> float:
    """The arithmetic mean, as every one of these tools takes it."""
    return math.fsum(values) / len(values)


def agree(node: Node, wanted: float, what: str, near: float = NEAR) -> None:
    """InputError where a number of the file is not what others of it make: a unit was mistaken, or it was edited."""
    said = node.number()
    if abs(said - wanted) > near * max(abs(wanted), abs(said)):
        raise InputError(
            f"{node.at}: {said:g} is not {what} ({wanted:g}): a unit was mistaken, or the file was changed"
        )
