"""Several kinds of text in one campaign: each has its own verdict, table and mark, and one sentence says what pays."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from room import clear
from synthetic import TOKENS, World, build

from battery.analyse.findings import Findings, analyse
from battery.ledger.receipt import Receipt
from battery.ledger.store import pretty
from battery.render import scales, style, tradeoff, workloads
from battery.render.charts import CHARTS, charts_of, draw, render_charts
from battery.render.lint.check import lint
from battery.render.report import markdown, write_report
from battery.render.verify import verify

MIX = ("prose", "code", "edit")
PLANTED = {
    ("C", "prose"): (1.1, 1.3), ("C", "code"): (1.8, 1.2), ("C", "edit"): (3.0, 1.25),
    ("D", "prose"): (1.5, 1.9), ("D", "code"): (1.5, 1.5), ("D", "edit"): (1.6, 1.2),
}  # fmt: skip
"""Tokens per step, and a step's seconds as a multiple of the control's."""


def planted(receipt: Receipt) -> Receipt:
    """The receipt with steps as planted for its arm and kind of text, seen by client and server alike."""
    cell, text = receipt.cell, receipt.request.workload
    gain, cost = PLANTED.get((cell.arm, text), (1.0, 1.0))
    own = cell.seed % 7 + 3 * (cell.arm == "C") + 5 * (cell.arm == "D")
    gain, cost = gain * (1 + 0.002 * (own % 5)), cost * (1 + 0.003 * (own % 4))
    steps = TOKENS / gain
    drafts = {"proposed": 60, "accepted": round(20 * gain)} if cell.arm in "CD" else {}
    timings = {"decode_tokens": TOKENS, "steps": steps, "decode_s": steps * 0.05 * cost, **drafts}
    first, count = receipt.trace.events[0].at_ns, len(receipt.trace.events)
    span = timings["decode_s"] * 1e9
    events = tuple(
        type(e)(first + round(span * i / (count - 1)), 1)
        for i, e in enumerate(receipt.trace.events)
    )
    trace = msgspec.structs.replace(
        receipt.trace, events=events, end_ns=events[-1].at_ns + 1000, timings=timings
    )
    return msgspec.structs.replace(receipt, trace=trace)


def world(change: Callable[[Receipt], Receipt | None] = planted, **values: object) -> World:
    plan = {"workloads": MIX, **values.pop("plan", {})}  # type: ignore[dict-item]
    made = {"arms": ("A", "B", "C", "D"), "ladder": (256,), "blocks": 8, "seeds": 6, **values}
    return World(change=change, plan=plan, **made)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("mixed"), world(), "mixed")


@pytest.fixture(scope="module")
def found(folder: Path) -> Findings:
    return analyse(folder)


def test_each_kind_of_text_has_the_ratio_that_was_planted_there(found: Findings) -> None:
    assert [kind.workload for kind in found.by_workload] == list(MIX)
    for kind in found.by_workload:
        for arm in ("C", "D"):
            gain, cost = PLANTED[arm, kind.workload]
            for metric, ratio in (
                ("decode", gain / cost), ("tokens_per_step", gain), ("seconds_per_step", cost),
            ):  # fmt: skip
                one = kind.comparison(arm, metric, 256)
                assert one is not None and one.estimate is not None and not one.primary
                assert one.estimate.ratio == pytest.approx(ratio, rel=0.02), (arm, metric)
                assert (one.pairs, one.planned, one.estimate.blocks) == (16, 16, 8)


def test_verdicts_are_corrected_over_all_arms_and_kinds(found: Findings) -> None:
    decode = [
        one for kind in found.by_workload for one in kind.comparisons if one.metric == "decode"
    ]
    assert {one.correction for one in decode} == {"Holm over 9 comparisons by workload"}
    smallest = min(decode, key=lambda one: one.estimate.p if one.estimate else 1)
    assert smallest.estimate and smallest.p_corrected == pytest.approx(9 * smallest.estimate.p)


def test_the_whole_is_the_mean_of_the_kinds_and_says_so(found: Findings) -> None:
    whole = found.comparison("C", "decode", 256)
    parts = [kind.comparison("C", "decode", 256) for kind in found.by_workload]
    assert whole and whole.estimate and whole.pairs == 48 and whole.primary
    product = 1.0
    for one in parts:
        assert one and one.estimate
        product *= one.estimate.ratio
    assert whole.estimate.ratio == pytest.approx(product ** (1 / 3), rel=1e-6)
    top = markdown(found).split("## 1. ")[0]
    assert "over equal shares of prose, code and edit" in top


def test_the_sentence_says_where_drafts_pay_and_where_they_cost(found: Findings) -> None:
    told = workloads.sentence(found)
    assert told.endswith(").") and ". " not in told, "one sentence"
    at = "by decode at 256 tokens of context against A: C pays on code (+50"
    assert told.startswith(f"Where speculation pays and where it costs, {at}")
    assert "; D pays on edit (+" in told and " B " not in told
    mine, theirs = told.split("; ")
    assert "costs on prose (−15" in mine and "pays on code" in mine and "edit (+140" in mine
    assert "costs on prose (−21" in theirs and "pays on edit (+33" in theirs
    assert "neither pays nor costs on code (" in theirs
    assert told in markdown(found)


def test_a_kind_that_could_not_be_told_apart_is_called_undecided(tmp_path: Path) -> None:
    def noisy(receipt: Receipt) -> Receipt:
        made = planted(receipt)
        if receipt.request.workload != "code" or receipt.cell.arm != "C":
            return made
        late = 2.5 if receipt.cell.block % 2 else 0.4
        first = made.trace.events[0].at_ns
        events = tuple(
            type(e)(first + round((e.at_ns - first) * late), 1) for e in made.trace.events
        )
        trace = msgspec.structs.replace(made.trace, events=events, end_ns=events[-1].at_ns + 1)
        return msgspec.structs.replace(made, trace=trace)

    told = workloads.sentence(analyse(build(tmp_path, world(noisy, arms=("A", "C")))))
    assert "stays undecided on code (" in told and "costs on prose" in told


def test_an_unfinished_campaign_claims_nothing(tmp_path: Path) -> None:
    def cut(receipt: Receipt) -> Receipt | None:
        return planted(receipt) if receipt.cell.block <= 6 else None

    found = analyse(build(tmp_path, world(cut, seal=False)))
    told = workloads.sentence(found)
    assert "pays on" not in told and "costs on" not in told
    assert told.count("stays undecided on") == 2


def test_arms_that_draft_nothing_have_no_sentence(tmp_path: Path) -> None:
    found = analyse(build(tmp_path, world(lambda receipt: receipt, arms=("A", "C"))))
    assert workloads.sentence(found) == "" and found.by_workload
    assert list(charts_of(found)) == [*CHARTS, "itl"], "no server counted a step"
    assert lint(markdown(found), found) == []


def test_the_page_is_clean_and_holds(found: Findings, folder: Path) -> None:
    root = folder.parents[1]
    write_report(found, root / "reports")
    render_charts(found, root / "charts" / "mixed")
    assert verify(root, "mixed") == []
    page = markdown(found)
    rows = [line for line in page.splitlines() if line.startswith(tuple(f"| {w} |" for w in MIX))]
    assert len(rows) == 12
    assert sum("nothing proposed" in row for row in rows) == 6, "A and B never drafted"


def test_a_verdict_of_the_table_that_is_not_the_kinds_own_is_found(found: Findings) -> None:
    page = markdown(found)
    (row,) = [line for line in page.splitlines() if line.startswith("| prose | 256 | C |")]
    assert "slower" in row
    broken = [one.what for one in lint(page.replace(row, row.replace("slower", "faster")), found)]
    assert any("the table says “faster" in what and "slower" in what for what in broken)


def test_the_chart_has_every_arm_on_every_kind_where_it_was_measured(found: Findings) -> None:
    for kind in found.by_workload:
        by_arm = {one.arm: one for one in tradeoff.marks(found, kind)}
        assert list(by_arm) == ["A", "B", "C", "D"]
        for arm in ("C", "D"):
            gain, cost = PLANTED[arm, kind.workload]
            assert by_arm[arm].gain.value == pytest.approx(gain, rel=0.02)
            assert by_arm[arm].steps.value == pytest.approx(20 / cost, rel=0.02)
            assert by_arm[arm].steps.low <= by_arm[arm].steps.value <= by_arm[arm].steps.high
            assert len(by_arm[arm].gain.windows) == 8
    with style.pinned():
        figure = tradeoff.workloads(found)
    assert [axes.get_title(loc="left") for axes in figure.axes] == list(MIX)
    for axes, kind in zip(figure.axes, found.by_workload, strict=True):
        big = [line for line in axes.lines if line.get_markersize() == 8]
        drawn = [(line.get_xdata()[0], line.get_ydata()[0]) for line in big]
        known = tradeoff.marks(found, kind)
        assert drawn[::-1] == [(one.gain.value, one.steps.value) for one in known]


def test_the_chart_is_by_kind_of_text_or_of_the_whole_campaign(
    found: Findings, tmp_path: Path
) -> None:
    assert set(draw(found)) == {*CHARTS, "itl", "workloads"}
    one = analyse(build(tmp_path, World(speculates=("A", "C"))))
    assert set(draw(one)) == {*CHARTS, "itl", "speculation"}
    assert "/speculation.svg)" in markdown(one) and "/workloads.svg)" not in markdown(one)
    clear(found, charts_of(found)["workloads"])
    alt = charts_of(found)["workloads"].alt(found)
    (mark, *_) = tradeoff.marks(found, found.by_workload[0])
    assert f"On prose: arm A 1 tokens per step at {mark.steps.value:.3g} steps per second" in alt


@pytest.mark.parametrize(("low", "high"), [(8.0, 60.0), (18.0, 21.0), (0.4, 900.0)])
def test_lines_of_equal_rate_are_round_inside_and_few(low: float, high: float) -> None:
    lines = scales.between(low, high)
    assert 1 <= len(lines) <= 7 and all(low < rate < high for rate in lines)
    assert lines == sorted(set(lines))


def test_one_kind_of_text_leaves_no_trace_in_findings_or_page(tmp_path: Path) -> None:
    found = analyse(build(tmp_path, World(speculates=("A", "C"))))
    assert b'"workloads"' not in pretty(found)
    page = markdown(found)
    assert "By workload" not in page and "Several workloads" not in page


def test_acceptance_says_how_many_requests_had_a_draft(tmp_path: Path) -> None:
    def seldom(receipt: Receipt) -> Receipt:
        made = planted(receipt)
        if receipt.cell.arm != "C" or receipt.cell.seed % 2:
            return made
        timings = {**made.trace.timings, "proposed": 0, "accepted": 0}
        return msgspec.structs.replace(
            made, trace=msgspec.structs.replace(made.trace, timings=timings)
        )

    found = analyse(build(tmp_path, world(seldom)))
    page = markdown(found)
    (row,) = [line for line in page.splitlines() if line.startswith("| prose | 256 | C |")]
    assert "n=8 of 16 |" in row
    assert lint(page, found) == []
