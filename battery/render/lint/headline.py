"""Rules about the headline: the primary endpoint's estimate with its interval, its blocks and its margin."""

from __future__ import annotations

import re
from collections.abc import Iterator

from battery.analyse.speed import Comparison
from battery.render import words
from battery.render.lint.numbers import DIGITS, INTERVAL, SIGNED, intervals
from battery.render.lint.page import Passage
from battery.render.lint.rule import Found, Report, rule

_CHANGE = re.compile(
    rf"(?<![\w)])[+−-]{DIGITS}\s*(?:%|×)|\d\s*(?:%|×|x)\s+(?:faster|slower|better|worse|higher|lower)"
)
_BLOCKS = re.compile(r"\b([\d,]+)(?: complete| paired| interleaved)? blocks?\b")
_BESIDE = 120
"""Signs before and after the beginning of an interval within which its blocks are told."""
_MARGIN = re.compile(rf"\bmargin\b[^.;]{{0,30}}?{SIGNED}\s*(?:%|points?|pp)")


def headlines(report: Report) -> Iterator[Passage]:
    """The passages at the top of the page that state an estimate or a change."""
    for passage in report.page.top:
        # the quality line is no estimate over blocks; `lint.quality` has its rules
        if re.match(r"\s*Quality\b", passage.text):
            continue
        if _has_interval(passage) or _CHANGE.search(passage.text):
            yield passage


def _has_interval(passage: Passage) -> bool:
    """Whether a passage states an interval, or says that there is none."""
    return bool(INTERVAL.search(passage.text)) or "[no interval]" in passage.text


@rule(
    "headline-interval",
    "an estimate lies inside its own interval, and the headline is the primary endpoint's",
)
def headline_interval(report: Report) -> Iterator[Found]:
    """Every interval on the page; then, with findings, the headline of every candidate."""
    cells = [cell for table in report.page.tables for cell in table.cells]
    for passage in (*report.page.passages, *cells):
        for one in intervals(passage.text):
            line, told = passage.at(one.start), f"[{one.low}, {one.high}]"
            if not one.ordered:
                yield (
                    line,
                    f"the ends of {told} are in the wrong order",
                    "write the lower end first",
                )
            elif not one.holds:
                what = f"the estimate {one.estimate} is outside its own interval {told}"
                yield line, what, "state the estimate that the interval was computed for"
    for passage in headlines(report):
        if not _has_interval(passage):
            what = "the headline states a change without its interval"
            yield passage.line, what, "give its interval"
    yield from _as_found(report)


def _as_found(report: Report) -> Iterator[Found]:
    """Headlines that are not the estimates of the primary endpoint."""
    for one, passage in _told(report):
        wanted = words.interval(one.estimate)
        if passage is None:
            what = f"no headline states {one.candidate} at the primary endpoint, {wanted}"
            yield 1, what, "begin the page with it"
        elif _bare(wanted) not in _bare(passage.text):
            what = f"the headline of {one.candidate} is not the primary endpoint's {wanted}"
            yield passage.line, what, "state that estimate and that interval"


def _bare(text: str) -> str:
    """A text without blanks, with one kind of minus sign."""
    return "".join(text.split()).replace("-", "−")


def _told(report: Report) -> Iterator[tuple[Comparison, Passage | None]]:
    """Every comparison of the primary endpoint that has an estimate to tell, with its headline if there is one."""
    found = list(headlines(report))
    for one in report.findings.primary if report.findings else ():
        if one.estimate is None or one.verdict.word in ("not comparable", "invalid"):
            continue
        own = re.compile(rf"(?<![\w-]){re.escape(one.candidate)}(?![\w-])")
        yield one, next((passage for passage in found if own.search(passage.text)), None)


@rule("blocks-stated", "a headline with an interval says how many blocks are behind it")
def blocks_stated(report: Report) -> Iterator[Found]:
    """The number of blocks beside every interval of a headline, and whether it is the right one."""
    for passage in headlines(report):
        for one in intervals(passage.text):
            if not _blocks(passage, one.start):
                what = "the headline does not say how many blocks its interval rests on"
                yield passage.at(one.start), what, "say “N blocks” beside the interval"
    for told, headline in _told(report):
        wanted = told.estimate.blocks if told.estimate else 0
        for one in intervals(headline.text)[:1] if headline else ():
            said = _blocks(headline, one.start) if headline else ""
            if headline and said and said != str(wanted):
                what = f"the headline of {told.candidate} says {said} blocks, the estimate rests on {wanted}"
                yield headline.line, what, "state the blocks of the estimate"


def _blocks(passage: Passage, start: int) -> str:
    """The number of blocks that stands beside the interval at `start`; empty where none does."""
    near = passage.text[max(0, start - _BESIDE) : start + _BESIDE]
    found = _BLOCKS.search(near)
    return found[1] if found else ""


@rule("margin-and-endpoint", "the top states the margin and the primary endpoint that was declared")
def margin_and_endpoint(report: Report) -> Iterator[Found]:
    """A margin in every headline, and the endpoint's metric and context in the prose beside them."""
    found = [one for one in headlines(report) if INTERVAL.search(one.text)]
    for passage in found:
        if not _MARGIN.search(passage.text):
            yield (
                passage.line,
                "the headline states no margin",
                "add the practical margin, “margin 2 %”",
            )
    declared = [one for one in report.page.top if re.search(r"primary\s+endpoint", one.text, re.I)]
    if found and not declared:
        what = "the top of the page does not name the primary endpoint"
        yield found[0].line, what, "say which metric and context were declared before measuring"
    if declared and report.findings:
        plan = report.findings.plan
        wanted = (report.findings.measure(plan.primary.metric).title, f"{plan.anchor:,}")
        told = " ".join(" ".join(one.text.split()) for one in declared)
        missing = [
            part for part in wanted if part not in told and part.replace(",", "") not in told
        ]
        if missing:
            told = f"{' and '.join(missing)} is not named"
            what = f"the primary endpoint is {wanted[0]} at {wanted[1]} tokens, and {told}"
            yield declared[0].line, what, "name the endpoint that the plan declared"
