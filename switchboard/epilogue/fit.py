"""What the kernel needs to know of an attention, or why it is none for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import mlx.core as mx
from mlx.nn.layers.linear import Linear
from mlx.nn.layers.positional_encoding import RoPE
from mlx.nn.layers.quantized import QuantizedLinear

from switchboard.epilogue.kernel import Geometry
from switchboard.joined import Part

SIBLINGS = ("q_proj", "k_proj", "v_proj")


@dataclass(frozen=True)
class Rotation:
    """What of a rotation module the kernel has to know."""

    dims: int
    traditional: bool
    base: float | None
    scale: float
    freqs: mx.array | None


def rotation(rope: Any) -> Rotation | str:
    """The rotation of a module, or why the kernel does not do it."""
    kind = type(rope).__name__
    if type(rope) is RoPE:
        return Rotation(
            rope.dims, bool(rope.traditional), float(rope.base), float(rope.scale), None
        )
    if kind == "YarnRoPE" and rope.mscale != 1.0:
        return f"its YarnRoPE multiplies by {rope.mscale:.3g} before it rotates"
    if kind in ("Llama3RoPE", "YarnRoPE"):
        return Rotation(rope.dims, bool(rope.traditional), None, 1.0, rope._freqs)
    return f"it rotates by {kind}, which the kernel does not know"


def structure(attention: Any, into_cache: bool) -> tuple[Geometry, Rotation] | str:
    """What the kernel needs of an attention, or why it is none for it."""
    norms = sorted(name for name in attention if "norm" in name)
    if norms:
        return f"it has {' and '.join(norms)} between the products and the rotation"
    if "rope" not in attention and not hasattr(attention, "rope"):
        return "it has no rope"
    turned = rotation(attention.rope)
    if isinstance(turned, str):
        return turned
    parts = [attention[name] for name in SIBLINGS]
    wrong = unlike(parts)
    if wrong is not None:
        return wrong
    widths = [width(part) for part in parts]
    size = int(getattr(attention, "head_dim", 0) or turned.dims)
    if size != turned.dims:
        return f"it rotates {turned.dims} numbers of a head of {size}"
    if size % 2 or any(one % size for one in widths) or widths[1] != widths[2]:
        return f"projections of {widths} numbers are not whole heads of an even size ({size})"
    queries, keys = widths[0] // size, widths[1] // size
    if queries % keys:
        return f"{queries} query heads do not share {keys} key heads"
    return Geometry(
        queries,
        keys,
        size,
        turned.traditional,
        turned.base,
        turned.scale,
        (0, 0, 0),
        False,
        into_cache,
    ), turned


def unlike(parts: list[Any]) -> str | None:
    """Why these three do not end in one kernel, or None: another kind of layer, a bias on some only, another type."""
    found = [source(part) for part in parts]
    order = [part._place for part in parts if isinstance(part, Part)]
    if order != sorted(order):
        return f"they are joined in another order ({order})"
    for name, part in zip(SIBLINGS, parts, strict=True):
        mine = (
            [one for one in parts if isinstance(one, Part) and one._joint is part._joint]
            if isinstance(part, Part)
            else []
        )
        if mine and len(mine) != len(part._joint.rows):
            return f"{name} is joined with something else than q, k and v"
    for name, one in zip(SIBLINGS, found, strict=True):
        if type(one) not in (Linear, QuantizedLinear):
            return f"{name} is a {type(one).__name__}"
        if separate_bias(one) and one.bias.dtype != one.scales.dtype:
            return f"{name} adds a bias of {one.bias.dtype} to a product of {one.scales.dtype}"
    if len({separate_bias(one) for one in found}) > 1:
        return "some of q, k and v add a bias of their own and some do not"
    types = {str(one.scales.dtype if "scales" in one else one.weight.dtype) for one in found}
    return f"q, k and v are of {' and '.join(sorted(types))}" if len(types) > 1 else None


def source(part: Any) -> Any:
    """The module that computes a projection: itself, or what it is joined into."""
    return part._joint.product if isinstance(part, Part) else part


def width(part: Any) -> int:
    """Output width of a projection, joined or not."""
    if isinstance(part, Part):
        rows = part._joint.rows[part._place]
        return int(rows.stop - rows.start)
    return int(part.weight.shape[0])


def separate_bias(module: Any) -> bool:
    """Whether the bias is an operation of its own, and so the kernel's work."""
    return isinstance(module, QuantizedLinear) and "bias" in module
