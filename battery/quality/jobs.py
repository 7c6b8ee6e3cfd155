"""From a task and an answer's code to a job for the sandbox, and the digests by which equal jobs are known."""

from __future__ import annotations

import functools
import hashlib
from pathlib import Path
from typing import Any

import battery
from battery.ledger import strict
from battery.quality.extract import compose
from battery.quality.sandbox.inside.program import FILE
from battery.quality.sandbox.inside.wire import packed
from battery.quality.sandbox.limits import Limits
from battery.quality.sandbox.pool import Job
from battery.quality.tasks import Task

NAME = "battery"
ORACLES = {
    "HumanEval/32": "zero",
    "Mbpp/164": "anything",
    "Mbpp/558": "digits",
    "Mbpp/581": "surface",
    **dict.fromkeys([f"Mbpp/{number}" for number in (2, 7, 111, 140, 232, 249, 579, 769)], "sets"),
    **dict.fromkeys([f"Mbpp/{number}" for number in (737, 787, 794)], "something"),
}
"""Plus tasks that more than one result is right for, by the oracle that knows; EvalPlus 0.3.1 has the same."""


def sources() -> tuple[Path, ...]:
    """Every file of ours that a verdict depends on, sorted: from an answer's text to what became of its program."""
    package = Path(battery.__file__).parent
    quality = package / "quality"
    return tuple(
        sorted(
            [
                *quality.glob("extract/**/*.py"),
                *quality.glob("sandbox/**/*.py"),
                *(
                    quality / f"{name}.py"
                    for name in ("arguments", "grade", "jobs", "reference", "sheet", "tasks")
                ),
                quality / "__init__.py",
                package / "__init__.py",
            ]
        )
    )


@functools.cache
def grader_version() -> str:
    """The release, and the digest of `sources`, names and bytes: another source is another grader."""
    package = Path(battery.__file__).parent
    whole = hashlib.sha256()
    for path in sources():
        name = path.relative_to(package).as_posix()
        whole.update(name.encode() + b"\0" + path.read_bytes() + b"\0")
    return f"{battery.__version__}+{whole.hexdigest()[:16]}"


def is_plus(task: Task) -> bool:
    """Whether results for inputs are compared, base and plus apart."""
    return task.suite.endswith("+")


def program(task: Task, code: str) -> str:
    """The program that is run: what the prompt defines besides the entry point, the answer's code, set-up, imports."""
    prompt = task.prompt if task.suite.startswith("humaneval") else ""
    return compose(
        prompt,
        code,
        entry_point=task.entry_point,
        setup=task.test_setup_code,
        imports=task.test_imports,
    )


def tests_digest(task: Task) -> str:
    """Over all that judges an answer, without its limits."""
    plain = (
        task.suite, task.id, task.prompt, task.entry_point, task.canonical, task.test, task.asserts,
        task.test_setup_code, task.test_imports, task.atol, ORACLES.get(task.id),
    )  # fmt: skip
    whole = hashlib.sha256(strict.canonical(plain))
    for inputs in (task.base_input, task.plus_input):
        whole.update(b"%d inputs" % len(inputs))
        for given in inputs:
            whole.update(packed(given))
    return whole.hexdigest()


def job(
    task: Task,
    code: str,
    limits: Limits,
    *,
    expected: tuple[bytes, ...] | None = None,
    weight: float = 0.0,
    name: str = "",
) -> Job:
    """The job that judges `code`; a plus task without `expected` is a job that records results instead."""
    kind, tests = _tests(task, expected)
    parts = ((FILE, program(task, code)),)
    return Job(
        id=name or task.id, kind=kind, parts=parts, entry=task.entry_point, tests=tests, limits=limits, weight=weight
    )  # fmt: skip


def _tests(task: Task, expected: tuple[bytes, ...] | None) -> tuple[str, Any]:
    """How the task is judged, and by what."""
    if task.suite == "humaneval":
        return "humaneval", {"context": task.prompt, "test": task.test}
    if task.suite == "mbpp":
        told = {
            "setup": task.test_setup_code,
            "imports": list(task.test_imports),
            "asserts": list(task.asserts),
        }
        return "asserts", told
    return "record" if expected is None else "inputs", functools.partial(_inputs, task, expected)


def _inputs(task: Task, expected: tuple[bytes, ...] | None) -> dict[str, Any]:
    """Made when the job is sent: the inputs of a whole suite are much to hold twice."""
    return {
        "inputs": [packed(given) for given in (*task.base_input, *task.plus_input)],
        "base": len(task.base_input),
        "expected": list(expected or ()),
        "oracle": ORACLES.get(task.id),
        "atol": task.atol,
        "canonical": task.solution,
    }
