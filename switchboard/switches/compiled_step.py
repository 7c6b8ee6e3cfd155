"""Decode and verify in one compiled graph a pass, over buffers of a fixed capacity.

Meant for small models on a GPU, where the time of a step is Python building its graph and the host launching its
operations: `mx.compile` builds it once and fuses what is element by element. `python -m benchmarks.compiled_gpu`
measures it there: on an H200 SmolLM2 makes 731 launches a step instead of 517 with it, and 0.65 [0.56, 0.75] and 0.69
[0.58, 0.82] of its speed at 64 tokens (reports/gpu-h200.json). So it stays off. On a CPU a step is bound by memory:
0.98 [0.91, 1.07] of SmolLM2's plain speed in processor time. The first start there also compiles its kernels with the
machine's C++ compiler (half a minute, kept by MLX in the temporary folder), and without one, where MLX would silently
compile nothing, this declines.

Passes of up to `widest` tokens of one sequence over mlx-lm's plain KVCache, once it holds rows; prefill stays as it
is. The buffers are the cache's own, lengthened to a capacity that graphs.py says (a multiple of `step` rows), so that
taking tokens back and going on with a plain pass work as ever. A graph for each width and capacity, `graphs` of them
kept. All of the capacity is attended to, under a mask.

Fits models whose whole cache is of that class and whose forward takes the place of a pass as an array; probed on the
real weights. Hybrid and windowed models decline, with the layer. Goes together with the joined projections and
masked_prefill (what they count in a graph is counted with each replay), and with shared_rotary, which then turns
prefill alone. Declines beside in_place_kv (its buffers have room for the whole answer, all of which would be attended
to), quantized_kv and fused_epilogue (whose kernel writes at a place that is a number).

Rounding: fused operations and sums over a longer buffer may round differently. The probe's note says whether they
did. Costs: rows up to the capacity, at most 512 or an eighth of them, whichever is more; one copy of them at each new
capacity. `runs` counts passes, `graphs` those that were made, `left` passes over a cache of another class. Turned off
by not asking for it, or by SWITCHBOARD_COMPILED_STEP=0.
"""

from __future__ import annotations

import io
from functools import partial
from typing import Any

import mlx.core as mx
import msgspec

from switchboard import cache as kv
from switchboard import lm, parity
from switchboard.bisect.compare import Observation, compare
from switchboard.errors import Declined
from switchboard.graphs import Graphs, capacity
from switchboard.registry import Applied, Counter, switch

PREFILL = (5, 11, 3, 250, 7, 19)
PASSES: tuple[tuple[tuple[int, ...], int], ...] = (
    ((42,), 0), ((9,), 0), ((8, 21, 4), 2), ((17,), 0), ((30, 2, 6), 0), ((1,), 0),
)  # fmt: skip
"""Tokens of each pass of the probe, and how many of them are taken back."""
KIND = "KVCache"


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Options of this switch."""

    widest: int = 8
    step: int = 512
    graphs: int = 16

    def __post_init__(self) -> None:
        """Refuse a width that would take prefill along, and a table or a step that would compile all the time."""
        if not 1 <= self.widest <= 64:
            raise ValueError("widest must be 1 to 64")
        if self.step < 64:
            raise ValueError("step must be 64 rows or more")
        if self.graphs < 2:
            raise ValueError("graphs must be 2 or more")


@switch(
    stage="step", exactness="rounding", options=Options,
    against=("fused_epilogue", "in_place_kv", "quantized_kv"),
)  # fmt: skip
def compiled_step(model: Any, options: Options, counter: Counter) -> Applied:
    """Let narrow passes of the model go through compiled graphs."""
    kinds = [type(entry).__name__ for entry in kv.make(model)]
    other = next((layer for layer, kind in enumerate(kinds) if kind != KIND), None)
    if other is not None:
        raise Declined(f"layer {other} has a {kinds[other]}, which is no buffer of fixed rows")
    plain = parity.attempted(partial(passes, model))
    if isinstance(plain, parity.Broken):
        raise Declined(f"a pass broke off without it: {plain}")
    hooked = Hook(model, options, counter)
    wrong, note = hooked.prove(plain)
    if wrong:
        hooked.undo()
        raise Declined(wrong)
    layers = len(model.layers)
    return Applied(
        layers, layers, layers, hooked.undo, note=note, unit="layers", modules=0,
    )  # fmt: skip


class Hook:
    """The model's own class with its narrow passes led through the graphs, until it is undone."""

    def __init__(self, model: Any, options: Options, counter: Counter) -> None:
        original: Any = type(model)
        self._model, self._original = model, original
        self._options, self._counter = options, counter
        self._kind = getattr(lm.caches(), KIND)
        self.graphs = Graphs(model, partial(original.__call__, model), options.graphs, counter)
        hook = self

        class Compiled(original):  # type: ignore[misc]
            """The model's own class; a pass that does not fit goes its way."""

            def __call__(self, inputs: mx.array, cache: Any = None, **more: Any) -> Any:
                if more or cache is None or not hook.fits(inputs, cache):
                    return super().__call__(inputs, cache=cache, **more)
                return hook.through(inputs, cache)

        Compiled.__name__ = original.__name__
        Compiled.__module__ = original.__module__
        model.__class__ = Compiled

    def undo(self) -> None:
        """Give the model its own class back."""
        self._model.__class__ = self._original
        self.graphs.clear()

    def fits(self, tokens: Any, cache: list[Any]) -> bool:
        """Whether this pass is one for a graph."""
        if cache and cache[0].empty():
            # The beginning of a text: the one moment to see that the model is not what it was.
            self.graphs.refresh()
            return False
        if tokens.ndim != 2 or tokens.shape[0] != 1 or tokens.shape[1] > self._options.widest:
            return False
        if any(type(entry) is not self._kind for entry in cache):
            self._counter.add("left")
            return False
        return all(entry.offset == cache[0].offset for entry in cache)

    def through(self, tokens: mx.array, cache: list[Any]) -> mx.array:
        """Logits of the pass; the cache's buffers are those that the graph gave."""
        width, start = tokens.shape[1], cache[0].offset
        held = max(start + width, *(entry.keys.shape[2] for entry in cache))
        rows = capacity(held, self._options.step)
        for entry in cache:
            lengthen(entry, rows)
        graph = self.graphs.graph((width, rows, tokens.dtype, cache[0].keys.dtype))
        buffers = [(entry.keys, entry.values) for entry in cache]
        logits, keys, values = graph.run(tokens, start, buffers)
        for entry, new, other in zip(cache, keys, values, strict=True):
            entry.keys, entry.values, entry.offset = new, other, start + width
        self._counter.runs += 1
        return logits

    def prove(self, plain: Observation) -> tuple[str | None, str | None]:
        """What is wrong with the compiled passes beside the plain ones, or a note on how near they are."""
        compiled = parity.attempted(partial(passes, self._model))
        if isinstance(compiled, parity.Broken):
            return f"the forward cannot be compiled: {compiled}", None
        wanted = len(PASSES)
        if self._counter.runs != wanted:
            return f"{self._counter.runs} of {wanted} passes of the probe were compiled", None
        if not fuses(self._model):
            where = "this CPU: it found no C++ compiler" if on_cpu() else "this device"
            return f"mx.compile does nothing on {where}, or it is turned off", None
        found = compare(plain, compiled, exact=False)
        if found.difference is not None:
            return f"parity probe failed: {found.difference.told()}", None
        if found.worst == 0.0:
            return None, "bitwise the plain model in its probe"
        return None, f"off by up to {found.worst:.2g} of the largest logit in its probe"


def lengthen(entry: Any, rows: int) -> None:
    """Give the buffers of one layer room for so many rows."""
    for name in ("keys", "values"):
        buffer = getattr(entry, name)
        if buffer.shape[2] < rows:
            more = (*buffer.shape[:2], rows - buffer.shape[2], buffer.shape[3])
            setattr(entry, name, mx.concatenate([buffer, mx.zeros(more, buffer.dtype)], axis=2))


def passes(model: Any) -> Observation:
    """Logits of a prefill and of narrow passes after it, with tokens taken back, and the rows that are left."""
    cache, seen = kv.make(model), Observation()
    seen["logits of the prefill"] = model(mx.array([list(PREFILL)]), cache=cache)
    for place, (tokens, back) in enumerate(PASSES):
        seen[f"logits of pass {place}"] = model(mx.array([list(tokens)]), cache=cache)
        mx.eval(list(seen.values()), kv.arrays(cache))
        kv.rewind(cache, back)
    for layer, entry in enumerate(cache):
        for name in ("keys", "values"):
            seen[f"{name} of layer {layer}"] = getattr(entry, name)[..., : entry.offset, :]
    mx.eval(list(seen.values()))
    return seen


def fuses(model: Any) -> bool:
    """Whether the graph of a pass holds an operation that mx.compile made of several."""
    cache = kv.make(model)
    mx.eval(model(mx.array([list(PREFILL)]), cache=cache))
    told = io.StringIO()
    mx.export_to_dot(told, model(mx.array([[1]]), cache=cache))
    return '"Compiled' in told.getvalue()


def on_cpu() -> bool:
    """Whether arrays are computed on the CPU."""
    return mx.default_device() == mx.Device(mx.cpu)
