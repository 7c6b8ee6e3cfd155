"""Where a text shows what should stay private: secrets by their looks and names, home folders, this machine's paths.

The same patterns by which records are cleaned when they are written (ledger.scrub), applied once more to what is about
to leave the machine: older records, pages and files that others put there. Nothing is changed; places are told.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator

from battery.ledger import scrub

_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.))")
_ESCAPED = {"n": "\n", "r": "\r", "t": "\t", "b": "\b", "f": "\f"}
_NAMED = re.compile(r'"([\w.-]+)"\s*:\s*\[?\s*"([^"<][^"]*)"')
"""A field of JSON and its text; what is hidden already begins with `<`."""


def lines(text: str, chart_keys: bool = False) -> Iterator[tuple[int, str]]:
    """(line, what is there) for every line that shows something private, counted from 1, the first of each kind.

    A line is looked at as it stands and with the escapes of JSON and HTML undone: a quoted key in a log inside a
    receipt counts, too.
    `chart_keys`: a field `key` is the name of a chart, as in their manifest.
    """
    for number, line in enumerate(text.split("\n"), start=1):
        seen = [line] if "\\" not in line else [line, _ESCAPE.sub(_unescaped, line)]
        seen += [html.unescape(one) for one in seen if "&" in one]
        kinds = [kind for told in seen for kind in scrub.private(told)]
        for name, _ in (found for told in seen for found in _NAMED.findall(told)):
            if scrub.is_secret(name) and not (chart_keys and name == "key"):
                kinds.append(f"a value under the name {name}")
        for kind in dict.fromkeys(kinds):
            yield number, kind


def _unescaped(match: re.Match[str]) -> str:
    """The sign that an escape of JSON stands for."""
    code, sign = match.groups()
    return chr(int(code, 16)) if code else _ESCAPED.get(sign, sign)
