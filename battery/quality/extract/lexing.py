"""Where the strings and comments of a text lie, read as Python's tokeniser reads them, also where nothing parses.

A cut-off program still has its strings; prose has apostrophes that open none. So only what is closed counts.
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
