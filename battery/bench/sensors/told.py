"""A reading or the reason why there is none: what every sensor answers."""

from __future__ import annotations

from typing import TypeVar

T = TypeVar("T")
Told = tuple[T | None, str | None]
"""A value and no reason, or None and the reason. A value of 0 or False was read, never assumed."""

ELSEWHERE = "told on "
"""How the reason of a sensor begins that another system has: it is not missing here."""
PLAUSIBLE_C = (-30.0, 130.0)
"""Chips report −128 °C, 0 K or 255 °C for a sensor that is not wired; such a value is no temperature."""


def plausible(celsius: float | None) -> float | None:
    """A temperature that a machine can have; None for any other value."""
    if celsius is None or not PLAUSIBLE_C[0] < celsius < PLAUSIBLE_C[1]:
        return None
    return celsius


def only(system: str) -> tuple[None, str]:
    """What a sensor of another system says here."""
    return None, f"{ELSEWHERE}{system} only"
