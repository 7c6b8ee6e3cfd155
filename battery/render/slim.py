"""A drawing of matplotlib's in a fraction of its bytes: shared classes, short paths, nothing that is not drawn.

The picture stays what it was. Coordinates are rounded to a hundredth of a point, a clip goes where nothing reaches
beyond it by more than half a stroke, and opaque strokes of one look that follow each other become one path. Text stays
text. Ids and classes hang on the chart's key, so that several charts can stand in one page. What this reader does not
know is an error, never left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from string import ascii_lowercase
from typing import NamedTuple
from xml.etree import ElementTree
from xml.sax.saxutils import escape

from battery.render.strokes import Box, Path, Point, box, drawn, flat, number, parsed, shifted

SVG = "http://www.w3.org/2000/svg"
_LINK = "{http://www.w3.org/1999/xlink}href"
_LEFT_OUT = ("metadata", "style", "title", "desc")
_AS_THE_ROOT = {
    "stroke-linejoin": "round", "stroke-linecap": "butt", "stroke-dashoffset": "0", "opacity": "1",
    "fill-opacity": "1", "stroke-opacity": "1", "stroke-width": "1", "text-anchor": "start",
}  # fmt: skip
"""What is so without being said, since the root says it or SVG does."""
_SHORT = 4
"""Commands of a marker up to which a run of it is drawn as one path rather than by reference."""

Style = tuple[tuple[str, str], ...]
Clips = Mapping[str, Box]


class Mark(NamedTuple):
    """One thing that is drawn: a path, a marker at a place, or words."""

    style: Style
    clip: str | None
    path: Path = ()
    at: Point | None = None
    """Of the marker whose outline `path` is; None for a path by itself."""
    words: str = ""
    place: str = ""
    """Of words: the attributes that say it."""


def slim(drawing: str, key: str, head: str, root: str, sheet: str, names: Mapping[str, str]) -> str:
    """The drawing with `head` (title and description) before it.

    `root` are the attributes of the root beside its size (the font is one), `sheet` the rules before those of the
    classes, `names` the variable of every colour (`#rrggbb`); a viewer that knows no variables takes the colour itself.
    """
    tree = ElementTree.fromstring(drawing)
    size = {name: tree.attrib[name] for name in ("width", "height", "viewBox")}
    outlines, clips = _definitions(tree)
    marks = [mark for mark in _marks(tree, outlines, None) if _shows(mark)]
    marks = list(_joined([_unclipped(mark, clips) for mark in marks]))
    made = _Written(key, names)
    body = [line for run in _runs(marks) for line in made.run(run)]
    shape = "".join(f' {name}="{_trimmed(value)}"' for name, value in size.items())
    opening = f'<svg xmlns="{SVG}" id="{key}-chart"{shape} stroke-linejoin="round" {root}>'
    rules = "\n".join([sheet, *made.rules()])
    lines = [
        opening,
        head,
        f"<style>\n{rules}\n</style>",
        *made.definitions(clips),
        *body,
        "</svg>",
    ]
    return "\n".join(line for line in lines if line) + "\n"


def _local(element: ElementTree.Element) -> str:
    """An element's name without its namespace."""
    return element.tag.rpartition("}")[2]


def _definitions(tree: ElementTree.Element) -> tuple[dict[str, tuple[Path, Style]], Clips]:
    """Outlines of markers with their own style, and rectangles of clips, by id."""
    outlines: dict[str, tuple[Path, Style]] = {}
    clips: dict[str, Box] = {}
    for each in tree.iter(f"{{{SVG}}}defs"):
        for one in each:
            if _local(one) == "path":
                outlines[one.attrib["id"]] = parsed(one.attrib["d"]), _style(one)
            elif _local(one) == "clipPath":
                (rectangle,) = one
                x, y, w, h = (
                    round(100 * float(rectangle.attrib[name]))
                    for name in ("x", "y", "width", "height")
                )
                clips[one.attrib["id"]] = (x, y, x + w, y + h)
            elif _local(one) not in _LEFT_OUT:
                raise ValueError(f"a definition of an unknown kind: {_local(one)}")
    return outlines, clips


def _marks(
    tree: ElementTree.Element, outlines: Mapping[str, tuple[Path, Style]], clip: str | None
) -> Iterator[Mark]:
    """Everything that is drawn, in its order."""
    for one in tree:
        name, style = _local(one), _style(one)
        clip_here = _reference(one.attrib.get("clip-path")) or clip
        if name == "g" and not set(one.attrib) - {"id", "clip-path"}:
            yield from _marks(one, outlines, clip_here)
        elif name == "path":
            yield Mark(style, clip_here, parsed(one.attrib.get("d", "")))
        elif name == "use":
            outline, own = outlines[one.attrib[_LINK][1:]]
            at = round(100 * float(one.attrib["x"])), round(100 * float(one.attrib["y"]))
            look = {**dict(style), **dict(own), **({"fill": "none"} if flat(outline) else {})}
            yield Mark(tuple(sorted(look.items())), clip_here, outline, at)
        elif name == "text" and not len(one):
            yield Mark(style, None, words=one.text or "", place=_place(one))
        elif name != "defs" and name not in _LEFT_OUT:
            raise ValueError(f"an element of an unknown kind: {name} {one.attrib}")


def _place(words: ElementTree.Element) -> str:
    """The attributes that say where words stand: x and y, or where they are turned how they come there."""
    x, y = words.attrib.get("x", ""), words.attrib.get("y", "")
    turn = words.attrib.get("transform", "")
    if turn.startswith("translate(") and turn.endswith(")") and turn.count("(") == 1:
        x, _, y = turn[10:-1].partition(" ")
        turn = ""
    turn = "" if turn.startswith(("rotate(-0 ", "rotate(0 ")) else turn
    told = {"x": x, "y": y, "transform": turn}
    return "".join(f' {name}="{_trimmed(value)}"' for name, value in told.items() if value)


def _reference(told: str | None) -> str | None:
    """The id in `url(#id)`."""
    return told[5:-1] if told else None


def _style(element: ElementTree.Element) -> Style:
    """The declarations of an element's style, sorted, without what is so anyway; the root names the one font."""
    pairs = (
        one.partition(":") for one in element.attrib.get("style", "").split(";") if one.strip()
    )
    found = {name.strip(): _trimmed(value.strip()) for name, _, value in pairs}
    return tuple(
        sorted(
            (name, value)
            for name, value in found.items()
            if name != "font-family" and _AS_THE_ROOT.get(name) != value
        )
    )


def _trimmed(text: str) -> str:
    """The text with every number in it at two decimals at most."""
    parts, run = [], ""
    for sign in f"{text}\0":
        if sign.isdigit() or sign in ".-":
            run += sign
            continue
        if run:
            parts.append(number(round(100 * float(run))) if "." in run.strip(".-") else run)
        run = ""
        parts.append(sign)
    return "".join(parts)[:-1]


def _shows(mark: Mark) -> bool:
    """Whether anything of a mark is seen: an axis without a face is not."""
    said = dict(mark.style)
    return bool(mark.words or mark.path) and (said.get("fill") != "none" or "stroke" in said)


def _unclipped(mark: Mark, clips: Clips) -> Mark:
    """The mark without its clip, where it stays inside of it."""
    if mark.clip is None:
        return mark
    said = dict(mark.style)
    stroke = round(50 * float(said.get("stroke-width", "1"))) if "stroke" in said else 0
    left, top, right, low = clips[mark.clip]
    x0, y0, x1, y1 = box(shifted(mark.path, mark.at) if mark.at else mark.path)
    if mark.at is not None:  # the outline of a marker has a stroke, too
        x0, y0, x1, y1 = x0 - stroke, y0 - stroke, x1 + stroke, y1 + stroke
    inside = left <= x0 and top <= y0 and x1 <= right and y1 <= low
    return mark._replace(clip=None) if inside else mark


def _joined(marks: Sequence[Mark]) -> Iterator[Mark]:
    """The marks with runs of plain strokes as one path each."""
    for (plain, style, clip), run in groupby(marks, lambda m: (_plain(m), m.style, m.clip)):
        if not plain:
            yield from run
            continue
        paths = [shifted(mark.path, mark.at) if mark.at else mark.path for mark in run]
        yield Mark(style, clip, tuple(command for path in paths for command in path))


def _plain(mark: Mark) -> bool:
    """Whether a mark is nothing but opaque strokes without dashes, so that the next of its look may join it."""
    said = dict(mark.style)
    opaque = not {"opacity", "stroke-opacity", "stroke-dasharray"} & set(said)
    short = mark.at is None or len(mark.path) <= _SHORT
    return not mark.words and said.get("fill") == "none" and opaque and short


def _runs(marks: Sequence[Mark]) -> Iterator[list[Mark]]:
    """Neighbours of one look and one clip."""
    for _, run in groupby(marks, lambda mark: (mark.style, mark.clip)):
        yield list(run)


class _Written:
    """Marks as lines of SVG; it gives out classes and ids as they are needed."""

    def __init__(self, key: str, names: Mapping[str, str]) -> None:
        self._key, self._names = key, names
        self._classes: dict[Style, str] = {}
        self._outlines: dict[Path, str] = {}
        self._clips: dict[str, str] = {}

    def run(self, run: Sequence[Mark]) -> list[str]:
        """Neighbours of one look: what they share stands at the group, or at the one there is."""
        shared = f' class="{self._class(run[0].style)}"'
        if run[0].clip is not None:
            name = self._clips.setdefault(run[0].clip, f"{self._key}-clip-{len(self._clips) + 1}")
            shared += f' clip-path="url(#{name})"'
        if len(run) == 1:
            return [self._one(run[0], shared)]
        return [f"<g{shared}>", *(self._one(mark, "") for mark in run), "</g>"]

    def _one(self, mark: Mark, attributes: str) -> str:
        """One mark."""
        if mark.words:
            return f"<text{attributes}{mark.place}>{escape(mark.words)}</text>"
        if mark.at is None:
            return f'<path{attributes} d="{drawn(mark.path)}"/>'
        name = self._outlines.setdefault(mark.path, f"{self._key}-{_letters(len(self._outlines))}")
        x, y = map(number, mark.at)
        return f'<use{attributes} href="#{name}" x="{x}" y="{y}"/>'

    def _class(self, style: Style) -> str:
        """The class of a look."""
        return self._classes.setdefault(style, _letters(len(self._classes)))

    def rules(self) -> list[str]:
        """The rule of every class."""
        return [
            f"#{self._key}-chart .{name}{{{';'.join(self._declared(style))}}}"
            for style, name in self._classes.items()
        ]

    def _declared(self, style: Style) -> Iterator[str]:
        """A look's declarations; a colour with a name is said twice, for viewers with variables and without."""
        for name, value in style:
            yield f"{name}:{value}"
            if value in self._names:
                yield f"{name}:var({self._names[value]})"

    def definitions(self, clips: Clips) -> list[str]:
        """Outlines and clips that are used."""
        found = [f'<path id="{name}" d="{drawn(path)}"/>' for path, name in self._outlines.items()]
        for clip, name in self._clips.items():
            x0, y0, x1, y1 = clips[clip]
            x, y, w, h = map(number, (x0, y0, x1 - x0, y1 - y0))
            found.append(
                f'<clipPath id="{name}"><rect x="{x}" y="{y}" width="{w}" height="{h}"/></clipPath>'
            )
        return ["<defs>", *found, "</defs>"] if found else []


def _letters(place: int) -> str:
    """a, b … z, ba, bb …: the place in base 26."""
    found = ascii_lowercase[place % 26]
    return found if place < 26 else _letters(place // 26) + found
