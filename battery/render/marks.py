"""Marks: which receipts a figure came from, written into the text of a page while it is made.

The Markdown of a report is plain text; where a figure came from is known only to the function that prints it. Inside
`citing` such a function's `cited` puts invisible marks around the figure and notes its source. `bare` takes the marks
away again: what is left is the Markdown page to the byte, so that both pages are one text. Outside `citing` there are
no marks at all.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import msgspec

OPEN, THEN, CLOSE = "\ue000", "\ue001", "\ue002"
"""Private characters, so that no text says them on purpose: `OPEN number THEN figure CLOSE`."""
_BARE = re.compile(f"{OPEN}\\d+{THEN}|{CLOSE}")
_SIGNS = (OPEN, THEN, CLOSE)
_ANY = str.maketrans(dict.fromkeys(_SIGNS, "\ufffd"))


class Group(msgspec.Struct, frozen=True):
    """A part of a source, such as a block, with its own figure."""

    value: int
    """Of the column that the source is split by."""
    title: str
    figure: str


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """What a figure rests on: the receipts by number, or the columns that they have in common."""

    title: str
    figure: str = ""
    """The figure itself, in words."""
    said: str = ""
    """What is said of it: a verdict, or why there is none."""
    metric: str = ""
    """Whose value each receipt is shown with."""
    receipts: tuple[int, ...] = ()
    where: tuple[tuple[str, tuple[int | str | bool, ...]], ...] = ()
    """Columns and the values that they may have, for sources whose receipts the findings do not list."""
    files: tuple[tuple[str, str], ...] = ()
    """Other files that it was read from, each with its sha256."""
    by: str = ""
    """The column that splits them: block, window."""
    groups: tuple[Group, ...] = ()
    ends: tuple[float, float, float] | None = None
    """Of a headline: ratio, low and high of its interval, for a picture."""
    margin: float | None = None


_SOURCES: ContextVar[dict[Source, int] | None] = ContextVar("sources", default=None)


@contextmanager
def citing() -> Iterator[dict[Source, int]]:
    """Within it `cited` writes marks; the sources with the number that their marks have, in the order of numbers."""
    found: dict[Source, int] = {}
    token = _SOURCES.set(found)
    try:
        yield found
    finally:
        _SOURCES.reset(token)


def cited(text: str, source: Source) -> str:
    """`text` with the marks that lead to its source, inside `citing`; else, or where there is no figure, as it is."""
    found = _SOURCES.get()
    if found is None or text in ("", "—"):
        return text
    return f"{OPEN}{found.setdefault(source, len(found))}{THEN}{text}{CLOSE}"


def bare(text: str) -> str:
    """`text` without marks."""
    return _BARE.sub("", text)


def harmless(text: str) -> str:
    """`text` in which nothing looks like a mark: what an engine said cannot lead to a source."""
    return text.translate(_ANY) if any(sign in text for sign in _SIGNS) else text
