"""Gaps between arrivals and readings inside the cells: known answers, and what must not be taken for latency."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from synthetic import World, build, fails

from battery.analyse.findings import Findings, analyse
from battery.analyse.within import Gaps, known
from battery.ledger.receipt import Reading, Receipt
from battery.ledger.store import pretty
from battery.ledger.trace import Event
from battery.render import arrivals, in_cell
from battery.render.charts import charts_of
from battery.render.lint.check import lint
from battery.render.report import markdown

ONE = {"arms": ("A",), "ladder": (128,), "blocks": 1, "seeds": 1}


def arriving(
    *events: tuple[int, int | None], source: str = "server"
) -> Callable[[Receipt], Receipt]:
    """Every answer came like this: milliseconds and tokens."""

    def change(receipt: Receipt) -> Receipt:
        told = tuple(Event(at * 1_000_000, tokens) for at, tokens in events)
        total = sum(tokens or 1 for _, tokens in events)
        trace = msgspec.structs.replace(
            receipt.trace,
            events=told,
            end_ns=told[-1].at_ns + 1,
            completion_tokens=total,
            count_source=source,
        )
        return msgspec.structs.replace(receipt, trace=trace)

    return change


def found(tmp_path: Path, change: Callable[[Receipt], Receipt | None], **world: object) -> Findings:
    return analyse(build(tmp_path, World(change=change, **{**ONE, **world})))  # type: ignore[arg-type]


def the_gaps(told: Findings, arm: str = "A", rung: int = 128) -> Gaps:
    one = known(told.within).gaps_of(arm, rung)
    assert one is not None
    return one


def test_gaps_are_those_between_arrivals(tmp_path: Path) -> None:
    one = the_gaps(found(tmp_path, arriving((100, 1), (110, 1), (130, 1), (131, 1))))
    assert (one.requests, one.gaps, one.tokens) == (1, 3, 1.0)
    assert (one.median, one.longest) == (0.01, 0.02) and one.p99 is None


def test_what_came_at_one_instant_is_one_arrival_of_several_tokens(tmp_path: Path) -> None:
    one = the_gaps(found(tmp_path, arriving((100, 1), (110, 1), (110, 1), (110, 2), (130, 1))))
    assert (one.gaps, one.tokens, one.median) == (2, 2.0, 0.01)


def test_an_arrival_of_many_tokens_is_told_and_never_split(tmp_path: Path) -> None:
    told = found(tmp_path, arriving((100, 1), (160, 6), (220, 6), (230, 1)))
    one = the_gaps(told)
    assert (one.gaps, one.tokens) == (3, 3.5) and one.longest == 0.06, (
        "60 ms were waited, not 10 per token"
    )
    assert "3.50 tokens per arrival" in charts_of(told)["itl"].alt(told)


def test_tokens_that_nobody_counted_are_unknown(tmp_path: Path) -> None:
    told = found(tmp_path, arriving((100, None), (160, None), (180, None), source="estimate"))
    assert the_gaps(told).tokens is None
    assert "tokens unknown" in charts_of(told)["itl"].alt(told)
    row = next(line for line in arrivals.section(told).splitlines() if line.startswith("| A |"))
    assert row.endswith("| — |")


def test_shares_are_gaps_that_were_measured(tmp_path: Path) -> None:
    gaps = list(range(1, 201))
    at = [100 + sum(gaps[:n]) for n in range(201)]
    one = the_gaps(found(tmp_path, arriving(*((each, 1) for each in at))))
    assert (one.gaps, one.median, one.p99, one.longest) == (200, 0.1, 0.198, 0.2)
    assert dict(one.curve)[250] == 0.05 and min(dict(one.curve)) == 5, (
        "a two-hundredth is the rarest that can be told"
    )
    assert [gap for _, gap in one.curve] == sorted(gap for _, gap in one.curve)


def test_only_pooled_cells_count_and_the_curve_is_of_the_primary_context(tmp_path: Path) -> None:
    told = found(
        tmp_path, fails("oom", lambda r: r.cell.rung == 384 and r.cell.arm == "C"), arms=("A", "C"), ladder=(128, 384),
        blocks=6, seeds=2,
    )  # fmt: skip
    assert known(told.within).gaps_of("C", 384) is None
    assert the_gaps(told, "A", 384).requests == 12, "sentinels are not pooled"
    assert the_gaps(told, "A", 384).curve and not the_gaps(told, "A", 128).curve
    assert "arm C oom" in charts_of(told)["itl"].alt(told)
    assert lint(markdown(told), told) == []


def test_nothing_known_leaves_no_trace(tmp_path: Path) -> None:
    told = found(tmp_path, fails("oom", lambda r: True))
    assert b'"within"' not in pretty(told)
    assert not {"itl", "temperature_clocks"} & set(charts_of(told))
    assert arrivals.section(told) == "" and in_cell.section(told) == ""
    page = markdown(told)
    assert "Gaps between arrivals" not in page and lint(page, told) == []


def sampled(*samples: Reading) -> Callable[[Receipt], Receipt]:
    return lambda receipt: msgspec.structs.replace(receipt, samples=samples)


def test_readings_are_those_inside_the_cell(tmp_path: Path) -> None:
    """The synthetic cell ends after about 1.3 s: what was read before it or well after it is none of its own."""
    told = found(
        tmp_path,
        sampled(
            Reading(at_s=-0.5, temp_c=99.0),
            Reading(at_s=0.5, temp_c=50.0, gpu_clock_mhz=1980.0),
            Reading(at_s=1.0, temp_c=60.0, gpu_clock_mhz=1950.0),
            Reading(at_s=9.0, temp_c=61.0),
            Reading(at_s=9.5, temp_c=99.0),
        ),
    )
    (one,) = known(told.within).inside
    assert (one.window, one.arm, one.samples) == (1, "A", 3)
    assert one.readings == {"temp_c": (50.0, 57.0, 61.0), "gpu_clock_mhz": (1950.0, 1965.0, 1980.0)}
    page = markdown(told)
    assert lint(page, told) == []
    assert "/temperature_clocks.svg)" in page.split("### Gates")[1].split("### Formulas")[0]
    assert "/itl.svg)" in page.split("### 1.1 ")[1].split("### 1.2 ")[0]
    alt = charts_of(told)["temperature_clocks"].alt(told)
    assert "hottest sensor, °C: arm A 50 to 61, mean 57, 1 windows" in alt
    assert "GPU clock, MHz" in alt and "processor clock" not in alt


@pytest.mark.parametrize("samples", [(), (Reading(at_s=0.5, busy=0.5),)], ids=["none", "no sensor"])
def test_a_machine_without_sensors_has_no_chart_and_says_so(
    samples: tuple[Reading, ...], tmp_path: Path
) -> None:
    told = found(tmp_path, sampled(*samples))
    assert "temperature_clocks" not in charts_of(told) and not known(told.within).inside
    assert ("No temperature and no clock could be read" in markdown(told)) == bool(samples)


def test_an_arm_whose_windows_have_no_reading_is_marked_not_drawn_at_zero(tmp_path: Path) -> None:
    def change(receipt: Receipt) -> Receipt:
        seen = {"temp_c": 40.0} if receipt.cell.arm == "A" else {"busy": 0.4}
        return sampled(Reading(at_s=0.5, **seen))(receipt)

    told = found(tmp_path, change, arms=("A", "C"), blocks=3)
    assert "arm C no reading" in charts_of(told)["temperature_clocks"].alt(told)
    axes = in_cell.temperature_clocks(told).axes[0]
    crosses = [list(line.get_xdata()) for line in axes.lines if line.get_marker() == "x"]
    assert crosses == [[], [2, 3, 6]] and axes.get_ylim()[0] > 30
