"""Charts inside the page: the same drawings, with ids of their own and colours that follow light and dark.

A chart's file has fixed colours, since a pull request shows it as a picture. Inside the page every colour of the
charts' style becomes a variable of the style sheet; position, text and order stay as drawn.
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator

from battery.render import style
from battery.render.html.tags import Markup

_SVG, _LINK = "{http://www.w3.org/2000/svg}", "{http://www.w3.org/1999/xlink}href"
_COLOURS = {
    style.INK: "--ink", style.QUIET: "--quiet", style.GRID: "--grid", style.BAND: "--band", "#ffffff": "--paper",
    **{colour.lower(): f"--arm-{place}" for place, colour in enumerate(style.COLOURS, start=1)},
}  # fmt: skip
_COLOUR = re.compile(r"#[0-9a-f]{6}\b", re.IGNORECASE)
_FONT = re.compile(r"font-family:[^;]*;? ?")
_USED = re.compile(r"url\(#([^)]+)\)")
_LEFT_OUT = {f"{_SVG}metadata", f"{_SVG}title", f"{_SVG}style"}
"""What a page does not need: data about the file, a tooltip over the whole chart, and a style for every element."""


def inline(key: str, data: bytes) -> Markup:
    """The chart `key` as an element of the page."""
    root = ET.fromstring(data)
    label = " ".join(
        " ".join((part.text or "").split())
        for name in ("title", "desc")
        if (part := root.find(f"{_SVG}{name}")) is not None
    )
    used = set(_references(root))
    parts = "".join(_written(part, key, used) for part in root)
    view = root.get("viewBox", "0 0 1 1")
    return Markup(
        f'<svg class="chart" viewBox="{_quoted(view)}" role="img" aria-label="{_quoted(label)}">{parts}</svg>'
    )


def _references(root: ET.Element) -> Iterator[str]:
    """Ids that something in the drawing points to; the others only cost bytes."""
    for one in root.iter():
        if link := one.get(_LINK) or one.get("href"):
            yield link.removeprefix("#")
        for value in one.attrib.values():
            yield from _USED.findall(value)


def _written(one: ET.Element, key: str, used: set[str]) -> str:
    """An element and what is in it; nothing where it draws nothing."""
    if one.tag in _LEFT_OUT or one.tag == f"{_SVG}desc":
        return ""
    name = one.tag.removeprefix(_SVG)
    inner = "".join(_written(part, key, used) for part in one)
    text = " ".join((one.text or "").split())
    if name in ("g", "defs") and not inner:
        return ""
    attributes = dict(_attributes(one, key, used))
    if name == "g" and not attributes:
        return inner
    told = "".join(f' {attribute}="{_quoted(value)}"' for attribute, value in attributes.items())
    content = _quoted(text) + inner
    return f"<{name}{told}>{content}</{name}>" if content else f"<{name}{told}/>"


def _attributes(one: ET.Element, key: str, used: set[str]) -> Iterator[tuple[str, str]]:
    """Attributes that the drawing needs; ids and what points to them carry the chart's key."""
    for name, value in one.attrib.items():
        if name == "id":
            if value in used:
                yield "id", f"{key}-{value}"
            continue
        told = " ".join(_USED.sub(lambda found: f"url(#{key}-{found[1]})", value).split())
        if name in (_LINK, "href"):
            yield "href", f"#{key}-{told.removeprefix('#')}"
        elif name == "style":
            yield "style", _style(told)
        else:
            yield name, told


def _style(told: str) -> str:
    """A style with variables for colours, and without the font, which the page's style sheet names once."""
    told = _COLOUR.sub(lambda found: f"var({_COLOURS.get(found[0].lower(), '--ink')})", told)
    return _FONT.sub("", told).replace("; ", ";").replace(": ", ":")


def _quoted(text: str) -> str:
    """Text as an attribute or an element holds it."""
    return (
        text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace('"', "&quot;")
    )
