"""What files say of how they were made: told where arms differ by it, warned of where the files of one arm do."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from taking import FOLDER, changed, found, loaded, written

from battery.analyse.foreign.reading.document import Node
from battery.analyse.foreign.reading.joining import join
from battery.analyse.foreign.reading.recognise import Found
from battery.analyse.foreign.reading.settings import differences, file_name, made_with, shown

SAME = "its files were not made alike"
APART = "by their own word the files of the arms differ in "


def files(*names: str) -> list[Found]:
    return [found(FOLDER / name) for name in names]


def notes(some: list[Found], arms: str = "AC") -> list[str]:
    return [note for note in join(some, list(arms)).notes if SAME in note or note.startswith(APART)]


def test_arms_of_llama_bench_differ_in_what_was_meant_and_no_more() -> None:
    assert notes(files("llama-bench/A.json", "llama-bench/C.json")) == [
        f"{APART}n_threads: A 1, C 2"
    ]
    # the settings in which the tests of one file differ name its arms
    assert not [note for note in join(files("llama-bench/threads.jsonl")).notes if APART in note]


def test_a_file_of_another_thing_under_the_name_of_an_arm_is_told(tmp_path: Path) -> None:
    some = files("llama-bench/A.json", "llama-bench/C.json")
    tests = loaded("llama-bench/A.json")
    for one in tests:
        one.update(n_threads=2, model_filename="/data/of somebody/other.gguf", type_k="q8_0")
    some.append(found(written(tmp_path, tests)))
    (told,) = notes(some, "ACA")
    assert told.startswith(
        f"arm A: {SAME} (model_filename SmolLM2-135M-Instruct.Q4_1.gguf, other.gguf;"
    )
    assert "n_threads 1, 2; type_k f16, q8_0)" in told and "somebody" not in told


@pytest.mark.parametrize(
    "name, change, told",
    [
        ("vllm/A.json", lambda one: one.update(model_id="large"), "model_id: A large, C tiny"),
        ("sglang/A.jsonl", lambda all: [one.update(backend="vllm") for one in all], "backend: A vllm, C sglang-oai"),
        ("llama-benchy/A.json", lambda one: one.update(model="large"), "model: A large, C tiny"),
    ],
)  # fmt: skip
def test_other_tools_tell_theirs(tmp_path: Path, name: str, change: Any, told: str) -> None:
    other = name.replace("A", "C")
    assert notes(files(name, other)) == []
    pair = [found(changed(tmp_path, name, change)), *files(other)]
    (note,) = notes(pair)
    assert note.startswith(f"{APART}{told}")


def test_machine_engine_and_model_of_mlx_chronos_are_told() -> None:
    (run,) = found(FOLDER / "mlx-chronos" / "A.json").taken.runs
    assert run.settings["engine name"] == "mlx-lm" and run.settings["model quantization"] == "4bit"
    assert notes(files("mlx-chronos/A.json", "mlx-chronos/C.json")) == []


@pytest.mark.parametrize(
    "runs, told",
    [
        ([], []),
        ([("A", {}), ("C", {"x": "1"})], []),
        ([("A", {"x": "1", "y": "2"}), ("C", {"x": "1"})], []),
        ([("A", {"x": "1"}), ("C", {"x": "2"}), ("D", {"x": "1"})], [f"{APART}x: A 1, C 2, D 1"]),
        ([("A", {f"k{n}": "1" for n in range(20)}), ("C", {f"k{n}": "2" for n in range(20)})],
         [APART + "; ".join(f"k{n}: A 1, C 2" for n in range(12)) + "; and 8 more"]),
    ],
)  # fmt: skip
def test_only_what_all_runs_tell_is_compared(
    runs: list[tuple[str, Mapping[str, str]]], told: list[str]
) -> None:
    assert list(differences(runs)) == told


def test_a_value_is_a_line_that_can_be_printed_or_a_digest() -> None:
    assert (shown("f16"), shown(True), shown(0.5)) == ("f16", "True", "0.5")
    for strange in ("", "x" * 61, "modèle", "a\nb", "\ud800"):
        assert shown(strange).startswith("sha256 ") and shown(strange).isascii()
    assert len({shown(one) for one in ("modèle a", "modèle b")}) == 2
    assert file_name("C:\\models\\a.gguf") == file_name("/models/a.gguf") == "a.gguf"
    node = Node({"a": 1, "b": None, "c": [2], "d": {"e": 3}}, "file")
    assert made_with(node, ("a", "b", "c", "d", "e"), "x ") == {"x a": "1"}
