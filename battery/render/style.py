"""One look for every chart: a colour, marker and line per arm, fixed fonts and sizes, and bytes that never change.

Colours are Okabe and Ito's, which colour-blind readers can tell apart; markers and lines differ too, for grey
print. Text stays text, so a chart can be searched and read aloud. No date, a fixed salt, and every setting pinned
here: neither the clock nor a user's matplotlibrc can change a byte.
"""

from __future__ import annotations

import html
import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import matplotlib
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

INK, QUIET, GRID, BAND = "#1b1f24", "#57606a", "#d8dee4", "#f3f5f7"
WIDTH = 8.6
"""Inches; at 100 dots an inch about the width of a pull request."""
SMALL, NORMAL, TITLE = 9.0, 10.5, 13.0

COLOURS = (
    "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#8A6D00",
)  # fmt: skip
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "h")
_LINES: tuple[Any, ...] = (
    "-", (0, (5, 2)), (0, (1, 1.4)), (0, (6, 2, 1.2, 2)), (0, (3, 1.2)), (0, (9, 2)), (0, (2, 3)),
    (0, (8, 2, 1, 2, 1, 2)),
)  # fmt: skip
FONTS = "'DejaVu Sans', Verdana, 'Segoe UI', Helvetica, Arial, sans-serif"
_PINNED: dict[Any, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "battery",
    "font.family": ["DejaVu Sans"],
    "font.size": NORMAL,
    "text.color": INK,
    "axes.edgecolor": QUIET,
    "axes.labelcolor": INK,
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "axes.titlelocation": "left",
    "axes.unicode_minus": True,
    "grid.color": GRID,
    "grid.linewidth": 0.8,
    "xtick.color": QUIET,
    "ytick.color": QUIET,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "xtick.labelsize": NORMAL,
    "ytick.labelsize": NORMAL,
    "lines.linewidth": 1.8,
    "lines.markersize": 6.5,
    "legend.frameon": False,
    "legend.fontsize": NORMAL,
    "figure.dpi": 100,
    "figure.facecolor": "white",
    "axes.facecolor": "white",
    "savefig.facecolor": "white",
}


class Look:
    """How one arm is drawn, by its place among the arms; beyond eight the colours come again with other markers."""

    def __init__(self, place: int) -> None:
        again = place // len(COLOURS)
        self.colour = COLOURS[place % len(COLOURS)]
        self.marker = _MARKERS[(place + again) % len(_MARKERS)]
        self.line = _LINES[(place + 3 * again) % len(_LINES)]


@contextmanager
def pinned() -> Iterator[None]:
    """Draw under our settings alone, whatever the reader's own are."""
    # The defaults first: a user's matplotlibrc would otherwise show through wherever _PINNED is silent.
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(_PINNED)
        yield


def svg(figure: Figure, key: str, title: str, alt: str) -> bytes:
    """The figure as SVG with its alternative text; the same bytes every time. Call inside `pinned`.

    The ids carry the chart's key, so that several charts can stand in one HTML page.
    """
    buffer = io.BytesIO()
    FigureCanvasSVG(figure).print_figure(
        buffer, format="svg", metadata={"Date": None, "Creator": "battery"}
    )
    text = buffer.getvalue().decode("utf-8").replace("'DejaVu Sans'", FONTS)
    told = (
        f' role="img" aria-labelledby="{key}-title {key}-alt">\n'
        f' <title id="{key}-title">{html.escape(title)}</title>\n'
        f' <desc id="{key}-alt">{html.escape(alt)}</desc>'
    )
    return re.sub(r"(<svg\b[^>]*?)>", lambda found: found.group(1) + told, text, count=1).encode()
