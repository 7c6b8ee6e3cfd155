from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
from itertools import combinations
from pathlib import Path
from xml.etree import ElementTree

import msgspec
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.transforms import Bbox
from synthetic import World, build, fails

from battery.analyse.findings import Findings, analyse
from battery.ledger.receipt import Receipt
from battery.render import style
from battery.render.chart import Chart
from battery.render.charts import CHARTS, MANIFEST, Manifest, render_charts

LONG = tuple(f"arm-with-a-rather-long-name-number-{i:05d}" for i in range(8))
LADDER = (1024, 8192, 16384, 32768, 65536, 131072, 261120)


def failing_everywhere(receipt: Receipt) -> Receipt:
    word = ("oom", "disengaged", "incoherent")[receipt.cell.block % 3]
    return fails(word, lambda r: True)(receipt)


WORLDS = {
    "plain": World(effect={"C": 1.02}),
    "one point": World(arms=("A",), ladder=(128,), blocks=1, seeds=1),
    "none": World(change=lambda receipt: None, seal=False),
    "all failed": World(change=failing_everywhere),
    "eight long names": World(arms=LONG, blocks=2, seeds=1, change=fails("timeout", lambda r: r.cell.arm in LONG[2:6])),
    "seven rungs, all failed": World(ladder=LADDER, blocks=3, seeds=1, change=failing_everywhere),
    "long ladder": World(ladder=LADDER, blocks=2, seeds=1, change=fails("oom", lambda r: r.cell.rung > 100_000)),
    "twelve blocks": World(blocks=12, seeds=1, effect={"C": 1.05}),
}  # fmt: skip


@pytest.fixture(scope="module")
def worlds(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Findings]:
    root = tmp_path_factory.mktemp("worlds")
    return {
        name: analyse(build(root, world, f"w{place}"))
        for place, (name, world) in enumerate(WORLDS.items())
    }


def shown(figure: Figure) -> list[tuple[str, Bbox]]:
    """Every text that is drawn with its box in dots; matplotlib keeps, but does not draw, ticks outside their axis."""
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
    found = []
    for text in figure.findobj(Text):
        assert isinstance(text, Text)
        if text.get_visible() and text.get_text().strip() and id(text) not in hidden:
            found.append((text.get_text(), text.get_window_extent(canvas.get_renderer())))
    return found


@pytest.mark.parametrize("key", sorted(CHARTS))
@pytest.mark.parametrize("name", sorted(WORLDS))
def test_no_text_overlaps_or_leaves_the_picture(
    name: str, key: str, worlds: dict[str, Findings]
) -> None:
    clear(worlds[name], CHARTS[key])


def clear(findings: Findings, chart: Chart) -> None:
    """No text of the chart lies over another or leaves the picture."""
    with style.pinned():
        figure = chart.draw(findings)
        found = shown(figure)
    page = figure.bbox
    for text, box in found:
        assert page.x0 <= box.x0 and box.x1 <= page.x1, f"{text!r} leaves the picture sideways"
        assert page.y0 <= box.y0 and box.y1 <= page.y1, f"{text!r} leaves the picture"
    for (one, left), (other, right) in combinations(found, 2):
        overlap = Bbox.intersection(left, right)
        if overlap is not None and overlap.width > 1 and overlap.height > 1:
            rotated = chart.key == "summary" and all(
                re.fullmatch(r"[\d,]+", t) for t in (one, other)
            )
            # The boxes of slanted labels overlap at their corners where the letters do not.
            assert rotated, f"{one!r} lies over {other!r}"


def test_a_missing_point_is_marked_and_breaks_its_line(worlds: dict[str, Findings]) -> None:
    found = worlds["long ladder"]
    with style.pinned():
        figure = CHARTS["decode"].draw(found)
    axes = figure.axes[0]
    crosses = [line for line in axes.lines if line.get_marker() == "x" and len(line.get_xdata())]
    assert [len(line.get_xdata()) for line in crosses] == [2, 2]
    assert axes.get_ylim()[0] > 0
    words = [text.get_text() for text in figure.axes[1].texts]
    assert words == ["✕ oom\n2/2"] * 4


def test_out_of_memory_is_drawn_as_a_lower_bound_of_the_peak_only(
    worlds: dict[str, Findings],
) -> None:
    found = worlds["long ladder"]
    for key, bounds in (("peak_memory", [[100.8, 100.8]] * 2), ("decode", [])):
        with style.pinned():
            axes = CHARTS[key].draw(found).axes[0]
        hollow = [line for line in axes.lines if line.get_markerfacecolor() == "none"]
        assert [list(line.get_ydata()) for line in hollow] == bounds
    assert "oom 2, more than 100.8 at 131,072" in CHARTS["peak_memory"].alt(found)


@pytest.mark.parametrize("last, hollow", [(8, False), (7, True)])
def test_a_ratio_is_drawn_full_only_when_every_planned_block_is_there(
    last: int, hollow: bool, tmp_path: Path
) -> None:
    def change(receipt: Receipt) -> Receipt | None:
        return receipt if receipt.cell.block <= last else None

    found = analyse(build(tmp_path, World(blocks=8, seeds=1, effect={"C": 1.05}, change=change)))
    with style.pinned():
        figure = CHARTS["ratios"].draw(found)
    marker = style.Look(1).marker
    points = [line for line in figure.axes[0].lines if line.get_marker() == marker]
    assert len(points) == 2
    assert {line.get_markerfacecolor() == "white" for line in points} == {hollow}


def test_bytes_are_the_same_in_another_process_and_under_other_settings(tmp_path: Path) -> None:
    folder = build(tmp_path, World(effect={"C": 1.05}))
    here = render_charts(analyse(folder), tmp_path / "here")
    rc = tmp_path / "rc" / "matplotlibrc"
    rc.parent.mkdir()
    rc.write_text(
        "font.size: 20\naxes.grid: False\nsvg.fonttype: path\nxtick.labelsize: 3\nlines.dotted_pattern: 9, 9\n"
    )
    script = (
        "import sys; from pathlib import Path; from battery.analyse.findings import analyse;"
        "from battery.render.charts import render_charts;"
        "render_charts(analyse(Path(sys.argv[1])), Path(sys.argv[2]))"
    )
    environment = {**os.environ, "MATPLOTLIBRC": str(rc), "PYTHONHASHSEED": "7", "TZ": "Asia/Tokyo"}
    subprocess.run(
        [sys.executable, "-c", script, str(folder), str(tmp_path / "there")],
        check=True, env=environment, cwd=Path(__file__).parents[2],
    )  # fmt: skip
    assert len(here) == len(CHARTS) + 1
    for path in here:
        assert path.read_bytes() == (tmp_path / "there" / path.name).read_bytes(), path.name


def test_charts_are_readable_by_machine_and_ear(tmp_path: Path) -> None:
    found = analyse(build(tmp_path))
    render_charts(found, tmp_path / "charts")
    manifest = msgspec.json.decode((tmp_path / "charts" / MANIFEST).read_bytes(), type=Manifest)
    assert manifest.seal == found.seal
    assert [entry.key for entry in manifest.charts] == list(CHARTS)
    for entry in manifest.charts:
        data = (tmp_path / "charts" / entry.file).read_bytes()
        assert (entry.bytes, entry.sha256) == (len(data), hashlib.sha256(data).hexdigest())
        tree = ElementTree.fromstring(data)
        assert tree.tag.endswith("svg") and tree.get("role") == "img"
        assert [child.tag.split("}")[1] for child in list(tree)[:2]] == ["title", "desc"]
        assert tree[1].text == entry.alt and entry.alt
        assert b"<text" in data and b"dc:date" not in data
        assert len(data) < 120_000
        assert str(tmp_path).encode() not in data


def test_every_chart_has_a_caption() -> None:
    for chart in CHARTS.values():
        assert chart.caption.endswith(".") and "\n" not in chart.caption
