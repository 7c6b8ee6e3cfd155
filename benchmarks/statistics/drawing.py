"""Two charts about the statistics, from the document alone: rules where nothing differs, and power."""

from __future__ import annotations

from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter

from battery.render import layout, style
from battery.render.style import Look
from benchmarks.statistics.intervals import BLOCKS, EFFECTS, ROWS
from benchmarks.statistics.report import WORDS, percent
from benchmarks.statistics.rules import RULES

ARMS = ("rounding", "exact")


def charts(told: dict[str, Any]) -> dict[str, bytes]:
    """Every chart as SVG bytes, by key."""
    with style.pinned():
        return {
            "false-positives": style.svg(
                _rules(told), "false-positives", "False positives of eight rules", _rules_told(told)
            ),
            "power": style.svg(_power(told), "power", "Power by blocks", _power_told(told)),
        }


def _rules(told: dict[str, Any]) -> Figure:
    """Each rule's share of null batteries called different, one panel per protocol."""
    row, top, low, gap = 0.34, 1.25, 0.95, 0.35
    tall = row * len(RULES)
    figure = Figure(figsize=(style.WIDTH, top + tall + low))
    layout.heading(
        figure, "Where nothing differs, how often a rule says that something does",
        "point: share of null batteries, one per kind of drift (none, linear, random walk); line: 5 %",
    )  # fmt: skip
    left, wide = 2.95, (style.WIDTH - 2.95 - 0.3 - gap) / 2
    for place, (protocol, shares) in enumerate(told["contrast"]["shares"].items()):
        axes = layout.axes(figure, left + place * (wide + gap), low, wide, tall)
        _panel(axes, shares, named=place == 0)
        axes.set_title(WORDS[protocol], fontsize=style.NORMAL, pad=8)
        axes.set_xlabel("% called different", labelpad=4)
    _legend(figure, {name: Look(place) for place, name in enumerate(ARMS)}, " arms", lines=False)
    return figure


def _panel(axes: Axes, shares: dict[str, dict[str, float]], named: bool) -> None:
    """One protocol: rules from top to bottom."""
    axes.set_ylim(len(RULES) - 0.5, -0.5)
    axes.set_yticks(range(len(RULES)), [rule.words if named else "" for rule in RULES])
    axes.tick_params(axis="y", length=0, labelsize=style.SMALL)
    axes.grid(True, axis="x")
    axes.grid(False, axis="y")
    axes.set_xlim(-2, 80)
    axes.set_xticks([0, 20, 40, 60, 80])
    axes.axhspan(len(RULES) - 1.5, len(RULES) - 0.5, color=style.BAND, zorder=0)
    axes.axvline(5, color=style.INK, linewidth=1.0, linestyle=(0, (4, 2)), zorder=1)
    for y, rule in enumerate(RULES):
        for place, arms in enumerate(ARMS):
            own = [
                100 * s[rule.key]
                for key, s in shares.items()
                if key.startswith(arms) and rule.key in s
            ]
            if not own:
                axes.text(
                    40,
                    y,
                    "no seed returns",
                    ha="center",
                    va="center",
                    fontsize=style.SMALL,
                    color=style.QUIET,
                )
                break
            look, at = Look(place), y + (place - 0.5) * 0.34
            axes.plot([min(own), max(own)], [at, at], color=look.colour, linewidth=1.4, zorder=2)
            axes.plot(
                own, [at] * len(own), linestyle="none", marker=look.marker, markersize=5.5, color=look.colour,
                markeredgecolor="white", markeredgewidth=0.6, zorder=3,
            )  # fmt: skip


def _power(told: dict[str, Any]) -> Figure:
    """Power against the true difference, one panel per row of the design's table."""
    panel, gap, top, low = 1.9, 0.85, 1.25, 0.95
    figure = Figure(figsize=(style.WIDTH, top + 2 * panel + gap + low))
    height = figure.get_size_inches()[1]
    layout.heading(
        figure, "Share of batteries that call a true difference", "cross: the table that the design was chosen by"
    )  # fmt: skip
    for place, (arms, seeds) in enumerate(ROWS):
        row, column = divmod(place, 2)
        at = height - top - row * (panel + gap) - panel
        axes = layout.axes(figure, 0.8 + column * 4.2, at, 3.4, panel)
        rows = [
            one for one in told["power"]["rows"] if (one["arms"], one["seeds"]) == (arms, seeds)
        ]
        x = [100 * effect for effect in EFFECTS]
        for look, one in zip(map(Look, range(len(BLOCKS))), rows, strict=True):
            axes.plot(
                x, [100 * share for share in one["power"]], color=look.colour, linestyle=look.line, marker=look.marker,
                markersize=5.5, markeredgecolor="white",
            )  # fmt: skip
            axes.plot(
                x, [100 * share for share in one["designed"]], linestyle="none", marker="x", markersize=5,
                markeredgewidth=1.1, color=style.INK, zorder=4,
            )  # fmt: skip
        axes.set_ylim(-4, 104)
        axes.set_xlim(0.6, 7.4)
        axes.set_xticks(x)
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"+{value:g} %"))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g} %"))
        axes.tick_params(length=0, labelsize=style.SMALL)
        axes.set_title(f"{arms} arms, {seeds} seeds a window", fontsize=style.NORMAL, pad=8)
        if row == 1:
            axes.set_xlabel("true difference", labelpad=4)
    _legend(figure, {f"{k}": Look(place) for place, k in enumerate(BLOCKS)}, " blocks", lines=True)
    return figure


def _legend(figure: Figure, looks: dict[str, Look], suffix: str, lines: bool) -> None:
    """What colours and markers are, at the foot."""
    w, h = figure.get_size_inches()
    handles = [
        Line2D([], [], color=look.colour, marker=look.marker, markeredgecolor="white",
               linestyle=look.line if lines else "-", label=name + suffix)
        for name, look in looks.items()
    ]  # fmt: skip
    figure.legend(
        handles=handles, loc="lower left", bbox_to_anchor=(0.2 / w, 0.08 / h), ncols=len(handles), handlelength=3.2,
        borderaxespad=0.0,
    )  # fmt: skip


def _rules_told(told: dict[str, Any]) -> str:
    """The first chart in words."""
    parts = []
    for protocol, shares in told["contrast"]["shares"].items():
        for rule in RULES:
            said = [
                f"{key} {percent(s[rule.key], 1)}" for key, s in shares.items() if rule.key in s
            ]
            if said:
                parts.append(f"{WORDS[protocol]}, {rule.words}: {', '.join(said)}.")
    return f"Share of null batteries called different. {' '.join(parts)}"


def _power_told(told: dict[str, Any]) -> str:
    """The second chart in words."""
    parts = [
        f"{one['arms']} arms, {one['seeds']} seeds, {one['blocks']} blocks: "
        + ", ".join(f"{percent(share, 0)} at +{100 * e:g} %" for e, share in zip(EFFECTS, one["power"], strict=True))
        for one in told["power"]["rows"]
    ]  # fmt: skip
    return f"Share of batteries that call a true difference. {'; '.join(parts)}."
