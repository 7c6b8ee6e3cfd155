"""A value that stays in the program's process, used from the judge's as if it were here.

Results that are plain data travel. What is not (an object of the program's own class, a generator, an array) is asked
from afar: each operation is carried out where the object is, and its result comes back. So a test sees what it would
see in one process, with one difference that is the point of it: the program runs nothing where the verdict is made.

An object decides for itself what it equals, and its process may say what it likes. So an operation that hears what a
test has in mind (a comparison, a sum) is carried out a second time, here, on plain data that the object was asked for
before: what an array or a subclass of list holds. Where there is none, or the two differ, a check relied on what the
object says of itself, which is noted: such a pass wants a look. An operation that hears nothing (its truth, its length,
its items) is a result like any other.
"""

from __future__ import annotations

import io
import operator
import pickle
from collections.abc import Callable, Iterator
from typing import Any

from battery.quality.sandbox.inside.program import ENTRY
from battery.quality.sandbox.inside.wire import PROTOCOL, Body, Ends, NotPlain, plain

CLOSE = 1e-6
"""How near a sum must be to the one made here, for numbers about 1: an array's may be shorter than ours."""
_NO_COPY = object()


class Raised(Exception):
    """The program raised; `names` are those of its exception's types, most special first."""

    def __init__(self, names: list[str], shown: str) -> None:
        super().__init__(shown)
        self.names = names


class CannotSend(Exception):
    """A test calls with something that cannot be sent; the fault is the grader's, not the program's."""


class Remote:
    """A program in its process, asked over pipes."""

    def __init__(self, ends: Ends, most: int) -> None:
        """`most`: bytes of one result that are taken in; a program has no more of them than its own memory."""
        self._ends, self._most = ends, most
        self.notes: list[str] = []

    def run(self, parts: list[tuple[str, str]], entry: str) -> None:
        """Execute a program's parts; Raised where they raise or define no `entry`."""
        self._ends.send(b"R", pickle.dumps((parts, entry), PROTOCOL))
        self._result()

    def call(self, *args: Any, **named: Any) -> Any:
        """The entry point's result."""
        return self.ask("call", Foreign(self, ENTRY, "function"), args, named)

    def ask(self, name: str, *arguments: Any) -> Any:
        """One operation's result."""
        self._ends.send(b"O", _sent((name, arguments)))
        return self._result()

    def calls(self, given: list[bytes]) -> Iterator[tuple[bytes, Body]]:
        """The entry point's results for each of the pickled arguments, undecoded; the last may be what it raised."""
        self._ends.send(b"B", pickle.dumps(given, PROTOCOL))
        for _ in given:
            kind, body = self._ends.receive(self._most)
            yield kind, body
            if kind == b"X":
                return

    def again(self, given: bytes) -> Any:
        """The result for one of the pickled arguments, decoded or from afar."""
        return self.call(*pickle.loads(given))

    def _result(self) -> Any:
        kind, body = self._ends.receive(self._most)
        if kind == b"V":
            try:
                return plain(body)
            except NotPlain:
                self._ends.send(b"L", b"")
                kind, body = self._ends.receive(self._most)
        return self.decoded(kind, body)

    def decoded(self, kind: bytes, body: Body) -> Any:
        """The value of an answer; NotPlain where it is a value that is not plain, Raised where it is none."""
        if kind == b"V":
            return plain(body)
        if kind == b"H":
            handle, module, name = plain(body)
            return Foreign(self, int(handle), f"{module}.{name}")
        names, shown = plain(body)
        raise _raised([str(one) for one in names], str(shown))


class Foreign:
    """An object of the program."""

    __slots__ = ("_handle", "_kind", "_remote")

    def __init__(self, remote: Remote, handle: int, kind: str) -> None:
        for name, value in (("_remote", remote), ("_handle", handle), ("_kind", kind)):
            object.__setattr__(self, name, value)

    def __getattr__(self, name: str) -> Any:
        return self._remote.ask("attribute", self, name)

    def __setattr__(self, name: str, value: Any) -> None:
        self._remote.ask("assign", self, name, value)

    def __eq__(self, other: object) -> Any:
        return self._weighed("eq", self, other)

    def __call__(self, *args: Any, **named: Any) -> Any:
        """The object called."""
        return self._remote.ask("call", self, args, named)

    def __iter__(self) -> Iterator[Any]:
        iterator = self._remote.ask("iterate", self)
        if not isinstance(iterator, Foreign):
            yield from iterator
            return
        while True:
            try:
                (item,) = self._remote.ask("next", iterator)
            except Raised as raised:
                if raised.names[0] == "StopIteration":
                    return
                raise
            yield item

    def __contains__(self, item: Any) -> bool:
        return bool(self._weighed("contains", self, item))

    def __hash__(self) -> int:
        return int(self._remote.ask("hash", self))

    def _weighed(self, name: str, *operands: Any) -> Any:
        """The result of an operation; noted where it is the object's word alone."""
        if self._remote.notes:  # it wants a look already
            return self._remote.ask(name, *operands)
        copies = [_copy(one) for one in operands]  # before the object hears what it is held against
        found = self._remote.ask(name, *operands)
        if not _borne_out(name, found, copies):
            self._remote.notes.append(
                f"a check relied on what a result of type {self._kind} says of itself ({name})"
            )
        return found


def _copy(value: Any) -> Any:
    """The plain data that an object holds, if any; other values as they are."""
    if not isinstance(value, Foreign):
        return value
    try:
        found = value._remote.ask("plain", value)
    except (Raised, MemoryError):
        return _NO_COPY
    return _NO_COPY if isinstance(found, Foreign) else found


def listed(value: Any) -> Any:
    """The plain data of a list or tuple that stayed where it is (of numpy's numbers, say); other values as they are."""
    if type(value) is Foreign and value._kind in ("builtins.list", "builtins.tuple"):
        copy = _copy(value)
        return value if copy is _NO_COPY else copy
    return value


def _borne_out(name: str, found: Any, copies: list[Any]) -> bool:
    """Whether plain data says the same as the object, or the object what any stranger would: that it is not equal."""
    unequal = (
        name in ("eq", "ne") and not isinstance(found, Foreign) and bool(found) == (name == "ne")
    )
    if unequal:
        return True
    if any(one is _NO_COPY for one in copies):
        return False
    try:
        here = getattr(operator, name)(*copies)
        if isinstance(here, bool):
            return here if isinstance(found, Foreign) else here == bool(found)
        told = _copy(found)
        if told is _NO_COPY or here == told:
            return told is not _NO_COPY
        return bool(abs(here - told) <= CLOSE * max(abs(one) for one in (here, *copies)))
    except Exception:  # what no plain data can do
        return False


def _one(name: str, back: Callable[[Any], Any] | None = None) -> Callable[..., Any]:
    def method(self: Foreign, *arguments: Any) -> Any:
        found = self._remote.ask(name, self, *arguments)
        return back(found) if back else found

    return method


def _held(name: str) -> Callable[..., Any]:
    return lambda self, other: self._weighed(name, self, other)


def _turned(name: str) -> Callable[..., Any]:
    return lambda self, other: self._weighed(name, other, self)


for _name in ("ne", "lt", "le", "gt", "ge"):
    setattr(Foreign, f"__{_name}__", _held(_name))
for _name in ("neg", "pos", "abs", "invert", "getitem", "round", "index"):
    setattr(Foreign, f"__{_name}__", _one(_name))
for _name in (
    "add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "lshift", "rshift", "and_", "or_", "xor",
):  # fmt: skip
    _plain = _name.rstrip("_")
    setattr(Foreign, f"__{_plain}__", _held(_name))
    setattr(Foreign, f"__r{_plain}__", _turned(_name))
for _name, _asked, _type in (
    ("bool", "truth", bool), ("len", "length", int), ("float", "float", float), ("int", "int", int),
    ("complex", "complex", complex), ("str", "text", str), ("repr", "shown", str), ("format", "format", str),
    ("setitem", "place", None),
):  # fmt: skip
    setattr(Foreign, f"__{_name}__", _one(_asked, _type))


class _Writer(pickle.Pickler):
    """Writes what a test calls with; a program's own objects go as handles."""

    def persistent_id(self, obj: Any) -> Any:
        return obj._handle if type(obj) is Foreign else None


def _sent(value: Any) -> bytes:
    into = io.BytesIO()
    try:
        _Writer(into, PROTOCOL).dump(value)
    except (pickle.PicklingError, TypeError, AttributeError) as wrong:
        raise CannotSend(f"a test calls with what cannot be sent: {wrong}") from None
    return into.getvalue()


def _raised(names: list[str], shown: str) -> Raised:
    """An exception that a test may catch by the built-in name of what the program raised."""
    import builtins

    for name in names:
        kind = getattr(builtins, name, None)
        if isinstance(kind, type) and issubclass(kind, Exception):
            try:
                return type(name, (Raised, kind), {})(names, shown)  # type: ignore[no-any-return]
            except TypeError:
                break
    return Raised(names, shown)
