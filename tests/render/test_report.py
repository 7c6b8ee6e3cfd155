from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest
from synthetic import World, build, fails

from battery.analyse.findings import Findings, analyse
from battery.ledger.receipt import Clearance, Receipt
from battery.ledger.trace import Trace
from battery.render.charts import CHARTS
from battery.render.report import markdown, write_report
from battery.render.tables import headline
from battery.render.words import pvalue

WORLDS = {
    "faster": World(effect={"C": 1.05}, speculates=("A", "C")),
    "pilot": World(blocks=2, effect={"C": 1.5}),
    "unfinished": World(
        blocks=8, effect={"C": 1.05}, change=lambda r: r if r.cell.block < 8 else None
    ),
    "one arm": World(arms=("A",), ladder=(128,), blocks=1, seeds=1),
    "failed": World(change=fails("oom", lambda r: r.cell.rung == 384, "a | pipe\nand a line")),
    "nothing": World(change=lambda receipt: None, seal=False),
    "eight": World(arms=tuple("ABCDEFGH"), blocks=8, seeds=1),
}


@pytest.fixture(scope="module")
def worlds(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Findings]:
    root = tmp_path_factory.mktemp("worlds")
    return {
        name: analyse(build(root, world, f"w{place}"))
        for place, (name, world) in enumerate(WORLDS.items())
    }


@pytest.mark.parametrize("name", sorted(WORLDS))
def test_tables_are_well_formed_and_nothing_is_nan(name: str, worlds: dict[str, Findings]) -> None:
    page = markdown(worlds[name])
    assert not re.search(r"\b(nan|None|inf)\b", page)
    widths: list[int] = []
    for line in page.splitlines():
        if line.startswith("|"):
            widths.append(len(re.findall(r"(?<!\\)\|", line)))
            assert widths[-1] == widths[0], line
        else:
            widths = []


def test_the_headline_is_the_primary_estimate_with_its_interval(
    worlds: dict[str, Findings],
) -> None:
    found = worlds["faster"]
    (one,) = found.primary
    told = headline(found)
    assert one.estimate and one.estimate.low and one.estimate.high
    numbers = [float(x.replace("−", "-")) for x in re.findall(r"[+−]\d+\.\d+", told)]
    assert numbers == pytest.approx(
        [100 * (x - 1) for x in (one.estimate.ratio, one.estimate.low, one.estimate.high)], abs=0.06
    )
    assert "6 blocks" in told and "margin 2 %" in told and "faster by" in told
    assert headline(found, mark="**") in markdown(found)


def test_the_headline_has_the_p_that_its_verdict_rests_on(
    worlds: dict[str, Findings],
) -> None:
    (one,) = worlds["faster"].primary
    assert f"; p {pvalue(one.p_corrected)}; 6 blocks" in headline(worlds["faster"])
    told = headline(worlds["eight"]).splitlines()
    assert len(told) == 7
    for line, comparison in zip(told, worlds["eight"].primary, strict=True):
        assert f"p {pvalue(comparison.p_corrected)} after Holm over 7 candidates; 8 blocks" in line
    assert "across its 7 candidates" in markdown(worlds["eight"])
    assert "one test and stays uncorrected" in markdown(worlds["faster"])
    for name in ("pilot", "unfinished"):
        assert not re.search(r"; p [.<]", headline(worlds[name]))


def test_an_interval_over_the_ladder_is_marked_where_it_is_no_result(
    worlds: dict[str, Findings],
) -> None:
    def standing(name: str) -> set[str]:
        rows = re.findall(
            r"^\| C \|.*\| 128, 384 \| (.*) \|$", markdown(worlds[name]), re.MULTILINE
        )
        assert len(rows) == 4
        return set(rows)

    assert standing("faster") == {"stands"}
    assert standing("pilot") == {"pilot"}
    assert standing("unfinished") == {"unfinished: 7 of 8 planned blocks"}
    page = markdown(worlds["unfinished"])
    assert "peeking" in headline(worlds["unfinished"]) and "**Unfinished:**" in page
    assert not re.search(r"\| (faster|slower|equivalent)", page)


def test_the_p_of_the_margin_stands_among_the_tests(worlds: dict[str, Findings]) -> None:
    (one,) = worlds["faster"].primary
    assert one.verdict.qualifier.startswith("by at least") and one.beyond_p_corrected is not None
    lines = markdown(worlds["faster"]).splitlines()
    head = next(line for line in lines if "| margin p corrected |" in line).split(" | ")
    row = next(line for line in lines if line.startswith("| C | decode | 384 (primary) |")).split(
        " | "
    )
    place = head.index("margin p corrected")
    assert row[place] == pvalue(one.beyond_p_corrected).replace("<", "&lt;")
    assert row[place - 1] == pvalue(one.tost_p_corrected).replace("<", "&lt;")


def test_a_switch_of_which_nothing_was_told_is_named(tmp_path: Path) -> None:
    never = Clearance(verdict="not tried", waited_s=0.0)

    def change(receipt: Receipt) -> Receipt:
        if receipt.cell.arm == "A":
            return receipt
        return msgspec.structs.replace(receipt, gate=never, outcome="disengaged", trace=Trace())

    page = markdown(analyse(build(tmp_path, World(change=change))))
    assert "Asked for by C, never told of after a request: `fused_qkv`." in page


def test_a_pilot_claims_nothing(worlds: dict[str, Findings]) -> None:
    page = markdown(worlds["pilot"])
    assert "Pilot" in headline(worlds["pilot"])
    assert not re.search(r"\*\*(faster|slower|equivalent)\*\*|\| (faster|slower|equivalent)", page)


def test_out_of_memory_stands_in_its_cell_of_every_table(worlds: dict[str, Findings]) -> None:
    page = markdown(worlds["failed"])
    assert "oom 12 of 12" in page
    assert "> 100.80 GB" in page and "107.37 GB" in page
    assert "a \\| pipe and a line" in page


def test_quality_is_said_to_be_missing(worlds: dict[str, Findings]) -> None:
    page = markdown(worlds["faster"])
    assert "Not run: the campaign holds no quality receipts" in page
    assert "Quality: not run" in page


def test_sections_and_charts(worlds: dict[str, Findings]) -> None:
    page = markdown(worlds["faster"])
    for title in (
        "## 1. Results", "### 1.1", "### 1.2", "### 1.3", "### 1.4", "### 1.5", "### 1.6", "## 2. Method",
        "### What differs between the arms", "## 3. Switches", "## 4. Quality", "## 5. Validity findings", "## 6.",
    ):  # fmt: skip
        assert title in page
    assert "### 1.6" not in markdown(worlds["pilot"])
    found = worlds["faster"]
    for key in CHARTS:
        assert f"](../charts/{found.campaign}/{key}.svg)" in page
    assert found.seal and found.seal in page


def test_written_twice_it_is_the_same(tmp_path: Path) -> None:
    folder = build(tmp_path, World(effect={"C": 1.05}))
    paths = write_report(analyse(folder), tmp_path / "reports")
    first = [path.read_bytes() for path in paths]
    assert [path.suffix for path in paths] == [".md", ".json"]
    assert [path.read_bytes() for path in write_report(analyse(folder), tmp_path / "reports")] == first  # fmt: skip
