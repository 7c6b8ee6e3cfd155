from __future__ import annotations

import re

import pytest
from datafiles import suite_of
from hypothesis import given
from hypothesis import strategies as st

from battery.ledger.answers import SUITES, SuiteName
from battery.quality.tasks import Loaded, Task
from battery.quality.wording import fenced, messages, question


@pytest.mark.parametrize("suite", SUITES)
def test_a_prompt_goes_out_byte_for_byte(suite: SuiteName) -> None:
    for task in suite_of(suite).tasks:
        asked = messages(task)
        assert [message["role"] for message in asked] == ["user"]
        assert task.prompt in asked[0]["content"], task.id
        assert all(line in asked[0]["content"] for line in (*task.asserts, *task.test_imports)), (
            task.id
        )


@given(st.text(alphabet=st.sampled_from("`~ab \n\r\t"), max_size=80))
def test_nothing_inside_closes_the_fence(text: str) -> None:
    block = fenced(text, "python")
    fence = re.match("`+", block)
    assert fence is not None and len(fence[0]) >= 3
    head, tail = f"{fence[0]}python\n", f"\n{fence[0]}"
    assert block.startswith(head) and block.endswith(tail)
    assert fence[0] not in text
    inside = block[len(head) : -len(tail)]
    assert text in (inside, inside + "\n"), (
        "the text is there, with one line end more where it had none"
    )


def test_a_prompt_with_a_fence_in_it_gets_a_longer_one(few: Loaded) -> None:
    assert "\n````python\ndef plus_0(x):" in question(few.tasks[0])


def test_tests_are_shown_with_what_they_import() -> None:
    task = Task(
        suite="mbpp", id="Mbpp/1", prompt="Write a function.", entry_point="f", canonical="",
        asserts=("assert f(1)", "assert f(2)"), test_imports=("import math",),
    )  # fmt: skip
    assert question(task) == (
        "Solve this task in Python. Answer with one complete function, with the imports that it needs, in one fenced"
        " code block.\n\n```text\nWrite a function.\n```\n\nThe function must pass these tests:\n\n"
        "```python\nimport math\nassert f(1)\nassert f(2)\n```"
    )
