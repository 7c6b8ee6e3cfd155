"""Plant wrong solutions: canonical ones with one small fault each, which the plus tests must find.

    python -m benchmarks.mutants --data FILE… [--each 3] [--seed 0] [--out FILE]

A mutant has one operator, comparison, constant, condition or statement changed. One that survives the tests may be no
fault at all; so survivors are run, beside the canonical solution, over inputs bred from the task's own, within its
contract. Where both agree on all of them the mutant is taken to be equivalent and left out, by name; where they do not,
it is a wrong program that the tests let pass, listed with the first input that tells them apart.

The last line is one JSON object; the exit status is 1 where fewer than 98 % of the wrong ones fail.
"""

from __future__ import annotations

import argparse
import ast
import copy
import json
import random
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from battery.quality import jobs, sources
from battery.quality.grade import Grader
from battery.quality.reference import MEMORY
from battery.quality.sandbox.inside.wire import packed
from battery.quality.sandbox.limits import Limits
from battery.quality.sandbox.pool import Sandbox
from battery.quality.tasks import Task, read, recognise
from benchmarks.canonical import answer

SWAPS: dict[type[ast.AST], tuple[type[ast.AST], ...]] = {
    ast.Lt: (ast.LtE, ast.Gt), ast.LtE: (ast.Lt,), ast.Gt: (ast.GtE, ast.Lt), ast.GtE: (ast.Gt,),
    ast.Eq: (ast.NotEq,), ast.NotEq: (ast.Eq,), ast.In: (ast.NotIn,), ast.NotIn: (ast.In,),
    ast.Add: (ast.Sub,), ast.Sub: (ast.Add,), ast.Mult: (ast.Add,), ast.Div: (ast.FloorDiv,),
    ast.FloorDiv: (ast.Mult,), ast.Mod: (ast.FloorDiv,), ast.And: (ast.Or,), ast.Or: (ast.And,),
}  # fmt: skip
BRED = 400
GOAL = 0.98
PATIENT = Limits(cpu_s=20, wall_s=60, memory=MEMORY)


def mutants(source: str) -> Iterator[tuple[str, str]]:
    """Every program that differs from `source` by one fault, with what the fault is."""
    count = len(list(_sites(ast.parse(source))))
    for number in range(count):
        tree = ast.parse(source)
        what, change = list(_sites(tree))[number]
        change()
        with_fault = ast.unparse(ast.fix_missing_locations(tree))
        yield what, with_fault + "\n"


def _sites(tree: ast.AST) -> Iterator[tuple[str, Any]]:
    """Places where one thing can be changed; each with a function that changes it."""
    for node in ast.walk(tree):
        for field, value in ast.iter_fields(node):
            members = value if isinstance(value, list) else [value]
            for place, member in enumerate(members):
                for other in SWAPS.get(type(member), ()):
                    told = f"{type(member).__name__} to {other.__name__} in line {getattr(node, 'lineno', '?')}"
                    yield (
                        told,
                        _set(node, field, place if isinstance(value, list) else None, other()),
                    )
        if isinstance(node, ast.Constant) and type(node.value) is int:
            yield (
                f"{node.value} to {node.value + 1} in line {node.lineno}",
                _set(node, "value", None, node.value + 1),
            )
        if isinstance(node, ast.If | ast.While | ast.IfExp):
            turned = ast.UnaryOp(ast.Not(), node.test)
            if isinstance(node, ast.If | ast.IfExp):
                yield f"condition turned in line {node.lineno}", _set(node, "test", None, turned)
        if isinstance(node, ast.Return) and node.value is not None:
            yield (
                f"None returned in line {node.lineno}",
                _set(node, "value", None, ast.Constant(None)),
            )


def _set(node: ast.AST, field: str, place: int | None, new: Any) -> Any:
    def change() -> None:
        if place is None:
            setattr(node, field, new)
        else:
            getattr(node, field)[place] = new

    return change


def bred(task: Task, dice: random.Random) -> tuple[tuple[Any, ...], ...]:
    """Inputs like the task's own: copies with something in them changed."""
    own = [given for given in (*task.base_input, *task.plus_input) if len(packed(given)) < 400]
    return tuple(
        tuple(_changed(value, dice) for value in copy.deepcopy(dice.choice(own)))
        for _ in range(BRED if own else 0)
    )


def _changed(value: Any, dice: random.Random) -> Any:
    """A value of the same kind, often another one."""
    if dice.random() < 0.3:
        return value
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return dice.choice([value + 1, value - 1, -value, dice.randint(-10, 30), value // 2])
    if isinstance(value, float):
        return dice.choice(
            [value + 1, -value, value / 2, float(dice.randint(-10, 30)), round(value)]
        )
    if isinstance(value, str):
        parts = list(value)
        _shuffled(parts, dice, lambda: dice.choice("ab01 .,-AZ(["))
        return "".join(parts)
    if isinstance(value, list | tuple):
        parts = [_changed(one, dice) for one in value]
        _shuffled(parts, dice, lambda: copy.deepcopy(dice.choice(parts)) if parts else None)
        return type(value)(parts)
    if isinstance(value, dict):
        return {key: _changed(one, dice) for key, one in value.items()}
    return value


def _shuffled(parts: list[Any], dice: random.Random, fresh: Any) -> None:
    """Drop, double, add or swap members."""
    what = dice.randrange(4)
    if what == 0 and parts:
        parts.pop(dice.randrange(len(parts)))
    elif what == 1 and parts:
        parts.insert(dice.randrange(len(parts)), fresh())
    elif what == 2 and len(parts) > 1:
        one, two = dice.sample(range(len(parts)), 2)
        parts[one], parts[two] = parts[two], parts[one]


def guarded(task: Task, source: str) -> str:
    """A program that answers with words where its arguments break the contract, and where the solution raises."""
    tree = ast.parse(source)
    (own,) = (n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == task.entry_point)
    body = task.contract.strip("\n") or " pass"
    contract = ast.parse(f"def __contract():\n{body}\n").body[0]
    assert isinstance(contract, ast.FunctionDef)
    contract.args = copy.deepcopy(own.args)
    wrapper = f"""
import copy as __copy
__inner = {task.entry_point}
def {task.entry_point}(*given):
    try:
        __contract(*__copy.deepcopy(given))
    except BaseException:
        return "outside the contract"
    try:
        return __inner(*given)
    except (Exception, RecursionError):
        return "raised"
"""
    return f"{source}\n{ast.unparse(ast.fix_missing_locations(contract))}\n{wrapper}"


def survivors(
    tasks: tuple[Task, ...], asked: argparse.Namespace, cache: Path
) -> tuple[int, list[tuple[Task, str, str]]]:
    """How many mutants were planted, and those that the tests let pass."""
    dice = random.Random(asked.seed)
    planted = []
    for task in tasks:
        if jobs.ORACLES.get(task.id) == "anything":
            continue  # its tests accept whatever is returned
        solution = task.solution
        plain = ast.unparse(ast.parse(solution))
        made = [one for one in mutants(solution) if one[1].strip() != plain.strip()]
        planted += [(task, *one) for one in dice.sample(made, min(asked.each, len(made)))]
    with Grader(tasks, cache=cache, keep_verdicts=False) as grader:
        rows = grader.grade([answer(task, code) for task, _, code in planted])
    return len(planted), [one for one, row in zip(planted, rows, strict=True) if row.passed]


def told_apart(task: Task, code: str, sandbox: Sandbox, dice: random.Random) -> tuple[bool, str]:
    """Whether a mutant and the canonical solution differ on bred inputs, and on which first, or why that is unknown."""
    whole = {"prompt": "", "canonical": task.solution}
    other = msgspec.structs.replace(task, base_input=(), plus_input=bred(task, dice), **whole)
    if not other.plus_input:
        return True, "no small inputs to breed from"
    ((_, right),) = sandbox.run([jobs.job(other, guarded(task, task.solution), PATIENT)])
    if right.status != "passed":
        return True, f"the canonical solution does not end on bred inputs ({right.status})"
    told = jobs.job(other, guarded(task, code), PATIENT, expected=right.expected)
    ((_, found),) = sandbox.run([told])
    if found.status == "passed":
        return False, f"agrees on {len(other.plus_input)} bred inputs"
    place = found.detail.partition("input ")[2].partition(" ")[0]
    return True, f"differs at {other.plus_input[int(place)]!r}" if place else found.status


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.mutants", description=__doc__)
    parser.add_argument("--data", type=Path, nargs="+", action="extend", required=True)
    parser.add_argument("--each", type=int, default=3, help="mutants of each task")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--cache", type=Path)
    parser.add_argument("--out", type=Path, help="where the survivors are listed, as JSON")
    asked = parser.parse_args()
    table: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as spare:
        for path in asked.data:
            source = sources.from_file(path)
            suite = recognise(source.data, source.name)
            tasks = read(suite, source.data, source.name).tasks
            planted, left = survivors(tasks, asked, asked.cache or Path(spare))
            table[suite] = judged(planted, left, asked.seed)
            print(suite, {key: value for key, value in table[suite].items() if key != "survivors"})
    if asked.out:
        asked.out.write_text(json.dumps(table, indent=1) + "\n")
    rates = {suite: one["failed_share"] for suite, one in table.items()}
    print(json.dumps(rates))
    return 1 if min(rates.values()) < GOAL else 0


def judged(planted: int, left: list[tuple[Task, str, str]], seed: int) -> dict[str, Any]:
    """Survivors apart: equivalent ones, and wrong ones that the tests let pass."""
    wrong, same = [], []
    dice = random.Random(seed)
    with Sandbox() as sandbox:
        for task, what, code in left:
            differs, why = told_apart(task, code, sandbox, dice)
            (wrong if differs else same).append({"task": task.id, "fault": what, "why": why})
            print(f"{task.id}: {what}: {why}", flush=True)
    truly = planted - len(same)
    return {
        "planted": planted, "equivalent": len(same), "wrong": truly, "failed": truly - len(wrong),
        "failed_share": round((truly - len(wrong)) / truly, 4), "survivors": {"wrong": wrong, "equivalent": same},
    }  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
