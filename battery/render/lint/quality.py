"""Rules about quality: what may be said of answers, and that no gain in speed stands alone where answers may differ."""

from __future__ import annotations

import re
from collections.abc import Iterator

from battery.analyse.findings import Findings
from battery.analyse.quality import Change, loose
from battery.render import quality
from battery.render.lint.headline import headlines
from battery.render.lint.page import Table, plain, unquoted
from battery.render.lint.rule import Found, Report, rule
from battery.render.quality_tables import change

_OF = r"(?:quality|answers?|accuracy|correctness|pass(?:[- ]rates?|@\d+))"
_SAME = re.compile(
    rf"\b(?:no|without(?:\s+any)?|zero)\s+(?:\w+\s+)?(?:loss|drop|change|difference|degradation|cost|impact|penalty)\s+"
    rf"(?:of|in|to|on|for)\s+(?:\w+\s+)?{_OF}\b"
    rf"|\b(?:the\s+)?(?:same|equal|identical|equivalent|unchanged)\s+{_OF}\b"
    rf"|\b{_OF}\s+(?:is|are|was|were|stays?|stayed|remains?|remained)\s+(?:\w+ly\s+)?"
    r"(?:the same|equal|identical|equivalent|unchanged|unaffected|preserved|kept)\b"
    rf"|\bas\s+(?:accurate|correct|good)\s+as\b|\b(?:keeps?|preserv\w+|maintain\w*)\s+(?:the\s+)?{_OF}\b",
    re.I,
)
_HEDGED = re.compile(
    r"\b(?:not|no\s+\w+\s+says|nothing|whether|would|could|might|may|if|unless|cannot|never|undecided)\b|n['’]t\b", re.I
)  # fmt: skip
_WORD = re.compile(r"(?<![\w-])(?:non-)?inferior(?!\w)", re.I)
_LINE = re.compile(r"\s*Quality\b")
_SENTENCE = re.compile(r"(?:[^.!?]|[.!?](?!\s))+[.!?]?")


@rule(
    "quality-same", "no page says that arms answer alike: a change that was not found is undecided"
)
def quality_same(report: Report) -> Iterator[Found]:
    """Claims of equal quality, in prose and in cells."""
    remedy = "say non-inferior within the margin, where that was found, or undecided"
    cells = [cell for table in report.page.tables for cell in table.cells]
    for passage in (*report.page.passages, *cells):
        for sentence in _SENTENCE.finditer(unquoted(passage.text)):
            match = _SAME.search(sentence.group())
            if match and not _HEDGED.search(sentence.group()[: match.start()]):
                what = f"“{' '.join(match.group().split())}” is more than any test can show"
                yield passage.at(sentence.start() + match.start()), what, remedy


@rule(
    "quality-verdict", "non-inferior and inferior are said only where a comparison by task found it"
)
def quality_verdict(report: Report) -> Iterator[Found]:
    """The words in the prose, and the column of quality verdicts, held against the findings."""
    if report.findings is None:
        told = [cell for table in report.page.tables for cell in _column(table)]
        known = {word.group().casefold() for text in told for word in _WORD.finditer(text)}
    else:
        found = report.findings.graded
        known = {one.verdict.word for one in found.changes} if found else set()
    for passage in report.page.prose:
        if report.findings is not None and _LINE.match(passage.text) and passage in report.page.top:
            continue
        for word in _WORD.finditer(unquoted(passage.text)):
            before = passage.text[max(0, word.start() - 60) : word.start()]
            defines = passage.text[word.end() : word.end() + 1] == ":"
            if word.group().casefold() not in known and not defines and not _HEDGED.search(before):
                what = f"“{word.group()}”, and no comparison of quality found it"
                yield passage.at(word.start()), what, "say what was found, or that it is undecided"
    yield from _contradicted(report)


def _column(table: Table) -> list[str]:
    """The cells of a table's column of quality verdicts."""
    place = table.column("quality verdict")
    return [
        plain(row.cells[place])
        for row in table.rows
        if place is not None and place < len(row.cells)
    ]


def _contradicted(report: Report) -> Iterator[Found]:
    """Cells of quality verdicts that are not what the findings decided."""
    if report.findings is None:
        return
    graded = report.findings.graded
    for table in report.page.tables:
        place, suite, arm = (table.column(name) for name in ("quality verdict", "suite", "arm"))
        if place is None or suite is None or arm is None:
            continue
        for row in table.rows:
            if len(row.cells) != len(table.head.cells):
                continue
            key = plain(row.cells[arm]), plain(row.cells[suite])
            named = (x for x in (graded.changes if graded else ()) if (x.candidate, x.suite) == key)
            one = next(named, None)
            wanted, said = _verdict(one), plain(row.cells[place])
            if said != wanted:
                what = f"the table says “{said}” of {key[0]} on {key[1]}, and the findings say {wanted}"
                yield row.line, what, "print the verdict that the findings hold"


def _verdict(one: Change | None) -> str:
    """A comparison's verdict as a table prints it."""
    return f"{one.verdict.word} {one.verdict.qualifier}".strip() if one else "nothing"


@rule(
    "quality-stated",
    "the top says what was found of every candidate's answers, and calls no gain one where nobody looked at them",
)
def quality_stated(report: Report) -> Iterator[Found]:
    """The quality lines of the top, and headlines whose gain stands where an arm's answers may differ unseen."""
    findings = report.findings
    if findings is None:
        return
    told = [_bare(one.text) for one in report.page.top if _LINE.match(one.text)]
    for candidate in findings.candidates if findings.graded else ():
        own = re.compile(rf"(?<![\w−]){re.escape(_bare(candidate))}(?![\w−])")
        here = [text for text in told if own.search(text)]
        for wanted in _wanted(findings, candidate):
            if not any(_bare(wanted) in text for text in here):
                what = f"the top does not say of the quality of {candidate}: {wanted}"
                yield 1, what, "state the quality line of the findings"
    yield from _alone(findings, report)


def _wanted(findings: Findings, candidate: str) -> tuple[str, ...]:
    """What a candidate's quality line must hold: change and interval, margin, verdict; or that there is none."""
    one = findings.graded.deciding(candidate) if findings.graded else None
    if one is None or one.paired is None:
        return ("not",)
    return change(one.paired), f"margin {100 * one.margin:g} points", _verdict(one)


def _bare(text: str) -> str:
    """A text with single blanks and one kind of minus sign."""
    return " ".join(text.replace("*", " ").replace("-", "−").split())


def _alone(findings: Findings, report: Report) -> Iterator[Found]:
    """Headlines of a gain that say nothing of quality although the arm's switches may change answers."""
    for one in findings.primary:
        if one.verdict.word not in quality.GAINS or not loose(findings.switches, one.candidate):
            continue
        own = re.compile(rf"(?<![\w-]){re.escape(one.candidate)}(?![\w-])")
        for passage in headlines(report):
            if own.search(passage.text) and not re.search(r"\bquality\s*:", passage.text):
                what = f"{one.candidate} is called {one.verdict.word} without a word on its answers, which may differ"
                yield passage.line, what, f"say “{quality.NOT_RUN}” in its place, or what was found"
