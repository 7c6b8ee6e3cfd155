"""The figure that a claim gives, and whether it is that of the comparison that is claimed.

A change in percent or a factor that stands beside the claim: “30.7 % faster”, “rose by 30.7 %”, “1.3× faster”, “faster
(+30.7 %)”. Rates in tok/s are left to the rule that looks for every number in the tables.
"""

from __future__ import annotations

import re
from decimal import Decimal

import msgspec

from battery.render.lint.claimwords import Claim, quantity
from battery.render.lint.numbers import DIGITS, decimals, value

_FIGURE = (
    r"(?P<bound>at least|more than|over)?\s*(?P<about>about|around|roughly|nearly|almost|some|~|≈|circa|ca\.)?\s*"
    rf"[+−-]?(?P<digits>{DIGITS})\s*(?P<unit>%|‰|×|x\b|percent\b|per cent\b|times\b|[- ]?fold\b)"
)
_BEFORE = re.compile(
    rf"{_FIGURE}\s*(?:\[[^\]]*\]\s*)?(?:\w+ly\s+|as\s+)?\Z",
    re.I,
)
_AFTER = re.compile(
    rf"\A(?:[^.;:()%×]|\.(?=\d)){{0,60}}?(?:\b(?:by|of)\s+(?:a\s+factor\s+of\s+)?|\(\s*(?:by\s+)?|(?<=\A\s)){_FIGURE}"
    r"(?!\s*(?:\w+\s+)?(?:interval|CI\b|confidence|margin|level|of\b))",
    re.I,
)
_FACTOR_OF = re.compile(
    rf"\A(?:[^.;:()%×]|\.(?=\d)){{0,60}}?\bby\s+a\s+factor\s+of\s+(?P<digits>{DIGITS})", re.I
)
_RANGE = re.compile(r"(?:\band|\bto|–|,)\s*[+−-]?\Z")
_HUNDRED = Decimal(100)


class Figure(msgspec.Struct, frozen=True):
    """A figure as a ratio and in percent: what is told, how finely, and whether as a bound."""

    told: str
    percent: Decimal | None
    ratio: Decimal | None
    step: Decimal
    """Half of the last digit that is given."""
    bound: bool = False
    ends: bool = False
    """One end of a range, not the estimate."""


class Change(msgspec.Struct, frozen=True):
    """What a comparison found, in percent: its estimate, the ends of its interval, and the margin of its verdict."""

    estimate: Decimal
    low: Decimal | None = None
    high: Decimal | None = None
    margin: Decimal | None = None


def figure(claim: Claim, sentence: str) -> Figure | None:
    """The figure beside a claim; None where it gives none."""
    before, after = sentence[: claim.start], sentence[claim.end :]
    match = _BEFORE.search(before) or _AFTER.search(after)
    if match is None:
        factor = _FACTOR_OF.search(after)
        return _ratio(factor["digits"], factor["digits"]) if factor else None
    digits, unit = match["digits"], match["unit"].strip().casefold()
    told = f"{digits} {unit}"
    if unit not in ("%", "percent", "per cent"):
        return None if unit == "‰" else _ratio(digits, told, bool(match["bound"]))
    step = Decimal(1).scaleb(-decimals(digits)) / 2
    if match["about"]:
        step = max(step, value(digits) / 20)
    ends = bool(_RANGE.search(match.string[: match.start("digits")]))
    return Figure(told, value(digits), None, step, bool(match["bound"]), ends)


def _ratio(digits: str, told: str, bound: bool = False) -> Figure:
    """A factor, in percent's steps."""
    step = Decimal(1).scaleb(-decimals(digits)) / 2 * _HUNDRED
    return Figure(told, None, value(digits), step, bound)


def agrees(told: Figure, found: Change, sentence: str, metric: str) -> bool:
    """Whether a figure is the comparison's: its estimate at the precision given, or a bound that its interval keeps.

    A time is the inverse of a rate, so where one is told of the other the inverse's change is meant.
    """
    inverse = quantity(sentence) == "time" and metric in ("decode", "prefill")
    if told.ratio is not None:
        asked = abs(told.ratio - 1) * _HUNDRED
        return any(_near(told, asked, found, way) for way in (False, True))
    percent = told.percent if told.percent is not None else Decimal(0)
    if _near(told, percent, found, inverse):
        return True
    return metric == "ttft" and _near(told, percent, found, True)


def _near(told: Figure, asked: Decimal, found: Change, inverse: bool) -> bool:
    """Whether a change is the estimate, a bound below it, or an end of the interval where a range is told."""
    ends = [end for end in (found.low, found.high) if end is not None]
    estimate, *others = (abs(_inverse(one) if inverse else one) for one in (found.estimate, *ends))
    if told.bound:
        return asked == found.margin or (bool(others) and asked <= min(others) + told.step)
    wanted = [estimate, *(others if told.ends else ())]
    return any(abs(one - asked) <= told.step for one in wanted)


def _inverse(change: Decimal) -> Decimal:
    """The change of the inverse, in percent."""
    return (_HUNDRED / (_HUNDRED + change) - 1) * _HUNDRED if change > -_HUNDRED else change


def multiplies(factor: Decimal, found: Change, sentence: str, metric: str) -> bool:
    """Whether “doubles” may be said: the factor lies in the interval; a comparison without one cannot contradict it."""
    if found.low is None or found.high is None:
        return True
    inverse = quantity(sentence) == "time" and metric in ("decode", "prefill")
    asked = (1 / factor if inverse else factor) * _HUNDRED - _HUNDRED
    return found.low <= asked <= found.high
