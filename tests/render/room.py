"""Where the words of a figure stand, and whether any lie over each other or leave the picture."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import combinations

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.transforms import Bbox
from numpy.typing import NDArray

from battery.analyse.findings import Findings
from battery.render import style
from battery.render.chart import Chart

Corners = NDArray[np.float64]
NEAR = 1.0
"""Dots by which boxes may reach into each other: a box is a little larger than its letters."""


def texts(figure: Figure) -> tuple[list[Text], FigureCanvasAgg]:
    """Every text that is drawn; matplotlib keeps, but does not draw, ticks outside their axis."""
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    hidden = set()
    for axes in figure.axes:
        for axis, limits in ((axes.xaxis, axes.get_xlim()), (axes.yaxis, axes.get_ylim())):
            low, high = sorted(limits)
            hidden |= {
                id(tick.label1)
                for tick in axis.get_major_ticks()
                if not axes.axison or not low <= tick.get_loc() <= high
            }
    found = [text for text in figure.findobj(Text) if isinstance(text, Text)]
    return [
        text
        for text in found
        if text.get_visible() and text.get_text().strip() and id(text) not in hidden
    ], canvas


def shown(figure: Figure) -> list[tuple[str, Bbox]]:
    """Every text that is drawn, with its box in dots."""
    found, canvas = texts(figure)
    return [(text.get_text(), text.get_window_extent(canvas.get_renderer())) for text in found]


def corners(text: Text, canvas: FigureCanvasAgg) -> Corners:
    """The four corners of a text, turned as it is."""
    around = text.get_window_extent(canvas.get_renderer())
    turn = text.get_rotation()
    if not turn:
        return np.array(
            [
                [around.x0, around.y0],
                [around.x1, around.y0],
                [around.x1, around.y1],
                [around.x0, around.y1],
            ]
        )
    text.set_rotation(0)
    flat = text.get_window_extent(canvas.get_renderer())
    text.set_rotation(turn)
    angle = math.radians(turn)
    turned = np.array([[math.cos(angle), math.sin(angle)], [-math.sin(angle), math.cos(angle)]])
    half = np.array([flat.width, flat.height]) / 2
    middle = np.array([around.x0 + around.width / 2, around.y0 + around.height / 2])
    return np.array([[-1, -1], [1, -1], [1, 1], [-1, 1]]) * half @ turned + middle


def depth(one: Corners, other: Corners) -> float:
    """By how many dots two rectangles reach into each other; zero or less where they do not."""
    ways = [
        side / np.linalg.norm(side)
        for box in (one, other)
        for side in (box[1] - box[0], box[2] - box[1])
    ]
    reaches = []
    for way in ways:
        left, right = one @ way, other @ way
        reaches.append(min(left.max(), right.max()) - max(left.min(), right.min()))
    return float(min(reaches))


def faults(figure: Figure) -> Iterator[str]:
    """Every text that leaves the figure, and every two of which one lies over the other."""
    found, canvas = texts(figure)
    placed = [(text.get_text(), corners(text, canvas)) for text in found]
    page = figure.bbox
    for text, box in placed:
        (x0, y0), (x1, y1) = box.min(axis=0), box.max(axis=0)
        if x0 < page.x0 or x1 > page.x1 or y0 < page.y0 or y1 > page.y1:
            yield f"{text!r} leaves the picture"
    around = [(*box.min(axis=0), *box.max(axis=0)) for _, box in placed]
    for left, right in combinations(range(len(placed)), 2):
        near = all(around[left][at] < around[right][at + 2] for at in (0, 1))
        near = near and all(around[right][at] < around[left][at + 2] for at in (0, 1))
        if near and depth(placed[left][1], placed[right][1]) > NEAR:
            one, other = placed[left][0], placed[right][0]
            yield f"{one!r} lies over {other!r}"


def clear(findings: Findings, chart: Chart) -> int:
    """No text of the chart lies over another or leaves the picture; the bytes of its SVG."""
    with style.pinned():
        figure = chart.draw(findings)
        assert list(faults(figure)) == [], chart.key
        return len(style.svg(figure, chart.key, chart.caption, chart.alt(findings)))
