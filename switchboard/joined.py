"""One matrix product in place of several that read the same input: the product, its parts, and the proof.

The parts stand where the projections stood, so the forward of the model stays as mlx-lm wrote it: it calls them in
turn with the same input, the first call computes, the others read. `siblings` finds what can be joined.

Joining keeps each output row as it was, so the result is bitwise that of the separate products wherever the kernel
treats rows independently of their number; each joint is checked for that on its own weights before the originals
are let go. Routed experts are the same with one more axis: their rows are the second, and a call takes the choice of
experts beside the input.

On a CPU an input of several rows (prefill, verify) is multiplied with each part's own rows of the joined matrix,
which are views of it: see `narrow`.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import mlx.core as mx
from mlx.nn.layers.base import Module
from mlx.nn.layers.linear import Linear
from mlx.nn.layers.quantized import QuantizedLinear

from switchboard import layout, lm, parity
from switchboard.registry import Counter

ARRAYS = ("weight", "scales", "biases", "bias")
WIDTHS = (1, 2, 6)
WIDE = 130
NARROW = 1
MAGNITUDES = (1.0, 30.0)
CHOSEN = 4
SORTED_FROM = 64
"""Choices of experts from which mlx-lm sorts them before the product."""


class Joint:
    """The joined product and the parts of the latest one, kept until each has been read once.

    The input is held and compared by identity: a part that is asked for another input than the one at hand, while
    others are still unread, would mean that the siblings do not share their input, and is an error instead of a
    stale answer.
    """

    def __init__(self, product: Module, sizes: list[int], counter: Counter) -> None:
        self.product: Any = product
        self.cuts = [sum(sizes[:place]) for place in range(1, len(sizes))]
        self.counter = counter
        self.narrow = narrow()
        self.rows = [
            slice(sum(sizes[:place]), sum(sizes[: place + 1])) for place in range(len(sizes))
        ]
        self._apart: list[Any] = []
        self._inputs: tuple[mx.array, ...] = ()
        self._parts: list[mx.array | None] = [None] * len(sizes)

    def read(self, part: int, x: mx.array, *more: mx.array, **how: Any) -> mx.array:
        """One part of the product with `x` (and, for experts, their choice); computes when nothing is at hand."""
        if self.narrow is not None and x.size // x.shape[-1] > self.narrow:
            return self._separately(part, x, *more, **how)
        inputs = (x, *more)
        if not self._inputs:
            self._parts = self._product(*inputs, **how)
            self._inputs = inputs
            self.counter.runs += 1
        value = self._parts[part]
        same = all(one is other for one, other in zip(inputs, self._inputs, strict=True))
        if not same or value is None:
            self.forget()
            raise RuntimeError(f"joined projection: part {part} was read with another input")
        self._parts[part] = None
        if all(one is None for one in self._parts):
            self._inputs = ()
        return value

    def _product(self, *inputs: mx.array, **how: Any) -> list[mx.array | None]:
        """The joined product, cut into its parts."""
        if isinstance(self.product, layout.Stack):
            return [*self.product.parts(*inputs)]
        return list(mx.split(self.product(*inputs, **how), self.cuts, axis=-1))

    def _separately(self, part: int, *inputs: mx.array, **how: Any) -> mx.array:
        """The part from its own rows of the joined matrix: a view, so it costs no memory."""
        if not self._apart:
            self._apart = [cut(self.product, rows) for rows in self.rows]
        result: mx.array = self._apart[part](*inputs, **how)
        return result

    def forget(self) -> None:
        """Drop what is at hand, so that an interrupted forward leaves nothing behind."""
        self._inputs = ()
        self._parts = [None] * len(self._parts)


def narrow() -> int | None:
    """Rows of input up to which one product is the faster way; None: always.

    A part of a product of several rows is a strided view, and MLX's CPU kernels walk strided memory element by
    element, which costs more than one product spares: reports/LOG.md has the times, row by row. With one row the view
    is contiguous.
    """
    return NARROW if mx.default_device() == mx.Device(mx.cpu) else None


def cut(product: Any, rows: slice) -> Any:
    """The projection that these rows of a joined one are; its arrays are views of the joined ones."""
    if isinstance(product, layout.Stack):
        stacked = product.cut(rows.start // (rows.stop - rows.start))
        mx.eval(stacked.parameters())
        return stacked
    part = _like(product)
    where = (slice(None), rows) if routed(product) else rows
    for key in ARRAYS:
        if product.get(key) is not None:
            part[key] = product[key][where]
    mx.eval(part.parameters())
    return part


class Part(Module):
    """Stands where a projection stood; the first of the siblings owns the joined weights."""

    def __init__(self, joint: Joint, place: int, original: Module | None) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        if place == 0:
            self.product = joint.product
        self._joint = joint
        self._place = place
        # MLX looks for parameters in modules, lists and tables, not in tuples: a kept original must not be one.
        self._original = (original,)

    def product_of(self) -> Any:
        """The joined projection that this is a part of."""
        return self._joint.product

    def __call__(self, x: mx.array, *more: mx.array, **how: Any) -> mx.array:
        """The projection of `x`, as its part of the joint."""
        return self._joint.read(self._place, x, *more, **how)


def rows(module: Any) -> int:
    """Output width of a projection."""
    return int(module.weight.shape[1 if routed(module) else 0])


def routed(module: Any) -> bool:
    """Whether a projection is one of many experts, chosen by the input; a part is what its product is."""
    if isinstance(module, Part):
        module = module.product_of()
    experts = lm.experts()
    return type(module) in (experts.SwitchLinear, experts.QuantizedSwitchLinear)


def projection(module: Any) -> bool:
    """Whether a module is a projection of a kind that can be joined."""
    return type(module) in (Linear, QuantizedLinear) or routed(module)


def traits(part: Any) -> dict[str, Any]:
    """What two projections must share to be one matrix: kind, quantisation, input width, dtype, bias, experts."""
    found: dict[str, Any] = {"kind": type(part).__name__, "bias": "bias" in part}
    if "scales" in part:
        found |= {"bits": part.bits, "group size": part.group_size, "mode": part.mode}
        found["scale type"] = str(part.scales.dtype)
        found["scale per expert"] = getattr(part, "global_scale", None) is not None
    if "weight" in part:
        found |= {"input width": part.weight.shape[-1], "type": str(part.weight.dtype)}
        found["experts"] = part.weight.shape[0] if routed(part) else None
        if layout.laid(part):
            found["columns together, outputs"] = rows(part)
    return found


def differ(names: tuple[str, ...], parts: list[Any]) -> str | None:
    """Why these projections cannot be one matrix, or None."""
    first = traits(parts[0])
    for name, part in zip(names, parts, strict=True):
        if not projection(part):
            return f"{name} is a {type(part).__name__}"
        if getattr(part, "global_scale", None) is not None:
            return f"{name} has a scale of its own for each expert"
        for trait, value in traits(part).items():
            if first.get(trait) != value:
                return f"{names[0]} has {trait} {first.get(trait)}, {name} has {value}"
    return None


def _like(part: Any) -> Any:
    """An empty projection of the same kind; its arrays are set by the caller."""
    if type(part) is Linear:
        return Linear(1, 1, bias=False)
    if not routed(part):
        return QuantizedLinear(part.group_size, 1, False, part.group_size, part.bits, part.mode)
    experts = lm.experts()
    if "scales" not in part:
        return experts.SwitchLinear(1, 1, 1, bias=False)
    return experts.QuantizedSwitchLinear(
        part.group_size, 1, 1, False, part.group_size, part.bits, part.mode
    )


def concatenate(parts: list[Any]) -> Any:
    """The joined projection, evaluated; its rows are the parts' rows in order.

    Of parts whose columns stand together it is a stack: rows behind rows would no longer be one piece for each part.
    """
    if layout.laid(parts[0]):
        return layout.Stack(parts)
    product = _like(parts[0])
    for name in ARRAYS:
        if parts[0].get(name) is not None:
            axis = 1 if routed(parts[0]) else 0
            product[name] = mx.concatenate([part[name] for part in parts], axis=axis)
    mx.eval(product.parameters())
    return product


def unlike(joint: Joint, parts: list[Any], wide: bool) -> str | None:
    """Compare the joint bitwise with the separate products on these weights; the difference, or None.

    Several lengths, because a kernel may be chosen by the number of rows, and several magnitudes; one long input
    where `wide` asks for it (the first layer of its kind), to keep the start short.
    """
    found = parity.attempted(partial(_unlike, joint, parts, wide))
    return f"the products broke off: {found}" if isinstance(found, parity.Broken) else found


def _unlike(joint: Joint, parts: list[Any], wide: bool) -> str | None:
    for length in (*WIDTHS, WIDE) if wide else WIDTHS:
        for magnitude in MAGNITUDES if length == 1 else MAGNITUDES[:1]:
            inputs, how = _example(parts[0], length, magnitude)
            for place, part in enumerate(parts):
                found = parity.difference(part(*inputs, **how), joint.read(place, *inputs, **how))
                if found is not None:
                    joint.forget()
                    return f"joined product at length {length}: {found}"
    return None


def _example(
    part: Any, length: int, magnitude: float
) -> tuple[tuple[mx.array, ...], dict[str, Any]]:
    """A random input as mlx-lm hands it to such a projection; experts are drawn, and sorted when there are many."""
    dtype = part.scales.dtype if "scales" in part else part.weight.dtype
    if not mx.issubdtype(dtype, mx.floating):
        # Scales of the fp4 and fp8 modes are bytes; they say nothing of the type of the input.
        dtype = mx.float32
    key = mx.random.key(length)
    x = (magnitude * mx.random.normal((1, length, columns(part)), key=key)).astype(dtype)
    if not routed(part):
        return (x,), {}
    count = int(part.weight.shape[0])
    chosen = mx.random.randint(0, count, (1, length, min(CHOSEN, count)), key=key)
    chosen = chosen.astype(mx.uint32)
    if chosen.size < SORTED_FROM:
        return (mx.expand_dims(x, (-2, -3)), chosen), {"sorted_indices": False}
    flat = chosen.flatten()
    order = mx.argsort(flat)
    taken = x.reshape(length, 1, -1)[order // chosen.shape[-1]]
    return (taken, flat[order]), {"sorted_indices": True}


def columns(part: Any) -> int:
    """Input width of a projection."""
    width = int(part.weight.shape[-1])
    return width * 32 // part.bits if "scales" in part else width
