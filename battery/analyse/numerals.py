"""Numbers as sentences print them: significant digits with separators, never in exponent form."""

from __future__ import annotations

import math


def figure(value: float | None, digits: int = 4) -> str:
    """A number with `digits` significant digits and separators, never in exponent form; — where there is none."""
    if value is None:
        return "—"
    if value == 0:
        return "0"
    decimals = max(0, digits - 1 - math.floor(math.log10(abs(value))))
    return f"{value:,.{decimals}f}"


def percent(share: float, digits: int = 2, sign: bool = False) -> str:
    """A share as a percentage: `120 %`, `3.4 %`, with `sign` `+3.4 %`."""
    told = figure(100 * abs(share), digits)
    before = "−" if share < 0 else "+" if sign and share > 0 else ""
    return f"{before}{told} %"


def points(share: float, sign: bool = True, decimals: int = 1) -> str:
    """A difference of shares in points: `−0.6`, `+3.0`; what rounds to zero has no sign."""
    told = f"{abs(100 * share):.{decimals}f}"
    if not told.strip("0."):
        return told
    return f"{'−' if share < 0 else '+' if sign else ''}{told}"
