"""The registry of charts: a decorated function is a chart, its docstring the caption."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
from matplotlib.figure import Figure

from battery.analyse.findings import Findings

Draw = Callable[[Findings], Figure]


def _always(_: Findings) -> bool:
    """Most charts have something to show in every campaign."""
    return True


class Chart(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of the registry."""

    key: str
    caption: str
    draw: Draw
    alt: Callable[[Findings], str]
    has: Callable[[Findings], bool] = _always
    """Whether a campaign has anything for it to show; where not, it is not drawn."""


CHARTS: dict[str, Chart] = {}


def chart(
    alt: Callable[[Findings], str], has: Callable[[Findings], bool] = _always
) -> Callable[[Draw], Draw]:
    """Register a drawing function under its name; `alt` says in words what the picture shows."""

    def register(draw: Draw) -> Draw:
        caption = " ".join((draw.__doc__ or "").split())
        key = draw.__name__
        CHARTS[key] = Chart(key=key, caption=caption, draw=draw, alt=alt, has=has)
        return draw

    return register
