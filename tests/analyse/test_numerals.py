from __future__ import annotations

import pytest

from battery.analyse.numerals import figure, percent


@pytest.mark.parametrize(
    ("value", "digits", "told"),
    [(1.2e6, 2, "1,200,000"), (0.000123, 2, "0.00012"), (123.4, 2, "123"), (0.0, 4, "0"), (None, 2, "—")],
)  # fmt: skip
def test_a_figure_has_no_exponent(value: float | None, digits: int, told: str) -> None:
    assert figure(value, digits) == told


@pytest.mark.parametrize(
    ("share", "sign", "told"),
    [
        (1.2, False, "120 %"), (12.3, True, "+1,230 %"), (-0.034, True, "−3.4 %"), (0.0, True, "0 %"),
        (0.018, False, "1.8 %"),
    ],
)  # fmt: skip
def test_a_large_percentage_has_no_exponent(share: float, sign: bool, told: str) -> None:
    assert percent(share, sign=sign) == told
