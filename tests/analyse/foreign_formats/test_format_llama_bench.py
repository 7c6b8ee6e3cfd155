"""llama-bench's tests: which of them are a metric of ours, settings as arms, and figures that must agree."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from taking import found, loaded, refused, taken, values, written

SETTINGS = {
    "build_commit": "abc1234", "build_number": 11434, "cpu_info": "some CPU", "model_filename": "folder/tiny.gguf",
    "model_type": "llama", "n_threads": 1, "type_k": "f16",
}  # fmt: skip


def timed(
    prompt: int, made: int, *nanoseconds: int, depth: int | None = 0, **settings: object
) -> Any:
    """A test as the tool writes it: rates and means of the times of its repetitions."""
    rates = [1e9 * (prompt + made) / one for one in nanoseconds]
    at = {} if depth is None else {"n_depth": depth}
    return {
        **SETTINGS, **settings, "n_prompt": prompt, "n_gen": made, **at, "test_time": "2026-11-30T07:00:00Z",
        "avg_ns": sum(nanoseconds) // len(nanoseconds), "stddev_ns": 1, "avg_ts": sum(rates) / len(rates),
        "stddev_ts": 0.1, "samples_ns": list(nanoseconds), "samples_ts": rates,
    }  # fmt: skip


def told(run: Any) -> list[tuple[object, ...]]:
    return [(v.metric, v.context, v.value, v.tokens, v.n, v.low, v.high) for v in run.values]


def test_a_prompt_is_a_prefill_and_an_answer_a_decode_behind_its_depth(tmp_path: Path) -> None:
    # 512 tokens in half a second and in a quarter; 32 tokens in 0.8 s; 32 behind 4,096 in 1.6 s
    path = written(
        tmp_path,
        [
            timed(512, 0, 500_000_000, 250_000_000),
            timed(0, 32, 800_000_000),
            timed(0, 32, 1_600_000_000, depth=4096),
        ],
    )
    read = found(path).taken
    (run,) = read.runs
    assert told(run) == [
        ("prefill", 512, 1536.0, None, 2, 1024.0, 2048.0),
        ("decode", 0, 40.0, 32, 1, 40.0, 40.0),
        ("decode", 4096, 20.0, 32, 1, 20.0, 20.0),
    ]
    assert (read.version, run.load, run.label) == ("build 11434 (abc1234)", None, "")
    assert run.started and run.started.isoformat() == "2026-11-30T07:00:00+00:00"


def test_what_is_no_metric_of_ours_is_left_out_and_said(tmp_path: Path) -> None:
    tests = [timed(0, 32, 10**9), timed(512, 32, 10**9), timed(512, 0, 10**9, depth=4096)]
    read = found(written(tmp_path, tests)).taken
    assert [value.metric for value in read.runs[0].values] == ["decode"]
    assert any("1 pg tests are left out" in note for note in read.notes)
    assert any("1 pp tests at a depth are left out" in note for note in read.notes)
    assert "neither a pp test of an empty context nor a tg test" in refused(
        written(tmp_path, tests[1:])
    )


def test_settings_in_which_tests_differ_are_the_arms(tmp_path: Path) -> None:
    tests = [
        timed(
            0,
            8,
            10**9,
            n_threads=threads,
            model_filename=f"C:\\models\\{name}.gguf",
            model_type=name,
        )
        for threads in (1, 2)
        for name in ("small", "large")
    ]
    read = found(written(tmp_path, tests, "given.jsonl")).taken
    assert [run.label for run in read.runs] == [
        "small.gguf, n_threads 1", "large.gguf, n_threads 1", "small.gguf, n_threads 2", "large.gguf, n_threads 2",
    ]  # fmt: skip


def test_a_file_from_before_depths_has_none(tmp_path: Path) -> None:
    (run,) = found(written(tmp_path, timed(0, 32, 10**9, depth=None))).taken.runs
    assert told(run) == [("decode", 0, 32.0, 32, 1, 32.0, 32.0)]


@pytest.mark.parametrize(
    "files, labels",
    [
        (["q4/tiny.gguf", "q8/tiny.gguf"], ["tiny.gguf", "tiny.gguf (2)"]),
        (["modèle-a.gguf", "modèle-b.gguf"], ["model_filename sha256 ", "model_filename sha256 "]),
        ([f"{'long' * 20}-{n}.gguf" for n in range(3)], ["model_filename sha256 "] * 3),
    ],
    ids=["folders", "not printed", "too long"],
)  # fmt: skip
def test_settings_that_read_alike_stay_two_things(
    tmp_path: Path, files: list[str], labels: list[str]
) -> None:
    tests = [
        timed(prompt, 8 - prompt, 10**9 * place, model_filename=name)
        for prompt in (0, 8)
        for place, name in enumerate(files, start=1)
    ]
    read = found(written(tmp_path, tests)).taken
    told = [run.label for run in read.runs]
    assert len(set(told)) == len(told) == len(labels)
    assert all(own.startswith(label) for own, label in zip(told, labels, strict=True))
    assert [values(run, "decode")[0].value for run in read.runs] == [
        pytest.approx(8 / place) for place in range(1, len(files) + 1)
    ]


def test_a_build_outside_a_checkout_tells_no_version(tmp_path: Path) -> None:
    one = timed(0, 32, 10**9, build_number=0, build_commit="unknown")
    assert found(written(tmp_path, one)).taken.version == ""
    one = timed(0, 32, 10**9, build_number=0, build_commit="abc1234")
    assert found(written(tmp_path, one)).taken.version == "build ? (abc1234)"
    assert taken("llama-bench/A.json").version == ""


@pytest.mark.parametrize("name", ["A.json", "C.json", "threads.jsonl"])
def test_what_the_tool_wrote_is_read_as_it_means_it(name: str) -> None:
    document, read = loaded(f"llama-bench/{name}"), taken(f"llama-bench/{name}")
    ours = sorted(value.value for run in read.runs for value in run.values)
    wanted = [
        one["avg_ts"]
        for one in document
        if bool(one["n_prompt"]) != bool(one["n_gen"]) and not (one["n_prompt"] and one["n_depth"])
    ]
    assert ours == pytest.approx(sorted(wanted), rel=1e-5) and len(ours) >= 3
    for run in read.runs:
        (prefill,) = values(run, "prefill")
        assert prefill.context == 64 and prefill.low and prefill.high
        assert prefill.low <= prefill.value <= prefill.high
    assert [run.label for run in read.runs] == (
        ["n_threads 1", "n_threads 2"] if name[0] == "t" else [""]
    )


def slower(one: Any) -> None:
    one["samples_ns"] = [1000 * value for value in one["samples_ns"]]


@pytest.mark.parametrize(
    "change, complaint",
    [
        (slower, "samples_ts[0]: 32 is not tokens over its samples_ns (0.032): a unit was mistaken"),
        (lambda one: one.update(avg_ts=33), "avg_ts: 33 is not the mean of samples_ts (32)"),
        (lambda one: one.update(samples_ts=[], samples_ns=[]), "0 rates of 0 repetitions; run the test with -r 1"),
        (lambda one: one.update(samples_ns=[10**9] * 2), "1 rates of 2 repetitions"),
        (lambda one: one.update(samples_ts=[float("nan")]), "samples_ts[0]: nan is no measured value"),
        (lambda one: one.update(samples_ts=[0.0]), "samples_ts[0]: 0: a measured value is above 0"),
        (lambda one: one.update(n_gen=1.5), "n_gen: 1.5 where a count is due"),
        (lambda one: one.pop("samples_ns"), "'samples_ns' is missing"),
        (lambda one: one.pop("samples_ts"), "'samples_ts' is missing"),
        (lambda one: one.update(build_commit=3), "build_commit: a number where a text that can be printed is due"),
    ],
)  # fmt: skip
def test_a_planted_fault_is_named(
    tmp_path: Path, change: Callable[[Any], object], complaint: str
) -> None:
    one = timed(0, 32, 10**9)
    change(one)
    assert complaint in refused(written(tmp_path, [one]))
