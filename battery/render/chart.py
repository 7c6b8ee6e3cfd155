"""What a chart is: a drawing function with its caption and its words for readers who do not see it."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
from matplotlib.figure import Figure

from battery.analyse.findings import Findings

Draw = Callable[[Findings], Figure]
Tell = Callable[[Findings], str]


class Chart(msgspec.Struct, frozen=True, kw_only=True):
    """One chart: its name, its caption, and how it is drawn and told."""

    key: str
    caption: str
    draw: Draw
    alt: Tell


def of(draw: Draw, alt: Tell) -> Chart:
    """The chart of a drawing function: its name is the key, its docstring the caption."""
    caption = " ".join((draw.__doc__ or "").split())
    return Chart(key=draw.__name__, caption=caption, draw=draw, alt=alt)


def embedded(findings: Findings, one: Chart) -> str:
    """A chart with its caption as a page shows it."""
    # The full text is inside the picture; here it would bury the page, and the numbers stand in the table below.
    title = one.caption.split(";")[0].split(".")[0]
    return f"![{title}](../charts/{findings.campaign}/{one.key}.svg)\n\n*{one.caption}*"
