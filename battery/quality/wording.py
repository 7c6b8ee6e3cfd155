"""The words around a task. Its own text goes out byte for byte, in a fence that nothing in it can close.

A blank more or less at a prompt's end moves scores by tens of points on some models, so the text is never stripped or
wrapped; a fence needs its closing line to begin on a line of its own, which is the only byte that may be added. The
name of the style is in every receipt: figures of two styles are not compared.
"""

from __future__ import annotations

import re

from battery.quality.tasks import Task

STYLE = "battery/1"
_ANSWER = (
    "Answer with one complete function, with the imports that it needs, in one fenced code block."
)


def fenced(text: str, label: str) -> str:
    """`text` in a fenced block whose fence is longer than any run of backticks in it."""
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{label}\n{text}{'' if text.endswith(chr(10)) else chr(10)}{fence}"


def question(task: Task) -> str:
    """The message that asks for a task."""
    if task.suite != "mbpp":
        return f"Complete this Python function. {_ANSWER}\n\n{fenced(task.prompt, 'python')}"
    tests = "\n".join(filter(None, (task.test_setup_code, *task.test_imports, *task.asserts)))
    return (
        f"Solve this task in Python. {_ANSWER}\n\n{fenced(task.prompt, 'text')}\n\n"
        f"The function must pass these tests:\n\n{fenced(tests, 'python')}"
    )


def messages(task: Task) -> list[dict[str, str]]:
    """The conversation that asks for a task: one turn of the user, no system prompt and nothing prefilled."""
    return [{"role": "user", "content": question(task)}]
