"""Figures in the page: what leads to their receipts, how a table's cell shows them, and the cards of the verdicts."""

from __future__ import annotations

import re
from collections.abc import Sequence

from markdown_it.tree import SyntaxTreeNode

from battery.render.html.tags import Markup, joined, tag
from battery.render.marks import CLOSE, OPEN, THEN, Source

_MARKED = re.compile(f"{OPEN}(\\d+){THEN}(.*?){CLOSE}([.,:;]?)", re.DOTALL)
_SPLIT = re.compile(r"([+−]?[\d.,]+(?: %| points| of [\d,]+)?) ([\[(].{1,44})", re.DOTALL)
"""A figure with its interval or its range behind it, or a count with what was planned."""
_QUALITY = re.compile(
    r"(Quality: [^:]+? against [^:]+?), .*?([+−]?[\d.]+ points \[[^\]]*\]) \(", re.DOTALL
)
"""A line of the head on answers: who, and the change in points."""
_STRONG = re.compile(r"<strong>(.*?)</strong>", re.DOTALL)
_TONES = {
    "faster": "good", "smaller": "good", "higher": "good", "met": "good", "non-inferior": "good",
    "slower": "bad", "larger": "bad", "lower": "bad", "missed": "bad", "inferior": "bad", "void": "bad",
    "equivalent": "same", "warning": "warn", "invalid": "warn", "quality: not run": "warn", "not comparable": "warn",
    "undecided": "open", "none (pilot)": "open", "pilot": "open", "unfinished": "open",
}  # fmt: skip
_TONE = re.compile(rf"({'|'.join(sorted(map(re.escape, _TONES), key=len, reverse=True))})\b")
_MOST_TONED = 120
"""Characters of a cell that may be a verdict; a longer one is prose that happens to begin with such a word."""
_LONG, _SHORT = 60, 12
"""Characters from which a cell is prose, which needs room to be read, and below which it stays on one line."""


def tone(text: str) -> str | None:
    """How a verdict reads at a glance: good, bad, same, open, warn; None for what is no verdict."""
    found = _TONE.match(text)
    return _TONES[found[1]] if found and len(text) < _MOST_TONED else None


def linked(inner: Markup, sources: Sequence[Source]) -> Markup:
    """Text with its marks turned into buttons; a mark without receipts leaves its text alone.

    A stop right behind a figure goes into its button, since a narrow line would break between them.
    """

    def button(found: re.Match[str]) -> str:
        place, text, stop = int(found[1]), found[2], found[3]
        source = sources[place] if place < len(sources) else Source(title="")
        if not (source.receipts or source.where or source.files):
            return f"{text}{stop}"
        return tag(
            "button", _stacked(text), Markup(stop), type="button", class_="cite", data_source=place,
            aria_haspopup="dialog",
        )  # fmt: skip

    return Markup(_MARKED.sub(button, inner))


def _stacked(text: str) -> Markup:
    """A figure before its interval, so that the eye finds it first; the text is the same."""
    found = _SPLIT.fullmatch(text)
    if not found:
        return Markup(text)
    return joined(tag("b", Markup(found[1])), Markup(" "), tag("small", Markup(found[2])))


def align(cell: SyntaxTreeNode) -> str | None:
    """The class of a column of numbers; None for any other."""
    return "n" if "right" in str(cell.attrs.get("style", "")) else None


def head(inner: Markup) -> Markup:
    """A column's title; a level in brackets stays on one line."""
    return Markup(
        re.sub(r"\[[^\]<>]*\]", lambda found: tag("span", Markup(found[0]), class_="keep"), inner)
    )


def cell(inner: Markup, column: str | None, first: bool) -> Markup:
    """One cell of a table's body; the first of a row names it."""
    text = re.sub(r"<[^>]*>", "", inner)
    long = "long" if len(text) > _LONG else "keep" if len(text) < _SHORT else None
    classes = " ".join(part for part in (column, tone(text), long) if part) or None
    told = inner if "<" in inner else _stacked(inner)
    if first:
        return tag("th", told, scope="row", class_=classes)
    return tag("td", told, class_=classes)


def card(inner: Markup, sources: Sequence[Source]) -> Markup:
    """A line of the page's head: its verdict first, in words and colour, with the figure it rests on, then the line."""
    strong = _STRONG.search(inner)
    if not strong:
        return tag("li", tag("p", inner))
    word = Markup(strong[1])
    found = [sources[int(place)] for place in re.findall(r'data-source="(\d+)"', inner)]
    head = [tag("span", word, class_="badge")]
    if found and found[0].ends and found[0].margin is not None:
        head.insert(0, tag("span", found[0].title.partition(",")[0], class_="who"))
        head.append(tag("span", _stacked(found[0].figure), class_="figure"))
        head.append(_drawn(found[0].ends, found[0].margin))
    elif quality := _QUALITY.match(inner):
        head.insert(0, tag("span", Markup(quality[1]), class_="who"))
        head.append(tag("span", _stacked(quality[2]), class_="figure"))
    return tag(
        "li", tag("div", *head, class_="glance", aria_hidden="true"), tag("p", inner),
        class_=tone(word) or "open",
    )  # fmt: skip


def _drawn(ends: tuple[float, float, float], margin: float) -> Markup:
    """An interval against no change and the margin, as a small picture; the words beside it say the same."""
    reach = 1.15 * max(margin, *(abs(end - 1) for end in ends))

    def at(change: float) -> str:
        return f"{80 + 76 * change / reach:.1f}"

    ratio, low, high = (at(end - 1) for end in ends)
    left, width = at(-margin), f"{152 * margin / reach:.1f}"
    return Markup(
        '<svg class="glyph" viewBox="0 0 160 24" focusable="false">'
        f'<rect class="band" x="{left}" y="2" width="{width}" height="20"/>'
        '<path class="axis" d="M80 1V23"/>'
        f'<path class="bar" d="M{low} 12H{high}M{low} 7V17M{high} 7V17"/>'
        f'<circle class="dot" cx="{ratio}" cy="12" r="4.5"/></svg>'
    )
