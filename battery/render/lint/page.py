"""A page's Markdown as the linter reads it: passages of prose, headings and tables, each with its line.

GitHub's Markdown as far as reports use it: paragraphs, list items, quotes, headings, pipe tables, fences, images, links
and inline HTML. A table written in HTML is prose here. Text inside a fence is not read at all.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Literal

import msgspec

Kind = Literal["heading", "prose"]

_FENCE = re.compile(r"^\s*(```+|~~~+)")
_HEADING = re.compile(r"^(#{1,6})\s+(.*?)\s*#*$")
_ITEM = re.compile(r"^\s*(?:[-*+]|\d+[.)])\s+")
_RULER = re.compile(r"^\s*\|?\s*:?-+:?\s*(\|\s*:?-+:?\s*)*\|?\s*$")
_PIPE = re.compile(r"(?<!\\)\|")
_QUOTE = re.compile(r"^\s*(?:>\s?)+")
_MASKED: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"<!--.*?-->", re.DOTALL), ""),
    (re.compile(r"(`+)(?!`).+?(?<!`)\1(?!`)", re.DOTALL), ""),
    (re.compile(r"!?\[(?P<kept>[^\[\]]*)\]\([^()\s]*(?:\s+\"[^\"]*\")?\)"), "kept"),
    (re.compile(r"\[\^[^\]]*\]:?"), ""),
    (re.compile(r"</?[a-zA-Z][^<>]*>"), ""),
    (re.compile(r"https?://[^\s)>\]]+"), ""),
    (re.compile(r"[*\\]+"), ""),
)
"""What is no prose, and the group of it that is."""
_EMPHASIS = re.compile(r"(?<![^\W_])_|_(?![^\W_])")
_QUOTED = re.compile(r"(?<!\w)'[^'\n]+'(?!\w)|\"[^\"\n]+\"|“[^”\n]+”")


class Passage(msgspec.Struct, frozen=True):
    """One paragraph, list item, caption or heading; code, markup and addresses in it are blanks of the same length."""

    line: int
    text: str
    kind: Kind
    level: int
    """Of a heading, 1 to 6; 0 for prose."""
    written: str = ""
    """The same with everything as it was written, for the words that count in code and quotes too."""

    def at(self, offset: int) -> int:
        """The line of the page on which a place in the text stands."""
        return self.line + self.text.count("\n", 0, offset)


class Row(msgspec.Struct, frozen=True):
    """One line of a table; `cells` are as written, escapes and code included."""

    line: int
    cells: tuple[str, ...]


class Table(msgspec.Struct, frozen=True):
    """A table with the prose that leads to it."""

    head: Row
    rows: tuple[Row, ...]
    lead: tuple[str, ...]
    """What stands before it: the nearest prose first, then the headings that it is under, the nearest first."""

    def column(self, *names: str) -> int | None:
        """The place of the first column with one of these titles."""
        titles = [plain(title).casefold() for title in self.head.cells]
        return next((place for place, title in enumerate(titles) if title in names), None)

    @property
    def cells(self) -> tuple[Passage, ...]:
        """Every cell but the titles, as a passage of its own; what others said (a column “reason”) is left out."""
        others = self.column("reason")
        return tuple(
            Passage(row.line, mask(cell), "prose", 0, cell)
            for row in self.rows
            for place, cell in enumerate(row.cells)
            if place != others
        )


class Page(msgspec.Struct, frozen=True):
    """Everything on a page that the rules look at, in its order."""

    passages: tuple[Passage, ...]
    tables: tuple[Table, ...]

    @property
    def prose(self) -> tuple[Passage, ...]:
        """The passages without the headings."""
        return tuple(one for one in self.passages if one.kind == "prose")

    @property
    def top(self) -> tuple[Passage, ...]:
        """Where headlines stand: the prose before the first table and the first heading that follow any prose."""
        found: list[Passage] = []
        end = min((table.head.line for table in self.tables), default=None)
        for one in self.passages:
            if end is not None and one.line > end:
                break
            if one.kind == "prose":
                found.append(one)
            elif one.level > 1 and found:
                break
        return tuple(found)


def mask(text: str) -> str:
    """The text with code, markup and addresses blanked: same length, same lines."""
    for pattern, kept in _MASKED:
        text = pattern.sub(_blanks(kept), text)
    return text.replace("&lt;", "<   ").replace("&gt;", ">   ")


def worded(text: str) -> str:
    """The text with markup and addresses blanked, words in code and in emphasis kept: same length, same lines."""
    return _EMPHASIS.sub(" ", mask(text.replace("`", " ")))


def unquoted(text: str) -> str:
    """The text with what stands in quotation marks blanked: words of others, not the page's own."""
    return _QUOTED.sub(_blanks(""), text)


def plain(text: str) -> str:
    """A cell or a title without markup."""
    return " ".join(mask(text.replace("`", "")).split())


def _blanks(kept: str) -> Callable[[re.Match[str]], str]:
    """A replacement that leaves line breaks and one group where they are."""

    def replaced(match: re.Match[str]) -> str:
        first, last = match.span(kept) if kept else (match.end(), match.end())
        return "".join(
            sign if sign == "\n" or first <= place < last else " "
            for place, sign in enumerate(match.group(), start=match.start())
        )

    return replaced


def read(markdown: str) -> Page:
    """The page; any text is one."""
    passages: list[Passage] = []
    tables: list[Table] = []
    lines = list(_outside_fences(markdown.replace("\r\n", "\n").split("\n")))
    gathered: list[tuple[int, str]] = []

    def flush() -> None:
        if gathered:
            text = "\n".join(text for _, text in gathered)
            passages.append(Passage(gathered[0][0], mask(text), "prose", 0, text))
            gathered.clear()

    place = 0
    while place < len(lines):
        number, text = lines[place]
        place += 1
        after = lines[place] if place < len(lines) else (0, "")
        heading = _HEADING.match(text)
        if "|" in text and "|" in after[1] and _RULER.match(after[1]):
            flush()
            place = _table(lines, place, tables, passages)
        elif heading:
            flush()
            title = heading.group(2)
            level = len(heading.group(1))
            passages.append(Passage(number, mask(title), "heading", level, title))
        elif not text.strip():
            flush()
        else:
            if item := _ITEM.match(text):
                flush()
                text = " " * item.end() + text[item.end() :]
            gathered.append((number, text))
    flush()
    return Page(tuple(passages), tuple(tables))


def _outside_fences(lines: list[str]) -> Iterator[tuple[int, str]]:
    """Numbered lines without quote marks; those of a fence are empty."""
    fence = ""
    for number, line in enumerate(lines, start=1):
        text = _QUOTE.sub("", line)
        mark = _FENCE.match(text)
        if fence:
            if mark and mark.group(1).startswith(fence) and text.strip() == mark.group(1):
                fence = ""
            yield number, ""
        elif mark:
            fence = mark.group(1)
            yield number, ""
        else:
            yield number, text


def _table(
    lines: list[tuple[int, str]], place: int, tables: list[Table], passages: list[Passage]
) -> int:
    """Add the table whose ruler stands at `place`; where the page goes on."""
    head = Row(lines[place - 1][0], _cells(lines[place - 1][1]))
    rows, place = [], place + 1
    while place < len(lines) and "|" in lines[place][1] and lines[place][1].strip():
        rows.append(Row(lines[place][0], _cells(lines[place][1])))
        place += 1
    prose = [one.text for one in passages[-1:] if one.kind == "prose"]
    above = [one.text for one in reversed(passages) if one.kind == "heading"]
    tables.append(Table(head, tuple(rows), (*prose, *above)))
    return place


def _cells(line: str) -> tuple[str, ...]:
    """The cells of a row, as written."""
    text = line.strip().removeprefix("|")
    if text.endswith("|") and not text.endswith("\\|"):
        text = text[:-1]
    return tuple(cell.strip() for cell in _PIPE.split(text))
