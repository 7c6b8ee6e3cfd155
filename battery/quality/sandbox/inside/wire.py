"""Messages between the process that judges and the one that runs a program, with nothing trusted that comes from it.

A message is a length, a letter that says what it is, and bytes. Values travel pickled. What the program's process sends
is read by an unpickler that knows plain data only and calls nothing but the constructors in `PLAIN`; anything else
stays where it is and is asked about from afar (`foreign`). A pickle can also set attributes of whatever it names, so it
gets no class to name: a stand-in calls the constructor and takes no attributes, and what is made has those alone that
its constructor gave it.

Values are pickled without a memo (`fast`), so that equal values made in different ways give the same bytes, mostly:
equal bytes mean equal values, while unequal ones mean nothing yet.
"""

from __future__ import annotations

import io
import math
import os
import pickle
import struct
from collections import Counter, OrderedDict
from collections.abc import Callable
from fractions import Fraction
from typing import Any

HEAD = struct.Struct("<cQ")
CHUNK = 1 << 20
PROTOCOL = 5
Body = bytes | bytearray
"""Of a message; a large one came piece by piece and is not copied again."""

PLAIN = {
    "builtins": {"bytearray", "complex", "frozenset", "range", "set", "slice"},
    "collections": {"Counter", "OrderedDict", "deque"},
    "datetime": {"date", "datetime", "time", "timedelta", "timezone"},
    "decimal": {"Decimal"},
    "fractions": {"Fraction"},
}
"""Types that hold data and whose constructors do nothing else."""


class Gone(BaseException):
    """The other end closed; no Exception, so that no test catches it by the way."""


class NotPlain(Exception):
    """What came is more than plain data."""


class Ends:
    """A pipe to a process and one from it."""

    def __init__(self, incoming: int, outgoing: int) -> None:
        self.incoming, self.outgoing = incoming, outgoing
        self._held = bytearray()

    def send(self, kind: bytes, body: bytes) -> None:
        """Send at once what was held back, and this."""
        self.hold(kind, body)
        self.flush()

    def hold(self, kind: bytes, body: bytes) -> None:
        """Send this with what comes later, or at once where much is waiting."""
        self._held += HEAD.pack(kind, len(body))
        if len(body) > CHUNK:  # hundreds of megabytes, maybe: not copied
            self.flush()
            self._write(memoryview(body))
            return
        self._held += body
        if len(self._held) > CHUNK:
            self.flush()

    def flush(self) -> None:
        """Send what was held back."""
        held = bytes(self._held)
        self._held.clear()
        self._write(memoryview(held))

    def _write(self, view: memoryview) -> None:
        try:
            while view:
                view = view[os.write(self.outgoing, view) :]
        except (BrokenPipeError, ConnectionError):
            raise Gone from None

    def receive(self, most: int | None = None) -> tuple[bytes, Body]:
        """The next message; NotPlain where it claims more than `most` bytes, Gone at the end."""
        kind, size = HEAD.unpack(self._exactly(HEAD.size))
        if most is not None and size > most:
            raise NotPlain(f"a result of {size:,} bytes")
        return kind, self._exactly(size)

    def _exactly(self, size: int) -> Body:
        first = os.read(self.incoming, min(size, CHUNK)) if size else b""
        if len(first) == size:
            return first
        whole, place = bytearray(size), len(first)
        whole[:place] = first
        with memoryview(whole) as view:
            while place < size:
                came = os.readv(self.incoming, [view[place : place + CHUNK]]) if first else 0
                if not came:
                    raise Gone
                place += came
        return whole


class _Maker:
    """Stands in for a class in what is read: it can be called, and nothing about it can be changed."""

    __slots__ = ("_kind", "_reader")
    _kind: Callable[..., Any]
    _reader: _Reader

    def __init__(self, kind: Callable[..., Any], reader: _Reader) -> None:
        object.__setattr__(self, "_kind", kind)
        object.__setattr__(self, "_reader", reader)

    def __call__(self, *arguments: Any) -> Any:
        made = self._kind(*arguments)
        self._reader.made(made)
        return made

    def __setattr__(self, name: str, value: Any) -> None:
        raise NotPlain(f"it sets {name} of a class")


class _Reader(pickle.Unpickler):
    """Reads plain data, in which every class that is named is called, once."""

    def __init__(self, body: Body) -> None:
        super().__init__(io.BytesIO(body))
        self._uncalled = 0
        self._open: list[Fraction | dict[Any, Any]] = []

    def find_class(self, module: str, name: str) -> Any:
        if name in PLAIN.get(module, ()):
            self._uncalled += 1
            return _Maker(super().find_class(module, name), self)
        raise NotPlain(f"{module}.{name}")

    def made(self, value: Any) -> None:
        """Keep in mind what a constructor made, where attributes could be set on it."""
        self._uncalled -= 1
        if isinstance(value, Fraction | Counter | OrderedDict):
            self._open.append(value)

    def whole(self) -> Any:
        """What was read; NotPlain where it holds a class or something whose attributes are not its constructor's."""
        found = self.load()
        if self._uncalled:
            raise NotPlain("it holds a class itself")
        if not all(map(_untouched, self._open)):
            raise NotPlain("it sets attributes")
        return found


def _untouched(made: Fraction | dict[Any, Any]) -> bool:
    if not isinstance(made, Fraction):
        return not vars(made)
    above, below = made.numerator, made.denominator
    return type(above) is type(below) is int and below > 0 and math.gcd(above, below) == 1


def plain(body: Body) -> Any:
    """The plain value in a message; NotPlain where it is anything else, whatever is wrong with it."""
    try:
        return _Reader(body).whole()
    except (MemoryError, NotPlain):
        raise
    except Exception as wrong:  # a hostile pickle can fail in any way
        raise NotPlain(f"{type(wrong).__name__}: {wrong}"[:200]) from None


def packed(value: Any) -> bytes:
    """A value's bytes; raises what pickle raises where it has none."""
    into = io.BytesIO()
    writer = pickle.Pickler(into, PROTOCOL)
    writer.fast = True
    writer.dump(value)
    return into.getvalue()
