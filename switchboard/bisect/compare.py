"""Two observations of the same thing, held against each other: bit by bit, or within a bound.

An observation is a table of named arrays. Exact means the same bits, so that 0 and −0 differ and NaN equals itself.
Rounding means that no element is further off than a share of the largest magnitude of its array:

    |on − off| ≤ SHARE[type] × max |off|

The shares are 256 units in the last place of fp32 and 8 of the half types: room for the sums of a deep model to be
taken in another order, and a hundred times less than any planted fault of the tests moves.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import mlx.core as mx

from switchboard.parity import gap, number

Observation = dict[str, mx.array]

SHARE: dict[Any, float] = {mx.float32: 2.0**-15, mx.float16: 2.0**-7, mx.bfloat16: 2.0**-4}


@dataclass(frozen=True)
class Difference:
    """The first array in which two observations differ more than they may."""

    where: str
    what: str
    """How many elements and by how much, or that a shape or type is another one."""

    def told(self) -> str:
        """One line for a table."""
        return f"{self.where}: {self.what}"


@dataclass(frozen=True)
class Comparison:
    """What came of holding two observations against each other."""

    arrays: int
    elements: int
    worst: float
    """Largest |on − off| over the largest magnitude of its array; 0 when all bits are the same."""
    difference: Difference | None


def bound(array: mx.array) -> float:
    """How far an element may be off when the claim is `rounding`; 0 for whole numbers."""
    share = SHARE.get(array.dtype)
    return share * largest(array) if share and array.size else 0.0


def largest(array: mx.array) -> float:
    """The largest magnitude in an array, infinities and NaN left out."""
    wide = array.astype(mx.float32)
    return number(mx.max(mx.where(mx.isfinite(wide), mx.abs(wide), 0.0)))


def compare(off: Observation, on: Observation, exact: bool) -> Comparison:
    """Hold every array of `off` against the one of that name in `on`; one that is missing is a difference."""
    first: Difference | None = None
    worst, elements = 0.0, 0
    for name, old in off.items():
        elements += old.size
        found, share = _difference(name, old, on.get(name), exact)
        worst = max(worst, share)
        first = first or found
    extra = [name for name in on if name not in off]
    if extra and first is None:
        first = Difference(extra[0], "only there with the switch on")
    return Comparison(len(off), elements, worst, first)


def _difference(
    name: str, old: mx.array, new: mx.array | None, exact: bool
) -> tuple[Difference | None, float]:
    if new is None:
        return Difference(name, "missing with the switch on"), 0.0
    found = gap(old, new)
    if found is None:
        return None, 0.0
    if found.kinds is not None:
        return Difference(name, found.told()), 0.0
    allowed, scale = bound(old), largest(old)
    share = found.by / scale if scale else (float("inf") if found.by else 0.0)
    if exact:
        return Difference(name, found.told()), share
    if found.by <= allowed:
        return None, share
    return Difference(name, f"{found.told()} (allowed {allowed:.3g})"), share
