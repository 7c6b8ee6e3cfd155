"""Compiled passes of a model over buffers of a fixed capacity: the traced cache, and a bounded table of graphs.

A pass is a function of the tokens, the place of the first one and the buffers; it gives the logits and the buffers with
the new rows in them. Only shapes are fixed in its graph, so one graph serves every place in a buffer of its
capacity: the place is an array, the rows are written there, and the mask hides what lies behind.

What a graph replays does not pass by the places where other switches count. So what they counted while it was traced
is counted again with every replay.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

import mlx.core as mx

from switchboard.registry import LIVE, Counter

Model = Callable[..., mx.array]


def capacity(rows: int, step: int) -> int:
    """Rows of the buffer that holds so many: a multiple of `step`, and of about a tenth of it where that is more.

    So that a long text crosses few capacities, each of which costs a copy of the rows and a graph, and no more than
    an eighth of a buffer is attended to in vain.
    """
    unit = max(step, 1 << max(0, rows.bit_length() - 4))
    return -(-rows // unit) * unit


class Fixed:
    """One layer's entry of the cache inside a graph: buffers, and the place of the pass as an array."""

    def __init__(self, keys: mx.array, values: mx.array, start: mx.array) -> None:
        self.keys = keys
        self.values = values
        self.offset = start
        self._start = start
        self.written = 0

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> tuple[mx.array, mx.array]:
        """The whole buffers, with the rows at their place."""
        at = self._start.reshape(1)
        self.keys = mx.slice_update(self.keys, keys, at, axes=(2,))
        self.values = mx.slice_update(self.values, values, at, axes=(2,))
        self.offset = self._start + keys.shape[2]
        self.written += 1
        return self.keys, self.values

    def make_mask(
        self, rows: int, return_array: bool = False, window_size: int | None = None
    ) -> mx.array:
        """What each row of the pass sees: itself and what lies before it, `window_size` rows at most."""
        own = (self._start + mx.arange(rows))[:, None]
        keys = mx.arange(self.keys.shape[2])[None]
        mask = keys <= own
        return mask if window_size is None else mask & (own < keys + window_size)


class Graph:
    """One compiled pass: so many tokens over buffers of one capacity."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._counted: list[tuple[Counter, int, dict[str, int]]] = []
        self._traced = False
        self._compiled: Any = mx.compile(self._pass)

    def run(
        self, tokens: mx.array, start: int, buffers: Sequence[tuple[mx.array, mx.array]]
    ) -> tuple[mx.array, list[mx.array], list[mx.array]]:
        """Logits and buffers after the pass, not evaluated yet."""
        self._traced = False
        keys, values = [one for one, _ in buffers], [one for _, one in buffers]
        out: tuple[mx.array, list[mx.array], list[mx.array]] = self._compiled(
            tokens, mx.array(start, mx.int32), keys, values
        )
        if not self._traced:
            for counter, runs, more in self._counted:
                counter.runs += runs
                for name, count in more.items():
                    counter.add(name, count)
        return out

    def _pass(
        self, tokens: mx.array, start: mx.array, keys: list[mx.array], values: list[mx.array]
    ) -> tuple[mx.array, list[mx.array], list[mx.array]]:
        """What is traced; Python runs here once a graph."""
        self._traced = True
        before = [(one, one.runs, dict(one.more)) for one in LIVE.values()]
        cache = [Fixed(*pair, start) for pair in zip(keys, values, strict=True)]
        logits = self._model(tokens, cache=cache)
        if any(entry.written != 1 for entry in cache):
            raise RuntimeError("a layer did not write its rows once")
        moved = [
            (one, one.runs - runs, {name: count - more.get(name, 0) for name, count in one.more.items()})
            for one, runs, more in before
        ]  # fmt: skip
        self._counted = [one for one in moved if one[1] or any(one[2].values())]
        return logits, [entry.keys for entry in cache], [entry.values for entry in cache]


class Graphs:
    """The graphs of a model by width, capacity and type, the latest used kept; none outlives a change of the model."""

    def __init__(self, model: Any, plain: Model, most: int, counter: Counter) -> None:
        self._whole = model
        self._plain = plain
        self._most = most
        self._counter = counter
        self._table: OrderedDict[tuple[Any, ...], Graph] = OrderedDict()
        self._parts: list[Any] = []

    def graph(self, key: tuple[Any, ...]) -> Graph:
        """The graph of this key, made when it is missing."""
        if key not in self._table:
            if not self._table:
                self._parts = self._look()
            self._table[key] = Graph(self._plain)
            self._counter.add("graphs")
            if len(self._table) > self._most:
                self._table.popitem(last=False)
        self._table.move_to_end(key)
        return self._table[key]

    def __len__(self) -> int:
        return len(self._table)

    def clear(self) -> None:
        """Let all graphs go, and the weights that stand in them as constants."""
        self._table.clear()
        self._parts = []

    def refresh(self) -> None:
        """Let the graphs go when a module, its class or one of its arrays is another one than when they were made."""
        if self._table:
            now = self._look()
            if len(now) != len(self._parts) or any(
                one is not other for one, other in zip(now, self._parts, strict=True)
            ):
                self.clear()

    def _look(self) -> list[Any]:
        """Everything that a graph takes for constant. Held, so that an identity is not given to a successor."""
        found: list[Any] = []
        for module in self._whole.modules():
            found += [module, type(module)]
            found += [value for value in module.values() if isinstance(value, mx.array)]
        return found
