"""No text of any chart lies over another or leaves the picture, whatever a campaign has come to."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from graded import graded, line
from matplotlib.figure import Figure
from room import clear, faults, shown
from synthetic import World, build, fails

from battery.analyse.findings import Findings, analyse
from battery.ledger.receipt import Reading, Receipt
from battery.render.charts import CHARTS, charts_of

LONG = tuple(f"an-arm-with-forty-characters-number-{i:04d}" for i in range(8))
LADDER = (1024, 8192, 16384, 32768, 65536, 131072, 261120)
MOST = 40_000
"""Bytes that a chart may have."""


def failing_everywhere(receipt: Receipt) -> Receipt:
    word = ("oom", "disengaged", "incoherent")[receipt.cell.block % 3]
    return fails(word, lambda r: True)(receipt)


def sensed(receipt: Receipt) -> Receipt:
    """The receipt with three samples, the processor's and the GPU's."""
    warm, place = receipt.cell.window.number, receipt.cell.window.position
    samples = tuple(
        Reading(
            at_s=at, temp_c=40.0 + warm % 7 + at, freq_mhz=3000.0 - 5 * warm, gpu_temp_c=30.0 + warm % 5 + 3 * at,
            gpu_clock_mhz=1980.0 - 15 * place,
        )
        for at in (0.3, 0.8, 1.3)
    )  # fmt: skip
    return msgspec.structs.replace(receipt, samples=samples)


def slow(receipt: Receipt) -> Receipt:
    """Every tenth gap is fifty times as long, and drafts of C come three tokens at once."""
    count, at, events = 3 if receipt.cell.arm == "C" else 1, 0, []
    for place, event in enumerate(receipt.trace.events[::count]):
        at += round(25e6 * (50 if place % 10 == 9 else 1 + place % 3 / 10))
        events.append(type(event)(at, count))
    trace = msgspec.structs.replace(receipt.trace, events=tuple(events), end_ns=at + 1000)
    return msgspec.structs.replace(receipt, trace=trace)


def tasks(folder: Path) -> None:
    """Every suite of every arm."""
    for place, arm in enumerate(LONG):
        for suite in ("humaneval", "humaneval+", "mbpp", "mbpp+"):
            graded(folder, arm, suite, line(100 - 5 * place, 40))


def nothing(folder: Path) -> None:
    """No answers."""


SIX: dict[str, Any] = {"workloads": ("prose", "code", "edit")}
WORLDS: dict[str, tuple[World, Callable[[Path], None]]] = {
    "plain": (World(effect={"C": 1.02}), nothing),
    "one point": (World(arms=("A",), ladder=(128,), blocks=1, seeds=1, change=sensed), nothing),
    "none": (World(change=lambda receipt: None, seal=False), nothing),
    "all failed": (World(change=failing_everywhere), nothing),
    "eight long names": (
        World(arms=LONG, blocks=2, seeds=1, change=fails("timeout", lambda r: r.cell.arm in LONG[2:6])), nothing,
    ),
    "eight arms of three texts": (
        World(arms=LONG, ladder=(128,), blocks=2, seeds=3, speculates=LONG[::2], plan=SIX, change=sensed), tasks,
    ),
    "eight arms, seven rungs": (World(arms=LONG, ladder=LADDER, blocks=4, seeds=1), nothing),
    "seven rungs, all failed": (World(ladder=LADDER, blocks=3, seeds=1, change=failing_everywhere), nothing),
    "long ladder": (
        World(ladder=LADDER, blocks=2, seeds=1, change=fails("oom", lambda r: r.cell.rung > 100_000)), nothing,
    ),
    "twelve blocks": (World(blocks=12, seeds=1, effect={"C": 1.05}, speculates=("C",)), nothing),
    "far gaps": (World(blocks=3, change=slow, effect={"C": 40.0}), nothing),
    "three arms, sensed": (World(arms=("A", "B", "C"), blocks=12, seeds=1, change=sensed), nothing),
    "hundreds of windows": (World(ladder=(128,), blocks=125, seeds=1, change=sensed), nothing),
}  # fmt: skip


@pytest.fixture(scope="module")
def worlds(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Findings]:
    """The findings of a world, made when they are asked for."""
    root = tmp_path_factory.mktemp("worlds")
    made: dict[str, Findings] = {}

    def found(name: str) -> Findings:
        if name not in made:
            world, fill = WORLDS[name]
            folder = build(root, world, f"w{list(WORLDS).index(name)}")
            fill(folder)
            made[name] = analyse(folder)
        return made[name]

    return found


@pytest.mark.parametrize("name", list(WORLDS))
def test_no_text_overlaps_or_leaves_the_picture_and_it_stays_small(
    name: str, worlds: Callable[[str], Findings]
) -> None:
    found = worlds(name)
    charts = charts_of(found)
    assert set(CHARTS) <= set(charts)
    sizes = {key: clear(found, chart) for key, chart in charts.items()}
    assert {key: size for key, size in sizes.items() if size >= MOST} == {}


def test_every_kind_of_chart_is_among_those_looked_at(worlds: Callable[[str], Findings]) -> None:
    seen = {key for name in WORLDS for key in charts_of(worlds(name))}
    assert seen == {
        *CHARTS, "itl", "temperature_clocks", "workloads", "speculation", "quality", "decode_quality", "quality_change",
    }  # fmt: skip


def planted(*places: tuple[float, float, float]) -> Figure:
    """A figure with words at these places, turned."""
    figure = Figure(figsize=(4, 2), dpi=100)
    for number, (x, y, turn) in enumerate(places):
        figure.text(x, y, f"some words {number}", rotation=turn, ha="center", va="center")
    return figure


@pytest.mark.parametrize(
    ("places", "told"),
    [
        (((0.5, 0.5, 0), (0.5, 0.8, 0)), []),
        (((0.5, 0.5, 0), (0.55, 0.52, 0)), ["'some words 0' lies over 'some words 1'"]),
        (((0.5, 0.5, 40), (0.56, 0.4, 40)), []),
        (((0.5, 0.5, 40), (0.53, 0.56, 40)), ["'some words 0' lies over 'some words 1'"]),
        (((0.5, 0.5, 90), (0.5, 0.5, 0)), ["'some words 0' lies over 'some words 1'"]),
        (((0.05, 0.5, 0),), ["'some words 0' leaves the picture"]),
        (((0.5, 0.97, 0),), ["'some words 0' leaves the picture"]),
    ],
)
def test_a_planted_overlap_is_found(places: tuple[Any, ...], told: list[str]) -> None:
    assert list(faults(planted(*places))) == told


def test_boxes_of_turned_words_may_overlap_where_the_words_do_not() -> None:
    (_, one), (_, other) = shown(planted((0.5, 0.5, 40), (0.56, 0.4, 40)))
    assert one.overlaps(other)
