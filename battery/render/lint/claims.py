"""The rule about claims: what the prose says of an arm must be what a table decided.

Sentences are read by words: which claim, about which arm, metric and context. What a sentence leaves out is taken from
the sentences before it in its paragraph; a page with one candidate needs no name for it. A sentence that says that
something is undecided, or that speaks of what would be, claims nothing. The rule is wary, not clever: it takes a claim
for one that no row supports rather than let it pass.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence

import msgspec

from battery.render.lint.numbers import value
from battery.render.lint.page import unquoted
from battery.render.lint.rule import Found, Report, rule
from battery.render.lint.verdicts import Ruling, metrics, rulings, title

_UP = frozenset({"faster", "smaller"})
_DOWN = frozenset({"slower", "larger"})
_EITHER = _UP | _DOWN | {"higher", "lower"}
_CLAIMS: tuple[tuple[str, frozenset[str]], ...] = (
    (r"faster|quicker", frozenset({"faster"})),
    (r"slower", frozenset({"slower"})),
    (r"speed-?ups?|sped up|speeds up|outperform\w*|wins?|won(?!['’])|beats?|gains?(?! the same)|better", _UP),
    (r"improv(?:e[sd]?|ing|ements?)", _UP),
    (r"worse|regress(?:es|ed|ions?)|slow-?downs?|slows|loses|lost to", _DOWN),
    (r"smaller|less memory", frozenset({"smaller"})),
    (r"larger|more memory", frozenset({"larger"})),
    (r"equivalent|no difference|(?:as|equally) fast|same speed|on par|ties|tied", frozenset({"equivalent"})),
    (r"(?<=[%×] )(?:higher|lower)", _EITHER),
)  # fmt: skip
"""Words that claim, and the verdicts that support each."""
_CLAIM = re.compile(
    "|".join(rf"(?P<c{place}>(?<!\w)(?:{words})\b)" for place, (words, _) in enumerate(_CLAIMS)), re.I
)  # fmt: skip
_NO_CLAIM = re.compile(
    r"\b(?:higher|lower|more|less|smaller|larger|faster) (?:is|are) (?:better|worse)\b",
    re.I,
)
_HEDGED = re.compile(
    r"\b(?:undecided|inconclusive|not comparable|pilot|invalid|no verdict|not shown|cannot|whether|would|could|may"
    r"|might|if)\b",
    re.I,
)
_HEDGE_ENDS = re.compile(r"[,;]\s|\b(?:but|while|whereas)\b")
_OTHERS = (
    r"\b(?:than|unlike|against|over|versus|vs\.?|compared (?:with|to)|relative to)"
    r"\s+(?:the\s+)?(?:arm\s+)?{arm}(?![\w-])"
)
_OURS = re.compile(
    r"\b(?:this|the|our) (?:PR|pull request|change|patch|branch|candidate)\b|\bwe\b", re.I
)
_FIGURE = re.compile(r"\d\s*(?:%|×|x\b|tok/s)")
_SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[^\sa-z.\d])")
_CLAUSE = re.compile(r"[,;]\s|\b(?:and|but|while|whereas)\b")
_CONTEXT = re.compile(
    r"(?:\bat|\bcontexts?(?: of)?|\brungs?)\s+"
    r"(?P<list>[\d,]+[kK]?(?:(?:,| and|, and| or)\s+[\d,]+[kK]?)*)(?![\d.]*\s*%)"
    r"|(?P<one>\b[\d,]*\d[kK]?)(?:[ -]tokens?\b|(?<=[kK])\b)"
)


_REMEDY = "claim only what a verdict says, or say that it is undecided"


class Scope(msgspec.Struct, frozen=True):
    """Whom and what a piece of text speaks of."""

    candidates: tuple[str, ...] = ()
    metrics: tuple[str, ...] = ()
    contexts: tuple[str, ...] = ()

    def after(self, before: Scope) -> Scope:
        """The scope with what it leaves out taken from the one before."""
        return Scope(
            self.candidates or before.candidates,
            self.metrics or before.metrics,
            self.contexts or before.contexts,
        )


@rule(
    "undecided-claims",
    "the prose claims nothing of an arm, metric and context that no table decided",
)
def undecided_claims(report: Report) -> Iterator[Found]:
    """Every claim of every sentence, held against the verdicts."""
    known = rulings(report)
    candidates = tuple(dict.fromkeys(one.candidate for one in known if one.candidate))
    for passage in report.page.passages:
        before = Scope()
        for start, written in _sentences(unquoted(passage.text)):
            sentence = _asserted(written)
            whole = _scope(sentence, candidates, known).after(before)
            before = whole
            about = whole.candidates or metrics(sentence) or _FIGURE.search(sentence)
            for offset, word, supports, clause in _claims(sentence):
                named = _scope(clause, candidates, known).after(whole)
                said = _unsupported(supports, named, known, candidates)
                if said and (about or _OURS.search(sentence)):
                    what = f"claims “{' '.join(word.split())}”, and {said}"
                    yield passage.at(start + offset), what, _REMEDY


def _asserted(sentence: str) -> str:
    """The sentence with the clauses blanked that say that something is undecided, or speak of what would be."""
    cuts = [0, *(match.start() for match in _HEDGE_ENDS.finditer(sentence)), len(sentence)]
    clauses = [sentence[low:high] for low, high in itertools.pairwise(cuts)]
    return "".join(" " * len(one) if _HEDGED.search(one) else one for one in clauses)


def _sentences(text: str) -> Iterator[tuple[int, str]]:
    """Sentences with their places."""
    start = 0
    for match in [*_SENTENCE.finditer(text), None]:
        end = match.start() if match else len(text)
        yield start, text[start:end]
        start = match.end() if match else end


def _claims(sentence: str) -> Iterator[tuple[int, str, frozenset[str], str]]:
    """Each claim: its place, its word, the verdicts that would support it, and the clause that it stands in."""
    text = _NO_CLAIM.sub(lambda match: " " * len(match.group()), sentence.replace("\n", " "))
    found = list(_CLAIM.finditer(text))
    cuts = [match.start() for match in _CLAUSE.finditer(text)] if len(found) > 1 else []
    for place, match in enumerate(found):
        low = _last(cuts, match.start()) if place else 0
        after = found[place + 1].start() if place + 1 < len(found) else len(text)
        high = max((cut for cut in cuts if match.end() <= cut <= after), default=after)
        which = next(i for i in range(len(_CLAIMS)) if match[f"c{i}"])
        yield match.start(), match.group(), _CLAIMS[which][1], text[low:high]


def _last(cuts: Sequence[int], before: int) -> int:
    """The nearest cut before a place, else the beginning."""
    return max((cut for cut in cuts if cut <= before), default=0)


def _scope(text: str, candidates: Sequence[str], known: Sequence[Ruling]) -> Scope:
    """Whom and what a text names; an arm after “than” or “against” is the other side."""
    named = []
    for arm in candidates:
        own = re.escape(arm)
        rest = re.sub(_OTHERS.format(arm=own), " ", text)
        if re.search(rf"(?<![\w-]){own}(?![\w-])", rest):
            named.append(arm)
    contexts = {one.context for one in known}
    found = []
    for match in _CONTEXT.finditer(text):
        for told in re.findall(r"\d[\d,]*\d[kK]?|\d[kK]?", match["list"] or match["one"]):
            options = _contexts(told)
            fits = next((one for one in options if one in contexts), None)
            if fits or match["one"] or told[-1] in "kK":
                found.append(fits or options[0])
    return Scope(tuple(named), metrics(text), tuple(dict.fromkeys(found)))


def _contexts(told: str) -> list[str]:
    """What a context may be in tokens: 16K is 16,384 or 16,000."""
    if told[-1] in "kK":
        return [str(int(value(told[:-1])) * factor) for factor in (1024, 1000)]
    return [str(int(value(told)))]


def _unsupported(
    supports: frozenset[str], scope: Scope, known: Sequence[Ruling], candidates: Sequence[str]
) -> str:
    """Why a claim has no verdict behind it; nothing where it has."""
    if not known:
        return "no table of the page has a verdict"
    arms = scope.candidates or (candidates if len(candidates) == 1 else ("",))
    for arm in arms:
        for metric in scope.metrics or ("",):
            for context in scope.contexts or ("",):
                rows = [
                    one
                    for one in known
                    if arm in ("", one.candidate) and metric in ("", one.metric) and context in ("", one.context)
                ]  # fmt: skip
                if not any(one.word in supports for one in rows):
                    parts = (arm, title(metric), f"at {context}" if context else "")
                    of = " ".join(part for part in parts if part) or "every row"
                    told = ", ".join(dict.fromkeys(one.word for one in rows))
                    return f"the verdict of {of} is {told}" if rows else f"no table judges {of}"
    return ""
