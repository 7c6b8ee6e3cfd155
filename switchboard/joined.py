"""Read several projections of one input with one matrix product.

Works on structure, not on models: modules that hold the given siblings, side by side, with the same kind, input
width, quantisation, dtype and bias, whatever architecture they belong to. The siblings are replaced by parts that
share one joined matrix. The forward of the model stays as mlx-lm wrote it: it calls the parts in turn with the same
input, the first call computes, the others read.

Joining keeps each output row as it was, so the result is bitwise that of the separate products wherever the kernel
treats rows independently of their number; each joint is checked for that on its own weights before the originals
are let go.

On a CPU an input of several rows (prefill, verify) is multiplied with each part's own rows of the joined matrix,
which are views of it: see `narrow`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mlx.core as mx
from mlx.nn.layers.base import Module
from mlx.nn.layers.linear import Linear
from mlx.nn.layers.quantized import QuantizedLinear

from switchboard.errors import Declined
from switchboard.registry import Applied, Counter

WIDTHS = (1, 2, 6)
WIDE = 130
NARROW = 1
MAGNITUDES = (1.0, 30.0)


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
        self._input: mx.array | None = None
        self._parts: list[mx.array | None] = [None] * len(sizes)

    def read(self, part: int, x: mx.array) -> mx.array:
        """One part of the product with `x`; computes when nothing is at hand."""
        if self.narrow is not None and x.size // x.shape[-1] > self.narrow:
            return self._separately(part, x)
        if self._input is None:
            self._parts = list(mx.split(self.product(x), self.cuts, axis=-1))
            self._input = x
            self.counter.runs += 1
        value = self._parts[part]
        if x is not self._input or value is None:
            self.forget()
            raise RuntimeError(f"joined projection: part {part} was read with another input")
        self._parts[part] = None
        if all(one is None for one in self._parts):
            self._input = None
        return value

    def _separately(self, part: int, x: mx.array) -> mx.array:
        """The part from its own rows of the joined matrix: a view, so it costs no memory."""
        if not self._apart:
            self._apart = [cut(self.product, rows) for rows in self.rows]
        result: mx.array = self._apart[part](x)
        return result

    def forget(self) -> None:
        """Drop what is at hand, so that an interrupted forward leaves nothing behind."""
        self._input = None
        self._parts = [None] * len(self._parts)


def narrow() -> int | None:
    """Rows of input up to which one product is the faster way; None: always.

    A part of a product of several rows is a strided view, and MLX's CPU kernels walk strided memory element by
    element: joined, passes of 2 to 8 rows took 2–9 % longer than apart and a prefill of 128 tokens 4 %. With one
    row the view is contiguous, and joined is 3 % faster for these products alone.
    """
    return NARROW if mx.default_device() == mx.Device(mx.cpu) else None


def cut(product: Any, rows: slice) -> Any:
    """The projection that these rows of a joined one are; its arrays are views of the joined ones."""
    part = _like(product)
    for key in ("weight", "scales", "biases", "bias"):
        if product.get(key) is not None:
            part[key] = product[key][rows]
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

    def __call__(self, x: mx.array) -> mx.array:
        """The projection of `x`, as its part of the joint."""
        return self._joint.read(self._place, x)


def join(model: Any, siblings: tuple[str, ...], counter: Counter, keep_originals: bool) -> Applied:
    """Join the siblings wherever they stand side by side; Declined when that is nowhere."""
    # named_modules walks from the last layer to the first.
    owners = [
        (path, module)
        for path, module in reversed(model.named_modules())
        if all(isinstance(module.get(name), Module) for name in siblings)
    ]
    joined: list[tuple[Module, Joint]] = []
    refused: list[str] = []
    for path, owner in owners:
        parts = [owner[name] for name in siblings]
        reason = differ(siblings, parts)
        if reason is None:
            joint = Joint(_concatenate(parts), [rows(part) for part in parts], counter)
            reason = parity(joint, parts, wide=not joined)
        if reason is not None:
            refused.append(f"{path}: {reason}")
            continue
        for place, name in enumerate(siblings):
            setattr(owner, name, Part(joint, place, parts[place] if keep_originals else None))
        joined.append((owner, joint))
        del parts
    names = ", ".join(siblings)
    if not joined:
        raise Declined(refused[0] if refused else f"no layer has {names} side by side")
    note = None
    if refused:
        note = f"{len(refused)} of {len(owners)} layers stay separate; first: {refused[0]}"

    def forget() -> None:
        """Drop what any joint has at hand."""
        for _, joint in joined:
            joint.forget()

    back = _way_back(joined, siblings)
    return Applied(len(joined), len(owners), len(model.layers), back, note, forget)


def rows(module: Any) -> int:
    """Output width of a projection."""
    return int(module.weight.shape[0])


def differ(names: tuple[str, ...], parts: list[Any]) -> str | None:
    """Why these projections cannot be one matrix, or None: kind, quantisation, width, dtype, bias."""
    first = _traits(parts[0])
    for name, part in zip(names, parts, strict=True):
        if type(part) not in (Linear, QuantizedLinear):
            return f"{name} is a {type(part).__name__}"
        for trait, value in _traits(part).items():
            if first.get(trait) != value:
                return f"{names[0]} has {trait} {first.get(trait)}, {name} has {value}"
    return None


def _traits(part: Any) -> dict[str, Any]:
    traits: dict[str, Any] = {"kind": type(part).__name__, "bias": "bias" in part}
    if isinstance(part, QuantizedLinear):
        traits |= {"bits": part.bits, "group size": part.group_size, "mode": part.mode}
        traits["scale type"] = str(part.scales.dtype)
    if "weight" in part:
        traits |= {"input width": part.weight.shape[-1], "type": str(part.weight.dtype)}
    return traits


def _like(model_part: Any) -> Any:
    """An empty projection of the same kind; its arrays are set by the caller."""
    if isinstance(model_part, QuantizedLinear):
        made = QuantizedLinear(
            model_part.group_size, 1, False, model_part.group_size, model_part.bits, model_part.mode
        )
        return made
    return Linear(1, 1, bias=False)


def _concatenate(parts: list[Any]) -> Any:
    product = _like(parts[0])
    for name in ("weight", "scales", "biases", "bias"):
        if parts[0].get(name) is not None:
            product[name] = mx.concatenate([part[name] for part in parts], axis=0)
    mx.eval(product.parameters())
    return product


def parity(joint: Joint, parts: list[Any], wide: bool) -> str | None:
    """Compare the joint bitwise with the separate products on these weights; the difference, or None.

    Several lengths, because a kernel may be chosen by the number of rows, and several magnitudes; one long input
    for the first layer only, to keep the start short.
    """
    columns = _columns(parts[0])
    dtype = parts[0].scales.dtype if "scales" in parts[0] else parts[0].weight.dtype
    for length in (*WIDTHS, WIDE) if wide else WIDTHS:
        for magnitude in MAGNITUDES if length == 1 else MAGNITUDES[:1]:
            x = magnitude * mx.random.normal((1, length, columns), key=mx.random.key(length))
            x = x.astype(dtype)
            for place, part in enumerate(parts):
                old, new = part(x), joint.read(place, x)
                if not mx.array_equal(old, new).item():
                    joint.forget()
                    worst = mx.abs(old - new).max().item()
                    return f"joined product differs by up to {worst:.3g} at length {length}"
    return None


def _columns(part: Any) -> int:
    width = int(part.weight.shape[-1])
    return width * 32 // part.bits if isinstance(part, QuantizedLinear) else width


def _way_back(joined: list[tuple[Module, Joint]], siblings: tuple[str, ...]) -> Callable[[], None]:
    def undo() -> None:
        """Cut the joined rows apart again; they are the originals' rows, bit by bit."""
        for owner, joint in joined:
            for place, name in enumerate(siblings):
                setattr(owner, name, cut(joint.product, joint.rows[place]))

    return undo
