"""Answers with a known right verdict, graded one by one: the test of extraction and sandbox together.

A file has one case a line: `id`, `task_id` (`HumanEval/53`, `MBPP 8`, or `custom` with `prompt` and `test` of its own),
`completion`, `entry_point`, `finish_reason`; what else stands there (such as `expected`) is not looked at.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import msgspec

from battery.ledger.answers import Answer, Graded, SuiteName
from battery.ledger.errors import InputError
from battery.quality import sources
from battery.quality.grade import Grader
from battery.quality.tasks import Task, read, recognise


class Case(msgspec.Struct, frozen=True):
    """One answer to one task."""

    id: str
    task_id: str
    completion: str
    entry_point: str
    finish_reason: str | None = None
    reasoning: str | None = None
    prompt: str = ""
    test: str = ""


def read_cases(path: Path) -> list[Case]:
    """The cases of a file; InputError names the first line that is none."""
    try:
        lines = path.read_bytes().split(b"\n")
    except OSError as missing:
        raise InputError(f"{path}: cannot be read ({missing.strerror})") from missing
    found = []
    for number, line in enumerate(lines, start=1):
        if line.strip():
            try:
                found.append(msgspec.json.decode(line, type=Case))
            except (msgspec.DecodeError, UnicodeDecodeError) as wrong:
                raise InputError(f"{path}:{number}: no case ({wrong})") from wrong
    if len({case.id for case in found}) < len(found) or not found:
        raise InputError(f"{path}: no cases, or an id twice")
    return found


def graded(
    cases: Sequence[Case], data: Iterable[Path] = (), workers: int | None = None
) -> Iterator[tuple[Case, Graded]]:
    """Every case with its verdict, in order. Data come from `data`, else from where each suite's do."""
    known = _known(cases, data)
    tasks = {case.id: _task(case, known) for case in cases}
    answers = [
        Answer(
            suite=tasks[case.id].suite, task=case.id, sample=0, seed=0, request_digest="", content=case.completion,
            reasoning=case.reasoning, finish_reason=case.finish_reason, started="",
        )
        for case in cases
    ]  # fmt: skip
    with Grader(list(tasks.values()), workers=workers) as grader:
        yield from zip(cases, grader.grade(answers), strict=True)


def _known(cases: Sequence[Case], data: Iterable[Path]) -> dict[str, Task]:
    """The tasks that the cases name, by id in lower case."""
    found: dict[str, Task] = {}
    for path in data:
        source = sources.from_file(path)
        suite = recognise(source.data, source.name)
        for task in read(suite, source.data, source.name).tasks:
            found.setdefault(task.id.lower(), task)
    wanted: dict[str, SuiteName] = {"humaneval/": "humaneval", "mbpp/": "mbpp"}
    for prefix, suite in wanted.items():
        ids = {name for case in cases if (name := _name(case)).startswith(prefix)}
        if ids - set(found):
            for task in sources.load([suite])[0].tasks:
                found.setdefault(task.id.lower(), task)
    return found


def _name(case: Case) -> str:
    return case.task_id.replace(" ", "/").lower()


def _task(case: Case, known: dict[str, Task]) -> Task:
    """The task of a case, under the case's own id: two cases may ask the same."""
    if case.task_id == "custom":
        return Task(
            suite="humaneval", id=case.id, prompt=case.prompt, entry_point=case.entry_point,
            canonical="", test=case.test,
        )  # fmt: skip
    found = known.get(_name(case))
    if found is None:
        raise InputError(
            f"{case.id}: no task {case.task_id} in the data; give its file with --data"
        )
    suite: SuiteName = "mbpp" if found.asserts else "humaneval"
    return msgspec.structs.replace(found, id=case.id, suite=suite, entry_point=case.entry_point)
