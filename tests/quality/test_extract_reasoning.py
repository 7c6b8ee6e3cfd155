"""Reasoning is taken away before code is looked for, and tags that belong to code are left alone."""

from __future__ import annotations

import pytest

from battery.quality.extract import extract
from battery.quality.extract.reasoning import without_reasoning

GOOD = "def add(x, y):\n    return x + y\n"
DRAFT = "def add(x, y):\n    return x - y\n"
FENCE = f"```python\n{GOOD}```\n"
DRAFTED = f"Perhaps\n```python\n{DRAFT}```\nor so.\n"
TAGS = [
    ("<think>", "</think>"),
    ("<THINK>", "</Think>"),
    ("<thinking>", "</thinking>"),
    ('<thought time="3">', "</thought>"),
    ("<reasoning>", "</reasoning>"),
    ("<seed:think>", "</seed:think>"),
    ("[THINK]", "[/THINK]"),
    ("◁think▷", "◁/think▷"),
    ("<|begin_of_thought|>", "<|end_of_thought|>"),
    ("<|channel|>analysis<|message|>", "<|end|><|start|>assistant<|channel|>final<|message|>"),
]


@pytest.mark.parametrize("tags", TAGS, ids=[opened for opened, _ in TAGS])
def test_each_pair_of_tags_is_known(tags: tuple[str, str]) -> None:
    opened, closed = tags
    for answer in (FENCE, GOOD):
        assert extract(f"{opened}\n{DRAFTED}{closed}\n\n{answer}", None, "add").code == GOOD
        assert extract(f"{DRAFTED}{closed}\n{answer}", None, "add").code == GOOD
    for text in (
        f"{opened}{DRAFTED}{closed}\nIt is a sum.\n",
        f"{DRAFTED}{closed}",
        opened + DRAFTED,
    ):
        found = extract(text, None, "add")
        assert found.code is None and found.notes


ANSWERED = {
    "a draft without its closing fence": f"<think>\n```python\n{DRAFT}</think>\n\n{FENCE}",
    "the same, only the closing tag": f"```python\n{DRAFT}</think>\n\n{FENCE}",
    "the same, answer without label": f"<think>\n```python\n{DRAFT}</think>\n\n```\n{GOOD}```\n",
    "a bare draft": f"{DRAFT}\n</think>\n{GOOD}",
    "the tag opened twice": f"<think>\n<think>\n{DRAFTED}</think>\n{FENCE}",
    "nested": f"<think>\n<think>\n{DRAFTED}</think>\n{DRAFTED}</think>\n{FENCE}",
    "two sections": f"<think>a</think>\nSo:\n<think>\n{DRAFTED}</think>\n{FENCE}",
    "a section behind the answer": f"{FENCE}\n<think>\n{DRAFTED}</think>\n",
    "an open section behind the answer": f"{FENCE}\n<think>\n{DRAFTED}",
    "a special token before": f"<|im_start|>assistant\n<think>\n{DRAFTED}</think>\n{FENCE}",
    "the closing tag twice": f"{DRAFTED}</think>\n{DRAFTED}</think>\n{FENCE}",
    "nothing between": f"<think></think>{FENCE}",
    "the tag named in the reasoning": f"<think>\nI use <think> tags, `</think>` ends.\n{DRAFTED}</think>\n{FENCE}",
    "the tag quoted in the draft": f"<think>\n```python\nx = '</think>'\n{DRAFT}```\n</think>\n{FENCE}",
    "an apostrophe before the tag": f"I don't know</think>It's\n{FENCE}",
    "the tag named before the answer": f"It removes <think> tags.\n\n{FENCE}",
    "the tag named behind the answer": f"{FENCE}\nUp to `</think>`, \"</think>\" or '</think>'.\n",
    "an example behind the answer": f"{FENCE}\n```text\n<think>a</think>b\n```\n",
}


@pytest.mark.parametrize("name", ANSWERED)
def test_the_answer_is_what_stands_outside(name: str) -> None:
    assert extract(ANSWERED[name], None, "add").code == GOOD


OWN = {
    "strings": "def cut(s):\n    a, b = '<think>', '</think>'\n    return s.split(a)[0] + s.split(b)[-1]\n",
    "only the closing tag": 'def cut(s):\n    return s.rpartition("</think>")[2]\n',
    "a comment": "def cut(s):\n    # up to </think>\n    return s\n",
    "a docstring": 'def cut(s):\n    """Cut.\n\n    <think>\n    a\n    </think>\n    """\n    return s\n',
    "a docstring at the margin": 'def cut(s):\n    """Cut.\n\n<think>\na\n</think>\nb\n"""\n    return s\n',
    "half a docstring": 'def cut(s):\n    """Cut\n\n    what is before\n</think>\n    """\n    return s\n',
}


@pytest.mark.parametrize("name", OWN)
@pytest.mark.parametrize(
    "around", ["{}", "```python\n{}```\n", "It's this:\n\n{}\nIt's so.\n", "```\n{}"]
)
def test_tags_inside_code_are_the_programs_own(name: str, around: str) -> None:
    assert extract(around.format(OWN[name]), None, "cut").code == OWN[name]
    thought = f"<think>\nLet me see\n</think>\n{around.format(OWN[name])}"
    assert extract(thought, None, "cut").code == OWN[name]


def test_a_cut_off_program_keeps_the_tags_in_its_strings() -> None:
    code = "def cut(s):\n    return s.split('</think>')[(\n"
    assert extract(f"```python\n{code}", None, "cut").code == code


def test_the_separate_field_is_never_searched() -> None:
    for content in ("", "\n", "The function adds."):
        found = extract(content, FENCE, "add")
        assert found.code is None
    assert extract("", FENCE, "add").rule == "only reasoning"
    assert extract("", " ", "add").rule == "empty"
    assert extract(FENCE, f"```python\n{DRAFT}```", "add").code == GOOD


def test_a_text_without_tags_is_returned_as_it_is() -> None:
    text = "a < b and b > c\n<b>bold</b>\n"
    assert without_reasoning(text) == (text, ())
