from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import msgspec
import pytest
from synthetic import World, build, fails

from battery.analyse.findings import Findings, analyse
from battery.ledger.receipt import Receipt
from battery.render import style
from battery.render.charts import CHARTS, MANIFEST, Manifest, charts_of, render_charts

LADDER = (1024, 8192, 16384, 32768, 65536, 131072, 261120)


@pytest.fixture(scope="module")
def long_ladder(tmp_path_factory: pytest.TempPathFactory) -> Findings:
    change = fails("oom", lambda receipt: receipt.cell.rung > 100_000)
    return analyse(
        build(
            tmp_path_factory.mktemp("long"), World(ladder=LADDER, blocks=2, seeds=1, change=change)
        )
    )


def test_a_missing_point_is_marked_and_breaks_its_line(long_ladder: Findings) -> None:
    with style.pinned():
        figure = CHARTS["decode"].draw(long_ladder)
    axes = figure.axes[0]
    crosses = [line for line in axes.lines if line.get_marker() == "x" and len(line.get_xdata())]
    assert [len(line.get_xdata()) for line in crosses] == [2, 2]
    assert axes.get_ylim()[0] > 0
    words = [text.get_text() for text in figure.axes[1].texts]
    assert words == ["✕ oom\n2/2"] * 4


def test_out_of_memory_is_drawn_as_a_lower_bound_of_the_peak_only(long_ladder: Findings) -> None:
    for key, bounds in (("peak_memory", [[100.8, 100.8]] * 2), ("decode", [])):
        with style.pinned():
            axes = CHARTS[key].draw(long_ladder).axes[0]
        hollow = [line for line in axes.lines if line.get_markerfacecolor() == "none"]
        assert [list(line.get_ydata()) for line in hollow] == bounds
    assert "oom 2, more than 100.8 at 131,072" in CHARTS["peak_memory"].alt(long_ladder)


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


HOSTILE = """
font.size: 20
font.family: serif
axes.grid: False
axes.facecolor: black
axes.prop_cycle: cycler('color', ['r', 'g'])
axes.formatter.use_locale: True
path.simplify: True
path.effects: []
svg.fonttype: path
svg.hashsalt: other
text.usetex: True
xtick.labelsize: 3
lines.dotted_pattern: 9, 9
figure.autolayout: True
savefig.bbox: tight
"""
RENDER = """
import sys
from pathlib import Path
from battery.analyse.findings import analyse
from battery.render.charts import render_charts
render_charts(analyse(Path(sys.argv[1])), Path(sys.argv[2]))
"""


def test_bytes_are_the_same_in_another_process_and_under_other_settings(tmp_path: Path) -> None:
    folder = build(tmp_path, World(effect={"C": 1.05}, speculates=("C",)))
    here = render_charts(analyse(folder), tmp_path / "here")
    rc = tmp_path / "rc" / "matplotlibrc"
    rc.parent.mkdir()
    rc.write_text(HOSTILE)
    environment = {
        **os.environ, "MATPLOTLIBRC": str(rc), "PYTHONHASHSEED": "7", "TZ": "Asia/Tokyo", "LC_ALL": "C",
        "LANG": "de_DE.UTF-8", "PYTHONUTF8": "0", "MPLBACKEND": "pdf", "SOURCE_DATE_EPOCH": "1",
    }  # fmt: skip
    subprocess.run(
        [sys.executable, "-c", RENDER, str(folder), str(tmp_path / "there")],
        check=True, env=environment, cwd=Path(__file__).parents[2],
    )  # fmt: skip
    assert {path.stem for path in here} == {*CHARTS, "itl", "speculation", "manifest"}
    for path in here:
        assert path.read_bytes() == (tmp_path / "there" / path.name).read_bytes(), path.name


def test_charts_are_readable_by_machine_and_ear(tmp_path: Path) -> None:
    found = analyse(build(tmp_path))
    render_charts(found, tmp_path / "charts")
    manifest = msgspec.json.decode((tmp_path / "charts" / MANIFEST).read_bytes(), type=Manifest)
    assert manifest.seal == found.seal
    assert [entry.key for entry in manifest.charts] == list(charts_of(found))
    assert "nan" not in json.dumps([entry.alt for entry in manifest.charts])
    for entry in manifest.charts:
        data = (tmp_path / "charts" / entry.file).read_bytes()
        assert (entry.bytes, entry.sha256) == (len(data), hashlib.sha256(data).hexdigest())
        tree = ElementTree.fromstring(data)
        assert tree.tag.endswith("svg") and tree.get("role") == "img"
        assert [child.tag.split("}")[1] for child in list(tree)[:2]] == ["title", "desc"]
        assert tree[1].text == entry.alt and entry.alt
        ids = [one.get("id") for one in tree.iter() if one.get("id")]
        assert len(ids) == len(set(ids)) and all(one.startswith(f"{entry.key}-") for one in ids)
        assert tree.get("aria-labelledby") == f"{entry.key}-title {entry.key}-alt"
        assert b"<text" in data and b"dc:date" not in data
        assert str(tmp_path).encode() not in data


def test_every_chart_has_a_caption() -> None:
    for chart in CHARTS.values():
        assert chart.caption.endswith(".") and "\n" not in chart.caption


def linear(channel: int) -> float:
    share = channel / 255
    return share / 12.92 if share <= 0.04045 else ((share + 0.055) / 1.055) ** 2.4


def luminance(colour: str) -> float:
    """Relative luminance as WCAG 2 defines it."""
    red, green, blue = (linear(int(colour[at : at + 2], 16)) for at in (1, 3, 5))
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("theme", [style.LIGHT, style.DARK], ids=["light", "dark"])
def test_every_arm_stands_out_from_the_page_and_words_can_be_read(theme: dict[str, str]) -> None:
    for page in ("--chart-paper", "--chart-band"):
        for name, colour in theme.items():
            least = 3 if "arm" in name else 4.5 if name in ("--chart-ink", "--chart-quiet") else 0
            if "arm" in name and page == "--chart-band":
                least = 2.7
            light, dark = sorted((luminance(colour), luminance(theme[page])), reverse=True)
            assert (light + 0.05) / (dark + 0.05) >= least, (name, page)


def test_every_colour_of_a_chart_follows_the_theme(long_ladder: Findings, tmp_path: Path) -> None:
    render_charts(long_ladder, tmp_path)
    for path in sorted(tmp_path.glob("*.svg")):
        _, after = path.read_text().split("<style>")
        sheet, drawing = after.split("</style>")
        rules = [line for line in sheet.splitlines() if line.startswith(f"#{path.stem}-chart .")]
        assert rules and "#" not in drawing.replace(f'href="#{path.stem}-', "").replace(
            f"url(#{path.stem}-", ""
        )
        for rule in rules:
            declared = [one.split(":", 1) for one in rule[rule.index("{") + 1 : -1].split(";")]
            for name, value in declared:
                if value.startswith("#"):
                    assert [name, f"var({variable(value)})"] in declared, rule


def variable(colour: str) -> str:
    return next(name for name, light in style.LIGHT.items() if light == colour)
