"""Bare code between prose: where stretches begin and end, and that looking for them stays cheap."""

from __future__ import annotations

import ast

import pytest

from battery.quality.extract import stretches as module
from battery.quality.extract.stretches import indented_blocks, stretches

PROSE = [
    "We need to think (about it, of course.",
    "It's a sum: don't forget [the list",
    'He said "x" and that was it',
    "Then we could return x, or not",
    "    and an indented remark, isn't it",
    "def of it is easy",
    "@someone said so",
    ":( that is wrong",
    "",
]
CODE = "def add(x, y):\n    total = (x +\n        y)\n    return total\n"


def test_prose_splits_code_and_words_that_parse_do_not() -> None:
    text = f"import a\n\nSo be it.\n\n{CODE}\nDone\n\nb = 1\n"
    assert [each.text for each in stretches(text)] == ["import a\n", f"{CODE}\n\n\nb = 1\n"]
    assert [each.lines for each in stretches(text)] == [1, 5]


def test_a_definition_that_breaks_is_cut_before_the_break() -> None:
    text = "def add(x):\n    y = x\n    return y\n    It returns y.\n        more of it\nz = 1\n"
    assert [each.text for each in stretches(text)] == [
        "def add(x):\n    y = x\n    return y\n",
        "z = 1\n",
    ]


def test_statements_that_python_refuses_at_the_margin_are_no_code() -> None:
    for line in (
        "return x",
        "yield x",
        "await x",
        "break",
        "*a",
        "else:",
        ")",
        "'open",
        "x = (",
        "@a",
    ):
        assert stretches(line + "\n") == [], line


def test_a_block_below_prose_is_read_at_its_own_margin() -> None:
    text = "Here:\n\n    a = 1\n\n    And so:\n\n        b = 2\n\nclass A\n    def c(self): pass\n"
    assert [each.text for each in stretches(text)] == ["a = 1\n", "b = 2\n"]
    assert indented_blocks("x = 1\n\nNo:\n\n    a\n\n    b\n\nc\n") == ["    a\n\n    b\n"]


@pytest.mark.parametrize(
    "words", [PROSE, [*PROSE, *CODE.split("\n")], ["(", "x"], ["x", "# a"], ["[["]]
)
def test_the_work_grows_with_the_text_and_not_with_its_square(
    words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    read = 0
    real = module.parse_or_raise

    def counted(source: str) -> ast.Module:
        nonlocal read
        read += len(source)
        return real(source)

    monkeypatch.setattr(module, "parse_or_raise", counted)
    work = []
    for lines in (300, 1200):
        read = 0
        text = "\n".join((words * lines)[:lines]) + f"\n\n{CODE}"
        assert stretches(text)[-1].text.endswith(CODE)
        work.append(read)
    assert work[1] <= 4.5 * work[0]
