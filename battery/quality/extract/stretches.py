"""Code that stands in an answer without fences: the stretches of lines between prose that parse.

The text is cut into units: a line at the left margin with all that belongs to it (its indented lines, open brackets and
strings, `else` and its kin, what a decorator decorates). Each unit is parsed once, alone; neighbours that parse are one
stretch, a unit that does not ends it. So the work grows with the length of the text, where trying all pairs of lines
grows with its cube. A line of prose that happens to parse ("Done", "Note: see below", "- one") could only be evaluated
for nothing: it is left out and ends nothing.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from battery.quality.extract.cleaning import BREAK
from battery.quality.extract.lexing import at_the_left
from battery.quality.extract.parsing import UNPARSED, compiles, idle, parse, parse_or_raise

_PARTS = re.compile(
    r"(?P<comment>\#.*)"
    r'|(?P<triple>"""|\'\'\')'
    r'|(?P<string>"(?:[^"\\]|\\.)*+"|\'(?:[^\'\\]|\\.)*+\')'
    r'|(?P<torn>["\'])'
    r"|(?P<open>[(\[{])|(?P<close>[)\]}])"
    r"|(?P<joined>\\\Z)"
)
_ENDS = {
    '"""': re.compile(r'(?:[^"\\]|\\.|"(?!""))*+"""'),
    "'''": re.compile(r"(?:[^'\\]|\\.|'(?!''))*+'''"),
}
_PAIRS = {")": "(", "]": "[", "}": "{"}
_GOES_ON = re.compile(r"(?:else|elif|except|finally)\b")
_HEAD = re.compile(r"(?:def|class|async|if|for|while|try|with|match)\b|@")
_DEEPEST = 200  # Python's own limit of nested brackets
_CUTS = 20  # tries to end a broken unit before its first error, and decorators in a row


@dataclass(frozen=True)
class Stretch:
    """A run of lines that parses: its text, its tree, and how many of its lines say something."""

    text: str
    tree: ast.Module
    lines: int


@dataclass(frozen=True)
class _Unit:
    kind: Literal["code", "comment", "idle", "block", "break"]
    first: int
    last: int


def stretches(text: str, *, levels: int = 3) -> list[Stretch]:
    """The stretches of a text in order, at its left margin and in blocks that are indented below prose.

    Blocks inside blocks are followed to the given number of levels.
    """
    lines = text.split("\n")
    found: list[Stretch] = []
    run: list[_Unit] = []
    for unit in _units(lines):
        if unit.kind in ("code", "comment"):
            run.append(unit)
        elif unit.kind != "idle":
            found += _joined(lines, run)
            run = []
            if unit.kind == "block" and levels > 1:
                block = at_the_left("\n".join(lines[unit.first : unit.last]))
                found += stretches(block, levels=levels - 1)
    return found + _joined(lines, run)


def covered(text: str) -> list[tuple[int, int]]:
    """The lines of a text that are statements, as (first, after the last) counted from 0.

    Indented lines are statements where they, or all but the first, could be the body of a function.
    """
    lines = text.split("\n")
    if any(line[:1] in (" ", "\t") for line in lines[:2]) and (
        _is_body(lines) or _is_body(lines[1:])
    ):
        return [(0, len(lines))]
    found = []
    for unit in _units(lines):
        block = lines[unit.first : unit.last]
        if unit.kind == "code" or (
            block[0][0] in " \t" and (_is_body(block) or _is_body(block[1:]))
        ):
            found.append((unit.first, unit.last))
    return found


def indented_blocks(text: str) -> list[str]:
    """The runs of indented lines that belong to no statement above them, in order, each with its own margin."""
    lines = text.split("\n")
    return [
        "\n".join(lines[unit.first : unit.last]) + "\n"
        for unit in _units(lines)
        if unit.kind == "block"
    ]


def _is_body(lines: list[str]) -> bool:
    return parse("def body():\n" + "\n".join(lines) + "\n") is not None


def _units(lines: list[str]) -> Iterator[_Unit]:
    at = 0
    while at < len(lines):
        line = lines[at]
        if not line.strip():
            at += 1
            continue
        first, at = at, at + 1
        if line[0] in " \t":
            at = _indented_until(lines, first)
            yield _Unit("block", first, at)
        elif line[0] == "#":
            yield _Unit("comment", first, at)
        else:
            good, kind = _judged(lines[first : _unit_end(lines, first)])
            if good:
                at = first + good
                yield _Unit(kind, first, at)
                rest = _indented_until(lines, at)  # of a definition that was cut where it breaks
            else:
                rest = _indented_until(lines, at) if _HEAD.match(line) else at
            if rest > at or not good:
                yield _Unit("break", at if good else first, rest)
            at = rest


def _joined(lines: list[str], run: list[_Unit]) -> list[Stretch]:
    if not any(unit.kind == "code" for unit in run):
        return []
    kept: list[str] = []
    at = run[0].first
    for unit in run:
        kept += [line if not line.strip() else "" for line in lines[at : unit.first]]
        kept += lines[unit.first : unit.last]
        at = unit.last
    text = "\n".join(kept) + "\n"
    tree = parse(text)
    return [Stretch(text, tree, sum(1 for line in kept if line.strip()))] if tree else []


def _judged(lines: list[str]) -> tuple[int, Literal["code", "idle"]]:
    """How many lines of a unit, from its first, Python takes, and whether they do anything."""
    for _ in range(_CUTS):
        if not lines:
            break
        try:
            tree = parse_or_raise("\n".join(lines) + "\n")
        except UNPARSED as error:
            torn = error.lineno if isinstance(error, SyntaxError) else None
            lines = lines[: min(torn or 1, len(lines)) - 1]
            continue
        if not compiles(tree):
            break
        return len(lines), "idle" if all(idle(each) for each in tree.body) else "code"
    return 0, "idle"


def _unit_end(lines: list[str], first: int) -> int:
    """The line after a unit; `first` itself where its first line cannot begin a statement."""
    if _GOES_ON.match(lines[first]) or lines[first].startswith(BREAK):
        return first
    state = _State()
    decorated = lines[first].startswith("@")
    at = first
    while at < len(lines):
        if not state.read(lines[at]) and (at == first or state.lost):
            return first
        at += 1
        if state.open:
            continue
        ahead = at
        while ahead < len(lines) and (not lines[ahead].strip() or lines[ahead][0] == "#"):
            ahead += 1
        if ahead == len(lines):
            break
        line = lines[ahead]
        if not (line[0] in " \t" or _GOES_ON.match(line) or (decorated and at - first < _CUTS)):
            break
        decorated = decorated and line.startswith("@")
        at = ahead
    return at


class _State:
    """Which brackets and which string are open behind the lines read so far."""

    def __init__(self) -> None:
        self._brackets: list[str] = []
        self._string = ""
        self._joined = False
        self.lost = False

    @property
    def open(self) -> bool:
        return bool(self._brackets or self._string or self._joined)

    def read(self, line: str) -> bool:
        """Take one line in; False where Python's tokeniser would stop at it. Then nothing is open."""
        at = 0
        self._joined = False
        while True:
            if self._string:
                end = _ENDS[self._string].match(line, at)
                if end is None:
                    return True
                at, self._string = end.end(), ""
            part = _PARTS.search(line, at)
            if part is None or part.lastgroup == "comment":
                return True
            at = part.end()
            if not self._take(part):
                self._brackets.clear()
                return False

    def _take(self, part: re.Match[str]) -> bool:
        if part.lastgroup == "triple":
            self._string = part[0]
        elif part.lastgroup == "open":
            self._brackets.append(part[0])
            self.lost = len(self._brackets) > _DEEPEST
            return not self.lost
        elif part.lastgroup == "close":
            return bool(self._brackets) and self._brackets.pop() == _PAIRS[part[0]]
        elif part.lastgroup == "joined":
            self._joined = True
        return part.lastgroup != "torn"


def _indented_until(lines: list[str], at: int) -> int:
    """The line after the last indented one of a run that starts at `at`; `at` itself where none does."""
    end = at
    while at < len(lines) and (not lines[at].strip() or lines[at][0] in " \t"):
        at += 1
        if lines[at - 1].strip():
            end = at
    return end
