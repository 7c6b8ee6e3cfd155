"""The chart of temperature and clocks while the cells ran, window by window; a machine without sensors has none."""

from __future__ import annotations

import math
from collections.abc import Mapping

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from battery.analyse.findings import Findings
from battery.analyse.within import known
from battery.render import ladder, layout, run_order, style, words
from battery.render.chart import Chart, embedded, of
from battery.render.style import Look

_TITLES = {
    "temp_c": "hottest sensor, °C",
    "freq_mhz": "processor clock, MHz",
    "gpu_temp_c": "GPU temperature, °C",
    "gpu_clock_mhz": "GPU clock, MHz",
}
_PANEL, _GAP = 1.5, 0.55
"""Inches."""


def _read(findings: Findings) -> list[str]:
    """The readings that any window has."""
    inside = known(findings.within).inside
    return [name for name in _TITLES if any(name in one.readings for one in inside)]


def charts(findings: Findings) -> dict[str, Chart]:
    """The chart by its key, where a temperature or a clock was read inside the cells; else none."""
    return {temperature_clocks.__name__: of(temperature_clocks, _told)} if _read(findings) else {}


def section(findings: Findings) -> str:
    """The chart; where samples were taken without either, so said; empty without samples."""
    pictures = [embedded(findings, one) for one in charts(findings).values()]
    if pictures or not findings.phases:
        return "\n\n".join(pictures)
    return "No temperature and no clock could be read inside the cells: this machine shows none."


def _own(findings: Findings, arm: str, name: str) -> list[tuple[int, tuple[float, float, float]]]:
    """One arm's windows that have a reading."""
    return [
        (one.window, one.readings[name])
        for one in known(findings.within).inside
        if one.arm == arm and name in one.readings
    ]


def _told(findings: Findings) -> str:
    """Alternative text: every reading's range and mean, arm by arm."""
    parts = []
    for name in _read(findings):
        points = []
        for arm in findings.arms:
            own = [reading for _, reading in _own(findings, arm.arm.name, name)]
            if own:
                mean = math.fsum(middle for _, middle, _ in own) / len(own)
                ends = min(low for low, _, _ in own), max(high for _, _, high in own)
                low, middle, high = (f"{value:,.4g}" for value in (ends[0], mean, ends[1]))
                points.append(
                    f"arm {arm.arm.name} {low} to {high}, mean {middle}, {len(own):,} windows"
                )
            else:
                points.append(f"arm {arm.arm.name} no reading")
        parts.append(f"{_TITLES[name]}: {'; '.join(points)}.")
    return f"Inside the pooled cells, window by window. {' '.join(parts)}"


def temperature_clocks(findings: Findings) -> Figure:
    """Temperature and clocks while the pooled cells ran, in the order of the windows: every arm should see the same.

    A point is the mean over the samples of a window, two a second; its bar reaches from the lowest to the highest.
    """
    names = _read(findings)
    top, low = 1.25, 0.85 + layout.LEGEND_ROW * layout.legend_rows(findings)
    height = top + len(names) * _PANEL + (len(names) - 1) * _GAP + low
    figure = Figure(figsize=(style.WIDTH, height))
    bar = "; bar: lowest to highest" if _marked(findings) else ""
    how = f"point: mean over a window's samples{bar}; ✕: no reading"
    title = f"{_listed(names)} inside the cells"
    layout.heading(figure, layout.titled(title, findings), how)
    for place, name in enumerate(names):
        at = height - top - place * (_PANEL + _GAP) - _PANEL
        axes = layout.axes(figure, 0.9, at, style.WIDTH - 1.2, _PANEL)
        _panel(axes, findings, name)
        axes.set_title(_TITLES[name], fontsize=style.NORMAL, color=style.INK, pad=8)
        if place < len(names) - 1:
            axes.tick_params(axis="x", labelbottom=False)
    axes.set_xlabel("window, in the order of the run", labelpad=6)
    layout.legend(figure, findings)
    return figure


def _listed(names: list[str]) -> str:
    """What the panels show, in the fewest words."""
    kinds = [("Temperature", "temp_c"), ("clocks", "mhz")]
    found = [kind for kind, ending in kinds if any(name.endswith(ending) for name in names)]
    return words.titled(" and ".join(found))


def _marked(findings: Findings) -> bool:
    """Whether the windows are few enough for markers and bars."""
    return sum(window.counted for window in findings.windows) <= run_order.MOST_MARKED


def _panel(axes: Axes, findings: Findings, name: str) -> None:
    """One reading over the windows."""
    run_order.lay(axes, findings)
    drawn: list[float] = []
    marked = _marked(findings)
    for place, arm in enumerate(findings.arms):
        look, own = Look(place), dict(_own(findings, arm.arm.name, name))
        if own:
            _line(axes, own, look, marked)
        counted = [w.number for w in findings.windows if w.counted and w.arm == arm.arm.name]
        run_order.gone(axes, [number for number in counted if number not in own], look)
        drawn += [end for reading in own.values() for end in reading]
    ladder.limits(axes, drawn, log=False)


def _line(
    axes: Axes, own: Mapping[int, tuple[float, float, float]], look: Look, marked: bool
) -> None:
    """One arm's windows: a bar from lowest to highest and the mean on it if `marked`, else dots for the means."""
    nothing, means = float("nan"), [middle for _, middle, _ in own.values()]
    if not marked:
        ladder.dots(axes, list(own), means, look.colour)
        return
    axes.plot(
        [at for number in own for at in (number, number, nothing)],
        [at for low, _, high in own.values() for at in (low, high, nothing)],
        color=look.colour, linewidth=1.4, zorder=3,
    )  # fmt: skip
    axes.plot(
        list(own), means, linestyle="none", marker=look.marker, color=look.colour, markeredgecolor="white", zorder=4
    )  # fmt: skip
