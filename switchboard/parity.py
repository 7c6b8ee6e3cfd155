"""What every probe at load shares: arrays held against each other bit by bit, and a reason of what broke off.

A probe runs a part of the model as it is and with a switch, and lets the switch stay only where both give the same
bits. Bits, not values: 0 and −0 differ, as the next division may make them +∞ and −∞; NaN equals itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import mlx.core as mx

from switchboard.errors import SwitchboardError

T = TypeVar("T")
WORDS: dict[int, Any] = {1: mx.uint8, 2: mx.uint16, 4: mx.uint32, 8: mx.uint64}
"""The whole number of so many bytes."""


class Broken(str):
    """What a probe broke off with, as words for a reason."""


def attempted(run: Callable[[], T]) -> T | Broken:
    """What a probe found, or what it broke off with; the one place that decides what becomes a decline.

    Everything that a forward can raise does. The architectures of mlx-lm fail on a foreign cache or projection in ways
    of their own (a TypeError where a tuple is reshaped, an AttributeError where `.weight` is read, MLX's RuntimeError
    and ValueError, a KeyError …), so that any list of them would be too short, and what is not on it ends the boot.
    Two kinds go on: errors of this package, which are words for the user already, and what is no `Exception`
    (an interrupt).
    """
    try:
        return run()
    except SwitchboardError:
        raise
    except Exception as error:
        # MLX spreads some of its messages over lines; a reason is one.
        return Broken(f"{type(error).__name__}: {' '.join(str(error).split())}")


@dataclass(frozen=True)
class Gap:
    """Two arrays that are not the same bits: of which kinds they are, or which of their numbers differ."""

    kinds: str | None
    """Shape and type of both, where those differ; then nothing else is known."""
    count: int = 0
    size: int = 0
    place: tuple[int, ...] = ()
    """Index of the first number that differs."""
    by: float = float("inf")
    """Largest |new − old|; infinite where only one of them is NaN, 0 where nothing but the sign of a 0 differs."""

    def told(self) -> str:
        """The sentence that all probes and the bisect use."""
        if self.kinds is not None:
            return self.kinds
        where = f"{self.count} of {self.size} differ, first at {list(self.place)}"
        return f"{where}, by up to {self.by:.3g}"


def bits(array: mx.array) -> mx.array:
    """The array as the whole numbers that its bits spell."""
    if array.dtype == mx.bool_ or mx.issubdtype(array.dtype, mx.integer):
        return array
    return mx.view(array, WORDS[array.dtype.size])


def gap(old: mx.array, new: mx.array) -> Gap | None:
    """Where two arrays differ in a bit, or None."""
    if old.shape != new.shape or old.dtype != new.dtype:
        return Gap(f"{old.dtype}{list(old.shape)} became {new.dtype}{list(new.shape)}")
    differs = bits(old) != bits(new)
    count = int(number(mx.sum(differs)))
    if count == 0:
        return None
    off = mx.abs(old.astype(mx.float32) - new.astype(mx.float32))
    # Two infinities of one sign are equal; what is NaN on one side only is as far off as can be.
    off = mx.where(differs, mx.where(mx.isnan(off), mx.inf, off), 0.0)
    by = number(mx.max(off))
    first = _place(off if by else differs)
    return Gap(None, count, old.size, first, by)


def same(old: mx.array, new: mx.array) -> bool:
    """Whether two arrays are the same bits, in the same shape and type."""
    return gap(old, new) is None


def difference(old: mx.array, new: mx.array) -> str | None:
    """Where two arrays differ in a bit, as a sentence, or None."""
    found = gap(old, new)
    return None if found is None else found.told()


def first(
    old: Sequence[mx.array], new: Sequence[mx.array], named: Callable[[int], str]
) -> str | None:
    """The first difference between two lists of arrays, with the name of its place, or None; none may be missing."""
    if len(old) != len(new):
        return f"{len(new)} results instead of {len(old)}"
    for place, (one, other) in enumerate(zip(old, new, strict=True)):
        found = difference(one, other)
        if found is not None:
            return f"{named(place)}: {found}"
    return None


def number(array: mx.array) -> float:
    """The one number of an array, waited for."""
    return float(array.item())  # type: ignore[arg-type]


def _place(weight: mx.array) -> tuple[int, ...]:
    """The index of the first element that is not 0."""
    flat = int(number(mx.argmax((weight != 0).reshape(-1))))
    place: list[int] = []
    for size in reversed(weight.shape):
        place.insert(0, flat % size)
        flat //= size
    return tuple(place)
