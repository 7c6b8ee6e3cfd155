from __future__ import annotations

import pytest

from battery.analyse import stats
from battery.render import words


@pytest.mark.parametrize(
    "value, told",
    [(None, "—"), (0, "0"), (39.9612, "39.96"), (1381.47, "1,381"), (0.001234, "0.001234"),
     (12345.6, "12,346"), (99999.9, "100,000"), (-2.5, "-2.500")],
)  # fmt: skip
def test_figures_are_never_in_exponent_form(value: float | None, told: str) -> None:
    assert words.figure(value) == told


@pytest.mark.parametrize(
    "ratio, told", [(1.051, "+5.1 %"), (0.949, "−5.1 %"), (0.9999, "0.0 %"), (1.0, "0.0 %"), (None, "—")]
)  # fmt: skip
def test_changes(ratio: float | None, told: str) -> None:
    assert words.change(ratio) == told


def test_an_interval_never_hides_on_which_side_of_zero_it_ends() -> None:
    estimate = stats.Estimate(blocks=6, ratio=0.9956, low=0.9917, high=0.9995)
    assert words.interval(estimate) == "−0.44 % [−0.83, −0.05]"
    alone = stats.Estimate(blocks=1, ratio=1.1)
    assert words.interval(alone) == "+10.0 % [no interval]"


def test_cells_cannot_break_a_table() -> None:
    told = words.table(["a|b", "n"], [["x\ny | z <b>", "1,024"], ["", "> 2.00 GB"]])
    lines = told.splitlines()
    assert lines[1] == "| --- | ---: |"
    assert lines[2] == "| x y \\| z &lt;b> | 1,024 |"
    assert lines[3].startswith("| — |")


def test_probabilities() -> None:
    assert [words.pvalue(p) for p in (None, 1e-6, 0.0312, 1.0)] == ["—", "< .0001", ".0312", "1"]
