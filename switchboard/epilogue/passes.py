"""Let an attention's own forward run with one kernel in place of its bias, rotations and KV write.

Nothing of the model is copied or replaced. The attention gets a subclass of its own class, made on the fly; for the
length of one pass that fits, the names `q_proj`, `k_proj`, `v_proj` and `rope` answer with stand-ins and the cache is a
stand-in too. The stand-ins of the projections compute the products without the bias, the rotation of q launches the
kernel, and the cache's stand-in hands out what it wrote, or has the real cache write what the kernel gave as rows
(every cache but mlx-lm's plain one). Any other pass (prefill, wide verify passes, several sequences) is the plain
forward. What the model gets from the projections meanwhile is NaN:
a forward that does anything else with it than reshape it fails the probe at once.

The write itself is the kernel's, under the rules of writes.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import mlx.core as mx
from mlx.nn.layers.quantized import QuantizedLinear

from switchboard import lm
from switchboard.epilogue import writes
from switchboard.epilogue.fit import SIBLINGS, Rotation, separate_bias, source
from switchboard.epilogue.kernel import Geometry
from switchboard.joined import Part
from switchboard.registry import Counter

Launch = Callable[[Geometry, int, Sequence[mx.array]], list[mx.array]]


class Pass:
    """One pass of one layer: the stand-ins, and what they hold meanwhile."""

    def __init__(self, layer: Layer, cache: Any, rows: int) -> None:
        self.layer = layer
        self.cache = cache
        self.rows = rows
        self.done = False
        self.offset: int = cache.offset
        self._products: dict[int, mx.array] = {}
        self._biases: list[mx.array] = []
        self._buffers: list[int] = []
        self._q: mx.array | None = None
        self._written: list[mx.array] = []
        self._turned = 0
        self.stands: dict[str, Any] = {
            "q_proj": lambda x: self.project(0, x),
            "k_proj": lambda x: self.project(1, x),
            "v_proj": lambda x: self.project(2, x),
            "rope": self.rope,
        }

    def __getattr__(self, name: str) -> Any:
        """Whatever else the forward asks of its cache."""
        return getattr(self.__dict__["cache"], name)

    def project(self, place: int, x: mx.array) -> mx.array:
        """Compute a product without its bias; the answer only has the right shape and type."""
        part = self.layer.attention[SIBLINGS[place]]
        module = source(part)
        if id(module) not in self._products:
            self._products[id(module)] = raw(module, x)
            self._biases += [module.bias] if separate_bias(module) else []
            if isinstance(part, Part):
                part._joint.counter.runs += 1
        self._buffers.append(list(self._products).index(id(module)))
        return self.layer.nothing(place, self.rows, self._products[id(module)].dtype)

    def rope(self, x: mx.array, offset: Any = 0, **more: Any) -> mx.array:
        """The first call is for q and launches the kernel, the second is for k and has nothing left to do."""
        heads = self.layer.geometry.keys if self._turned else self.layer.geometry.queries
        wanted = (1, heads, self.rows, self.layer.geometry.size)
        if more or self._turned > 1 or x.shape != wanted or offset != self.offset:
            raise RuntimeError(f"epilogue: unexpected rotation of {x.shape} at {offset} ({more})")
        self._turned += 1
        if self._turned == 2:
            return x
        self._q, *self._written = self._launch()
        self.layer.counter.runs += 1
        return self._q

    def _launch(self) -> list[mx.array]:
        layer, cache = self.layer, self.cache
        if len(self._buffers) != len(SIBLINGS):
            raise RuntimeError(f"epilogue: {len(self._buffers)} projections before the rotation")
        into_cache = layer.writes_into(cache)
        geometry = layer.variant(tuple(self._buffers), bool(self._biases), into_cache)
        capacity = 0
        if into_cache:
            writes.room(cache, self.rows)
            capacity = cache.keys.shape[2]
        inputs = [*self._products.values(), *self._biases]
        inputs.append(layer.places.at(self.offset, self.rows, capacity))
        if layer.rotation.freqs is not None:
            inputs.append(layer.rotation.freqs)
        if into_cache:
            inputs += [cache.keys, cache.values]
        return layer.launch(geometry, self.rows, inputs)

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> Any:
        """The cache with the new rows in it, as its own method would hand it out."""
        if self._turned != 2 or self._q is None:
            raise RuntimeError("epilogue: the cache was asked before q and k were rotated")
        self.done = True
        if self._written:
            self.layer.counter.add("left_to_the_cache")
            return self.cache.update_and_fetch(*self._written)
        writes.wrote(self.cache, self.rows, self._q)
        return self.cache.keys_and_values()


class Places:
    """Offset, rows and capacity as an array; one for all layers of a step."""

    def __init__(self) -> None:
        self._key: tuple[int, int, int] | None = None
        self._array: mx.array | None = None

    def at(self, offset: int, rows: int, capacity: int) -> mx.array:
        """The array of these three numbers."""
        key = (offset, rows, capacity)
        if self._array is None or key != self._key:
            self._key, self._array = key, mx.array(key, dtype=mx.int32)
        return self._array


@dataclass
class Layer:
    """One attention with the kernel in its forward."""

    attention: Any
    geometry: Geometry
    rotation: Rotation
    widest: int
    launch: Launch
    counter: Counter
    places: Places
    now: Pass | None = None
    blanks: dict[tuple[int, int, mx.Dtype], mx.array] = field(default_factory=dict)
    variants: dict[tuple[Any, ...], Geometry] = field(default_factory=dict)
    plain_cache: Any = field(default_factory=lambda: lm.caches().KVCache)

    def variant(self, buffers: Any, biased: bool, into_cache: bool) -> Geometry:
        """The geometry for a form of input and a way of writing; both can change while the layer lives."""
        key = (buffers, biased, into_cache)
        if key not in self.variants:
            self.variants[key] = replace(
                self.geometry, buffers=buffers, biased=biased, into_cache=into_cache
            )
        return self.variants[key]

    def writes_into(self, cache: Any) -> bool:
        """Whether the kernel writes into this cache; only the plain one's buffers are known to be its to write."""
        return (
            self.geometry.into_cache and type(cache) is self.plain_cache and cache.keys is not None
        )

    def nothing(self, place: int, rows: int, dtype: mx.Dtype) -> mx.array:
        """What stands for a product that only the kernel reads: NaN, and never computed."""
        key = (place, rows, dtype)
        if key not in self.blanks:
            heads = self.geometry.keys if place else self.geometry.queries
            width = heads * self.geometry.size
            self.blanks[key] = mx.full((1, rows, width), float("nan"), dtype)
        return self.blanks[key]

    def fits(self, x: mx.array, cache: Any) -> bool:
        """Whether this pass is one for the kernel."""
        narrow = x.ndim == 3 and x.shape[0] == 1 and 1 <= x.shape[1] <= self.widest
        return narrow and isinstance(cache.offset, int)

    def forward(self, plain: Any, x: mx.array, rest: tuple[Any, ...], named: dict[str, Any]) -> Any:
        """The attention's own forward, with the stand-ins where they fit."""
        found = [one for one in (*rest, *named.values()) if hasattr(one, "update_and_fetch")]
        cache = found[0] if found else None
        if cache is None or not self.fits(x, cache):
            if cache is not None:
                writes.settle(cache)
            return plain(x, *rest, **named)
        self.now = Pass(self, cache, x.shape[1])
        try:
            swapped = tuple(self.now if one is cache else one for one in rest)
            renamed = {key: self.now if one is cache else one for key, one in named.items()}
            out = plain(x, *swapped, **renamed)
            if not self.now.done:
                raise RuntimeError("epilogue: the forward never asked its cache")
            return out
        finally:
            self.now = None


def hook(layer: Layer) -> Callable[[], None]:
    """Put a layer's kernel into its attention's forward; the way back."""
    original: Any = type(layer.attention)

    class Hooked(original):  # type: ignore[misc]
        """The attention's own class, whose names can be answered by stand-ins for one pass."""

        def __call__(self, x: mx.array, *rest: Any, **named: Any) -> Any:
            return layer.forward(super().__call__, x, rest, named)

        def __getattr__(self, name: str) -> Any:
            if layer.now is not None and name in layer.now.stands:
                return layer.now.stands[name]
            return super().__getattr__(name)

    Hooked.__name__ = original.__name__
    layer.attention.__class__ = Hooked

    def undo() -> None:
        """Give the attention its own class back."""
        layer.attention.__class__ = original

    return undo


def raw(module: Any, x: mx.array) -> mx.array:
    """A projection's product; the bias of plain numbers stays in it, where MLX adds it inside the product."""
    if not isinstance(module, QuantizedLinear):
        plain: mx.array = module(x)
        return plain
    return mx.quantized_matmul(
        x,
        module["weight"],
        scales=module["scales"],
        biases=module.get("biases"),
        transpose=True,
        group_size=module.group_size,
        bits=module.bits,
        mode=module.mode,
    )
