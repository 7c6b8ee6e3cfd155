"""Logarithmic axes: their ends around what is drawn, and round values between them."""

from __future__ import annotations

import math
from collections.abc import Sequence

from matplotlib.ticker import MaxNLocator

_ROUND = ((1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 7.0), (1.0, 2.0, 5.0), (1.0, 3.0), (1.0,))
"""Round values within a power of ten, ever fewer."""
_ROOM = 1.12
"""By how much an axis reaches beyond what is drawn."""


def span(values: Sequence[float]) -> tuple[float, float]:
    """The ends of an axis: all values with room around them, and never less than half an octave."""
    low, high = min(values) / _ROOM, max(values) * _ROOM
    short = max(0.0, math.log(math.sqrt(2)) - math.log(high / low)) / 2
    return low * math.exp(-short), high * math.exp(short)


def ticks(low: float, high: float, most: int = 5) -> list[float]:
    """Round values of an axis: evenly spread on a logarithm, or where few of these are inside on a plain scale."""
    found = between(low, high, most)
    plain = MaxNLocator(4).tick_values(low, high)
    return found if len(found) >= 3 else [float(tick) for tick in plain if low <= tick <= high]


def between(low: float, high: float, most: int = 7) -> list[float]:
    """Round values between two, evenly spread on a logarithmic axis, `most` at most."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    inside: list[float] = []
    for values in _ROUND:
        inside = [
            n * 10.0**power for power in powers for n in values if low < n * 10.0**power < high
        ]
        if len(inside) <= most:
            break
    return inside[:: -(-len(inside) // most) or 1]
