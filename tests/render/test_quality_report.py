"""Quality on the page, in pictures and under verify: what is told, what is not called a win, and planted faults."""

from __future__ import annotations

import random
import re
import shutil
from pathlib import Path
from typing import Any

import msgspec
import pytest
from graded import SIZES, graded, keep, line, scores
from room import clear
from synthetic import World, build, fails

from battery.analyse.findings import Findings, analyse
from battery.ledger import strict
from battery.ledger.receipt import Receipt
from battery.ledger.store import Campaign
from battery.render import style
from battery.render.charts import render_charts
from battery.render.lint.check import lint
from battery.render.quality import lines
from battery.render.quality_charts import charts
from battery.render.report import markdown, write_report
from battery.render.tables import headline
from battery.render.verify import verify
from battery.render.verify_quality import problems

NAME = "2026-01-02-test"
KEYS = {"quality", "decode_quality", "quality_change"}
LONG = tuple(f"arm-with-a-rather-long-name-number-{i:05d}" for i in range(8))
FAST: dict[str, Any] = {"ladder": (128,), "blocks": 6, "seeds": 1, "effect": {"C": 1.05}}


def rounding(receipt: Receipt) -> Receipt:
    """The same receipt with switches that round."""
    seen = receipt.engagement
    loose = tuple(msgspec.structs.replace(one, exactness="rounding") for one in seen.switches)
    return msgspec.structs.replace(
        receipt, engagement=msgspec.structs.replace(seen, switches=loose)
    )


def seeds(folder: Path) -> None:
    """The published figures, with tasks that changed in both directions."""
    graded(folder, "A", "humaneval", "p" * 155 + "pppp" + "c" * 5)
    graded(folder, "C", "humaneval", "p" * 155 + "fff" + "ppp" + "ccc")
    graded(folder, "A", "mbpp", line(404, 16, 427))
    graded(folder, "C", "mbpp", line(403, 16, 427))


def refused(folder: Path) -> None:
    """Other caps, and a receipt of another campaign."""
    graded(folder, "A", "humaneval", line(100, 64))
    graded(folder, "C", "humaneval", line(120, 44), sampler={"max_tokens": 2048})
    keep(folder, scores(folder, "C", "mbpp", line(3, of=9), campaign="other"))


def many(folder: Path) -> None:
    """Every suite, eight arms."""
    for suite, size in SIZES.items():
        for place, arm in enumerate(LONG):
            dice = random.Random(place * 7 + size + len(suite))
            graded(folder, arm, suite, "".join(dice.choices("pfce", (80, 12, 5, 3), k=size)))  # type: ignore[arg-type]


def sampled(folder: Path) -> None:
    """Five answers a task, some never came."""
    for arm in "AC":
        dice = random.Random(arm)
        told = ["".join(dice.choices("pfcx", (50, 45, 4, 1), k=60)) for _ in range(5)]
        graded(folder, arm, "humaneval+", told)


WORLDS = {
    "seeds": (World(**FAST), seeds),
    "same": (World(**FAST), lambda f: [graded(f, arm, "humaneval", line(10)) for arm in "AC"]),
    "inferior": (World(**FAST, change=rounding), lambda f: [
        graded(f, "A", "humaneval", line(150)), graded(f, "C", "humaneval", line(90)),
    ]),
    "refused": (World(**FAST, change=rounding), refused),
    "all cut off": (World(**FAST), lambda f: [graded(f, arm, "humaneval", line(0, 164)) for arm in "AC"]),
    "many": (World(arms=LONG, ladder=(128,), blocks=1, seeds=1), many),
    "samples": (World(**FAST), sampled),
    "one arm": (World(arms=("A",), ladder=(128,), blocks=1, seeds=1), lambda f: graded(f, "A", "mbpp", line(3, of=9))),
    "no speed": (World(ladder=(128,), blocks=1, change=lambda receipt: None, seal=False), seeds),
}  # fmt: skip


@pytest.fixture(scope="module")
def worlds(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Findings]:
    root = tmp_path_factory.mktemp("worlds")
    made = {}
    for place, (name, (world, fill)) in enumerate(WORLDS.items()):
        folder = build(root, world, f"w{place}")
        fill(folder)
        made[name] = analyse(folder)
    return made


@pytest.mark.parametrize("name", sorted(WORLDS))
def test_pages_are_clean_and_well_formed(name: str, worlds: dict[str, Findings]) -> None:
    page = markdown(worlds[name])
    assert [str(one) for one in lint(page, worlds[name])] == []
    assert name == "many" or [str(one) for one in lint(page)] == []
    assert not re.search(r"\b(nan|None|inf)\b", page)
    section = page.split("## 4. Quality")[1].split("## 5.")[0]
    assert not re.search(r"no difference|same quality|lossless|Not run:", section)


@pytest.mark.parametrize("name", sorted(WORLDS))
def test_no_text_overlaps_or_leaves_the_picture(name: str, worlds: dict[str, Findings]) -> None:
    found = charts(worlds[name])
    for chart in found.values():
        clear(worlds[name], chart)
        assert "nan" not in chart.alt(worlds[name]) and chart.caption.endswith(".")
    missing = {
        "refused": {"quality_change"},
        "one arm": {"quality_change"},
        "no speed": {"decode_quality"},
    }
    assert KEYS - set(found) == missing.get(name, set())
    page = markdown(worlds[name])
    for key in sorted(KEYS):
        assert (f"/{key}.svg)" in page) == (key in found)


def test_the_head_says_what_was_found(worlds: dict[str, Findings]) -> None:
    (told,) = lines(worlds["seeds"])
    assert told.startswith(
        "Quality: C against A, pass@1 over the 591 tasks of all suites (humaneval, mbpp): 0.9492 against 0.9526,"
        " −0.3 points [−1.2, +0.5] (95 % interval; 6 tasks changed; margin 3 points): non-inferior within 3 points,"
        " under strict only: "
    )
    assert f"- {lines(worlds['seeds'], mark='**')[0]}" in markdown(worlds["seeds"])
    assert "not compared: other sampler: max_tokens 512 and 2048" in lines(worlds["refused"])[0]
    assert "strict pass@1 0.3333 [" in lines(worlds["one arm"])[0]
    assert len(lines(worlds["many"])) == 7


def test_the_three_numbers_stand_in_the_table(worlds: dict[str, Findings]) -> None:
    page = markdown(worlds["seeds"])
    for row in (
        "| humaneval | A | 164 | 0.9695 [0.9306, 0.9869] | 159 of 164 | 1.0000 [0.9764, 1.0000] | 159 of 159 |"
        " 3.0 % (5 of 164) | 1.0000 |",
        "| humaneval | C | 164 | 0.9634 [0.9225, 0.9831] | 158 of 164 | 0.9814 [0.9467, 0.9936] | 158 of 161 |"
        " 1.8 % (3 of 164) | 0.9817 |",
        "| mbpp | A | 427 | 0.9461 [0.9205, 0.9638] | 404 of 427 | 0.9830 [0.9653, 0.9917] | 404 of 411 |"
        " 3.7 % (16 of 427) | 0.9836 |",
    ):
        assert row in page
    for part in (
        "3: `HumanEval/155`, `HumanEval/156`, `HumanEval/157`", "network namespace (not permitted here)",
        "process group, rlimits", "battery 1", "humaneval data, sha256", "temperature 0.7",
    ):  # fmt: skip
        assert part in page
    assert "pass@k" in markdown(worlds["samples"]) and "pass@k" not in page
    assert "Cochran's Q" in markdown(worlds["many"]) and "Cochran's Q" not in page
    assert "it is of campaign other" in markdown(worlds["refused"])
    assert "| humaneval | C | none | — |" in markdown(worlds["all cut off"])


def test_no_win_without_a_look_at_the_answers(tmp_path: Path) -> None:
    folder = build(tmp_path, World(**FAST, change=rounding))
    found = analyse(folder)
    told = headline(found, mark="**")
    assert "**quality: not run** with fused_qkv (rounding), which may change answers" in told
    assert "measured: faster by at least 2 %" in told and "**faster**" not in told
    page = markdown(found)
    assert (
        "- C asks for `fused_qkv` (rounding), which may change answers; quality: not run." in page
    )
    assert lint(page, found) == []
    boast = page.replace(
        "**quality: not run** with fused_qkv (rounding), which may change answers; measured: ", ""
    )
    assert "quality-stated" in {one.rule for one in lint(boast, found)}
    for arm in "AC":
        graded(folder, arm, "humaneval", line(150))
    assert "**faster** by at least 2 %; quality: non-inferior within 5 points" in headline(
        analyse(folder), "**"
    )
    exact = analyse(build(tmp_path / "b", World(**FAST)))
    assert "quality" not in headline(exact)


def test_a_gain_with_wrong_answers_is_told_with_them(worlds: dict[str, Findings]) -> None:
    assert "; quality: inferior by more than 5 points" in headline(worlds["inferior"])
    assert "**quality: not run**" in headline(worlds["refused"], "**")


BOASTS = {
    "The arm has no loss of quality.": "quality-same",
    "C has the same pass rate as the control.": "quality-same",
    "The quality is unchanged.": "quality-same",
    "C is as accurate as A.": "quality-same",
    "C is inferior on mbpp.": "quality-verdict",
}


@pytest.mark.parametrize("boast", sorted(BOASTS))
def test_what_no_test_can_show_is_not_said(boast: str, worlds: dict[str, Findings]) -> None:
    page = markdown(worlds["seeds"]) + f"\n{boast}\n"
    assert [one.rule for one in lint(page, worlds["seeds"])] == [BOASTS[boast]]
    assert BOASTS[boast] in {one.rule for one in lint(boast)}


def test_hedges_and_definitions_stand(worlds: dict[str, Findings]) -> None:
    told = "Nothing here says that C has the same quality. It is not shown that the quality is unchanged.\n"
    assert lint(f"{markdown(worlds['seeds'])}\n{told}", worlds["seeds"]) == []


def test_a_verdict_or_a_figure_that_was_changed_is_found(worlds: dict[str, Findings]) -> None:
    found = worlds["inferior"]
    page = markdown(found)
    for old, new, rule in (
        (
            "| inferior by more than 5 points |",
            "| non-inferior within 5 points |",
            "quality-verdict",
        ),
        ("): **inferior** by more than", "): **non-inferior** within", "quality-stated"),
        ("margin 5 points): **", "margin 9 points): **", "quality-stated"),
        ("points [−4", "points [−3", "quality-stated"),
    ):
        assert old in page, old
        assert rule in {one.rule for one in lint(page.replace(old, new, 1), found)}, old


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("whole")
    folder = build(root, World(ladder=(128,), blocks=2, seeds=1), NAME)
    graded(folder, "A", "humaneval", line(20, 2, 40))
    graded(folder, "C", "humaneval", line(18, 2, 40))
    found = analyse(folder)
    render_charts(found, root / "charts" / NAME)
    write_report(found, root / "reports")
    return root


@pytest.fixture
def root(whole: Path, tmp_path: Path) -> Path:
    shutil.copytree(whole, tmp_path / "root")
    return tmp_path / "root"


def places(root: Path) -> str:
    return "\n".join(str(problem) for problem in verify(root, NAME))


def test_an_untouched_campaign_holds(root: Path) -> None:
    assert places(root) == ""


def test_a_verdict_that_was_turned_moves_every_figure(root: Path) -> None:
    path = root / "receipts" / NAME / "quality" / "C.humaneval.json"
    text = path.read_text()
    turned = text.replace(
        '"passed": false,\n   "status": "failed"', '"passed": true,\n   "status": "passed"', 1
    )
    assert turned != text
    path.write_text(turned)
    told = places(root)
    assert (
        f"reports/{NAME}.json quality.rows[1].strict.count: says 18, the receipts give 19" in told
    )
    assert f"reports/{NAME}.md:" in told and f"charts/{NAME}/quality.svg" in told


def contrary(root: Path) -> str:
    """What is wrong with the quality receipts alone."""
    return "\n".join(": ".join(one) for one in problems(Campaign(root / "receipts" / NAME)))


def test_tokens_that_were_turned_contradict_the_answers(root: Path) -> None:
    path = root / "receipts" / NAME / "quality" / "A.humaneval.json"
    path.write_text(
        path.read_text().replace('"completion_tokens": 100', '"completion_tokens": 101', 1)
    )
    assert "sample 0 of HumanEval/0: completion tokens is 100, the verdict says 101" in contrary(
        root
    )


def test_answers_that_are_missing_changed_or_strange_are_found(root: Path) -> None:
    folder = root / "receipts" / NAME / "quality"
    answers = folder / "A.humaneval.jsonl"
    data = answers.read_bytes()
    answers.unlink()
    assert "the answers that were graded are missing" in contrary(root)
    answers.write_bytes(data.replace(b'"stop"', b'"length"', 1))
    assert "A.humaneval.jsonl is not what was graded" in contrary(root)
    answers.write_bytes(data)
    (folder / "B.mbpp.jsonl").write_bytes(data)
    assert "B.mbpp.jsonl: these answers have no receipt" in contrary(root)


def test_arms_that_were_asked_otherwise_are_found(root: Path) -> None:
    folder = root / "receipts" / NAME
    one = scores(folder, "C", "humaneval", line(18, 2, 40))
    path = keep(folder, one)
    data = (
        path.with_suffix(".jsonl")
        .read_bytes()
        .replace(b'"request_digest":"0', b'"request_digest":"1', 1)
    )
    path.with_suffix(".jsonl").write_bytes(data)
    keep(folder, msgspec.structs.replace(one, answers_digest=strict.digest(data)), answers=False)
    assert "sample 0 of HumanEval/0 was asked otherwise of C than of A" in contrary(root)


def test_a_campaign_without_quality_has_no_chart_of_it(tmp_path: Path) -> None:
    found = analyse(build(tmp_path, World(ladder=(128,), blocks=1, seeds=1)))
    drawn = {path.stem for path in render_charts(found, tmp_path / "charts")}
    assert not drawn & KEYS and "decode" in drawn


def test_an_arm_without_a_speed_is_crossed_at_its_pass_rate(tmp_path: Path) -> None:
    change = fails("oom", lambda receipt: receipt.cell.arm == "C")
    folder = build(tmp_path, World(**{**FAST, "change": change}))
    seeds(folder)
    found = analyse(folder)
    chart = charts(found)["decode_quality"]
    clear(found, chart)
    with style.pinned():
        axes = chart.draw(found).axes[0]
    (cross,) = [line for line in axes.lines if line.get_marker() == "x"]
    assert (list(cross.get_xdata()), cross.get_ydata()[0]) == (
        [0.0],
        pytest.approx(158 / 164, abs=1e-6),
    )
    assert axes.get_ylim()[0] < cross.get_ydata()[0] < axes.get_ylim()[1]
    assert "humaneval, arm C: no speed, 96.3 %" in chart.alt(found)


def test_solid_outlined_and_beside(worlds: dict[str, Findings]) -> None:
    with style.pinned():
        bars, cut = charts(worlds["seeds"])["quality"].draw(worlds["seeds"]).axes[:2]
    widths = [round(patch.get_width(), 4) for patch in bars.patches]
    filled = [patch.get_fill() for patch in bars.patches]
    assert widths == [0.9695, 1.0, 0.9634, 0.9814, 0.9461, 0.983, 0.9438, 0.9805]
    assert filled == [True, False] * 4
    assert [round(patch.get_width(), 3) for patch in cut.patches] == [0.03, 0.018, 0.037, 0.037]
    assert bars.get_xlim()[0] == 0 and cut.get_xlim()[0] == 0
