"""What lines tell before anything parses: their margins, and where strings and comments lie.

Strings are read as Python's tokeniser reads them. A cut-off program still has its strings; prose has apostrophes that
open none. So only what is closed counts.
"""

from __future__ import annotations

import re

_WORDS = re.compile(
    r"(?P<comment>\#[^\n]*)"
    r'|(?P<string>"""(?:[^"\\]|\\.|"(?!""))*+"""'
    r"|'''(?:[^'\\]|\\.|'(?!''))*+'''"
    r'|"(?!"")(?:[^"\\\n]|\\.)*+"'
    r"|'(?!'')(?:[^'\\\n]|\\.)*+')",
    re.DOTALL,
)


def quoted(source: str) -> list[tuple[int, int]]:
    """The spans of all closed strings and comments, as (start, end) offsets in order."""
    return [match.span() for match in _WORDS.finditer(source)]


def starts_inside_a_string(source: str) -> list[bool]:
    """For each line of a text whether a string that spans lines is open where it starts."""
    inside = [False] * (source.count("\n") + 1)
    line = at = 0
    for match in _WORDS.finditer(source):
        first = line + source.count("\n", at, match.start())
        last = first + match[0].count("\n")
        for each in range(first + 1, last + 1):
            inside[each] = True
        line, at = last, match.end()
    return inside


def margin(line: str) -> str:
    """The blanks that a line starts with: spaces and tabs, and no other character that looks like one."""
    return line[: len(line) - len(line.lstrip(" \t"))]


def column(blanks: str) -> int:
    """How wide a text of blanks is, with tab stops every four columns, as in Markdown."""
    return len(blanks.expandtabs(4))


def dedented(line: str, columns: int) -> str:
    """A line without up to that many columns of blanks; a tab that reaches beyond leaves its rest as spaces."""
    at = 0
    for index, letter in enumerate(line):
        if at >= columns or letter not in " \t":
            return " " * max(0, at - columns) + line[index:]
        at += 4 - at % 4 if letter == "\t" else 1
    return " " * max(0, at - columns)


def at_the_left(text: str) -> str:
    """A text moved left as a whole until its leftmost line has no margin. Lines of blanks lose no more than that."""
    lines = text.split("\n")
    least = min((column(margin(line)) for line in lines if line.strip()), default=0)
    return "\n".join(dedented(line, least) for line in lines)
