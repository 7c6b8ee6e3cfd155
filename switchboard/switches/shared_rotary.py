"""Work out the angles of the rotary positions once a pass instead of twice a layer.

On a CPU MLX has no rotary kernel: each call of `mx.fast.rope` becomes about twenty operations, half of which make
the sines and cosines of the same positions anew. Here the first call of a pass makes them, by the model's own
rotation of (1, 0) pairs, and every other one turns its input with them in seven operations; `switchboard census`
counts both.

Found by structure: any module whose class is some …RoPE, with `dims` and `traditional`, whatever the model; those
that give the same angles share them. Exact: the same products and sums, only in another grouping of operations; each
rotation is compared bitwise at load, at several positions, lengths and magnitudes, and one that differs (a RoPE that
also scales its input) stays as it is. Costs two vectors of the head's width for each position of a pass.

Elsewhere than on a CPU it declines: Metal and CUDA rotate in one kernel.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import mlx.core as mx
import numpy as np
from mlx.nn.layers.base import Module
from mlx.utils import tree_flatten

from switchboard import parity
from switchboard.errors import Declined
from switchboard.registry import Applied, Counter, NoOptions, switch

PLACES = ((0, 5), (3, 1), (1000, 1), (70, 130))
"""Offsets and lengths at which a rotation is compared."""
MAGNITUDES = (1.0, 30.0)
SPARE = 4
"""Numbers of a head that are not rotated, in the comparison."""


class Angles:
    """The cosines and sines of the latest positions, as factors of an input and of its swapped pairs."""

    def __init__(self, rotation: Any) -> None:
        self.dims: int = rotation.dims
        self.traditional: bool = rotation.traditional
        self._rotation = rotation
        half = self.dims // 2
        pairs = [1.0, 0.0] * half if self.traditional else [1.0] * half + [0.0] * half
        self._ones = np.array(pairs, dtype=np.float32)
        self.forget()

    def forget(self) -> None:
        """Drop what is at hand."""
        self._key: tuple[int, int, mx.Dtype] | None = None
        self._factors: tuple[mx.array, mx.array] | None = None

    def factors(self, offset: int, length: int, dtype: mx.Dtype) -> tuple[mx.array, mx.array]:
        """(cos, cos) and (−sin, sin) of each pair: the rotation of (1, 0) is (cos, sin)."""
        key = (offset, length, dtype)
        if self._factors is None or key != self._key:
            shape = (1, 1, length, self.dims)
            ones = mx.broadcast_to(mx.array(self._ones, dtype=dtype), shape)
            turned = self._rotation(ones, offset=offset)
            split = (*shape[:3], -1, 2) if self.traditional else (*shape[:3], 2, -1)
            axis = -1 if self.traditional else -2
            cos, sin = mx.split(turned.reshape(split), 2, axis=axis)
            self._key = key
            self._factors = (
                mx.concatenate([cos, cos], axis=axis).reshape(shape),
                mx.concatenate([-sin, sin], axis=axis).reshape(shape),
            )
        return self._factors

    def turn(self, x: mx.array, offset: int) -> mx.array:
        """The rotated input: x·cos + swapped(x)·(∓sin), the same two products and the sum that MLX forms."""
        if x.shape[-1] > self.dims:
            whole, rest = x[..., : self.dims], x[..., self.dims :]
            return mx.concatenate([self.turn(whole, offset), rest], axis=-1)
        cos, sin = self.factors(offset, x.shape[-2], x.dtype)
        if self.traditional:
            swapped = x.reshape(*x.shape[:-1], -1, 2)[..., ::-1].reshape(x.shape)
        else:
            half = self.dims // 2
            swapped = mx.concatenate([x[..., half:], x[..., :half]], axis=-1)
        return x * cos + swapped * sin

    def fingerprint(self) -> tuple[Any, ...]:
        """Equal for rotations by the same angles."""
        far = [np.array(one).tobytes() for one in self.factors(1000, 1, mx.float32)]
        near = [np.array(one).tobytes() for one in self.factors(7, 3, mx.float32)]
        self.forget()
        return (self.dims, self.traditional, *far, *near)


class SharedRotary(Module):
    """Stands where a rotation stood."""

    def __init__(self, angles: Angles, original: Module, counter: Counter) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._angles = angles
        self._counter = counter
        # A tuple, so that MLX does not count the original among the modules.
        self._original = (original,)

    def __call__(self, x: mx.array, offset: Any = 0, **more: Any) -> mx.array:
        """The rotated input; positions that are not one run of numbers go the model's own way."""
        if more or not isinstance(offset, int):
            rotation: Any = self._original[0]
            rotated: mx.array = rotation(x, offset=offset, **more)
            return rotated
        self._counter.runs += 1
        return self._angles.turn(x, offset)


@dataclass
class Place:
    """A rotation and where it hangs."""

    path: str
    parent: Any
    name: str
    rotation: Any
    angles: Angles | None = None


@switch(stage="weights", exactness="exact")
def shared_rotary(model: Any, options: NoOptions, counter: Counter) -> Applied:
    """Let all rotations of the same angles share them."""
    if mx.default_device() != mx.Device(mx.cpu):
        raise Declined("rotary positions are one kernel on this device")
    places = find(model)
    if not places:
        raise Declined("no layer rotates by a …RoPE module with dims and traditional")
    dtype = next((one.dtype for one in _vectors(model)), mx.float32)
    known: dict[tuple[Any, ...], Angles] = {}
    refused: list[str] = []
    for place in places:
        reason = differ(place.rotation, {mx.float32, dtype})
        if reason is not None:
            refused.append(f"{place.path}.{place.name}: {reason}")
            continue
        angles = Angles(place.rotation)
        place.angles = known.setdefault(angles.fingerprint(), angles)
    if not known:
        raise Declined(refused[0])
    taken = [place for place in places if place.angles is not None]
    for place in taken:
        assert place.angles is not None
        setattr(place.parent, place.name, SharedRotary(place.angles, place.rotation, counter))

    def undo() -> None:
        """Put the model's own rotations back."""
        for place in taken:
            setattr(place.parent, place.name, place.rotation)

    def forget() -> None:
        """Drop the angles at hand."""
        for angles in known.values():
            angles.forget()

    note = (
        f"{len(refused)} of {len(places)} rotations stay; first: {refused[0]}" if refused else None
    )
    here = _by_layer(model, places)
    whole = sum(all(one.angles is not None for one in held) for held in here)
    touched = [sum(one.angles is not None for one in held) for held in here]
    return Applied(
        fused=whole, eligible=len(here), layers=len(model.layers), undo=undo, note=note, forget=forget,
        partly=sum(map(bool, touched)) - whole, unit="layers", modules=sum(touched),
    )  # fmt: skip


def find(model: Any) -> list[Place]:
    """Every module that rotates by positions, with its parent."""
    return [
        Place(path, parent, name, child)
        for path, parent in reversed(model.named_modules())
        for name, child in parent.children().items()
        if type(child).__name__.endswith("RoPE")
        and isinstance(getattr(child, "dims", None), int)
        and isinstance(getattr(child, "traditional", None), bool)
    ]


def differ(rotation: Any, dtypes: set[mx.Dtype]) -> str | None:
    """Where turning by shared angles gives other bytes than the rotation itself; None: nowhere."""
    found = parity.attempted(partial(_differ, rotation, dtypes))
    return f"a rotation broke off: {found}" if isinstance(found, parity.Broken) else found


def _differ(rotation: Any, dtypes: set[mx.Dtype]) -> str | None:
    angles = Angles(rotation)
    for offset, length in PLACES:
        for dtype in dtypes:
            for magnitude in MAGNITUDES:
                shape = (1, 2, length, angles.dims + SPARE)
                x = magnitude * mx.random.normal(shape, key=mx.random.key(offset))
                x = x.astype(dtype)
                found = parity.difference(rotation(x, offset=offset), angles.turn(x, offset))
                if found is not None:
                    return f"shared angles at position {offset}: {found}"
    return None


def _vectors(model: Any) -> list[mx.array]:
    flat: Any = tree_flatten(model.parameters())
    return [one for _, one in flat if one.ndim == 1 and mx.issubdtype(one.dtype, mx.floating)]


def _by_layer(model: Any, places: list[Place]) -> list[list[Place]]:
    """The rotations of each layer that holds any."""
    inside = [{id(one) for one in layer.modules()} for layer in model.layers]
    held = [[place for place in places if id(place.parent) in ids] for ids in inside]
    return [one for one in held if one]
