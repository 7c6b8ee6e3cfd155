"""The rule about claims: what a page says of an arm must be what a verdict says.

Sentences are read by words: which claim, about which arm, metric and context, and with which figure. What a sentence
leaves out is taken from the sentences before it in its paragraph, what a cell leaves out from its row; a page with one
candidate needs no name for it. Words in quotation marks, in code and in cells count like any others, but for a column
titled “reason”, which holds others' words. The rule is wary, not clever: it takes a claim for one that no verdict
supports rather than let it pass.

It cannot see a claim without a subject (“and it is faster, too” where no arm, metric or figure is near), numbers
written as words (“a third faster” is read as “faster”), a bare figure that no word makes a claim (“at 16,384: +30.7 %
decode”), rates in tok/s beside a claim, words that it does not know, irony, text in a fence or in a picture, and a
subject that only a heading names. A claim without a context needs a verdict at one context, not at all of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import msgspec

from battery.render.lint.claimwords import Claim
from battery.render.lint.clauses import asserted, sentences
from battery.render.lint.figures import agrees, figure, multiplies
from battery.render.lint.numbers import value
from battery.render.lint.page import Passage, Table, plain, worded
from battery.render.lint.rule import Found, Report, rule
from battery.render.lint.verdicts import (
    Ruling,
    contradictions,
    look_at,
    metrics,
    name,
    rulings,
    subject,
    verdict_cells,
)

_OTHERS = (
    r"\b(?:than|unlike|against|over|versus|vs\.?|compared (?:with|to)|relative to)"
    r"\s+(?:the\s+)?(?:arm\s+)?{arm}(?![\w-])"
)
_OURS = re.compile(
    r"\b(?:this|the|our) (?:PR|pull request|change|patch|branch|candidate)\b|\bwe\b", re.I
)
_FIGURE = re.compile(r"\d\s*(?:%|×|x\b|tok/s)")
_CLAUSE = re.compile(r"[,;]\s|\b(?:and|but|while|whereas|although|because)\b")
_TOKENS = r"\d[\d,]*(?:\s?[kK](?:i|\b))?"
_CONTEXT = re.compile(
    rf"(?:\b[Aa]t|\b[Cc]ontexts?(?: of)?|\b[Rr]ungs?)\s+"
    rf"(?P<list>{_TOKENS}(?:(?:,| and|, and| or)\s+{_TOKENS})*)(?![\d.]*\s*%)"
    r"|(?P<one>\b\d[\d,]*(?:\s?[kK]i?)?)(?:[ -]tokens?\b|(?<=[kK])\b|(?<=[kK]i)\b)"
)
_LOOK = re.compile(r"\blook after (\d+) blocks\b")
_TURNED = {"faster": "slower", "smaller": "larger", "higher": "lower"}
_TURNED |= {down: up for up, down in _TURNED.items()}
_REMEDY = "claim only what a verdict says, or say that it is undecided"


class Scope(msgspec.Struct, frozen=True):
    """Whom and what a piece of text speaks of."""

    candidates: tuple[str, ...] = ()
    metrics: tuple[str, ...] = ()
    contexts: tuple[str, ...] = ()
    others: tuple[str, ...] = ()
    """Candidates on the other side: than C, against C."""

    def after(self, before: Scope) -> Scope:
        """The scope with what it leaves out taken from the one before."""
        sides = self if self.candidates or self.others else before
        return Scope(
            sides.candidates,
            self.metrics or before.metrics,
            self.contexts or before.contexts,
            sides.others,
        )


@rule(
    "undecided-claims",
    "neither prose nor cells claim of an arm, metric and context what no verdict says",
)
def undecided_claims(report: Report) -> Iterator[Found]:
    """Every claim of every sentence and cell, held against the verdicts; and verdict cells against the findings."""
    known = rulings(report)
    for passage in report.page.passages:
        yield from _unfounded(passage, Scope(), known)
    for table in report.page.tables:
        for cell, around in _cells(table):
            yield from _unfounded(cell, around, known)
    for line, what in contradictions(report):
        yield line, what, "print the verdict that the findings hold"


def _cells(table: Table) -> Iterator[tuple[Passage, Scope]]:
    """The titles and the cells that are no verdicts, with what their row speaks of; others' words are left out."""
    verdicts = {(told.row.line, told.place) for told in verdict_cells(table)}
    others = table.column("reason")
    for title in table.head.cells:
        yield Passage(table.head.line, title, "prose", 0, title), Scope()
    titled = [metrics(plain(title)) for title in table.head.cells]
    for row in table.rows:
        arm, metric, context = subject(table, row)
        around = Scope(
            (arm,) if arm else (), (metric,) if metric else (), (context,) if context.isdecimal() else ()
        )  # fmt: skip
        for place, cell in enumerate(row.cells):
            if place != others and (row.line, place) not in verdicts:
                own = Scope(metrics=titled[place] if place < len(titled) else ())
                yield Passage(row.line, plain(cell), "prose", 0, cell), own.after(around)


def _unfounded(passage: Passage, around: Scope, known: Sequence[Ruling]) -> Iterator[Found]:
    """The claims of a passage that have no verdict behind them."""
    candidates = tuple(dict.fromkeys(one.candidate for one in known if one.candidate))
    before = around
    for start, written in sentences(worded(passage.written)):
        sentence, made = asserted(written, bool(around.metrics))
        own = _scope(sentence, candidates, known)
        before = whole = own.after(before)
        named_here = whole.candidates or whole.others or own.metrics or own.contexts
        if not (named_here or _FIGURE.search(sentence) or _OURS.search(sentence)):
            continue
        for claim, clause in _beside(made, sentence):
            named = _scope(clause, candidates, known).after(whole)
            if said := _unsupported(claim, clause, sentence, named, known, candidates):
                what = f"claims “{' '.join(claim.word.split())}”, and {said}"
                yield (
                    passage.line + passage.written.count("\n", 0, start + claim.start),
                    what,
                    _REMEDY,
                )


def _beside(made: Sequence[Claim], sentence: str) -> Iterator[tuple[Claim, str]]:
    """Each claim with the part of the sentence that is its own, where there are several."""
    cuts = [match.start() for match in _CLAUSE.finditer(sentence)] if len(made) > 1 else []
    for place, claim in enumerate(made):
        low = max((cut for cut in cuts if cut <= claim.start), default=0) if place else 0
        after = made[place + 1].start if place + 1 < len(made) else len(sentence)
        high = max((cut for cut in cuts if claim.end <= cut <= after), default=after)
        yield claim, sentence[low:high]


def _scope(text: str, candidates: Sequence[str], known: Sequence[Ruling]) -> Scope:
    """Whom and what a text names; an arm after “than” or “against” is the other side."""
    named, others = [], []
    for arm in candidates:
        own = re.escape(arm)
        rest, against = re.subn(_OTHERS.format(arm=own), " ", text)
        if against:
            others.append(arm)
        if re.search(rf"(?<![\w-]){own}(?![\w-])", rest):
            named.append(arm)
    contexts = {one.context for one in known}
    found = [look_at(match[1]) for match in _LOOK.finditer(text)]
    for match in _CONTEXT.finditer(text):
        for told in re.findall(_TOKENS, match["list"] or match["one"]):
            options = _contexts(told)
            fits = next((one for one in options if one in contexts), None)
            if fits or match["one"] or len(options) > 1:
                found.append(fits or options[0])
    return Scope(tuple(named), metrics(text), tuple(dict.fromkeys(found)), tuple(others))


def _contexts(told: str) -> list[str]:
    """What a context may be in tokens: 16K is 16,384 or 16,000."""
    digits = told.rstrip("kKi ,")
    if digits != told.rstrip(","):
        return [str(int(value(digits)) * factor) for factor in (1024, 1000)]
    return [str(int(value(digits)))]


def _unsupported(
    claim: Claim, clause: str, sentence: str, scope: Scope, known: Sequence[Ruling], candidates: Sequence[str]
) -> str:  # fmt: skip
    """Why a claim has no verdict behind it; nothing where it has."""
    if not known:
        return "no table of the page has a verdict"
    if scope.candidates and scope.others:
        return f"no verdict sets {scope.candidates[0]} against {scope.others[0]}"
    told, supports = figure(claim, sentence), claim.supports
    if scope.others:
        supports = frozenset(_TURNED.get(word, word) for word in supports)
    arms = scope.candidates or scope.others or (candidates if len(candidates) == 1 else ("",))
    for arm in arms:
        for metric in scope.metrics or ("",):
            for context in scope.contexts or ("",):
                rows = [one for one in known if _speaks(one, arm, metric, context)]
                of = name(arm, metric, context) or "every row"
                fit = [one for one in rows if one.word in supports]
                if not fit:
                    words = ", ".join(dict.fromkeys(one.word for one in rows))
                    return f"the verdict of {of} is {words}" if rows else f"no table judges {of}"
                if not any(
                    one.change is None or _as_much(claim, one, clause, sentence) for one in fit
                ):
                    much = told.told if told else "so much"
                    return f"{much} is not what was found where {of} is {fit[0].word}"
    return ""


def _speaks(one: Ruling, arm: str, metric: str, context: str) -> bool:
    """Whether a ruling is of that arm, metric and context; what is empty may be any, but no interim look.

    Nor one of a single workload: a sentence that names the kind of text is held against all of it, so as to be wary.
    """
    looked = one.context.startswith("look")
    return (
        not one.workload
        and arm in ("", one.candidate)
        and (metric in ("", one.metric) or (looked and not one.metric))
        and (context == one.context or (not context and not looked))
    )


def _as_much(claim: Claim, one: Ruling, clause: str, sentence: str) -> bool:
    """Whether the claim's figure, if it has one, is that ruling's."""
    told = figure(claim, sentence)
    if one.change is None:
        return True
    if claim.factor is not None and not multiplies(claim.factor, one.change, clause, one.metric):
        return False
    return told is None or agrees(told, one.change, clause, one.metric)
