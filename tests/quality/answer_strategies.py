"""Answers of every kind, built around a program that is known: the right value comes from the construction.

A program is drawn first. Then it is put into an answer in a way that Markdown, Python or chat templates define, with
drafts, prose and reasoning around it. None of this asks the code under test what it would find.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

from hypothesis import settings
from hypothesis import strategies as st

EXAMPLES = settings(max_examples=int(os.environ.get("BATTERY_EXAMPLES", "60")), deadline=None)
"""How many answers a property is held against; BATTERY_EXAMPLES=2500 looks harder."""
ENTRY = "solve"
PROSE = [
    "Sure, here's the function (don't worry):",
    "I would do it as follows, since x < y holds.",
    "1. It's a sum",
    "- step one [see below]",
    "* an item",
    "Done",
    "Note: it works",
    "Use `solve(1)` to try it, or ``solve``.",
    "def solve is what Python calls it",
    "> They say it's fine.",
    "The answer is {x",
    "This is, in short, a loop; return it.",
    "",
    "   indented remark",
    "Say “solve” | x | y |",
]
DRAFT = f"def {ENTRY}(*_):\n    return 'draft'\n"
DEMOS = [
    f"```python\nprint({ENTRY}(1))\n```",
    f"```python\nassert {ENTRY}(1, 2) == 3\n```",
    "```text\n3\n```",
    "~~~bash\npython solve.py\n~~~",
    f"```python\nfrom solution import {ENTRY}\n```",
    "```\n>>> 1\n```",
]
TAGS = [
    ("<think>", "</think>"),
    ("<think>", "</think>"),
    ("<Thinking>", "</thinking>"),
    ("<thought>", "</thought>"),
    ("<reasoning>", "</reasoning>"),
    ("<scratchpad>", "</scratchpad >"),
    ('<think budget="8">', "</think>"),
    ("<seed:think>", "</seed:think>"),
    ("<antThinking>", "</antThinking>"),
    ("[THINK]", "[/THINK]"),
    ("◁think▷", "◁/think▷"),
    ("<|begin_of_thought|>", "<|end_of_thought|>"),
    ("<|START_THINKING|>", "<|END_THINKING|>"),
    ("<|channel|>analysis<|message|>", "<|channel|>final<|message|>"),
    ("<|channel>thought", "<channel|>"),
    ("<unused94>thought", "<unused95>"),
]
"""What models put around their reasoning, each as its template writes it."""
TOKENS = ["<|im_end|>", "</s>", "<|eot_id|>", "<end_of_turn>"]

_LINES = [
    "total = x",
    "total = '<think>' if x else '</think>'",
    "text = '[DONE]'  # it's \"one\" ``` </think>",
    "pairs = {'(': ')', \"[\": ']'}",
    "values = [",  # closed by the line that follows it, at any margin
    'text = """',
    "if x:",
    "",
]


@st.composite
def bodies(draw: st.DrawFn, step: str) -> list[str]:
    """The lines of a function's body at margin 0, nested by `step`, ending with a return."""
    lines: list[str] = []
    for kind in draw(st.lists(st.sampled_from(_LINES), max_size=6)):
        if kind.startswith("values"):
            lines += [kind, f"{step * 3}1, 2,", "]"]
        elif kind.startswith('text = """'):
            lines += [kind, f"{step}kept (as it is", "don't touch", '"""']
        elif kind.startswith("if"):
            lines += [kind, f"{step}x = x", "else:", f"{step}# nothing", f"{step}x = 0"]
        else:
            lines.append(kind)
    while lines and not lines[0]:
        lines.pop(0)
    return [*lines, "return x"]


@st.composite
def programs(draw: st.DrawFn) -> str:
    """A program that defines the entry point, with imports, helpers, decorators and calls around it or without."""
    step = draw(st.sampled_from(["    ", "  ", "\t"]))
    head = draw(
        st.lists(
            st.sampled_from(
                [
                    "import math\nfrom typing import (\n    List,\n)\n",
                    "ONE, TWO = 1, 2\n",
                    f"def helper(x):\n{step}return x\n\n\n",
                    f"class Box:\n{step}def {ENTRY}(self):\n{step * 2}return '</think>'\n\n\n",
                    "# a comment that isn't closed (\n",
                ]
            ),
            max_size=3,
        )
    )
    start = draw(st.sampled_from(["", "@cache\n", "async "]))
    doc = draw(
        st.sampled_from(["", '"""Text."""', 'r"""Text\n\n    ```\n    solve(1)\n    ```\n    """'])
    )
    body = [*([doc] if doc else []), *draw(bodies(step))]
    text = "".join(_inside(line, step) + "\n" for line in _tied(body))
    tail = draw(st.sampled_from(["", f"\n\nassert {ENTRY}(1)\n", f"\nprint({ENTRY}(1))\n"]))
    return "".join(head) + f"{start}def {ENTRY}(x):\n{text}" + tail


def _tied(lines: list[str]) -> list[tuple[str, bool]]:
    """Each line with whether it starts inside a string, where no margin may be put before it."""
    told, inside = [], False
    for line in lines:
        told.append((line, inside))
        inside ^= line.count('"""') % 2 == 1
    return told


def _inside(line: tuple[str, bool], step: str) -> str:
    text, kept = line
    return text if kept or not text else step + text


@dataclass(frozen=True)
class Body:
    """A body at margin 0 for the prompt, and the function that it makes there."""

    lines: list[tuple[str, bool]]

    def at(self, margin: str, first: str | None = None) -> str:
        """The body behind a margin, its first line behind another if one is given."""
        lines = [_inside(line, margin) for line in self.lines]
        if first is not None:
            lines[0] = first + self.lines[0][0]
        return "\n".join(lines) + "\n"


@st.composite
def prompt_bodies(draw: st.DrawFn) -> Body:
    """A body that continues a stub. Its first line opens nothing, so that the second stands level with it."""
    lines = draw(bodies(draw(st.sampled_from(["    ", "  ", "\t"]))))
    return Body(_tied(["total = 0", *lines]))


SHALLOW = st.integers(0, 3).map(lambda width: " " * width)


@st.composite
def fenced(
    draw: st.DrawFn,
    code: str,
    *,
    may_stay_open: bool = False,
    margins: st.SearchStrategy[str] = SHALLOW,
) -> str:
    """A program in a fence that CommonMark reads back: any mark, length, info string and margin up to three."""
    mark = draw(st.sampled_from("`~"))
    longest = max((len(run) for run in re.findall(f"{re.escape(mark)}+", code)), default=0)
    length = max(3, longest + 1) + draw(st.integers(0, 2))
    info = draw(
        st.sampled_from(
            ["", "python", " python", "Python3", "py", "{.python .x}", "python title=a.py", "x"]
        )
    )
    margin = draw(margins)
    lines = [margin + line if line else "" for line in code.split("\n")[:-1]]
    closed = not may_stay_open or draw(st.booleans())
    close = [margin + mark * (length + draw(st.integers(0, 2))) + draw(st.sampled_from(["", "  "]))]
    return "\n".join([margin + mark * length + info, *lines, *(close if closed else [])])


@st.composite
def in_a_list(draw: st.DrawFn, code: str) -> str:
    """A program in a fence that stands in a list's item, as deep as the item's text or deeper."""
    mark = draw(st.sampled_from(["1. ", "10. ", "- ", "*   ", "2) "]))
    margins = st.sampled_from([" " * 4, " " * 6, " " * 8, "\t", "\t\t"])
    return f"{mark}The function:\n\n{draw(fenced(code, margins=margins))}\n"


@st.composite
def prose(draw: st.DrawFn) -> str:
    """A few lines between blank ones that hold no code."""
    return "\n".join(["", *draw(st.lists(st.sampled_from(PROSE), max_size=5)), ""])


@st.composite
def reasoning(draw: st.DrawFn) -> str:
    """What stands before an answer: nothing, or a section with drafts in it, opened or only closed."""
    if draw(st.booleans()):
        return ""
    opened, closed = draw(st.sampled_from(TAGS))
    drafts = [
        f"```python\n{DRAFT}```",
        f"```python\n{DRAFT}",
        DRAFT,
        f"~~~\n{DRAFT}~~~",
        "x = '</think>'",
    ]
    parts = draw(st.lists(st.one_of(prose(), st.sampled_from(drafts)), max_size=3))
    start = draw(st.sampled_from(["", opened + "\n", "\n" + opened + "\n", opened]))
    return start + "\n".join(parts) + "\n" + closed + draw(st.sampled_from(["\n", "\n\n", ""]))


@st.composite
def sent(draw: st.DrawFn, text: str) -> str:
    """A text as a server sends it: line ends of any kind or mixed, a byte order mark, a special token at the end."""
    text += draw(st.sampled_from(["", "", *TOKENS, "\n" + TOKENS[0]]))
    text = draw(st.sampled_from(["", "\ufeff"])) + text
    if draw(st.booleans()):
        return text.replace("\n", draw(st.sampled_from(["\n", "\r\n", "\r"])))
    turn = draw(st.integers(1, 4))  # a lone CR before a LF would be one line end, not two
    lines = text.split("\n")
    ends = ["\r\n" if place % turn == 0 else "\n" for place in range(len(lines) - 1)]
    return "".join(line + end for line, end in zip(lines, [*ends, ""], strict=True))
