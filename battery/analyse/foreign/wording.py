"""Ratios, intervals and differences of foreign findings in words, for warnings and for the terminal alike."""

from __future__ import annotations

import math

from battery.analyse.foreign.estimates import Contrast
from battery.ledger.trace import Metric

_DIGITS = 3
_FACTOR = 100
_SCALES: dict[str, tuple[float, str]] = {"bytes": (1e9, " GB"), "1": (1.0, "")}
"""Divisor and unit in which a difference is told, where that is not the metric's own."""


def change(ratio: float, decimals: int = 1) -> str:
    """A ratio as a signed change in percent; as a factor where percents stop being read."""
    if ratio >= _FACTOR:
        return f"×{ratio:.3g}"
    return f"{_signed(100 * (ratio - 1), decimals)} %"


def interval(one: Contrast | None) -> str:
    """Both ends of a ratio as changes in percent; finer where one decimal would blur an end."""
    if one is None or one.low is None or one.high is None:
        return "(no interval)"
    ends = (one.low, one.high)
    fine = ends[1] - ends[0] < 0.005 or any(0 < abs(end - 1) < 0.0005 for end in ends)
    low, high = (change(end, 2 if fine else 1) for end in ends)
    return f"[{low}, {high}]"


def difference(one: Contrast, metric: Metric) -> str:
    """Candidate − control in the metric's unit with its interval, as fine as the largest figure has three digits."""
    scale, unit = _SCALES.get(metric.unit, (1.0, f" {metric.unit}"))
    figures = [
        None if value is None else value / scale
        for value in (one.difference, one.difference_low, one.difference_high)
    ]
    largest = max(abs(value) for value in figures if value is not None)
    decimals = max(0, _DIGITS - 1 - math.floor(math.log10(largest))) if largest else 0
    mean, low, high = (None if value is None else _signed(value, decimals) for value in figures)
    return f"{mean}{unit} " + ("[no interval]" if low is None else f"[{low}, {high}]")


def _signed(value: float, decimals: int) -> str:
    """A number with its sign; what rounds to zero has none."""
    told = f"{value:+,.{decimals}f}".replace("-", "−")
    return told if told.strip("+−0.,") else told[1:]
