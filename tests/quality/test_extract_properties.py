"""Whatever is put around a program, the program comes back; a text without one never breaks the search."""

from __future__ import annotations

import ast

from answer_strategies import (
    DEMOS,
    DRAFT,
    ENTRY,
    EXAMPLES,
    Body,
    fenced,
    in_a_list,
    programs,
    prompt_bodies,
    prose,
    reasoning,
    sent,
)
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from battery.quality.extract import compose, extract
from battery.quality.extract.fences import fences

PROMPT = f'import math\n\n\ndef {ENTRY}(x):\n    """Give x back."""\n'


@EXAMPLES
@given(st.data())
def test_a_program_in_a_fence_comes_back_byte_for_byte(data: st.DataObject) -> None:
    code = data.draw(programs())
    drafts = [data.draw(fenced(DRAFT)) for _ in range(data.draw(st.integers(0, 2)))]
    demos = data.draw(st.lists(st.sampled_from(DEMOS), max_size=2))
    last = data.draw(fenced(code, may_stay_open=not demos))
    parts = [data.draw(reasoning())]
    for block in (*drafts, last):
        parts += [data.draw(prose()), block, "\n"]
    closed = last.split("\n")[-1].strip()[:3] in ("```", "~~~")
    for block in demos:
        parts += [data.draw(prose()), block, "\n"]
    if closed:
        parts.append(data.draw(prose()))
    found = extract(data.draw(sent("".join(parts))), None, ENTRY, PROMPT)
    assert (found.code, found.rule) == (code, "last defining fence")


@EXAMPLES
@given(st.data())
def test_a_program_in_a_lists_item_comes_back_without_its_margin(data: st.DataObject) -> None:
    code = data.draw(programs())
    parts = [data.draw(reasoning()), data.draw(prose()), data.draw(in_a_list(code))]
    found = extract(data.draw(sent("\n".join(parts))), DRAFT, ENTRY, PROMPT)
    assert (found.code, found.rule) == (code, "last defining fence")


@EXAMPLES
@given(st.data())
def test_a_program_without_a_fence_comes_back_byte_for_byte(data: st.DataObject) -> None:
    code = data.draw(programs())
    parts = [data.draw(reasoning()), data.draw(prose()), code, data.draw(prose())]
    found = extract(data.draw(sent("\n".join(parts))), None, ENTRY, PROMPT)
    assert (found.code, found.rule) == (code, "bare code")


@EXAMPLES
@given(prompt_bodies(), st.sampled_from(["    ", "  ", "\t", ""]), st.data())
def test_a_body_continues_the_prompt_whatever_its_margin(
    body: Body, margin: str, data: st.DataObject
) -> None:
    first = data.draw(st.sampled_from([None, None, "", " ", margin + " "]))
    text = body.at(margin, first)
    answer = data.draw(st.sampled_from([text, f"```python\n{text}```\n"]))
    found = extract(data.draw(sent(answer)), None, ENTRY, PROMPT)
    assert found.rule == "body of the prompt" and found.code is not None
    meant = PROMPT + body.at("    ")
    assert ast.dump(ast.parse(compose(PROMPT, found.code, entry_point=ENTRY))) == ast.dump(
        ast.parse(meant)
    )


@EXAMPLES
@given(reasoning(), st.data())
def test_code_that_stands_only_in_the_reasoning_is_no_answer(
    thought: str, data: st.DataObject
) -> None:
    answer = data.draw(sent(thought + data.draw(st.sampled_from(["", "\nIt gives x back.\n"]))))
    found = extract(answer, data.draw(programs()), ENTRY, PROMPT)
    assert found.code is None


_HOSTILE = [
    "```", "````", "~~~", "```python", "```md", "  ```", "    ```", "> ```", "- ```", "1. a", "> a", "<think>",
    "</think>", "[BEGIN]", "[DONE]", "def solve(x):", "    return x", "def solve(", "@a", "else:", '"""', "'''",
    "class A:", "\tsolve = 1", "(", ")", "x", "#", "\\", "\x00", "\u00a0", "<|im_end|>", "it's", "", "\ud800", "é",
    "from __future__ import annotations", "import solve",
]  # fmt: skip


@EXAMPLES
@given(st.lists(st.sampled_from(_HOSTILE), max_size=25), st.sampled_from(["\n", "\r\n", " "]))
def test_no_text_breaks_the_search(lines: list[str], end: str) -> None:
    text = end.join(lines)
    for prompt in ("", PROMPT):
        found = extract(text, None, ENTRY, prompt)
        assert extract(text, text, ENTRY, prompt).code == found.code
        if found.code is not None:
            assert found.code.endswith("\n") and found.code.strip()
            assert isinstance(compose(prompt, found.code, entry_point=ENTRY), str)


_MARKDOWN = [
    "a b", "", "a b c", "  a b", "```", "````", "`````", "~~~", "~~~~", "``` python", "~~~ `x", "``` a`b", " ```",
    "  ~~~", "   ```", "    ```", "``` \t", "```\t", "    a b", "``", "`` ` ``", "~~~ ~~~",
]  # fmt: skip


@EXAMPLES
@given(st.lists(st.sampled_from(_MARKDOWN), max_size=14))
def test_fences_are_those_of_a_markdown_library(lines: list[str]) -> None:
    text = "\n".join(lines)
    theirs = [
        ((token.map or [])[:1], token.content.rstrip("\n"), token.info.split(maxsplit=1)[:1])
        for token in MarkdownIt("commonmark").parse(text)
        if token.type == "fence"
    ]
    ours = [
        ([block.first], block.text.rstrip("\n"), [block.label] if block.label else [])
        for block in fences(text)
    ]
    assert ours == theirs
