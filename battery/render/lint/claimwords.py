"""The words that claim something of a speed or a size, and the verdicts that would support each.

“Faster” claims by itself. “Rose” and “cuts” say a direction only: they claim where a speed, a time or a memory is
named beside them, and what they claim hangs on which (a time that is cut is a gain, a rate that is cut a loss).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from decimal import Decimal

import msgspec

UP = frozenset({"faster", "smaller", "higher"})
DOWN = frozenset({"slower", "larger", "lower"})
_SAME = frozenset({"equivalent"})
_Moves = dict[str, frozenset[str]]


def _moves(time: str, size: str, *rate: str) -> _Moves:
    """The verdicts for a direction by what moved; by any of them where that is not said."""
    kinds = {"time": {time}, "size": {size}, "rate": set(rate), "": {size, *rate}}
    return {kind: frozenset(words) for kind, words in kinds.items()}


_RISES = _moves("slower", "larger", "faster", "higher")
_FALLS = _moves("faster", "smaller", "slower", "lower")
_MATCHES = _moves("equivalent", "equivalent", "equivalent")
_QUANTITIES = {
    "time": r"times?|latenc\w+|delays?|TTFT|time to (?:the )?first token|(?:milli)?seconds(?: per step)?|TPOT|waits?",
    "size": r"memory|footprint",
    "rate": r"decod\w*|prefill\w*|generation|prompt processing|speeds?|throughput|rates?|tok/s|tokens per \w+"
    r"|acceptance",
}  # fmt: skip
"""What a direction may be said of; a time or a memory that is named beside a metric goes first."""
_BY = r"(?:\w+ly\s+|any\s+|a\s+|the\s+)?"
_STANDING: tuple[tuple[str, frozenset[str]], ...] = (
    (rf"(?:no|not(?:\s+be)?|never)\s+{_BY}(?:slower|worse|larger|bigger)", UP | _SAME),
    (rf"(?:no|without)\s+{_BY}(?:regressions?|slow-?downs?|loss(?:es)?|penalt(?:y|ies))", UP | _SAME),
    (rf"no\s+{_BY}(?:gains?|speed-?ups?|improvements?|benefits?)", DOWN | _SAME | {"undecided"}),
    (r"(?<=\d[×x]\s)(?:as\s+(?:fast|quick|high|low)|the\s+control|that\s+of)|(?<=\d\stimes\s)as\s+fast", UP | DOWN),
    (r"(?:as|equally)\s+(?:fast|quick)|no\s+difference|same\s+speed|identical\s+in\s+speed|equivalent", _SAME),
    (r"on\s+(?:a\s+)?par|ties|tied", _SAME),
    (r"faster|quicker", frozenset({"faster"})),
    (r"slower", frozenset({"slower"})),
    (r"speed-?ups?|(?:speeds?|sped|speeding)(?:\s+[\w-]+){0,4}?\s+up|accelerat(?:e[sd]?|ing|ion)", UP),
    (r"outperform\w*|outpac\w+|wins?|won(?!['’])|beats?|(?<!is )gain(?:s|ed)?(?! the same)|better|superior", UP),
    (r"improv(?:e[sd]?|ing|ements?)", UP),
    (r"worse|regress(?:es|ed|ions?)|slow-?downs?|slows|slowed|loses|lost to", DOWN),
    (r"smaller|less\s+memory", frozenset({"smaller"})),
    (r"larger|more\s+memory", frozenset({"larger"})),
    (r"less\s+time", frozenset({"faster"})),
    (r"more\s+time", frozenset({"slower"})),
    (r"\A\W*higher(?=\W*\Z)", frozenset({"higher"})),
    (r"\A\W*lower(?=\W*\Z)", frozenset({"lower"})),
)  # fmt: skip
_MOVING: tuple[tuple[str, _Moves, str], ...] = (
    (r"doubl(?:e[sd]?|ing)", _RISES, "2"),
    (r"tripl(?:e[sd]?|ing)", _RISES, "3"),
    (r"quadrupl(?:e[sd]?|ing)", _RISES, "4"),
    (r"halv(?:e[sd]?|ing)", _FALLS, "0.5"),
    (r"increas(?:e[sd]?|ing)|rises?|rose|risen|rais(?:es|ed|ing)|boost(?:s|ed|ing)?|gr[oe]ws?|grown", _RISES, ""),
    (r"climb(?:s|ed)?|jump(?:s|ed)?|(?:goes|went)\s+up|(?<=\bis )higher|(?<=\bare )higher", _RISES, ""),
    (r"(?:is|are|was|were)\s+\w+ly\s+higher|(?<=[%×]\s)higher", _RISES, ""),
    (r"cuts?|cutting|reduc(?:e[sd]?|ing|tions?)|lowers|lowered|lowering|drop(?:s|ped)?|falls?|fell|fallen", _FALLS, ""),
    (r"sav(?:es?|ed|ings?)|shr[iau]nks?|shrunk|decreas(?:e[sd]?|ing)", _FALLS, ""),
    (r"shorten(?:s|ed)?|declin(?:e[sd]?|ing)", _FALLS, ""),
    (r"(?:goes|went)\s+down|(?<=\bis )lower|(?<=\bare )lower", _FALLS, ""),
    (r"(?:is|are|was|were)\s+\w+ly\s+lower|(?<=[%×]\s)lower", _FALLS, ""),
    (r"match(?:es|ed)", _MATCHES, ""),
)  # fmt: skip
_CLAIM = re.compile(
    "|".join(rf"(?P<c{place}>(?<![\w-])(?:{words})\b)" for place, (words, *_) in enumerate((*_STANDING, *_MOVING))),
    re.I,
)  # fmt: skip
_NO_CLAIM = re.compile(
    r"\b(?:higher|lower|more|less|smaller|larger|faster) (?:is|are) (?:better|worse)\b|\bcut(?:s|ting)?[ -]off\b",
    re.I,
)
_FIGURE = re.compile(r"\d\s*(?:%|×|x\b|times\b)")
_NOUNS = re.compile(
    r"(?:speed-?|slow-?)(?:ups?|downs?)|gains?|improvements?|regressions?|reductions?|wins?", re.I
)


class Claim(msgspec.Struct, frozen=True):
    """One claim of a sentence: where it stands, its words, and the verdicts that would support it."""

    start: int
    end: int
    word: str
    supports: frozenset[str]
    factor: Decimal | None = None
    """What “doubles” and the like multiply by."""

    @property
    def noun(self) -> bool:
        """Whether the word is a thing of which something may be said: the gain is undecided."""
        return bool(_NOUNS.fullmatch(self.word))


def claims(sentence: str, of_metric: bool = False) -> Iterator[Claim]:
    """The claims of a sentence in order.

    Words of direction are claims where the sentence names what moved or by how much, or (`of_metric`) what is around
    it names a metric.
    """
    text = _NO_CLAIM.sub(lambda match: " " * len(match.group()), sentence.replace("\n", " "))
    for match in _CLAIM.finditer(text):
        place = next(i for i in range(len(_STANDING) + len(_MOVING)) if match[f"c{i}"])
        supports, factor = _STANDING[place][1] if place < len(_STANDING) else frozenset[str](), None
        if not supports:
            _, moves, by = _MOVING[place - len(_STANDING)]
            kind = quantity(text[match.end() :]) or quantity(text)
            if not kind and not of_metric and not _FIGURE.search(text):
                continue
            supports, factor = moves[kind], Decimal(by) if by else None
        yield Claim(match.start(), match.end(), match.group(), supports, factor)


def quantity(text: str) -> str:
    """What a text speaks of: a time, a size, a rate; empty where it names none."""
    return next(
        (kind for kind, words in _QUANTITIES.items() if re.search(rf"(?<!\w)(?:{words})(?!\w)", text, re.I)),
        "",
    )  # fmt: skip
