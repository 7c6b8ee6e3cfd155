"""The fenced blocks of an answer, read line by line as CommonMark reads them.

Three or more backticks or tildes open a block, any info string may follow, and the same character, at least as often,
with nothing behind it closes it; what is not closed runs to the end. Quoted blocks and blocks in list items lose the
margin of what they stand in. The differences from a Markdown library, each because answers are not documents:

- a raw HTML line (`<answer>`) does not hide the fence that follows it;
- a line that leaves its list item does not end the block, since models forget the margin inside it;
- a leaked special token may stand behind the closing fence;
- where a line has less margin than the opening fence, all lines lose only as much if that is Python.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from battery.quality.extract.cleaning import TOKEN
from battery.quality.extract.lexing import column, dedented, margin
from battery.quality.extract.parsing import parse

_OPENER = re.compile(
    r"(?P<lead>(?:[ \t]*(?:>|[-*+](?=[ \t])|\d{1,9}[.)](?=[ \t])))*)"
    r"(?P<blank>[ \t]*)(?P<mark>`{3,}|~{3,})(?P<info>.*)"
)
_CLOSER = re.compile(
    rf"(?P<blank>[ \t]*)(?P<mark>`{{3,}}|~{{3,}})(?:\s*(?:{TOKEN}|\[DONE\]))*\s*\Z"
)
_ITEM = re.compile(r"(?P<margin>[ \t]*(?:[-*+]|\d{1,9}[.)])[ \t]+)(?=\S)")
_QUOTE = re.compile(r" {0,3}> ?")
_PYTHON = re.compile(r"(?:i?python|py|sage|sagemath)[\d.]*\Z")
_MARKDOWN = {"markdown", "md", "mdx", "commonmark"}
_OTHER = {
    "bash", "sh", "shell", "zsh", "console", "cmd", "powershell", "text", "txt", "plaintext", "plain",
    "output", "none", "json", "jsonl", "yaml", "yml", "toml", "ini", "xml", "html", "css", "sql", "diff",
    "patch", "java", "javascript", "js", "jsx", "typescript", "ts", "tsx", "c", "cpp", "c++", "cxx", "csharp",
    "cs", "go", "rust", "ruby", "rb", "php", "perl", "r", "julia", "kotlin", "swift", "scala", "haskell",
    "lua", "latex", "tex", "math", "mermaid", "dot", "makefile", "dockerfile", "csv", "log", "http",
}  # fmt: skip


@dataclass(frozen=True)
class Fence:
    """One fenced block: its text without margin, its label, and its lines in the answer.

    `first` is the line of the opening fence and `last` the line after the closing one, counted from 0. `label` is the
    info string's first word in small letters, without braces and dots: `{.python .x}` is `python`.
    """

    text: str
    label: str
    closed: bool
    first: int
    last: int

    @property
    def foreign(self) -> bool:
        """Whether its label names another language or plain text. An unknown label does not."""
        return self.label in _OTHER

    @property
    def python(self) -> bool:
        """Whether its label names Python."""
        return _PYTHON.match(self.label) is not None


@dataclass(frozen=True)
class _Opening:
    mark: str
    info: str
    quotes: int
    indent: int  # column of the mark behind its quotes
    deepest: int  # column up to which a closing fence may be indented


def fences(text: str, *, any_margin: bool = False) -> list[Fence]:
    """The fenced blocks of a text in order; a block labelled as Markdown is replaced by the blocks inside it.

    A fence that stands four or more columns behind its list item is no fence to CommonMark (it is a line of an
    indented block, or of a docstring); `any_margin` takes it for one all the same.
    """
    found: list[Fence] = []
    for fence in _read(text.split("\n"), any_margin):
        inner = list(_read(fence.text.split("\n"), False)) if fence.label in _MARKDOWN else []
        if inner:
            found += [
                Fence(each.text, each.label, each.closed, fence.first, fence.last) for each in inner
            ]
        else:
            found.append(fence)
    return found


def outside(text: str, blocks: list[Fence], stop: str) -> str:
    """A text without its fenced blocks, each replaced by one line `stop`."""
    kept: list[str] = []
    at = 0
    lines = text.split("\n")
    for block in blocks:
        if block.first >= at:
            kept += [*lines[at : block.first], stop]
            at = block.last
    return "\n".join([*kept, *lines[at:]])


def _read(lines: list[str], any_margin: bool) -> Iterator[Fence]:
    items: list[int] = []  # columns at which the list items around this line begin their text
    at = 0
    while at < len(lines):
        opening = _opening(lines[at], items, any_margin)
        if opening is None:
            _enter(lines[at], items)
            at += 1
            continue
        body, after, closed = _body(lines, at + 1, opening)
        yield Fence(_without_margin(body, opening.indent), _label(opening.info), closed, at, after)
        at = after


def _opening(line: str, items: list[int], any_margin: bool) -> _Opening | None:
    match = _OPENER.match(line)
    if match is None or (match["mark"][0] == "`" and "`" in match["info"]):
        return None
    lead, quotes = match["lead"], match["lead"].count(">")
    behind = lead.rpartition(">")[2] + match["blank"]
    if quotes:
        behind = behind.removeprefix(" ")
    indent = column(behind)
    outer = max((item for item in items if item <= indent), default=0) if not quotes else 0
    if behind.strip():
        outer = indent - column(match["blank"][1:])  # the item opens on this very line
    if indent - outer > 3:
        if not any_margin:
            return None
        outer = indent
    return _Opening(match["mark"], match["info"], quotes, indent, outer + 3)


def _enter(line: str, items: list[int]) -> None:
    if not line.strip():
        return
    start = column(margin(line))
    while items and items[-1] > start:
        items.pop()
    if item := _ITEM.match(line):
        items.append(column(item["margin"]))


def _body(lines: list[str], at: int, opening: _Opening) -> tuple[list[str], int, bool]:
    body: list[str] = []
    while at < len(lines):
        line: str | None = lines[at]
        for _ in range(opening.quotes):
            quote = _QUOTE.match(line or "")
            line = line[quote.end() :] if line is not None and quote else None
        if line is None:
            return body, at, False  # the quotation ends, and the block with it
        close = _CLOSER.match(line)
        if (
            close
            and close["mark"].startswith(opening.mark)
            and column(close["blank"]) <= opening.deepest
        ):
            return body, at + 1, True
        body.append(line)
        at += 1
    return body, at, False


def _without_margin(body: list[str], indent: int) -> str:
    text = "\n".join(dedented(line, indent) for line in body)
    least = min((column(margin(line)) for line in body if line.strip()), default=indent)
    if least < indent:
        kept = "\n".join(dedented(line, least) for line in body)
        if parse(kept) is not None:
            text = kept
    return text + "\n" if body else ""


def _label(info: str) -> str:
    word = re.split(r"[\s,;:}]", info.strip().lstrip("{").lstrip(". "), maxsplit=1)[0]
    return word.strip("{}.").lower()
