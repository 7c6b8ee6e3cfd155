"""Answers graded: every status, what was cut off, the grader's test of itself, and verdicts that are kept."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import msgspec
import pytest

from battery.ledger.answers import Answer, Graded
from battery.quality import grade, jobs
from battery.quality.grade import Grader
from battery.quality.reference import FLOOR_S, Reference, Shelf, limits
from battery.quality.sandbox.limits import Limits
from battery.quality.sandbox.pool import GraderError, Outcome
from battery.quality.tasks import Loaded, Task
from battery.quality.verdicts import KEPT, Verdicts, installed, key, surroundings

RIGHT = "def plus_0(x):\n    return x\n"


def answer(task: str, code: str | None, **more: Any) -> Answer:
    told: dict[str, Any] = {
        "suite": "humaneval", "task": task, "sample": 0, "seed": 0, "request_digest": "", "started": "",
        "finish_reason": "stop", "content": "" if code is None else f"```python\n{code}```\n",
    }  # fmt: skip
    return Answer(**{**told, **more})


def graded(tasks: Sequence[Task], answers: list[Answer], cache: Path | None = None) -> list[Graded]:
    with Grader(tasks, cache=cache, workers=1) as grader:
        return grader.grade(answers)


def test_every_answer_gets_its_status(few: Loaded) -> None:
    task = "HumanEval/0"
    given = [
        answer(task, RIGHT),
        answer(task, "def plus_0(x):\n    return x + 1\n"),
        answer(task, "def plus_0(x:\n"),
        answer(task, "import a_package_that_is_nowhere\n" + RIGHT),
        answer(task, "def plus_0(x):\n    return [bytearray(1 << 30) for _ in range(9)]\n"),
        answer(task, "import ctypes\ndef plus_0(x):\n    return ctypes.string_at(8)\n"),
        answer(task, None),
        answer(task, RIGHT, finish_reason="length"),
        answer(task, "def plus_0(x):\n    retu", finish_reason="length"),
        answer(task, None, finish_reason="length"),
        answer(task, RIGHT, error="connection refused", content="", finish_reason=None),
        answer(task, None, content="", reasoning=f"```python\n{RIGHT}```"),
    ]
    rows = graded(few.tasks, given)
    assert [row.status for row in rows] == [
        "passed", "failed", "syntax_error", "import_error", "memory", "crash", "empty", "cut_off", "cut_off", "cut_off",
        "request_error", "empty",
    ]  # fmt: skip
    assert [row.passed for row in rows] == [True] + [False] * 11
    assert "passes" in (rows[7].detail or "") and "does not pass" in (rows[8].detail or "")
    assert all(row.base is None for row in rows)


def test_rows_come_in_the_order_of_answers_and_say_what_was_run(few: Loaded) -> None:
    given = [answer(task.id, task.solution, sample=n) for n in (0, 1) for task in few.tasks]
    rows = graded(few.tasks, given)
    assert [(row.task, row.sample) for row in rows] == [(one.task, one.sample) for one in given]
    assert all(row.passed and row.program_digest and row.rule for row in rows)
    assert rows[0].program_digest == rows[6].program_digest != rows[1].program_digest


def test_a_grader_whose_canonical_solution_fails_refuses(few: Loaded) -> None:
    broken = msgspec.structs.replace(few.tasks[1], canonical="    return x - 100\n")
    with pytest.raises(GraderError, match=r"HumanEval/1: its canonical solution does not pass"):
        graded([few.tasks[0], broken], [])


def test_a_grader_whose_tests_test_nothing_refuses(few: Loaded) -> None:
    empty = [
        msgspec.structs.replace(task, test="def check(candidate): pass\n") for task in few.tasks
    ]
    with pytest.raises(GraderError, match="a planted wrong program passes"):
        graded(empty, [])


def test_a_kept_verdict_spares_the_run_and_changes_nothing(
    few: Loaded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # limits are part of the key, and follow how slow the machine is just now
    monkeypatch.setattr(grade, "limits", lambda *given: Limits())
    given = [answer("HumanEval/0", RIGHT), answer("HumanEval/0", "def plus_0(x):\n    return 5\n")]
    first, second = (graded(few.tasks, given, tmp_path) for _ in range(2))
    assert all(row.seconds is not None for row in first)
    assert all(row.seconds is None for row in second)
    forget = {"seconds": None}
    assert [msgspec.structs.replace(row, **forget) for row in first] == second


def test_a_verdict_is_found_only_under_all_that_it_follows_from(few: Loaded) -> None:
    task, digest = few.tasks[0], jobs.tests_digest(few.tasks[0])
    plain = key(jobs.job(task, RIGHT, Limits()), digest)
    other_tests = msgspec.structs.replace(task, test=task.test + "\n    assert candidate(3) == 3\n")
    assert jobs.tests_digest(other_tests) != digest
    others = [
        key(jobs.job(task, RIGHT + "x = 1\n", Limits()), digest),
        key(jobs.job(task, RIGHT, Limits(cpu_s=6)), digest),
        key(jobs.job(task, RIGHT, Limits(memory=1)), digest),
        key(jobs.job(task, RIGHT, Limits()), jobs.tests_digest(other_tests)),
        *(
            key(jobs.job(task, RIGHT, Limits()), digest, {**surroundings(), name: "another"})
            for name in ("grader", "python", "numpy", "packages", "fences")
        ),
    ]
    assert key(jobs.job(task, RIGHT, Limits()), digest) == plain
    assert plain not in others


def test_a_test_counts_as_base_or_plus_in_the_digest(few: Loaded) -> None:
    one = msgspec.structs.replace(few.tasks[0], base_input=((1,),), plus_input=((2,),))
    other = msgspec.structs.replace(one, base_input=((1,), (2,)), plus_input=())
    assert jobs.tests_digest(one) != jobs.tests_digest(other)


def test_only_what_time_cannot_change_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "verdicts.jsonl"
    kept = Verdicts(path)
    for status in (
        "passed",
        "failed",
        "timeout",
        "memory",
        "crash",
        "import_error",
        "syntax_error",
    ):
        kept.put(status, Outcome(status=status), RIGHT)
    kept.put("chance", Outcome(status="passed"), f"import random\n{RIGHT}")
    path.write_bytes(path.read_bytes() + b'{"key": "torn", "outco')
    again = Verdicts(path)
    assert {name for name in ("passed", "timeout", "crash", "chance") if again.get(name)} == {
        "passed"
    }
    assert len(again) == len(KEPT)
    forged = path.read_bytes().replace(b'"failed"', b'"timeout"')
    path.write_bytes(forged)
    assert Verdicts(path).get("failed") is None


def test_limits_follow_from_the_canonical_times(few: Loaded) -> None:
    task = few.tasks[0]
    quick = {one.id: Reference(0.01) for one in few.tasks}
    assert limits(task, quick).cpu_s == FLOOR_S
    assert limits(task, {**quick, task.id: Reference(10.0)}).cpu_s == 96.0
    assert limits(task, {one.id: Reference(0.1) for one in few.tasks}).cpu_s == 12.0
    assert limits(task, quick, slowness=50).cpu_s == 96.0
    assert limits(task, quick).wall_s > limits(task, quick).cpu_s


def test_a_reference_is_found_for_the_same_tests_only(few: Loaded, tmp_path: Path) -> None:
    shelf, task = Shelf(tmp_path), few.tasks[0]
    shelf.put(task, Reference(1.5, expected=(b"=1",)))
    assert shelf.get(task) == Reference(1.5, expected=(b"=1",))
    assert shelf.get(few.tasks[1]) is None
    assert shelf.get(msgspec.structs.replace(task, atol=1.0)) is None
    for path in tmp_path.iterdir():
        path.write_bytes(path.read_bytes()[:-1])
    assert shelf.get(task) is None


def test_an_mbpp_answer_may_use_what_its_tests_import() -> None:
    task = Task(
        suite="mbpp", id="Mbpp/82", prompt="", entry_point="volume", canonical="def volume(r): return r\n",
        test_imports=("import math",), asserts=("assert volume(2) == 2", "assert math.pi > 3"),
    )  # fmt: skip
    code = "def volume(r):\n    return round(math.pi * r / math.pi)\n"
    (row,) = graded([task], [answer("Mbpp/82", code, suite="mbpp")])
    assert (row.status, row.detail) == ("passed", None)


def test_what_a_program_says_names_no_folder_of_this_machine(few: Loaded) -> None:
    code = "from collections import Iterable\n" + RIGHT
    (row,) = graded(few.tasks, [answer("HumanEval/0", code)])
    assert row.status == "import_error" and "cannot import name 'Iterable'" in (row.detail or "")
    assert sys.base_prefix not in (row.detail or "") and "collections" in (row.detail or "")


def test_an_answer_without_a_program_passes_no_base_tests_of_a_plus_suite() -> None:
    task = Task(
        suite="humaneval+", id="HumanEval/0", prompt="def twice(x):\n", entry_point="twice",
        canonical="    return 2 * x\n", base_input=((1,),), plus_input=((2,),),
    )  # fmt: skip
    given = [
        answer(task.id, code, suite="humaneval+")
        for code in (None, "def twice(x):\n    return 2\n")
    ]
    assert [row.base for row in graded([task], given)] == [False, True]


def test_packages_are_told_by_name_and_version(tmp_path: Path) -> None:
    for name in ("numpy-2.4.0.dist-info", "old-1.0.egg-info", "numpy", "notes.txt"):
        (tmp_path / name).mkdir()
    assert installed([str(tmp_path), str(tmp_path / "nowhere")]) == {
        "numpy-2.4.0.dist-info",
        "old-1.0.egg-info",
    }
    assert f"numpy-{metadata.version('numpy')}.dist-info" in installed(sys.path)
