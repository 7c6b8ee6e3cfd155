"""Which modules a model calls, with which inputs, and the same calls made again later.

The plain model runs once while every class of its modules notes who was called with what. So nothing has to be known
of an architecture: the inputs are the real ones, in the order and with the arguments that the model itself uses, and
the same object goes to all siblings. A module that a switch put in its place is then called with them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import mlx.core as mx
from mlx.utils import tree_flatten

from switchboard.bisect.compare import Observation

MakeCache = Callable[[], list[Any]]


@dataclass(frozen=True)
class Slot:
    """Stands for one layer's entry of the cache, which every replay gets fresh."""

    place: int


@dataclass(frozen=True)
class Call:
    """One call of one module, as the plain model made it."""

    path: str
    module: Any
    calling: Any
    """The function that its class is called through; a switch may change it for the whole class."""
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    @property
    def with_cache(self) -> bool:
        """Whether an entry of the cache was handed over."""
        return any(isinstance(one, Slot) for one in self._given())

    @property
    def plain(self) -> bool:
        """Whether it can be made again: arrays, slots and plain values only."""
        return all(
            one is None or isinstance(one, mx.array | Slot | bool | int | float | str)
            for one in self._given()
        )

    def _given(self) -> list[Any]:
        return [*self.args, *self.kwargs.values()]

    def changed(self, change: Callable[[Any], Any]) -> Call:
        """The call with every argument put through `change`."""
        kwargs = {key: change(one) for key, one in self.kwargs.items()}
        return replace(self, args=tuple(change(one) for one in self.args), kwargs=kwargs)


def calling(kind: type) -> Any:
    """The function behind `module(...)`, or None for a class that cannot be called."""
    for base in kind.__mro__:
        if "__call__" in base.__dict__:
            return base.__dict__["__call__"]
    return None


@contextmanager
def watched(model: Any) -> Iterator[list[Call]]:
    """Note every call of a module of the model, in order, while the block runs."""
    calls: list[Call] = []
    # A module that hangs in several places is known by the first of them.
    paths = {id(module): path for path, module in model.named_modules()}
    functions = {kind: calling(kind) for kind in {type(module) for module in model.modules()}}
    functions = {kind: function for kind, function in functions.items() if function is not None}
    own = {kind: kind.__dict__.get("__call__") for kind in functions}

    def noting(function: Any) -> Any:
        def call(self: Any, *args: Any, **kwargs: Any) -> Any:
            if id(self) in paths:
                calls.append(Call(paths[id(self)], self, function, args, kwargs))
            return function(self, *args, **kwargs)

        return call

    try:
        for kind, function in functions.items():
            setattr(kind, "__call__", noting(function))  # noqa: B010
        yield calls
    finally:
        for kind, before in own.items():
            if before is None:
                delattr(kind, "__call__")
            else:
                setattr(kind, "__call__", before)  # noqa: B010


def capture(model: Any, ids: Sequence[int], make_cache: MakeCache) -> list[Call]:
    """The calls of one pass over an empty cache, with slots in place of its entries."""
    cache = make_cache()

    def slotted(value: Any) -> Any:
        for place, entry in enumerate(cache):
            if value is entry:
                return Slot(place)
        return value

    with watched(model) as calls:
        mx.eval(model(mx.array([ids]), cache=cache))
    return [call.changed(slotted) for call in calls]


def layer_paths(model: Any) -> list[str]:
    """Where the layers hang, first to last."""
    paths = {id(module): path for path, module in model.named_modules()}
    return [paths[id(layer)] for layer in model.layers if id(layer) in paths]


def within(calls: list[Call], layers: list[str], deepest: bool) -> list[Call]:
    """The calls that can be made again: all below a layer without a cache, or the large parts of the layers.

    The large parts are the layers' own children that hold modules or take the cache: attention and MLP.
    """
    found: list[Call] = []
    for call in calls:
        layer = next((one for one in layers if call.path.startswith(f"{one}.")), None)
        if layer is None or not call.plain:
            continue
        child = "." not in call.path[len(layer) + 1 :]
        large = child and (call.with_cache or bool(call.module.children()))
        if large if not deepest else not call.with_cache:
            found.append(call)
    return found


@dataclass(frozen=True)
class Known:
    """The modules of a plain model by path, each with the function that calls it."""

    modules: dict[str, tuple[Any, Any]]

    def same(self, path: str, module: Any, function: Any) -> bool:
        """Whether this is still the plain model's module, called in the plain model's way."""
        before = self.modules.get(path)
        return before is not None and before[0] is module and before[1] is function


def know(model: Any) -> Known:
    """Take note of every module; they are held, so the originals stay in memory as long as this does."""
    return Known({path: (module, calling(type(module))) for path, module in model.named_modules()})


def replaced(calls: list[Call], model: Any, before: Known) -> list[Call]:
    """The calls whose module, or whose class's way to be called, is another one now; outermost only."""
    now = dict(model.named_modules())
    changed = [
        call
        for call in calls
        if call.path in now
        and not before.same(call.path, now[call.path], calling(type(now[call.path])))
    ]
    paths = {call.path for call in changed}

    def inside(path: str) -> bool:
        parts = path.split(".")
        return any(".".join(parts[:size]) in paths for size in range(1, len(parts)))

    return [call for call in changed if not inside(call.path)]


def missing(calls: list[Call], model: Any, before: Known) -> str | None:
    """The first path that was called and leads nowhere now, or None.

    What hung in a module that was itself replaced may be gone: that module is called in its stead.
    """
    now = dict(model.named_modules())

    def kept(path: str) -> bool:
        return path in now and before.same(path, now[path], calling(type(now[path])))

    for call in calls:
        parts = call.path.split(".")
        above = [".".join(parts[:size]) for size in range(1, len(parts))]
        if call.path not in now and all(kept(path) for path in above if path in before.modules):
            return call.path
    return None


def repeat(calls: list[Call], model: Any, make_cache: MakeCache, magnitude: float) -> Observation:
    """Make the calls again on the modules that hang there now, with their real numbers times `magnitude`.

    One array stays one object for all who share it, as in the model's own forward.
    """
    now, cache = dict(model.named_modules()), make_cache()
    scaled: dict[int, mx.array] = {}

    def given(value: Any) -> Any:
        if isinstance(value, Slot):
            return cache[value.place]
        if (
            magnitude != 1.0
            and isinstance(value, mx.array)
            and mx.issubdtype(value.dtype, mx.floating)
        ):
            return scaled.setdefault(id(value), value * magnitude)
        return value

    seen: Observation = {}
    for call in calls:
        made = call.changed(given)
        result: Any = tree_flatten(now[call.path](*made.args, **made.kwargs))
        for name, array in result:
            part = f" part {name}" if name else ""
            seen[f"{call.path} ×{magnitude:g}{part}"] = array
    mx.eval(list(seen.values()))
    return seen
