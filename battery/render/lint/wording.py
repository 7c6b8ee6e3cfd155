"""Rules about words: what may be called exact, what is no estimate, and what a drift is a drift of."""

from __future__ import annotations

import re
from collections.abc import Iterator

from battery.render.lint.page import Passage, Table, mask, plain, unquoted
from battery.render.lint.rule import Found, Report, rule

_EXACT = re.compile(
    r"\b(?:exact(?:ly|ness)?|lossless(?:ly|ness)?|(?:bit|byte)-?\s?(?:identical|exact)|bit[- ]for[- ]bit)\b",
    re.I,
)
_LAWFUL = re.compile(r"\b(?:switch(?:es)?|laws?|acceptance)\b", re.I)
_SUBJECT = re.compile(
    r"(?:\barms?|\bresults?|\bfigures?|\bnumbers?|\btexts?|\banswers?|\boutputs?|\bestimates?|\b[A-Z][\w′']*)\s+"
    r"(?:is|are|was|were|stays?|remains?|be)\s+(?:\w+\s+)?$"
)
_NEAR = 6
"""Words between the exact and the switch or law that it is said of, at most."""
_AMOUNT = r"(?:tok/s|throughput|decode|prefill|rates?|speeds?|speed-?ups?|gains?|results?|figures?|numbers?)"
_RUNS = r"(?:windows?|runs?|seeds?|lanes?|samples?|requests?|rounds?|repeats?|repetitions?|trials?|blocks?|attempts?)"
_BEST = re.compile(
    rf"\b(?:fastest|slowest|quickest|best|highest|peak|top|record)[ -]+(?:\w+[ -]+)?(?:{_RUNS}|{_AMOUNT})(?!\w)"
    rf"|\b(?:fastest|slowest|quickest|best|peak)[ -]of\b"
    rf"|\bmax(?:imum)?\s+(?:of\s+(?:\w+\s+){{0,2}}{_RUNS}|{_AMOUNT})\b"
    r"|\bup to\s+[+−-]?[\d.,]+\s*(?:%|×|x\b|times|tok/s|percent)"
    r"|\b(?:as\s+(?:fast|high|much)\s+as)\s+[+−-]?\d|\bat best\b|\bbest[ -]case\b",
    re.I,
)
_BEST_COLUMN = re.compile(r"\b(?:fastest|best|quickest)\b|\bmax(?:imum)?\b.*(?:tok/s|speed|rate)", re.I)  # fmt: skip
_DRIFT = re.compile(r"\b(?:drift(?:s|ed)?|bracket|spread)\b", re.I)
_DRIFT_FIGURE = re.compile(r"[+−-]\d|\d\s*(?:%|‰|×|tok/s|°C|ms\b|s\b|[GM]i?B\b|points?\b)")
_DEFINED = re.compile(
    r"\b(?:largest|highest|slowest|fastest|smallest|lowest|last|first|max(?:imum)?|min(?:imum)?)[ -]+"
    r"(?:against|to|over|minus|from|and|less)[ -]+(?:the\s+)?"
    r"(?:largest|highest|slowest|fastest|smallest|lowest|last|first|min(?:imum)?|max(?:imum)?)\b"
    r"|\bper\s+(?:window|block|round|hour|minute|second|request|launch)\b|\bwhen it runs second\b"
    r"|\bstandard deviation\b|\bsd\b|\binterquartile\b|\bmedian absolute\b"
    r"|\bbetween (?:prompts|seeds|blocks|windows)\b",
    re.I,
)


def _sentences(text: str) -> Iterator[tuple[int, str]]:
    """Sentences of a passage with their places."""
    for match in re.finditer(r"(?:[^.!?]|[.!?](?!\s))+[.!?]?", text):
        yield match.start(), match.group()


@rule(
    "exact-word",
    "“exact”, “lossless” and “bit-identical” are said of acceptance laws and switches only",
)
def exact_word(report: Report) -> Iterator[Found]:
    """The word in prose, and in tables that are not about switches or laws."""
    remedy = (
        "say it of the switch or of the acceptance law, or say what was compared and found equal"
    )
    for passage in report.page.passages:
        for start, sentence in _sentences(unquoted(passage.text)):
            for word in _not_of_switches(sentence):
                line = passage.at(start + word.start())
                yield line, f"“{word.group()}” is not said of a switch or an acceptance law", remedy
    for table in report.page.tables:
        if _lawful(table):
            continue
        titles = [Passage(table.head.line, plain(title), "prose", 0) for title in table.head.cells]
        for cell in (*titles, *table.cells):
            for word in _not_of_switches(unquoted(cell.text)):
                what = f"“{word.group()}” stands in a table that is not of switches or laws"
                yield cell.line, what, remedy


def _lawful(table: Table) -> bool:
    """Whether a table lists switches or laws, or says of things that are no arms how exact they are."""
    if any(re.search(r"\b(?:switch|law)\b", plain(title), re.I) for title in table.head.cells):
        return True
    return table.column("exactness") is not None and table.column("arm") is None


def _not_of_switches(sentence: str) -> Iterator[re.Match[str]]:
    """The words that no switch or law stands near, or that an arm or a result is the subject of."""
    for word in _EXACT.finditer(sentence):
        before, after = sentence[: word.start()], sentence[word.end() :]
        near = " ".join([*before.split()[-_NEAR:], "…", *after.split()[:_NEAR]])
        subject = _SUBJECT.search(before)
        ours = subject and not _LAWFUL.search(subject.group())
        if ours or not _LAWFUL.search(near):
            yield word


@rule("best-of", "no maximum, fastest run or “up to” stands for an estimate")
def best_of(report: Report) -> Iterator[Found]:
    """The words in prose, and columns that are called so."""
    remedy = "state the estimate over all windows with its interval"
    cells = [cell for table in report.page.tables for cell in table.cells]
    for passage in (*report.page.passages, *cells):
        for match in _BEST.finditer(unquoted(passage.text)):
            what = f"“{' '.join(match.group().split())}” is one chosen value, not an estimate"
            yield passage.at(match.start()), what, remedy
    for table in report.page.tables:
        for title in map(plain, table.head.cells):
            if _BEST.search(title) or _BEST_COLUMN.search(title):
                what = f"the column “{title}” holds chosen values, not estimates"
                yield table.head.line, what, remedy


@rule("drift-defined", "a figure of drift, bracket or spread says between what it was taken")
def drift_defined(report: Report) -> Iterator[Found]:
    """Sentences and rows with such a word and a figure but no definition."""
    remedy = "say what it is: largest against smallest, last against first, per window"
    for passage in report.page.passages:
        for start, sentence in _sentences(passage.text):
            if word := _undefined(sentence):
                line = passage.at(start + word.start())
                yield line, f"“{word.group()}” has a figure and no definition", remedy
    for table in report.page.tables:
        head = " ".join(map(mask, table.head.cells))
        rows: dict[int, str] = {}
        for cell in table.cells:
            rows[cell.line] = f"{rows.get(cell.line, '')} {cell.text}"
        for line, text in rows.items():
            if (word := _undefined(text)) and not _DEFINED.search(head):
                yield line, f"“{word.group()}” has a figure and no definition", remedy
        for title in map(plain, table.head.cells):
            if _DRIFT.search(title) and not _DEFINED.search(title):
                what = f"the column “{title}” does not say between what it was taken"
                yield table.head.line, what, remedy


def _undefined(text: str) -> re.Match[str] | None:
    """The word, where a text has a figure for it and does not say what it means."""
    word = _DRIFT.search(text)
    return word if word and _DRIFT_FIGURE.search(text) and not _DEFINED.search(text) else None
