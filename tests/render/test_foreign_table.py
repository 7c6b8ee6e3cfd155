"""Foreign findings on a terminal: units, signs and names as they are, and never a figure that is none."""

from __future__ import annotations

import io

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from battery.analyse.foreign.estimates import contrast
from battery.analyse.foreign.findings import ForeignFindings, analyse
from battery.analyse.foreign.plain_csv import COLUMNS
from battery.analyse.foreign.rows import Row, Sheet, Source
from battery.analyse.foreign.wording import change, difference
from battery.analyse.rows import MEASURES
from battery.render import foreign


def made(*rows: tuple[str, str | None, str | None, str, float, int | None]) -> Sheet:
    return Sheet(
        sources=(Source(name="made.csv", sha256="0" * 64),),
        columns=COLUMNS,
        rows=tuple(
            Row(line=2, arm=arm, context=512, seed=seed, round=turn, metric=metric, value=value, tokens=tokens)
            for arm, seed, turn, metric, value, tokens in rows
        ),
    )  # fmt: skip


def printed(found: ForeignFindings) -> str:
    console = Console(file=io.StringIO(), width=300, highlight=False)
    console.print(foreign.table(found))
    file = console.file
    assert isinstance(file, io.StringIO)
    return "\n".join([file.getvalue(), *foreign.lines(found)])


def test_memory_is_told_in_gigabytes_and_a_share_without_a_unit() -> None:
    peaks = contrast([0.1, 0.2], [1.5e9, 2.5e9])
    assert peaks and difference(peaks, MEASURES["peak_memory"]) == "+2.00 GB [−4.35, +8.35]"
    shares = contrast([0.1], [-0.01234])
    assert shares and difference(shares, MEASURES["acceptance"]) == "−0.0123 [no interval]"
    none = contrast([0.0, 0.0], [0.0, 0.0])
    assert none and difference(none, MEASURES["decode"]) == "0 tok/s [0, 0]"


@pytest.mark.parametrize(
    "ratio, told",
    [(1.0, "0.0 %"), (1.151, "+15.1 %"), (0.9, "−10.0 %"), (1e30, "×1e+30"), (0.99999, "0.0 %")],
)
def test_a_change_reads_like_one(ratio: float, told: str) -> None:
    assert change(ratio) == told


def test_what_has_no_partner_has_a_row_of_its_own() -> None:
    found = analyse(made(("A", "1", "1", "decode", 70, 64), ("C", "1", "1", "ttft", 2, 64)))
    told = printed(found)
    assert told.count("not comparable: no seed and round that both arms have") == 2
    assert "best of" not in told and "A 1 values, C 0" in told


values = st.lists(
    st.tuples(
        st.sampled_from(["A", "C"]),
        st.sampled_from(["1", "2", None]),
        st.sampled_from(["1", "2", None]),
        st.sampled_from(["decode", "ttft", "peak_memory"]),
        st.one_of(st.just(70.0), st.floats(1e-15, 1e18)),
        st.one_of(st.none(), st.integers(1, 10**12)),
    ),
    min_size=2,
    max_size=20,
    unique_by=lambda row: row[:4],
).filter(lambda rows: len({row[0] for row in rows}) == 2)


@settings(max_examples=60, deadline=None)
@given(values)
def test_whatever_is_measured_is_told_in_figures(
    rows: list[tuple[str, str | None, str | None, str, float, int | None]],
) -> None:
    told = printed(analyse(made(*rows)))
    for word in ("nan", "inf ", "None", "−0.0 %", "+0.0 %", "+0 %"):
        assert word not in told
