"""The process that runs a program: it executes its parts and answers calls, and decides nothing.

It is forked before the tests are read, so neither they nor what they expect are anywhere in its memory. It returns
values, or a handle where a value cannot travel; whether they are right is found out elsewhere (`judge`).

Requests, by letter: `R` run the parts; `O` one operation on an object that is kept here; `B` one call of the entry
point for each of many arguments, answered in order; `L` keep the last result here and tell of it. Answers: `V` a value,
`H` a handle (number, module and name of its type), `X` what was raised.
"""

from __future__ import annotations

import gc
import io
import operator
import pickle
import random
import sys
import traceback
import types
from collections.abc import Callable, ItemsView, KeysView
from typing import Any

from battery.quality.sandbox.inside.wire import Body, Ends, Gone, packed

NAME = "answer"
"""Of the module that a program becomes; it is not __main__."""
FILE = "<answer>"
ENTRY = 0
"""The handle of the entry point."""
SHOWN = 300


_SINGLE: tuple[Any, ...] = (int, float, complex, str, bytes)


def _copied(value: Any) -> Any:
    """The plain data that a value of another type holds; the value itself where it is nothing of the kind."""
    if hasattr(type(value), "tolist"):  # numpy's arrays and numbers, and those that are like them
        return value.tolist()
    for kind in _SINGLE:
        if isinstance(value, kind):
            return value if isinstance(value, bool) else kind(*kind.__getnewargs__(value))
    if isinstance(value, dict):
        return {_copied(key): _copied(held) for key, held in value.items()}
    for many in (list, tuple, set, frozenset):
        if isinstance(value, many):
            return many(map(_copied, value))
    if isinstance(value, KeysView | ItemsView):
        return set(map(_copied, value))
    for name, number in (("__index__", operator.index), ("__float__", float)):
        if hasattr(type(value), name):
            return number(value)
    return value


OPERATIONS: dict[str, Callable[..., Any]] = {
    "call": lambda function, args, named: function(*args, **named),
    "attribute": getattr,
    "assign": setattr,
    "place": operator.setitem,
    "truth": bool,
    "length": len,
    "iterate": iter,
    "next": lambda iterator: [next(iterator)],
    "hash": hash,
    "text": str,
    "shown": repr,
    "float": float,
    "int": int,
    "complex": complex,
    "round": round,
    "format": format,
    "is": operator.is_,
    "plain": _copied,
    **{
        name: getattr(operator, name)
        for name in (
            "eq", "ne", "lt", "le", "gt", "ge", "add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul",
            "and_", "or_", "xor", "lshift", "rshift", "neg", "pos", "abs", "invert", "index", "getitem", "contains",
        )
    },
}  # fmt: skip
"""What can be asked of an object from afar."""


class _Reader(pickle.Unpickler):
    """Reads what the judge sends, in which handles stand for objects that are kept here."""

    def __init__(self, body: Body, kept: list[Any]) -> None:
        super().__init__(io.BytesIO(body))
        self._kept = kept

    def persistent_load(self, pid: Any) -> Any:
        return self._kept[pid]


class Puppet:
    """A program, and the objects of its that others hold handles of."""

    def __init__(self, ends: Ends) -> None:
        self._ends = ends
        self._kept: list[Any] = [None]
        self._last: Any = None
        self._module = types.ModuleType(NAME)

    def serve(self) -> None:
        """Answer until nobody asks any more."""
        actions = {b"R": self._run, b"O": self._operate, b"B": self._calls, b"L": self._keep_last}
        while True:
            try:
                kind, body = self._ends.receive()
                actions[kind](body)
                self._ends.flush()
            except Gone:
                return

    def _run(self, body: Body) -> None:
        """Execute the parts, each a compile unit of its own: the context, whose entry point goes, then the answer."""
        parts, entry = pickle.loads(body)
        space = self._module.__dict__
        sys.modules[NAME] = self._module
        random.seed(0)
        try:
            for name, source in parts:
                exec(compile(source, name, "exec", dont_inherit=True), space)
                if name != FILE:
                    space.pop(entry, None)
            self._kept[ENTRY] = space[entry] if entry in space else _absent(entry)
        except BaseException as raised:
            self._tell(raised)
            return
        self._ends.hold(b"V", packed(None))

    def _operate(self, body: Body) -> None:
        try:
            name, arguments = _Reader(body, self._kept).load()
            if name == "global":
                self._last = self._module.__dict__[arguments[0]]
            else:
                self._last = OPERATIONS[name](*arguments)
        except BaseException as raised:
            self._tell(raised)
            return
        self._answer()

    def _calls(self, body: Body) -> None:
        """Call the entry point with each of the arguments; the first that raises is the last that is called."""
        function = self._kept[ENTRY]
        for given in pickle.loads(body):
            try:
                self._last = function(*pickle.loads(given))
            except BaseException as raised:
                self._tell(raised)
                return
            self._answer()

    def _answer(self) -> None:
        """The last result, as a value where it has bytes, else as a handle."""
        try:
            body = packed(self._last)
        except BaseException:  # a class can refuse to be pickled in any way
            self._keep_last(b"")
            return
        self._ends.hold(b"V", body)

    def _keep_last(self, _: Body) -> None:
        kind = type(self._last)
        self._kept.append(self._last)
        told = (len(self._kept) - 1, printable(kind.__module__), printable(kind.__qualname__))
        self._ends.hold(b"H", packed(told))

    def _tell(self, raised: BaseException) -> None:
        """What was raised: the names of its types, and what a reader is shown."""
        try:
            names = [printable(kind.__name__) for kind in type(raised).__mro__]
            where = [
                frame.lineno
                for frame in traceback.extract_tb(raised.__traceback__)
                if frame.filename == FILE
            ]
            said = printable(str(raised)[:SHOWN])
            line = f" (line {where[-1]} of the answer)" if where else ""
            told = (names, f"{names[0]}: {said}{line}" if said else names[0] + line)
        except BaseException:  # its text may raise in turn
            told = (["Exception"], "an exception that cannot be shown")
        raised.__traceback__ = None
        self._ends.hold(b"X", packed(told))


def printable(text: object) -> str:
    """Text that every file can hold: half of a surrogate pair, which has no encoding, becomes a question mark."""
    return str(text).encode("utf-8", "replace").decode()


def _absent(entry: str) -> Any:
    raise NameError(f"the answer defines no {entry}")


def serve(ends: Ends) -> None:
    """Answer over `ends` until they close."""
    gc.freeze()
    Puppet(ends).serve()
