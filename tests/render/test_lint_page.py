"""How the linter reads a page: passages, tables and numbers, each at its place."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from battery.render.lint.numbers import Stated, intervals, numbers
from battery.render.lint.page import read
from battery.render.words import table

PAGE = """\
# a title

First paragraph with `code 7` and
[a link](https://example.org/8) on two lines.
- an item
  that goes on
- another **bold** one

> quoted prose

<details><summary>Folded</summary>

| a \\| b | n |
| --- | ---: |
| `x` | 1 |
| y | 2 |

</details>

~~~sh
| no | table |
| --- | --- |
~~~
![alt text](../charts/9.svg)

### 1.1 A heading ###
"""


def test_a_page_in_its_parts() -> None:
    page = read(PAGE)
    told = [(one.line, one.kind, " ".join(one.text.split())) for one in page.passages]
    assert told == [
        (1, "heading", "a title"),
        (3, "prose", "First paragraph with and a link on two lines."),
        (5, "prose", "an item that goes on"),
        (7, "prose", "another bold one"),
        (9, "prose", "quoted prose"),
        (11, "prose", "Folded"),
        (18, "prose", ""),
        (24, "prose", "alt text"),
        (26, "heading", "1.1 A heading"),
    ]
    (one,) = page.tables
    assert one.head.line == 13 and [row.line for row in one.rows] == [15, 16]
    assert one.rows[0].cells == ("`x`", "1") and one.column("n") == 1 and one.column("z") is None
    assert one.lead[-1] == "a title"
    second = page.passages[1]
    assert second.at(second.text.index("two lines")) == 4


@given(st.lists(st.lists(st.text(), min_size=2, max_size=2), min_size=1, max_size=4))
def test_a_table_of_ours_is_read_back_whole(rows: list[list[str]]) -> None:
    (found,) = read(table(["left", "right"], rows)).tables
    assert [len(row.cells) for row in found.rows] == [2] * len(rows)


@given(st.text())
def test_any_text_is_a_page(text: str) -> None:
    lines = text.count("\n") + 1
    assert all(1 <= one.line <= lines for one in read(text).passages)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("+30.7 % [+16.3, −4]", ["+30.7%", "+16.3", "−4"]),
        ("from 6-8 s, 11.04–17.32 tok/s, p .05", ["6", "8s", "11.04", "17.32tok/s", "0.05"]),
        ("134,515,008 bytes at 2,048, 16K, 3x", ["134515008", "2048", "16K", "3x"]),
        ("1.2e+02 % and 1.5e-3", ["1.2E+2%", "0.0015"]),
        ("SmolLM2-135M, q4-g32, 0.32.4, 2026-01-02T03:04:05Z, t1, 1st, #12, §3.1, sections 1 to 1.3", []),
        ("n=36 and ±2 % of 512-token prompts", ["36", "2%", "512"]),
    ],
)  # fmt: skip
def test_what_is_a_number(text: str, found: list[str]) -> None:
    assert [f"{one.sign}{one.value}{one.unit}" for one in numbers(text)] == found


@pytest.mark.parametrize(
    ("prose", "cell", "same"),
    [
        ("15.1 %", "15.08", True), ("15.1 %", "15.16", False), ("15.1", "15.08", True), ("15", "15.08", False),
        ("15 %", "15.08", True), ("+15.1 %", "15.1", False), ("15.1 %", "−15.1", True), ("+15.1", "−15.1", False),
        ("5 %", "0.05", True), ("5 %", "0.051", False), ("15.1 %", "1.151×", True), ("1.15×", "+15.1 %", True),
        ("16K", "16,384", True), ("16K", "16,000", True), ("16K", "16", False), ("2,048", "2048", True),
    ],
)  # fmt: skip
def test_whether_a_table_says_the_same(prose: str, cell: str, same: bool) -> None:
    (number,) = numbers(prose)
    assert Stated([cell]).holds(number) is same


def test_an_interval_belongs_to_the_figure_before_it() -> None:
    told = "naive +5.33 tok/s [+1.76, +8.89]; by seed [−7.9, +18.6]; 15.1 % (95 % CI 2.5 to 12.4); see [1], (128, 512)"
    assert [(one.estimate, one.low, one.high) for one in intervals(told)] == [
        ("+5.33", "+1.76", "+8.89"), ("", "−7.9", "+18.6"), ("15.1", "2.5", "12.4"),
    ]  # fmt: skip
    first, second, third = intervals(told)
    assert first.holds and second.holds and not third.holds
