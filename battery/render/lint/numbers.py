"""Numbers and intervals in running text: what is one, what it is worth, and whether a table says the same.

Digits inside names (a model, a digest, a version, a date, a section's number) are not numbers that a page states.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from decimal import Decimal

import msgspec

DIGITS = r"(?:\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+(?:\.\d+)?|\.\d+)(?:e[+-]?\d+)?"
SIGNED = rf"[+−-]?{DIGITS}"
_UNITS = r"%|‰|×|x\b|tok/s|ms\b|s\b|°C|[GM]i?B\b|percent\b|points?\b|pp\b|times\b|[kKM]\b"
_NUMBER = re.compile(
    rf"(?P<sign>(?<![\w)\]%])[+−-])?(?P<digits>{DIGITS})(?:\s?(?P<unit>{_UNITS}))?"
)
_RUN = re.compile(r"\w+(?:[-_./:]\w+)*(?:(?<=\de)\+\d+)?")
_COUNTED = re.compile(r"\d[\d.]*(?:(?:x|k|K|M|ms|s|h|min|[GM]i?B|e[+-]?\d+)|-[A-Za-z]+)")
"""A run of letters and digits that is a number all the same: 16K, 3x, 512-token."""
_DATE = re.compile(r"\d{4}-\d\d-\d\d|\d+\.\d+\.\d[\d.]*")
_PLACES = re.compile(
    r"(?:\b(?:sections?|tables?|figures?|charts?|appendix|step|footnote)\s+|§+\s*|(?<!\w)#)\d+(?:\.\d+)*"
    r"(?:(?:,|,? and| to|–)\s*\d+(?:\.\d+)*)*",
    re.IGNORECASE,
)


class Number(msgspec.Struct, frozen=True):
    """A number as written: where, its value with `sign` apart, the decimals it was given to, and its unit."""

    start: int
    end: int
    sign: str
    value: Decimal
    decimals: int
    unit: str

    @property
    def signed(self) -> Decimal:
        """The value with its sign."""
        return -self.value if self.sign == "−" else self.value


def value(text: str) -> Decimal:
    """What digits are worth, with either minus sign and separators."""
    return Decimal(text.replace(",", "").replace("−", "-"))


def decimals(text: str) -> int:
    """How many digits stand after the point."""
    return len(text.partition("e")[0].partition(".")[2])


def numbers(text: str) -> list[Number]:
    """The numbers that a text states, in order."""
    found = []
    for match in _NUMBER.finditer(_without_names(text)):
        digits, sign = match["digits"], (match["sign"] or "").replace("-", "−")
        worth, power = Decimal(digits.replace(",", "")), digits.partition("e")[2]
        found.append(
            Number(
                match.start(), match.end("digits"), sign, worth,
                max(0, decimals(digits) - int(power or 0)), match["unit"] or "",
            )
        )  # fmt: skip
    return found


def _without_names(text: str) -> str:
    """The text with names, dates and section numbers blanked."""

    def kept(match: re.Match[str]) -> str:
        run = match.group()
        if not any(map(str.isdigit, run)):
            return run
        name = any(sign.isalpha() or sign == "_" for sign in run) and not _COUNTED.fullmatch(run)
        return " " * len(run) if name or _DATE.fullmatch(run) else run

    return _RUN.sub(kept, _PLACES.sub(lambda match: " " * len(match.group()), text))


class Stated:
    """The numbers of all tables of a page, to be asked for those of its prose."""

    def __init__(self, cells: Iterable[str]) -> None:
        self._all = [number for cell in cells for number in numbers(cell)]
        self._values = {number.value for number in self._all}

    def holds(self, asked: Number) -> bool:
        """Whether a table states this number, at the precision asked: 15.1 % is in a table that says 15.08.

        A sign must be the table's; without one either sign will do. A bare whole number is a count and is never
        rounded to. A percentage may stand as a share (0.05) or as a ratio (1.151×) in the table.
        """
        worths = [asked.value * factor for factor in _FACTORS.get(asked.unit, (1,))]
        if not asked.sign and self._values.intersection(worths):
            return True
        step = Decimal(1).scaleb(-asked.decimals) / 2
        slack = (
            step if (asked.decimals or asked.unit) and asked.unit not in _FACTORS else Decimal(0)
        )
        return any(
            _same_sign(asked, one) and any(abs(one.value - worth) <= slack for worth in worths)
            for one in self._all
        ) or self._otherwise(asked, step)

    def _otherwise(self, asked: Number, step: Decimal) -> bool:
        """Whether a percentage stands as a share of one or as a ratio, or a ratio as a percentage."""
        if asked.unit in ("×", "x"):
            return any(
                one.unit == "%" and abs(1 + one.signed / 100 - asked.value) <= step
                for one in self._all
            )
        share = asked.signed / 100
        return asked.unit in ("%", "percent") and any(
            (not one.unit and _same_sign(asked, one) and one.value == abs(share))
            or (one.unit in ("×", "x") and abs(one.value - 1 - share) <= step / 100)
            for one in self._all
        )


_FACTORS: dict[str, tuple[int, ...]] = {"k": (1000,), "K": (1000, 1024), "M": (1_000_000, 1 << 20)}


def _same_sign(asked: Number, one: Number) -> bool:
    """Whether a number of a table may be meant: where the prose has a sign, the table has it."""
    return not asked.sign or asked.sign == one.sign


_UNIT = r"\s*(?:%|×|x\b|tok/s|ms\b|s\b|[GM]i?B\b|points?\b|pp\b)?"


def _pair(place: int) -> str:
    """The pattern of two ends, in the groups low and high of this place."""
    ends = (rf"(?P<{end}{place}>{SIGNED}){_UNIT}\s*" for end in ("low", "high"))
    return r"\s*" + r"(?:,|;|to|\.\.\.?|…|–)\s*".join(ends)


INTERVAL = re.compile(
    rf"\[{_pair(1)}\]|\((?=\s*[+−-])(?=[^)]*?(?:,|to)){_pair(2)}\)"
    rf"|(?<![\w-])(?:CI|[Ii]nterval)\s*(?:of|is|from|:|=|was)?{_pair(3)}"
)
"""Two ends in square brackets, signed in round ones, or after the word."""
_LEVEL = re.compile(
    r"\s*(?:%|percent)[ -]+(?:(?:t|paired|confidence|credible|bootstrap)[ -]+){0,2}(?:CI\b|interval|confidence|level)"
)
_GAP = 60
"""An interval belongs to an estimate that stands at most this many signs before it."""


class Interval(msgspec.Struct, frozen=True):
    """An interval as written: where it begins, its ends, and the estimate before it if there is one."""

    start: int
    low: str
    high: str
    estimate: str

    @property
    def ordered(self) -> bool:
        """Whether the lower end stands first."""
        return value(self.low) <= value(self.high)

    @property
    def holds(self) -> bool:
        """Whether the estimate is inside, to the precision that it is given to."""
        if not self.estimate:
            return True
        coarser = decimals(self.estimate) < max(decimals(self.low), decimals(self.high))
        slack = Decimal(1).scaleb(-decimals(self.estimate)) / 2 if coarser else Decimal(0)
        return value(self.low) - slack <= value(self.estimate) <= value(self.high) + slack


def intervals(text: str) -> list[Interval]:
    """Every interval that a text states, with its estimate: the nearest figure before it in the same sentence."""
    found, since = [], 0
    for match in INTERVAL.finditer(text):
        which = next(i for i in (1, 2, 3) if match[f"low{i}"])
        estimate = _estimate(text, since, match.start())
        found.append(Interval(match.start(), match[f"low{which}"], match[f"high{which}"], estimate))
        since = match.end()
    return found


def _estimate(text: str, since: int, start: int) -> str:
    """The figure that the interval at `start` is of, looked for from `since` on; empty where none is near."""
    before = text[since:start]
    for number in reversed(numbers(before)):
        gap = before[number.end :]
        if not number.sign and _LEVEL.match(text, since + number.end):
            continue
        direct = not gap.strip().removeprefix(number.unit).strip()
        far = len(gap) > _GAP or re.search(r"[.!?]\s", gap)
        if far or not (direct or number.sign or number.unit):
            return ""
        return number.sign + before[number.start : number.end].lstrip("+−-")
    return ""
