"""The stub that a prompt ends with, and answers that only go on with its body.

A raw completion of `def add(x, y):` with its docstring is four indented lines and no `def`. Servers and models also
lose or add blanks before the first line, or indent by another step than the prompt, so a body is tried as it stands,
then moved as a whole, then with its first line put level with the rest. Lines that lie inside a string keep their
blanks whatever is moved.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from battery.quality.extract.lexing import margin, starts_inside_a_string
from battery.quality.extract.parsing import compiles, idle, parse


@dataclass(frozen=True)
class Stub:
    """A function without a body: the prompt's text before it, its own text, what follows, its indentation."""

    before: str
    text: str
    after: str
    indent: str

    @property
    def last(self) -> bool:
        """Whether the prompt ends with it, so that an answer can go on where it ends."""
        return not self.after.strip()


def stub(prompt: str, entry_point: str) -> Stub | None:
    """The prompt's empty definition of the entry point, or None: a prompt of prose, or a function that has a body.

    A prompt that stops right after `def f(x):` is understood as well.
    """
    text = prompt.replace("\r\n", "\n").replace("\r", "\n")
    tree = parse(text) or parse(text.rstrip() + "\n    pass\n")
    for node in reversed(tree.body if tree else []):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == entry_point:
            if not all(_empty(statement) for statement in node.body):
                return None
            lines = text.split("\n")
            first = min([node.lineno, *(each.lineno for each in node.decorator_list)]) - 1
            last = min(node.end_lineno or node.lineno, len(lines))
            inside = node.body[0]
            line = lines[inside.lineno - 1] if inside.lineno <= len(lines) else ""
            own = inside.lineno > node.lineno and line.strip()
            return Stub(
                before="\n".join(lines[:first]) + "\n" if first else "",
                text="\n".join(lines[first:last]).rstrip("\n") + "\n",
                after="\n".join(lines[last:]),
                indent=margin(line) if own else "    ",
            )
    return None


def continued(start: Stub, body: str) -> str | None:
    """The whole function, where a text is the body that the stub lacks; None where it is none.

    A body is indented, or has a `return` or `yield` that belongs to no function of its own. All of it must land inside
    the function, but for a text that goes on as it stands: that may have more below.
    """
    if not start.last or not body.strip():
        return None
    body = body.strip("\n") + "\n"
    if body[0] in " \t":
        whole = start.text + body
        tree = parse(whole)
        if tree and compiles(whole) and _does_more(tree, start):
            return whole
    for moved in _moved(body, start.indent):
        whole = start.text + moved
        tree = parse(whole)
        if tree is None or len(tree.body) != 1 or not compiles(whole):
            continue
        given = any(_gives(statement) for statement in _body(tree))
        if given or (body[0] in " \t" and _does_more(tree, start)):
            return whole
    return None


def _moved(body: str, indent: str) -> Iterator[str]:
    lines = body.rstrip("\n").split("\n")
    free = [
        bool(line.strip()) and not inside
        for line, inside in zip(lines, starts_inside_a_string(body), strict=False)
    ]
    margins = [margin(line) for line in lines]
    ours = [each for each, own in zip(margins, free, strict=True) if own]
    for first in (None, min(ours[1:], key=len, default=""), indent):
        if first is not None:  # the first line lost its blanks, or won some
            lines[0], ours[0] = first + lines[0].lstrip(" \t"), first
        least = min(ours, key=len)
        yield "".join(
            (indent + line[len(least) :] if own else line) + "\n"
            for line, own in zip(lines, free, strict=True)
        )


def _empty(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Pass) or (
        isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
    )


def _body(tree: ast.Module | None) -> list[ast.stmt]:
    first = tree.body[0] if tree and tree.body else None
    return first.body if isinstance(first, ast.FunctionDef | ast.AsyncFunctionDef) else []


def _does_more(tree: ast.Module, start: Stub) -> bool:
    """Whether the function has a statement beyond the stub's that is more than a word of prose that parses."""
    own = len(_body(parse(start.text)))
    return any(not idle(statement) for statement in _body(tree)[own:])


def _gives(statement: ast.AST) -> bool:
    """Whether a statement has a `return` or `yield` that is not a nested function's."""
    waiting = [statement]  # no recursion: a long sum is as deep as it is long
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Return | ast.Yield | ast.YieldFrom):
            return True
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            waiting += ast.iter_child_nodes(node)
    return False
