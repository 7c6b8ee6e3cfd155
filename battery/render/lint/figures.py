"""Rules about figures: intervals, the headline, numbers of requests, and where a number of the prose comes from."""

from __future__ import annotations

import re
from collections.abc import Iterator
from decimal import Decimal

import msgspec

from battery.analyse.speed import Comparison
from battery.ledger.receipt import OUTCOMES
from battery.render import words
from battery.render.lint.numbers import DIGITS, SIGNED, Stated, decimals, numbers, value
from battery.render.lint.page import Passage, Table, mask, plain
from battery.render.lint.rule import Found, Report, rule

_UNIT = r"\s*(?:%|×|x\b|tok/s|ms\b|s\b|[GM]i?B\b|points?\b|pp\b)?"


def _pair(place: int) -> str:
    """The pattern of two ends, in the groups low and high of this place."""
    ends = (rf"(?P<{end}{place}>{SIGNED}){_UNIT}\s*" for end in ("low", "high"))
    return r"\s*" + r"(?:,|;|to|\.\.\.?|…|–)\s*".join(ends)


_INTERVAL = re.compile(
    rf"\[{_pair(1)}\]|\((?=\s*[+−-])(?=[^)]*?(?:,|to)){_pair(2)}\)"
    rf"|(?<![\w-])(?:CI|[Ii]nterval)\s*(?:of|is|from|:|=|was)?{_pair(3)}"
)
"""Two ends in square brackets, signed in round ones, or after the word."""
_LEVEL = re.compile(r"\s*(?:%|percent)[ -]+(?:\w+[ -]+){0,2}(?:CI\b|interval|confidence|level)")
_CHANGE = re.compile(
    rf"(?<![\w)])[+−-]{DIGITS}\s*(?:%|×)|\d\s*(?:%|×|x)\s+(?:faster|slower|better|worse|higher|lower)"
)
_GAP = 60
"""An interval belongs to an estimate that stands at most this many signs before it."""
_N = re.compile(r"\bn\s*=\s*(\d[\d,]*)(?P<of>\s+of\s+\d[\d,]*)?")
_ENDED = re.compile(rf"\b(?:{'|'.join(word for word in OUTCOMES if word != 'ok')})\b")
_K_OF_N = re.compile(r"\b[\d,]+ of [\d,]+\b")
_KEYS = ("context", "contexts", "rung", "tokens", "metric", "suite", "phase", "block")
_BLOCKS = re.compile(r"\b([\d,]+)(?: complete| paired| interleaved)? blocks?\b")
_MARGIN = re.compile(rf"\bmargin\b[^.;]{{0,30}}?{SIGNED}\s*(?:%|points?|pp)")


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
    for match in _INTERVAL.finditer(text):
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
        if _LEVEL.match(text, since + number.end):
            continue
        direct = not gap.strip().removeprefix(number.unit).strip()
        far = len(gap) > _GAP or re.search(r"[.!?]\s", gap)
        if far or not (direct or number.sign or number.unit):
            return ""
        return number.sign + before[number.start : number.end].lstrip("+−-")
    return ""


def headlines(report: Report) -> Iterator[Passage]:
    """The passages at the top of the page that state an estimate or a change."""
    for passage in report.page.top:
        if _INTERVAL.search(passage.text) or "[no interval]" in passage.text or _CHANGE.search(passage.text):  # fmt: skip
            yield passage


@rule(
    "headline-interval",
    "an estimate lies inside its own interval, and the headline is the primary endpoint's",
)
def headline_interval(report: Report) -> Iterator[Found]:
    """Every interval on the page; then, with findings, the headline of every candidate."""
    pieces = [(one.at, one.text) for one in report.page.passages]
    for table in report.page.tables:
        for row in table.rows:
            pieces += [(lambda _, line=row.line: line, mask(cell)) for cell in row.cells]
    for at, text in pieces:
        for one in intervals(text):
            told = f"[{one.low}, {one.high}]"
            if not one.ordered:
                yield (
                    at(one.start),
                    f"the ends of {told} are in the wrong order",
                    "write the lower end first",
                )
            elif not one.holds:
                what = f"the estimate {one.estimate} is outside its own interval {told}"
                yield at(one.start), what, "state the estimate that the interval was computed for"
    for passage in headlines(report):
        if not _INTERVAL.search(passage.text) and "[no interval]" not in passage.text:
            yield (
                passage.line,
                "the headline states a change without its interval",
                "give its interval",
            )
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
    """The number of blocks in every headline, and whether it is the right one."""
    remedy = "say “N blocks” beside the interval"
    for passage in headlines(report):
        if _INTERVAL.search(passage.text) and not _BLOCKS.search(passage.text):
            yield (
                passage.line,
                "the headline does not say how many blocks its interval rests on",
                remedy,
            )
    for one, headline in _told(report):
        counts = _BLOCKS.findall(headline.text) if headline else []
        if headline and one.estimate and counts and str(one.estimate.blocks) != counts[0]:
            what = f"the headline of {one.candidate} says {counts[0]} blocks, the estimate rests on {one.estimate.blocks}"
            yield headline.line, what, "state the blocks of the estimate"


@rule("margin-and-endpoint", "the top states the margin and the primary endpoint that was declared")
def margin_and_endpoint(report: Report) -> Iterator[Found]:
    """A margin in every headline, and the endpoint's metric and context in the prose beside them."""
    found = [one for one in headlines(report) if _INTERVAL.search(one.text)]
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
            what = f"the primary endpoint is {wanted[0]} at {wanted[1]} tokens, and {' and '.join(missing)} is not named"
            yield declared[0].line, what, "name the endpoint that the plan declared"


@rule(
    "equal-n",
    "arms that a table sets side by side rest on the same number of requests, or the table says why not",
)
def equal_n(report: Report) -> Iterator[Found]:
    """Every `n=` of a row, and of rows that differ in nothing but the arm."""
    for table in report.page.tables:
        arm = table.column("arm")
        if arm is None:
            for row in table.rows:
                yield from _side_by_side(table, row.line, row.cells)
            continue
        yield from _one_above_the_other(table)


def _side_by_side(table: Table, line: int, cells: tuple[str, ...]) -> Iterator[Found]:
    """Arms in columns: unequal n need an outcome or “of m” in the row, and pairs counted as k of n."""
    counts = [match for cell in cells if (match := _N.search(cell))]
    if len({match[1] for match in counts}) < 2:
        return
    told = ", ".join(match.group() for match in counts)
    if not _ENDED.search(" ".join(cells)) and not any(match["of"] for match in counts):
        what = f"the arms rest on different numbers of requests ({told}) and nothing says why"
        yield line, what, "say how the other cells ended, as k of n"
        return
    for title, cell in zip(table.head.cells, cells, strict=False):
        if plain(title).casefold() == "pairs" and not _K_OF_N.search(cell):
            what = f"unequal numbers of requests ({told}), and the pairs are not told as k of n"
            yield line, what, "write the pairs compared of those planned"


def _one_above_the_other(table: Table) -> Iterator[Found]:
    """Arms in rows: the same column at the same context, or a column that is called n."""
    keys = [place for name in _KEYS if (place := table.column(name)) is not None]
    number = table.column("n", "runs", "seeds", "requests")
    known: dict[tuple[str, ...], dict[int, str]] = {}
    for row in table.rows:
        if len(row.cells) != len(table.head.cells):
            continue
        seen = known.setdefault(tuple(row.cells[place] for place in keys), {})
        for place, cell in enumerate(row.cells):
            match = _N.search(cell)
            count = match[1] if match else cell if place == number else None
            if count is None or (match and match["of"]) or _ENDED.search(" ".join(row.cells)):
                continue
            first = seen.setdefault(place, count)
            if first != count:
                what = f"n={count} here, n={first} in another arm's row, and nothing says why"
                yield (
                    row.line,
                    what,
                    "compare equal numbers, or say how the other cells ended, as k of n",
                )
                break


@rule("numbers-in-tables", "every number of the prose stands in a table of the same page")
def numbers_in_tables(report: Report) -> Iterator[Found]:
    """Numbers of paragraphs, lists, captions and headings that no table has."""
    cells = [
        text
        for table in report.page.tables
        for row in (table.head, *table.rows)
        for text in row.cells
    ]
    stated = Stated(cells)
    for passage in report.page.passages:
        text = passage.text
        if passage.kind == "heading":
            # a title that is one word is a campaign's name; a heading begins with its own number
            if len(text.split()) < 2 and passage.level == 1:
                continue
            text = re.sub(r"^\s*\d+(\.\d+)*\.?(?=\s)", lambda match: " " * len(match.group()), text)
        for number in numbers(text):
            if not stated.holds(number):
                told = " ".join(f"{text[number.start : number.end]} {number.unit}".split())
                what = f"{told} stands in no table"
                yield (
                    passage.at(number.start),
                    what,
                    "add it to a table, or take it out of the prose",
                )
