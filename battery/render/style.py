"""One look for every chart: a colour, marker and line per arm, fixed fonts and sizes, and bytes that never change.

The first four colours are Okabe and Ito's; the others, and those for dark pages, lie as far apart as contrast with the
page allows, for readers with any kind of colour blindness. Markers and lines differ too, for grey print. Text stays
text, so a chart can be searched and read aloud. No date, a fixed salt, and every setting pinned here: neither the clock
nor a user's matplotlibrc can change a byte.

A chart follows the reader's light or dark by itself (`prefers-color-scheme`; print is light). Every colour is a custom
property of the class `battery-chart`, the root of the SVG: `--chart-paper`, `--chart-ink`, `--chart-quiet`,
`--chart-grid`, `--chart-band`, and `--chart-arm-1` to `--chart-arm-8`. A page with a switch of its own sets them with
more weight than one class has: `sheet("[data-theme=dark] .battery-chart", DARK)` writes that rule. All other rules of a
chart hang on its id, `KEY-chart`, so that charts in one page do not touch each other.
"""

from __future__ import annotations

import html
import io
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import matplotlib
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from battery.render.slim import slim

PAPER, INK, QUIET, GRID, BAND = "#ffffff", "#1b1f24", "#57606a", "#d8dee4", "#f3f5f7"
WIDTH = 8.6
"""Inches; at 100 dots an inch about the width of a pull request."""
SMALL, NORMAL, TITLE = 9.0, 10.5, 13.0

_COLOURS = (
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#524806", "#9884f3", "#20242a", "#004f6a",
)  # fmt: skip
_DARK_COLOURS = (
    "#98bffe", "#db9152", "#3cf4a7", "#b95f7d", "#d3d316", "#6f6de8", "#cef3fa", "#299fcd",
)  # fmt: skip


def _theme(parts: tuple[str, ...], arms: tuple[str, ...]) -> dict[str, str]:
    """Every colour by its custom property."""
    names = ("paper", "ink", "quiet", "grid", "band")
    found = {f"--chart-{name}": colour for name, colour in zip(names, parts, strict=True)}
    return found | {f"--chart-arm-{place}": colour for place, colour in enumerate(arms, start=1)}


LIGHT = _theme((PAPER, INK, QUIET, GRID, BAND), _COLOURS)
DARK = _theme(("#0d1117", "#e6edf3", "#9da7b3", "#30363d", "#161b22"), _DARK_COLOURS)
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "h")
_LINES: tuple[Any, ...] = (
    "-", (0, (5, 2)), (0, (1, 1.4)), (0, (6, 2, 1.2, 2)), (0, (3, 1.2)), (0, (9, 2)), (0, (2, 3)),
    (0, (8, 2, 1, 2, 1, 2)),
)  # fmt: skip
_FONTS = "'DejaVu Sans', Verdana, 'Segoe UI', Helvetica, Arial, sans-serif"
_PINNED: dict[Any, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "battery",
    "font.family": ["DejaVu Sans"],
    "font.size": NORMAL,
    "path.simplify": False,
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
    "figure.facecolor": PAPER,
    "axes.facecolor": "none",
    "savefig.facecolor": PAPER,
}


class Look:
    """How one arm is drawn, by its place among the arms; beyond eight the colours come again with other markers."""

    def __init__(self, place: int) -> None:
        again = place // len(_COLOURS)
        self.colour = _COLOURS[place % len(_COLOURS)]
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


def sheet(selector: str, theme: Mapping[str, str]) -> str:
    """A rule that gives the charts under `selector` the colours of a theme, LIGHT or DARK."""
    return f"{selector}{{{';'.join(f'{name}:{colour}' for name, colour in theme.items())}}}"


SHEET = (
    f"{sheet('.battery-chart', LIGHT)}\n"
    f"@media screen and (prefers-color-scheme:dark){{{sheet('.battery-chart', DARK)}}}"
)
"""The rules that begin every chart: light, and dark where the reader's system is."""


def svg(figure: Figure, key: str, title: str, alt: str) -> bytes:
    """The figure as SVG with its alternative text; the same bytes every time. Call inside `pinned`.

    The ids carry the chart's key, so that several charts can stand in one HTML page.
    """
    buffer = io.BytesIO()
    FigureCanvasSVG(figure).print_figure(
        buffer, format="svg", metadata={"Date": None, "Creator": "battery"}
    )
    drawing = buffer.getvalue().decode("utf-8")
    told = (
        f'<title id="{key}-title">{html.escape(title)}</title>\n'
        f'<desc id="{key}-alt">{html.escape(alt)}</desc>'
    )
    root = f'class="battery-chart" role="img" aria-labelledby="{key}-title {key}-alt" font-family="{_FONTS}"'
    names = {colour: name for name, colour in LIGHT.items()}
    return slim(drawing, key, told, root, SHEET, names).encode()
