"""Real tasks: canonical solutions come back out of every style of answer, and the shared cases get their verdicts."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import textwrap
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from shared_data import shared_file, shared_rows

from battery.quality.extract import MODULE_NAME, Found, compose, extract

HUMANEVAL = "data/HumanEvalPlus-v0.1.10.jsonl.gz"
MBPP = "data/sanitized-mbpp.json"
CASES = "cases/quality.jsonl"
RISKY = ("limits/process", "limits/memory", "limits/recursion")  # not without a sandbox
ENDLESS = "while True"


@cache
def solutions() -> list[tuple[str, str]]:
    """Entry point and canonical program of every HumanEval(+), MBPP+ and sanitized MBPP task."""
    found = [
        (t["entry_point"], t["prompt"] + t["canonical_solution"]) for t in shared_rows(HUMANEVAL)
    ]
    plus = shared_rows("data/MbppPlus-v0.2.0.jsonl.gz")
    found += [(t["entry_point"], t["canonical_solution"]) for t in plus]
    found += [(_tested(t["code"], t["test_list"]), t["code"]) for t in shared_rows(MBPP)]
    return [(entry, _plain(code)) for entry, code in found]


def _tested(code: str, tests: list[str]) -> str:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # invalid escapes in the data
        names = [node.name for node in ast.parse(code).body if isinstance(node, ast.FunctionDef)]
    return [name for name in names if re.search(rf"\b{name}\b", " ".join(tests))][-1]


def _plain(code: str) -> str:
    return code.replace("\r\n", "\n").replace("\r", "\n").rstrip().lstrip("\n") + "\n"


def _behind(margin: str, code: str) -> str:
    return "".join(margin + line + "\n" for line in code.splitlines())


STYLES: dict[str, Callable[[str], str]] = {
    "fence": lambda code: f"It's here.\n\n```python\n{code}```\n\nThis (see above) isn't hard.\n",
    "tildes": lambda code: f"~~~~ py\n{code}~~~~",
    "unclosed": lambda code: f"Sure!\n```\n{code}",
    "list": lambda code: f"1. Write:\n\n{_behind('   ', f'```python{chr(10)}{code}```')}2. Run.\n",
    "quotation": lambda code: _behind("> ", f"```python\n{code}```") + "So it says.\n",
    "markdown": lambda code: f"````markdown\n# Title\n```python\n{code}```\n````\n",
    "demonstration": lambda code: (
        f"```python\n{code}```\nUse:\n```python\nprint(1)\n```\n```text\n1\n```\n"
    ),
    "carriage returns": lambda code: f"Here\n```python\n{code}```\n".replace("\n", "\r\n"),
    "thought": lambda code: f"<think>\nIt's\n```python\n{code}\n</think>\n```python\n{code}```\n",
    "closing tag": lambda code: f"It's\n```python\n{code}```\n</think>\n{code}",
    "bare": lambda code: code,
    "bare between prose": lambda code: (
        f"Sure, it's this (don't worry:\n\n{code}\nDone\n1. It's so\n- a\n"
    ),
    "markers": lambda code: f"[BEGIN]\n{code}[DONE]\n",
    "indented block": lambda code: (
        f"Here:\n\n{textwrap.indent(code, '    ', lambda _: True)}\nDone.\n"
    ),
}


@pytest.mark.parametrize("style", STYLES)
def test_canonical_solutions_come_back_byte_for_byte(style: str) -> None:
    missed = [
        (entry, found.rule)
        for entry, code in solutions()
        if (found := extract(STYLES[style](code), None, entry)).code != code
    ]
    assert len(solutions()) == 164 + 378 + 427
    assert not missed


def test_canonical_bodies_continue_their_prompts() -> None:
    for task in shared_rows(HUMANEVAL):
        body, prompt = task["canonical_solution"], task["prompt"]
        for text in (
            body,
            textwrap.dedent(body.strip("\n")),
            body.strip(),
            f"```python\n{body}\n```",
        ):
            found = extract(text, None, task["entry_point"], prompt)
            assert found.rule == "body of the prompt" and found.code
            program = compose(prompt, found.code, entry_point=task["entry_point"])
            assert ast.dump(ast.parse(program)) == ast.dump(ast.parse(prompt + body)), task[
                "task_id"
            ]


def _tasks() -> dict[str, dict[str, Any]]:
    tasks = {task["task_id"]: task for task in shared_rows(HUMANEVAL)}
    for name in ("data/mbpp.jsonl", MBPP):
        tasks |= {f"MBPP {task['task_id']}": task for task in shared_rows(name)}
    return tasks


def _judged(case: dict[str, Any], task: dict[str, Any]) -> tuple[Found, str, str]:
    """What is found in a case, its program, its tests."""
    entry, mbpp = case["entry_point"], "test_list" in task
    prompt = "" if mbpp else task["prompt"]
    found = extract(case["completion"], None, entry, prompt)
    setup, imports = task.get("test_setup_code", ""), task.get("test_imports", [])
    program = compose(prompt, found.code or "", entry_point=entry, setup=setup, imports=imports)
    tests = "\n".join(task["test_list"]) if mbpp else f"{task['test']}\ncheck({entry})"
    return found, program, tests


def _passes(program: str, tests: str, folder: Path) -> bool:
    """Run a program and its tests in a process of their own; what it says last is out of the program's sight."""
    script = (
        "import sys\nparts = sys.stdin.read().split('\\0')\nsys.stdin = open('/dev/null')\n"
        f"space = {{'__name__': {MODULE_NAME!r}}}\n"
        "for part in parts:\n    exec(compile(part, 'program', 'exec'), space)\nsys.exit(77)\n"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-W", "ignore", "-c", script],
        input=f"{program}\0{tests}\n",
        text=True,
        capture_output=True,
        cwd=folder,
        timeout=60,
    )
    return done.returncode == 77


def test_the_shared_cases_get_their_verdicts(tmp_path: Path) -> None:
    shared_file(CASES)
    tasks, wrong = _tasks(), []
    for number, case in enumerate(shared_rows(CASES)):
        task = case if case["task_id"] == "custom" else tasks[case["task_id"]]
        found, program, tests = _judged(case, task)
        right = case["expected"].get("code_passes", case["expected"]["passed"])
        if case["kind"] in RISKY or ENDLESS in case["completion"]:
            assert found.rule == "last defining fence"
            continue
        folder = tmp_path / str(number)
        folder.mkdir()
        passed = found.code is not None and _passes(program, tests, folder)
        if passed != right:
            wrong.append((case["id"], found.rule))
    assert not wrong
