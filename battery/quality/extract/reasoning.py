"""An answer without the reasoning that stands in its text between tags.

A section goes from an opening tag to its closing tag. A closing tag with no opening one before
it ends reasoning that began with the answer: chat templates put the opening tag into the prompt. An opening tag that
is never closed, at the very start or alone on its line, was cut off while still reasoning, and nothing follows it.

Tags inside code are the program's own. Inside code means: in a string or comment of a fenced block, in a block of
another language that holds both tags, in quotation marks or backticks of its line, or in a stretch of bare code that
parses. A bare tag never parses, so a fence that a draft in the reasoning left open does not hide the tag that ends it.
"""

from __future__ import annotations

import bisect
import re
from collections.abc import Iterable
from dataclasses import dataclass

from battery.quality.extract.cleaning import TOKEN
from battery.quality.extract.fences import Fence, fences
from battery.quality.extract.lexing import quoted
from battery.quality.extract.stretches import covered

_NAMES = (
    "think", "thinking", "thought", "thoughts", "reasoning", "reason", "scratchpad", "seed:think", "antthinking",
)  # fmt: skip
_KINDS = [(rf"<{name}(?:\s[^<>\n]*)?>", rf"</{name}\s*>") for name in _NAMES] + [
    (r"\[THINK\]", r"\[/THINK\]"),
    ("◁think▷", "◁/think▷"),
    (r"<\|begin_of_thought\|>", r"<\|end_of_thought\|>"),
    (r"<\|START_THINKING\|>", r"<\|END_THINKING\|>"),
    (r"<\|channel\|>\s*analysis\s*<\|message\|>", r"<\|channel\|>\s*final\s*<\|message\|>"),
    (r"<\|channel>thought", r"<channel\|>"),
    (r"<unused94>(?:thought)?", r"<unused95>"),
]
_TAGS = re.compile(
    "|".join(f"(?P<o{i}>{one})|(?P<c{i}>{other})" for i, (one, other) in enumerate(_KINDS)),
    re.IGNORECASE,
)
_BEFORE = re.compile(rf"(?:\s|{TOKEN}|\bassistant\b)*\Z")
_QUOTED = re.compile(r"`++[^`\n]+`++|(?<!\w)[rbfuRBFU]{0,2}(?:\"[^\"\n]*\"|'[^'\n]*')|“[^“”\n]*”")


@dataclass(frozen=True)
class _Tag:
    kind: int
    opens: bool
    start: int
    end: int


class _Spans:
    """Stretches of a text; says of a place in no time whether one holds it."""

    def __init__(self, spans: Iterable[tuple[int, int]]) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []
        for start, end in sorted(spans):
            if self._ends and start <= self._ends[-1]:
                self._ends[-1] = max(end, self._ends[-1])
            else:
                self._starts.append(start)
                self._ends.append(end)

    def holds(self, place: int) -> bool:
        at = bisect.bisect_right(self._starts, place) - 1
        return at >= 0 and place < self._ends[at]


def without_reasoning(text: str) -> tuple[str, tuple[str, ...]]:
    """A text whose line ends are line feeds, without its reasoning, and notes on what was taken away."""
    tags = _tags(text)
    if not tags:
        return text, ()
    kept, notes = _without_sections(text, tags)
    if notes:
        return kept, notes
    end = _orphan_end(text, tags)
    return (text[end:], ("reasoning removed up to its closing tag",)) if end else (text, ())


def _tags(text: str) -> list[_Tag]:
    found = [
        _Tag(int((match.lastgroup or "o0")[1:]), (match.lastgroup or "o")[0] == "o", *match.span())
        for match in _TAGS.finditer(text)
    ]
    if not found:
        return []
    hidden = _code(text, found)
    return [tag for tag in found if not hidden.holds(tag.start)]


def _without_sections(text: str, tags: list[_Tag]) -> tuple[str, tuple[str, ...]]:
    kept: list[str] = []
    notes: list[str] = []
    at = 0
    closes = {tag.kind: tag.start for tag in tags if not tag.opens}  # the last of each kind
    for index, tag in enumerate(tags):
        if tag.start < at or not tag.opens:
            continue
        if closes.get(tag.kind, -1) > tag.start:
            kept.append(text[at : tag.start])
            at = _section_end(text, tags, index)
            notes = ["reasoning removed"]
            continue
        leads = _BEFORE.match("".join([*kept, text[at : tag.start]])) is not None
        if leads or _alone(text, tag):
            kept.append("" if leads else text[at : tag.start])
            return "".join(kept), (*notes, "the reasoning is never closed")
    return "".join([*kept, text[at:]]), tuple(notes)


def _section_end(text: str, tags: list[_Tag], index: int) -> int:
    """The end of the section that a tag opens: where tags of its kind balance, else its last closing tag.

    An opening tag in the middle of a line is taken for a mention there ("I need <think> tags").
    """
    depth, last = 1, tags[index].end
    for at in range(index + 1, len(tags)):
        tag = tags[at]
        if tag.kind != tags[index].kind:
            continue
        if tag.opens:
            depth += 1 if _starts_its_line(text, tag) else 0
            continue
        depth, last = depth - 1, tag.end
        if depth == 0:
            break
    return last


def _orphan_end(text: str, tags: list[_Tag]) -> int | None:
    opened: set[int] = set()
    end: int | None = None
    for tag in tags:
        if tag.opens:
            opened.add(tag.kind)
        elif tag.kind not in opened and (
            end is None or (_alone(text, tag) and text[tag.end :].strip())
        ):
            end = tag.end
    return end


def _code(text: str, tags: list[_Tag]) -> _Spans:
    """The spans of a text in which a tag is part of code."""
    lines = text.split("\n")
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line) + 1)
    hidden: list[tuple[int, int]] = []
    blocks = _blocks(text)
    fenced = _Spans((starts[block.first], starts[block.last]) for block in blocks)
    for block in blocks:
        start, end = starts[block.first + 1], starts[block.last]
        first = bisect.bisect_left(tags, start, key=lambda tag: tag.start)
        inside = tags[first : bisect.bisect_left(tags, end, key=lambda tag: tag.start)]
        if block.foreign and any(tag.opens for tag in inside) and block.closed:
            hidden.append((start, end))
        elif inside:
            hidden += [(start + one, start + other) for one, other in quoted(text[start:end])]
    free = [tag for tag in tags if not fenced.holds(tag.start)]
    for at in sorted({text.count("\n", 0, tag.start) for tag in free}):
        spans = [match.span() for match in _QUOTED.finditer(lines[at])]
        hidden += [(starts[at] + one, starts[at] + other) for one, other in spans]
    if free:
        hidden += [(starts[one], starts[other]) for one, other in covered(text)]
    return _Spans(hidden)


def _blocks(text: str) -> list[Fence]:
    """All fences of a text, those too that stand deeper than Markdown allows: an answer may have its code there."""
    blocks = fences(text)
    taken = {line for block in blocks for line in range(block.first, block.last)}
    deep = [
        block
        for block in fences(text, any_margin=True)
        if block.closed and taken.isdisjoint(range(block.first, block.last))
    ]
    return [*blocks, *deep]


def _starts_its_line(text: str, tag: _Tag) -> bool:
    before = text[text.rfind("\n", 0, tag.start) + 1 : tag.start]
    return _BEFORE.match(before) is not None


def _alone(text: str, tag: _Tag) -> bool:
    end = text.find("\n", tag.end)
    return _starts_its_line(text, tag) and not text[tag.end : end if end >= 0 else None].strip()
