"""Charts inside the page: the very drawings of the chart files, in the page's own light and dark.

A chart's file brings both themes with it, and its ids and rules hang on its key, so that it can stand in a page as it
is. Three things are taken off: its size, which the page gives; its title, which a browser would show wherever the
pointer rests on the chart, and which the caption says; and its themes, since all charts of the page follow one rule.
"""

from __future__ import annotations

import re

from battery.render import style
from battery.render.html.tags import Markup

_SIZE = re.compile(r' width="[^"]*" height="[^"]*"')
_TITLE = re.compile(r"<title\b[^>]*>[^<]*</title>\n")


def inline(key: str, data: bytes) -> Markup:
    """The chart `key` as an element of the page, named by its description in words."""
    opening, sign, rest = data.decode().partition("<title")
    opening = _SIZE.sub("", opening, count=1).replace(f"{key}-title {key}-alt", f"{key}-alt")
    body = _TITLE.sub("", f"{sign}{rest}", count=1).replace(f"{style.SHEET}\n", "", 1)
    return Markup(f"{opening}{body}".strip())


def colours() -> str:
    """The rules by which the page, and every chart in it, follows one choice of light or dark.

    `--paper`, `--ink`, `--quiet`, `--grid` and `--band` are the charts' own, so that page and charts are one surface.
    """
    both = {name: f"light-dark({light},{style.DARK[name]})" for name, light in style.LIGHT.items()}
    page = {
        name.replace("--chart-", "--"): colour for name, colour in both.items() if "-arm-" not in name
    }  # fmt: skip
    return f"{style.sheet(':root', page)}\n{style.sheet(':root .battery-chart', both)}"
