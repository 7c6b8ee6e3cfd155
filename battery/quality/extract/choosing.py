"""From an answer to its code: which fence, stretch or continuation counts as the solution, and by which rule.

No rule looks at whether code is right: the last word of an answer counts, also when an earlier one was better.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass

from battery.quality.extract.cleaning import BREAK, clean, part_at_markers
from battery.quality.extract.continuation import continued, stub
from battery.quality.extract.fences import Fence, fences, outside
from battery.quality.extract.lexing import at_the_left
from battery.quality.extract.parsing import binding, parse, starts_to_define
from battery.quality.extract.reasoning import without_reasoning
from battery.quality.extract.stretches import Stretch, covered, indented_blocks, stretches

_QUOTED = 20  # functions with fences in their strings that are looked through, each at the cost of a reading


@dataclass(frozen=True)
class Found:
    """The code of an answer, the rule that found it, and what else a reader should know.

    `code` is a program of its own, with line feeds for line ends and without what surrounded it, or None where the
    answer has none. It need not parse: a solution that is a syntax error is still the solution.
    `rule` is one of:

    - `last defining fence`, `last importing fence`: it gives the entry point a function
    - `last fence that starts to define`: it does not parse; an earlier draft does not stand in for it
    - `body of the prompt`: it continues the prompt's stub, which `code` then begins with
    - `bare code`: without fences, the longest stretch that parses and defines the entry point
    - `bare code that starts to define`: the same, but nothing that defines it parses
    - `last fence`, `bare code without the entry point`: there is code, and it defines something else
    - `empty`, `only reasoning`, `no code`: None
    """

    code: str | None
    rule: str
    notes: tuple[str, ...] = ()


def extract(content: str, reasoning: str | None, entry_point: str, prompt: str = "") -> Found:
    """The code of an answer: reasoning taken away, fences read, the solution chosen.

    `reasoning` is the server's separate field. It is never searched: code that stands only there is no answer.
    `prompt` is needed for answers that merely continue it, and is the task's own text, not the chat message.
    """
    text, notes = clean(content)
    text, more = without_reasoning(text)
    notes += more
    if not text.strip():
        thought = bool(more) or bool(reasoning and reasoning.strip())
        return Found(None, "only reasoning" if thought else "empty", notes)
    found = _chosen(text, entry_point, prompt)
    return Found(found.code, found.rule, notes + found.notes)


def _chosen(text: str, entry_point: str, prompt: str) -> Found:
    fenced = _without_quoted_fences(text, entry_point)
    blocks = [block for block in fences(fenced) if block.text.strip()]
    spoken = [block for block in blocks if not block.foreign]
    bare = part_at_markers(outside(text, blocks, BREAK))
    found = (
        _defining(spoken, entry_point)
        or _defining([block for block in blocks if block.foreign], entry_point, parsed=True)
        or _importing(blocks, entry_point)
        or _continuing([block.text for block in spoken], entry_point, prompt)
    )
    if found:
        return found
    deep = [] if blocks else fences(fenced, any_margin=True)
    runs = stretches(bare)
    found = (
        _defining(deep, entry_point, parsed=True)
        or _importing(deep, entry_point)
        or _bare(runs, entry_point)
    )
    if found:
        return found
    if spoken:
        return Found(_ended(spoken[-1].text), "last fence", _told(spoken[-1]))
    return (
        _continuing(
            [*indented_blocks(bare), bare, *(block.text for block in deep)], entry_point, prompt
        )
        or _bare_start(bare, entry_point)
        or _bare_without(runs)
    )


def _without_quoted_fences(text: str, entry_point: str) -> str:
    """A text without the bare code that defines the entry point around a fence: only a string can hold one there."""
    lines = text.split("\n")
    spans = covered(text) if any(block.first for block in fences(text)) else []
    for _ in range(min(len(spans), _QUOTED)):
        quoting = next(
            (
                (first, last)
                for block in fences("\n".join(lines))
                for first, last in spans
                if first < block.first < last
            ),
            None,
        )
        tree = parse("\n".join(lines[slice(*quoting)])) if quoting else None
        if quoting is None or tree is None or binding(tree, entry_point) is None:
            break
        lines[slice(*quoting)] = [""] * (quoting[1] - quoting[0])
    return "\n".join(lines)


def _defining(blocks: list[Fence], entry_point: str, *, parsed: bool = False) -> Found | None:
    """The last block that defines the entry point; `parsed` passes over those that do not parse."""
    for block in reversed(blocks):
        text = _at_the_margin(block.text, entry_point)
        tree = parse(text)
        notes = _told(block, moved=text != block.text)
        if tree and binding(tree, entry_point) == "definition":
            return Found(_ended(text), "last defining fence", notes)
        if tree is None and not parsed and starts_to_define(text, entry_point) is not None:
            return Found(_ended(text), "last fence that starts to define", notes)
    return None


def _importing(blocks: list[Fence], entry_point: str) -> Found | None:
    """The last block that imports the entry point, where none defines it: `from answer import f` is a demonstration."""
    for block in reversed(blocks):
        tree = parse(block.text)
        if tree and binding(tree, entry_point) == "import":
            return Found(_ended(block.text), "last importing fence", _told(block))
    return None


def _continuing(texts: list[str], entry_point: str, prompt: str) -> Found | None:
    """The last text that is the body of the prompt's stub."""
    start = stub(prompt, entry_point)
    if start is None:
        return None
    for text in reversed(texts):
        code = continued(start, text)
        if code is not None:
            return Found(_ended(code), "body of the prompt")
    return None


def _bare(runs: list[Stretch], entry_point: str) -> Found | None:
    for wanted in ("definition", "import"):
        fitting = [each for each in runs if binding(each.tree, entry_point) == wanted]
        if fitting:
            return Found(_ended(_longest(fitting).text), "bare code")
    return None


def _bare_start(text: str, entry_point: str) -> Found | None:
    begun = starts_to_define(text, entry_point)
    if begun is None:
        return None
    return Found(_ended(text[begun:].replace(BREAK, "")), "bare code that starts to define")


def _bare_without(runs: list[Stretch]) -> Found:
    """Code that defines something else, so that a grader can say so; prose has none."""
    fitting = [each for each in runs if any(_makes(node) for node in each.tree.body)]
    if not fitting:
        return Found(None, "no code")
    return Found(_ended(_longest(fitting).text), "bare code without the entry point")


def _longest(fitting: list[Stretch]) -> Stretch:
    most = max(each.lines for each in fitting)
    return [each for each in fitting if each.lines == most][-1]


def _makes(statement: ast.stmt) -> bool:
    kinds = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Assign
    return isinstance(statement, kinds | ast.Import | ast.ImportFrom)


def _at_the_margin(text: str, entry_point: str) -> str:
    """A block's text, moved to the left margin where it defines the entry point there and does not parse as it is."""
    if text.lstrip("\n")[:1] in (" ", "\t"):
        moved = at_the_left(text)
        tree = parse(moved)
        if tree and binding(tree, entry_point) == "definition":
            return moved
    return text


def _ended(text: str) -> str:
    return text.strip("\n") + "\n"


def _told(block: Fence, *, moved: bool = False) -> tuple[str, ...]:
    notes = []
    if not block.closed:
        notes.append("the fence is never closed")
    if block.foreign:
        notes.append(f"the fence is labelled {block.label}")
    if moved:
        notes.append("moved to the left margin")
    return tuple(notes)
