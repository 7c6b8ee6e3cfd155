"""Every chart of a report: one decorated function each; its docstring is the caption.

Figures are laid out in inches from the content (rows of legend, rows of the strip), so that nothing overlaps with one
arm or eight, one rung or seven.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

import msgspec
from matplotlib.figure import Figure

from battery.analyse.findings import Findings
from battery.analyse.speed import MAIN
from battery.ledger.store import pretty, replace
from battery.render import (
    arrivals,
    forest,
    in_cell,
    ladder,
    layout,
    quality_charts,
    run_order,
    style,
    tradeoff,
    words,
)
from battery.render.chart import Chart, Draw, Tell, of

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
    some = (arrivals, in_cell, tradeoff, quality_charts)
    return {**CHARTS, **{key: one for each in some for key, one in each.charts(findings).items()}}


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
    single = ladder.dotted(findings, MAIN)
    title = layout.titled("Speed and memory against context length", findings)
    layout.heading(figure, title, _how(findings, single))
    titles = ("Decode", "Prefill", "Time to first token (log)", "Peak memory")
    for place, (metric, title) in enumerate(zip(MAIN, titles, strict=True)):
        row, column = divmod(place, 2)
        axes = layout.axes(
            figure, 0.8 + column * 4.2, height - top - row * (panel + gap) - panel, 3.4, panel
        )
        ladder.panel(axes, findings, metric, metric == "ttft", single)
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
    """Alternative text of the ratios, contexts within metrics within arms; what they all come to is said once."""
    parts = []
    for candidate in findings.candidates:
        for metric in MAIN:
            rungs = (
                (rung, findings.comparison(candidate, metric, rung))
                for rung in findings.plan.ladder
            )
            found = [
                (words.interval(one.estimate), words.verdict(one), f"{rung:,}")
                for rung, one in rungs
                if one is not None
            ]
            said = {word for _, word, _ in found}
            told = "; ".join(
                f"{change} at {rung}" if len(said) == 1 else f"{change} {word} at {rung}"
                for change, word, rung in found
            )
            every = f", {said.pop()} throughout" if len(said) == 1 else ""
            parts.append(f"{candidate}, {findings.measure(metric).title}{every}: {told}.")
    told = " ".join(parts) or "There is one arm only."
    return f"Ratios to {findings.control} with their {words.confidence(findings)} intervals. {told}"


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


@chart(run_order.told)
def windows(findings: Findings) -> Figure:
    """The windows in the order they ran, at the primary endpoint: drift would show as a slope common to all arms."""
    metric, rung = findings.plan.primary.metric, findings.plan.anchor
    legend = layout.legend_rows(findings)
    top, plot, low = 1.25, 3.0, 0.85 + layout.LEGEND_ROW * legend
    height = top + plot + low
    figure = Figure(figsize=(style.WIDTH, height))
    title = f"{words.titled(findings.measure(metric).title)} at {rung:,} tokens, window by window"
    layout.heading(figure, layout.titled(title, findings), run_order.how(findings))
    axes = layout.axes(figure, 0.9, low, style.WIDTH - 1.2, plot)
    run_order.panel(axes, findings, metric)
    axes.set_xlabel("window, in the order of the run", labelpad=6)
    axes.set_title(_unit(findings, metric), fontsize=style.NORMAL, pad=10)
    layout.legend(figure, findings)
    return figure


def _single(findings: Findings, metric: str, title: str, log: bool = False) -> Figure:
    """A chart of one metric with its strip and legend."""
    gone = ladder.missing(findings, (metric,))
    rows, legend = len({one.place for one in gone}), layout.legend_rows(findings)
    shown = rows * ladder.row_height(findings)
    top, plot, low = 1.25, 3.1, 0.85 + layout.LEGEND_ROW * legend + shown
    height = top + plot + low
    figure = Figure(figsize=(style.WIDTH, height))
    single = ladder.dotted(findings, (metric,))
    layout.heading(figure, layout.titled(title, findings), _how(findings, single))
    axes = layout.axes(figure, 0.9, low, style.WIDTH - 1.2, plot)
    ladder.panel(axes, findings, metric, log, single)
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


def _how(findings: Findings, single: bool) -> str:
    """What point, bar and pale dots are."""
    pale = "; pale: single windows" if single else ""
    return f"point: geometric mean over windows; bar: {words.confidence(findings)} t interval{pale}"


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
