"""What Python makes of a text: whether it parses, which names it binds, whether it at least starts to define one.

Nothing here runs a text. Warnings that the compiler has about it (an invalid escape, `is` with a literal) are the
answer's own affair and are kept from this process, whose warnings may be errors.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterator, Sequence
from types import EllipsisType
from typing import Literal

Binding = Literal["definition", "import"]

# deep nesting ends in the last two, a null byte or a lone surrogate in a ValueError
UNPARSED = (SyntaxError, ValueError, RecursionError, MemoryError)
_IDLE = (
    ast.Name, ast.Attribute, ast.Constant, ast.Tuple, ast.List, ast.Set, ast.Starred, ast.Subscript, ast.Slice,
    ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.operator, ast.unaryop, ast.boolop, ast.cmpop, ast.expr_context,
)  # fmt: skip


def parse(source: str) -> ast.Module | None:
    """The tree of a text, or None when Python would refuse its grammar."""
    try:
        return parse_or_raise(source)
    except UNPARSED:
        return None


def parse_or_raise(source: str) -> ast.Module:
    """The tree of a text; raises one of `UNPARSED`, whose line number (if it has one) says where it ends."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ast.parse(source)


_NO_FUNCTION = (
    ast.Constant | ast.JoinedStr | ast.List | ast.Tuple | ast.Set | ast.Dict | ast.ListComp | ast.SetComp | ast.DictComp
    | ast.GeneratorExp | ast.BinOp | ast.UnaryOp | ast.Compare
)  # fmt: skip
"""Expressions whose value cannot be called."""


def compiles(source: str | ast.Module) -> bool:
    """Whether Python would start to run a text: its grammar, and that `return` and its like stand in a function."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compile(source, "<answer>", "exec", dont_inherit=True)
    except UNPARSED:
        return False
    return True


def binding(tree: ast.Module, name: str) -> Binding | None:
    """How a module gives a name a function: by a definition (a def or an assignment), by an import, or not at all.

    Compound statements (`if`, `try`, `with`, loops) bind at module level too, but for what stands under a
    test of `__name__`, which never runs in a graded program. A class is no function, and neither is its method.
    """
    found: Binding | None = None
    for statement in module_level(tree.body):
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
            if statement.name == name:
                return "definition"
        elif any(_callable(value, name) for value in _assigned(statement, name)):
            return "definition"
        elif isinstance(statement, ast.Import | ast.ImportFrom) and name in _imported(statement):
            found = "import"
    return found


def module_level(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """Every statement that runs at module level, those inside compound statements after their own."""
    for statement in body:
        yield statement
        if isinstance(statement, ast.If):
            if not _asks_for_main(statement):
                yield from module_level(statement.body)
            yield from module_level(statement.orelse)
        elif isinstance(statement, ast.For | ast.AsyncFor | ast.While):
            yield from module_level([*statement.body, *statement.orelse])
        elif isinstance(statement, ast.With | ast.AsyncWith):
            yield from module_level(statement.body)
        elif isinstance(statement, ast.Try | ast.TryStar):
            handlers = [inner for handler in statement.handlers for inner in handler.body]
            yield from module_level(
                [*statement.body, *handlers, *statement.orelse, *statement.finalbody]
            )
        elif isinstance(statement, ast.Match):
            yield from module_level([inner for case in statement.cases for inner in case.body])


def starts_to_define(source: str, name: str) -> int | None:
    """Where a text that does not parse last begins, at its left margin, a function or an assignment of that name."""
    word = re.escape(name)
    made = rf"(?:lambda\b|(?!{word}\b)[^\W\d][\w.]*[ \t]*(?:\(|$))"
    begun = rf"^(?:(?:async[ \t]+)?def[ \t]+{word}\b|{word}[ \t]*(?::[^=\n]+)?=(?!=)[ \t]*{made})"
    places = [match.start() for match in re.finditer(begun, source, re.MULTILINE)]
    return places[-1] if places else None


def idle(statement: ast.stmt) -> bool:
    """Whether evaluating a statement can have no effect but an error: bare names, comparisons, `note: see`."""
    if isinstance(statement, ast.AnnAssign):
        return statement.value is None
    if not isinstance(statement, ast.Expr):
        return False
    if isinstance(statement.value, ast.Constant):
        return not isinstance(statement.value.value, str | bytes | EllipsisType)
    return all(isinstance(node, _IDLE) for node in ast.walk(statement.value))


def _asks_for_main(statement: ast.If) -> bool:
    return any(
        isinstance(node, ast.Name) and node.id == "__name__" for node in ast.walk(statement.test)
    )


def _assigned(statement: ast.stmt, name: str) -> Iterator[ast.expr]:
    """What a statement assigns to a name."""
    if isinstance(statement, ast.Assign):
        targets: list[ast.expr] = statement.targets
    elif isinstance(statement, ast.AnnAssign):
        targets = [statement.target]
    else:
        return
    if statement.value is not None:
        for target in targets:
            yield from _unpacked(target, statement.value, name)


def _unpacked(target: ast.expr, value: ast.expr, name: str) -> Iterator[ast.expr]:
    """What `target = value` gives a name: its own part where both are written out, else the whole value."""
    if isinstance(target, ast.Name):
        if target.id == name:
            yield value
    elif isinstance(target, ast.Tuple | ast.List):
        parts = value.elts if isinstance(value, ast.Tuple | ast.List) else []
        even = len(parts) == len(target.elts)
        for place, part in enumerate(target.elts):
            inner = part.value if isinstance(part, ast.Starred) else part
            yield from _unpacked(inner, parts[place] if even else value, name)


def _callable(value: ast.expr, name: str) -> bool:
    """Whether an expression may be a function: no constant, display or arithmetic, and no call of the name itself.

    An explanation behind the solution assigns such things: `f = [1, 2, 6]`, `add = add(1, 2)`.
    """
    if isinstance(value, ast.Call):
        return not (isinstance(value.func, ast.Name) and value.func.id == name)
    return not isinstance(value, _NO_FUNCTION)


def _imported(statement: ast.Import | ast.ImportFrom) -> set[str]:
    return {alias.asname or alias.name.partition(".")[0] for alias in statement.names}
