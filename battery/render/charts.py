"""Every chart of a report: one decorated function each; its docstring is the caption.

Figures are laid out in inches from the content (rows of legend, rows of the strip), so that nothing overlaps with one
arm or eight, one rung or seven.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

import msgspec
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from battery.analyse.findings import Findings
from battery.analyse.speed import MAIN
from battery.ledger.store import pretty, replace
from battery.render import forest, ladder, layout, quality_charts, style, tradeoff, words
from battery.render.chart import Chart, Draw, Tell, of
from battery.render.style import Look

MANIFEST = "manifest.json"


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One line of a manifest."""

    key: str
    file: str
    bytes: int
    sha256: str
    alt: str
    caption: str


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """What a charts folder holds, and the seal of the receipts that it was drawn from."""

    campaign: str
    seal: str | None
    charts: tuple[Entry, ...]


CHARTS: dict[str, Chart] = {}
"""Those of every campaign; `charts_of` adds what only some have."""


def chart(alt: Tell) -> Callable[[Draw], Draw]:
    """Register a drawing function under its name; `alt` says in words what the picture shows."""

    def register(draw: Draw) -> Draw:
        CHARTS[draw.__name__] = of(draw, alt)
        return draw

    return register


def charts_of(findings: Findings) -> dict[str, Chart]:
    """Every chart that a campaign has, by key."""
    return {**CHARTS, **tradeoff.charts(findings), **quality_charts.charts(findings)}


def _told(metric: str) -> Callable[[Findings], str]:
    """Alternative text of one metric's chart: every point in words."""

    def alt(findings: Findings) -> str:
        scale, unit = ladder.SCALES.get(metric, (1.0, findings.measure(metric).unit))
        parts = []
        for arm in findings.arms:
            points = []
            for rung in findings.plan.ladder:
                level = findings.level(arm.arm.name, metric, rung)
                value = (
                    f"{level.value / scale:,.4g}"
                    if level and level.value is not None
                    else (level.why if level else "no value")
                )
                bound = findings.outcome(arm.arm.name, rung).peak_over
                if metric == "peak_memory" and bound:
                    value += f", more than {bound / scale:,.4g}"
                points.append(f"{value} at {rung:,}")
            parts.append(f"Arm {arm.arm.name}: {'; '.join(points)}.")
        title = findings.measure(metric).title
        return (
            f"{title} in {unit.split(' ')[0]} against context length in tokens. {' '.join(parts)}"
        )

    return alt


def _told_grid(findings: Findings) -> str:
    """Alternative text of the grid."""
    return " ".join(_told(metric)(findings) for metric in MAIN)


def _told_windows(findings: Findings) -> str:
    """Alternative text of the windows in order."""
    metric, rung = findings.plan.primary.metric, findings.plan.anchor
    points = [
        f"window {number} arm {arm} " + (f"{value:,.4g}" if value is not None else "no value")
        for number, arm, value in _window_values(findings)
    ]
    title, unit = findings.measure(metric).title, findings.measure(metric).unit
    return f"{title} in {unit} at {rung:,} tokens, in the order of the run: {'; '.join(points)}."


@chart(_told("decode"))
def decode(findings: Findings) -> Figure:
    """Decode speed against context length; higher is better.

    The bars hold the spread between prompts, which cancels in the paired ratio: bars that overlap are no sign of
    equality.
    """
    return _single(findings, "decode", "Decode speed")


@chart(_told("prefill"))
def prefill(findings: Findings) -> Figure:
    """Prefill speed against context length; higher is better."""
    return _single(findings, "prefill", "Prefill speed")


@chart(_told("ttft"))
def ttft(findings: Findings) -> Figure:
    """Time to the first token against context length, logarithmic; lower is better."""
    return _single(findings, "ttft", "Time to first token", log=True)


@chart(_told("peak_memory"))
def peak_memory(findings: Findings) -> Figure:
    """Peak memory of the server against context length; lower is better.

    A hollow triangle is a lower bound: the server ran out of memory there and would have needed more. It is read from
    what outlived the server, which may count more than the engine does.
    """
    return _single(findings, "peak_memory", "Peak memory")


@chart(_told_grid)
def summary(findings: Findings) -> Figure:
    """Decode, prefill, time to first token and peak memory against context length, one line per arm.

    A hollow triangle: out of memory, more than this.
    """
    gone = ladder.missing(findings, MAIN)
    rows = len({one.place for one in gone})
    legend = layout.legend_rows(findings)
    foot = 0.2 + layout.LEGEND_ROW * legend
    shown = (rows + 1) * ladder.row_height(findings) if rows else 0.0
    panel, gap, top, low = 2.3, 0.95, 1.25, foot + shown + (0.4 if rows else 0.1)
    height = top + 2 * panel + gap + 0.5 + low
    figure = Figure(figsize=(style.WIDTH, height))
    layout.heading(
        figure, layout.titled("Speed and memory against context length", findings), _how(findings)
    )
    titles = ("Decode", "Prefill", "Time to first token (log)", "Peak memory")
    for place, (metric, title) in enumerate(zip(MAIN, titles, strict=True)):
        row, column = divmod(place, 2)
        axes = layout.axes(
            figure, 0.8 + column * 4.2, height - top - row * (panel + gap) - panel, 3.4, panel
        )
        ladder.panel(axes, findings, metric, log=metric == "ttft")
        axes.set_title(
            f"{title}, {_unit(findings, metric)}", fontsize=style.NORMAL, color=style.INK, pad=10
        )
        if len(findings.plan.ladder) > 4:
            axes.tick_params(axis="x", labelsize=style.SMALL - 1.5, labelrotation=20)
        if row == 1:
            axes.set_xlabel("context, tokens", labelpad=6)
    if rows:
        strip = layout.axes(figure, 0.8, foot, style.WIDTH - 1.2, shown)
        ladder.strip(strip, findings, gone, head=True)
        layout.text(
            figure,
            0.8,
            foot + shown + 0.06,
            "Cells that did not end ok, at each context (✕: none did)",
        )
    layout.legend(figure, findings)
    return figure


def _told_ratios(findings: Findings) -> str:
    """Alternative text of the ratios."""
    parts = [
        f"{one.candidate} against {one.control}, {findings.measure(one.metric).title} at {one.rung:,}:"
        f" {words.interval(one.estimate)}, {words.verdict(one)}"
        for one in findings.comparisons
        if one.metric in MAIN
    ]
    return f"Ratios with their {words.confidence(findings)} intervals. {'; '.join(parts) or 'There is one arm only'}."


@chart(_told_ratios)
def ratios(findings: Findings) -> Figure:
    """Each candidate against the control by context: paired ratio with its interval over blocks, against the margin."""
    size = max(0.9, forest.row_height(findings) * len(findings.plan.ladder))
    top, gap, low = 1.25, 1.0, 0.75 + layout.LEGEND_ROW * layout.legend_rows(findings)
    height = top + 2 * size + gap + low
    figure = Figure(figsize=(style.WIDTH, height))
    bar = f"bar: {words.confidence(findings)} t interval over blocks"
    how = f"{bar}; shaded: within the margin; hollow: no verdict; ✕: no ratio"
    layout.heading(figure, layout.titled("Change against the control, per cent", findings), how)
    for place, metric in enumerate(MAIN):
        row, column = divmod(place, 2)
        at = height - top - row * (size + gap) - size
        axes = layout.axes(figure, 0.95 + column * 4.2, at, 2.1, size)
        forest.panel(axes, findings, metric)
        measure = findings.measure(metric)
        side = "right" if measure.higher_is_better else "left"
        axes.set_title(
            f"{words.titled(measure.title)} ({side} is better)", fontsize=style.NORMAL, color=style.INK, pad=10
        )  # fmt: skip
        if row == 1:
            axes.set_xlabel("%", labelpad=2)
    layout.legend(figure, findings)
    return figure


@chart(_told_windows)
def windows(findings: Findings) -> Figure:
    """The windows in the order they ran, at the primary endpoint: drift would show as a slope common to all arms."""
    metric, rung = findings.plan.primary.metric, findings.plan.anchor
    legend = layout.legend_rows(findings)
    top, plot, low = 1.25, 3.0, 0.85 + layout.LEGEND_ROW * legend
    height = top + plot + low
    figure = Figure(figsize=(style.WIDTH, height))
    title = f"{words.titled(findings.measure(metric).title)} at {rung:,} tokens, window by window"
    layout.heading(figure, layout.titled(title, findings), _how_windows(findings))
    axes = layout.axes(figure, 0.9, low, style.WIDTH - 1.2, plot)
    _draw_windows(axes, findings, metric)
    axes.set_xlabel("window, in the order of the run", labelpad=6)
    axes.set_title(_unit(findings, metric), fontsize=style.NORMAL, pad=10)
    layout.legend(figure, findings)
    return figure


def _draw_windows(axes: Axes, findings: Findings, metric: str) -> None:
    """Points in run order over bands of blocks."""
    scale = ladder.SCALES.get(metric, (1.0, ""))[0]
    values = _window_values(findings)
    numbers = [number for number, _, _ in values] or [1]
    size = len(findings.arms)
    for block in range(1, findings.asked + 1, 2):
        axes.axvspan((block - 1) * size + 0.5, block * size + 0.5, color=style.BAND, zorder=0)
    drawn = []
    for place, arm in enumerate(findings.arms):
        own = [
            (number, value / scale if value is not None else None)
            for number, name, value in values
            if name == arm.arm.name
        ]
        good = [(n, y) for n, y in own if y is not None]
        look = Look(place)
        axes.plot(
            [n for n, _ in good], [y for _, y in good], color=look.colour, linestyle=look.line,
            linewidth=1.0, marker=look.marker, markeredgecolor="white", zorder=3,
        )  # fmt: skip
        gone = [n for n, y in own if y is None]
        axes.plot(
            gone, [0.0] * len(gone), linestyle="none", marker="x", markersize=8, markeredgewidth=2,
            color=look.colour, transform=axes.get_xaxis_transform(), clip_on=False, zorder=5,
        )  # fmt: skip
        drawn += [y for _, y in good]
    axes.set_xlim(0.5, max([*numbers, findings.asked * size]) + 0.5)
    axes.tick_params(length=0, pad=6)
    axes.xaxis.set_major_locator(MaxNLocator(16, integer=True, min_n_ticks=1))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.0f}"))
    if drawn:
        ladder.limits(axes, drawn, log=False)
        for block, ratio in findings.primary[0].by_block if _ratios_fit(findings) else ():
            axes.text(
                (block - 0.5) * size + 0.5, 0.985, f"{100 * (ratio - 1):+.1f} %", fontsize=style.SMALL,
                transform=axes.get_xaxis_transform(), ha="center", va="top", color=style.QUIET,
            )  # fmt: skip
    else:
        axes.set_yticks([])
        axes.text(
            0.5, 0.5, "no value in any window", transform=axes.transAxes, ha="center", color=style.QUIET
        )  # fmt: skip


def _window_values(findings: Findings) -> list[tuple[int, str, float | None]]:
    """Window number, arm, and its own mean at the primary endpoint, for every counted window."""
    metric, rung = findings.plan.primary.metric, findings.plan.anchor
    known = {
        number: value
        for arm in findings.arms
        if (level := findings.level(arm.arm.name, metric, rung))
        for number, value in level.windows
    }
    return [
        (window.number, window.arm, known.get(window.number))
        for window in findings.windows
        if window.counted
    ]


def _single(findings: Findings, metric: str, title: str, log: bool = False) -> Figure:
    """A chart of one metric with its strip and legend."""
    gone = ladder.missing(findings, (metric,))
    rows, legend = len({one.place for one in gone}), layout.legend_rows(findings)
    shown = rows * ladder.row_height(findings)
    top, plot, low = 1.25, 3.1, 0.85 + layout.LEGEND_ROW * legend + shown
    height = top + plot + low
    figure = Figure(figsize=(style.WIDTH, height))
    layout.heading(figure, layout.titled(title, findings), _how(findings))
    axes = layout.axes(figure, 0.9, low, style.WIDTH - 1.2, plot)
    ladder.panel(axes, findings, metric, log)
    axes.set_title(_unit(findings, metric), fontsize=style.NORMAL, pad=10)
    axes.set_xlabel("context, tokens", labelpad=6 + 72 * shown)
    if rows:
        strip = layout.axes(figure, 0.9, low - 0.3 - shown, style.WIDTH - 1.2, shown)
        ladder.strip(strip, findings, gone)
    layout.legend(figure, findings)
    return figure


def _unit(findings: Findings, metric: str) -> str:
    """The unit that a metric is drawn in, with its direction."""
    measure = findings.measure(metric)
    unit = ladder.SCALES.get(metric, (1.0, measure.unit))[1]
    return f"{unit}, {'higher' if measure.higher_is_better else 'lower'} is better"


def _how(findings: Findings) -> str:
    """What point, bar and pale dots are."""
    level = words.confidence(findings)
    return f"point: geometric mean over windows; bar: {level} t interval; pale: single windows"


def _how_windows(findings: Findings) -> str:
    """What the marks of the windows chart are."""
    ratio = "; percentages: ratio within the block" if _ratios_fit(findings) else ""
    return f"point: geometric mean of the window's requests; shaded: every other block{ratio}; ✕: no value"


def _ratios_fit(findings: Findings) -> bool:
    """Whether every block has room for its own ratio: one candidate, few blocks."""
    return len(findings.primary) == 1 and findings.asked <= 12


def draw(findings: Findings) -> dict[str, tuple[Chart, bytes]]:
    """Every chart as SVG bytes, by key."""
    made = {}
    with style.pinned():
        for key, one in charts_of(findings).items():
            title = f"{findings.campaign}: {one.caption}"
            made[key] = (one, style.svg(one.draw(findings), key, title, one.alt(findings)))
    return made


def manifest(findings: Findings, made: dict[str, tuple[Chart, bytes]]) -> Manifest:
    """The manifest of these charts."""
    entries = [
        Entry(
            key=key, file=f"{key}.svg", bytes=len(data), sha256=hashlib.sha256(data).hexdigest(),
            alt=one.alt(findings), caption=one.caption,
        )
        for key, (one, data) in made.items()
    ]  # fmt: skip
    return Manifest(campaign=findings.campaign, seal=findings.seal, charts=tuple(entries))


def render_charts(
    findings: Findings, out_dir: Path, made: dict[str, tuple[Chart, bytes]] | None = None
) -> list[Path]:
    """Write every chart into `out_dir`, then its manifest; the paths written. `made` are charts that `draw` drew."""
    out_dir.mkdir(parents=True, exist_ok=True)
    made = draw(findings) if made is None else made
    written = []
    for key, (_, data) in made.items():
        replace(out_dir / f"{key}.svg", data)
        written.append(out_dir / f"{key}.svg")
    replace(out_dir / MANIFEST, pretty(manifest(findings, made)))
    return [*written, out_dir / MANIFEST]
