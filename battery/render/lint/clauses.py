"""Sentences and their clauses, and which claims of a clause are withdrawn by a hedge.

A hedge withdraws a claim that follows it in the same clause: “may be faster” claims nothing, “faster, and may be
merged” does. What is said of a noun afterwards counts as well: “the gain is undecided”.

A claim that “and”, “or” or a comma joins directly to a withdrawn one is withdrawn with it: “may be faster and smaller”.
Where that one is denied, only “or” and “nor” carry the denial on: “not faster, even slower” says slower.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence

from battery.render.lint.claimwords import Claim, claims

_SENTENCE = re.compile(r"(?<=[.!?])[\"'”’)]*\s+(?=[^\sa-z.\d])")
_LISTED = r"(?!\s+[\d,]+[kK]?\b(?!\s*(?:%|×|x\b|\.\d)))"
_ENDS = re.compile(
    rf",\s{_LISTED.replace('+', '*', 1)}|[;:]\s|[()?!]|—|\s[–-]\s"
    r"|\b(?:while|whereas|although|though|because|since|so|yet|which|who|now that|even if|given that|for)\b"
    rf"|\b(?:and|or|but)\b{_LISTED}|\bas\b(?!\s+(?:fast|quick)|\s+expected)",
    re.I,
)
"""Where a clause ends; numbers are listed with “and” inside one."""
_OPEN = (
    r"undecided|inconclusive|not comparable|pilot|invalid|no verdict|unclear"
    r"|not (?:yet )?(?:shown|known|decided|told)"
)
"""Said of a question that is open."""
_HEDGE = re.compile(
    rf"\b(?:{_OPEN}|cannot|can't|whether|would|could|might|(?-i:may)|if|unless|should|perhaps|possibly|never|neither"
    r"|(?:expected|meant|intended|supposed|aims?|aimed|tries|hoped?) to|not(?! (?:only|just|merely)))\b|n['’]t\b",
    re.I,
)
_TRAILING = re.compile(rf"\b(?:is|are|was|were|remains?|stays?)\s+(?:still\s+)?(?:{_OPEN})\b", re.I)
_TOLD_OPEN = re.compile(rf"\b(?:{_OPEN})\b", re.I)
_ASSURED = re.compile(r"(?<!\bbe)\s+that\b", re.I)
"""“You may trust that C is faster” hedges nothing; “it may be that” does."""
_MODAL = re.compile(r"would|could|might|may|should|if|can't|cannot|never", re.I)
_DENIES = re.compile(r"not|n['’]t|never|neither", re.I)
_JOINED = re.compile(r"[\s,/]*(?:(?:and|or|nor)\b[\s,]*)?(?:even\s+|also\s+)?", re.I)


def sentences(text: str) -> Iterator[tuple[int, str]]:
    """Sentences with their places."""
    start = 0
    for match in [*_SENTENCE.finditer(text), None]:
        end = match.start() if match else len(text)
        yield start, text[start:end]
        start = match.end() if match else end


def asserted(sentence: str, of_metric: bool = False) -> tuple[str, list[Claim]]:
    """The sentence without the clauses that claim nothing, blanked at the same length, and the claims that are made."""
    made, kept, text = list(claims(sentence, of_metric)), [], list(sentence)
    carried = _carried(sentence, made)
    withdrawn: tuple[Claim, str] | None = None
    for low, high in _clauses(sentence, made):
        clause = sentence[low:high]
        own = [one for one in made if low <= one.start < high]
        stand = []
        for one in own:
            how = _hedged(one, clause, low)
            if not how and withdrawn and withdrawn[1] in carried[one.start]:
                how = withdrawn[1]
            if how:
                withdrawn = (one, how)
            else:
                withdrawn = None
                stand.append(one)
        kept += stand
        if not stand and (own or _TOLD_OPEN.search(clause)):
            text[low:high] = " " * (high - low)
    return "".join(text), kept


def _clauses(sentence: str, made: Sequence[Claim]) -> Iterator[tuple[int, int]]:
    """Where each clause begins and ends; no claim is cut in two."""
    cuts = [
        match.start()
        for match in _ENDS.finditer(sentence)
        if not any(one.start < match.start() < one.end for one in made)
    ]
    yield from itertools.pairwise((0, *cuts, len(sentence)))


def _carried(sentence: str, made: Sequence[Claim]) -> dict[int, tuple[str, ...]]:
    """By the place of each claim, what it takes over from the claim just before it: being left open, being denied."""
    found: dict[int, tuple[str, ...]] = {}
    offered = False
    for before, one in reversed([*itertools.pairwise((None, *made))]):
        link = _JOINED.fullmatch(sentence[before.end : one.start]) if before and one else None
        word = re.search(r"\b(?:and|or|nor)\b", link.group(), re.I) if link else None
        # a list is denied as a whole where “or” ends it: “not faster, slower or equivalent”
        offered = bool(link) and (offered if word is None else word.group().lower() != "and")
        if one:
            found[one.start] = ("open", "denied") if offered else ("open",) if link else ()
    return found


def _hedged(claim: Claim, clause: str, low: int) -> str:
    """How what stands before a claim in its clause, or is said of its noun after it, withdraws it: open, denied."""
    before, after = clause[: claim.start - low], clause[claim.end - low :]
    hedges = [
        hedge.group()
        for hedge in _HEDGE.finditer(before)
        if not (_MODAL.fullmatch(hedge.group()) and _ASSURED.search(before[hedge.end() :]))
    ]
    if hedges:
        return "denied" if all(map(_DENIES.fullmatch, hedges)) else "open"
    noun = claim.noun or re.match(r"\W*That\b", before)
    return "open" if noun and _TRAILING.search(after) else ""
