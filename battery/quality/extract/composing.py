"""From a task's prompt and an answer's code to the program that is run, still without its tests.

Nothing of the answer is dropped. First comes what the prompt defines besides the stub (imports and helpers, which the
answer or the tests may call), then the answer, then a suite's set-up and imports. What a grader does with it:

- compile and run the program apart from the tests, which call it from another process. So a `check` that the answer
  defines is never the suite's, and an answer that ends inside a string cannot swallow the tests.
- give the namespace `MODULE_NAME` as its `__name__`: code under a test for `__main__` does not run.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

from battery.quality.extract.continuation import stub
from battery.quality.extract.parsing import compiles, parse

MODULE_NAME = "answer"


def compose(
    prompt: str,
    code: str,
    *,
    entry_point: str = "",
    setup: str = "",
    imports: Sequence[str] = (),
) -> str:
    """The program of an answer: future imports, the prompt's helpers, the code, `setup`, `imports`.

    The prompt's own empty definition of the entry point is left out: were it kept, an answer that defines another
    name would be graded as a function that returns None. A prompt that is no Python (a task in prose) adds nothing.
    For MBPP give no prompt, `test_setup_code` as `setup` and `test_imports` as `imports`: two tasks of the full set
    need their code before the set-up. A `from __future__` import that Python accepts in the code alone moves to the
    top of the program; one that stands elsewhere stays and is the syntax error that it is.
    """
    parts, futures = [], []
    for source in (_helpers(prompt, entry_point), code):
        future, rest = _without_futures(source)
        futures += future
        parts.append(rest)
    parts += [setup, *imports]
    return "".join(
        part.rstrip("\n") + "\n\n" for part in ["\n".join(futures), *parts] if part.strip()
    )


def _helpers(prompt: str, entry_point: str) -> str:
    text = prompt.replace("\r\n", "\n").replace("\r", "\n")
    start = stub(text, entry_point) if entry_point else None
    if start is not None:
        text = start.before + start.after
    return text if parse(text) is not None else ""


def _without_futures(source: str) -> tuple[list[str], str]:
    """The future imports of a text as lines of their own, and the text with `pass` in their places."""
    tree = parse(source) if "__future__" in source else None
    if tree is None or not compiles(tree):
        return [], source
    nodes = [
        node
        for node in tree.body
        if isinstance(node, ast.ImportFrom) and node.module == "__future__" and not node.level
    ]
    lines = [line.encode() for line in source.split("\n")]  # the tree counts columns in bytes
    for node in reversed(nodes):
        first, last = node.lineno - 1, (node.end_lineno or node.lineno) - 1
        joined = lines[first][: node.col_offset] + b"pass" + lines[last][node.end_col_offset :]
        lines[first : last + 1] = [joined, *[b""] * (last - first)]
    return [ast.unparse(node) for node in nodes], b"\n".join(lines).decode()
