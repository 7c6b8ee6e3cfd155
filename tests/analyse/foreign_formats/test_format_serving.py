"""vLLM's and SGLang's serving results, made by hand of their documented keys: means, requests, planted faults."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from taking import changed, found, loaded, refused, taken, values, written

from battery.analyse.foreign.reading.taken import Load


def test_means_of_vllm_are_taken_in_seconds_and_there_is_no_decode_rate() -> None:
    read = taken("vllm/A.json")
    (run,) = read.runs
    assert run.load == Load(1) and (run.requests, run.failed) == (4, 0)
    # TTFT 200, 201, 202 and 203 ms; gaps of 10.0, 10.1, 10.2 and 10.0 ms
    (ttft,), (tpot,) = values(run, "ttft"), values(run, "tpot")
    assert ttft.value == pytest.approx(0.2015) and tpot.value == pytest.approx(0.010075)
    assert (ttft.context, ttft.tokens, ttft.seed, ttft.n, ttft.low) == (1024, 5, None, 4, None)
    assert {value.metric for value in run.values} == {"ttft", "tpot"}
    assert "inverse of a mean time is no mean rate" in read.absent["decode"]
    assert run.started and run.started.isoformat() == "2026-10-30T10:15:00+00:00"
    assert any("only means and percentiles" in note for note in read.notes)


def test_requests_of_vllm_are_taken_one_by_one_without_the_failed_one() -> None:
    (run,) = taken("vllm/A-detailed.json").runs
    assert (run.requests, run.failed, run.lengths) == (4, 1, (1024,) * 4)
    ttft = values(run, "ttft")
    assert [(value.seed, value.value) for value in ttft] == [
        ("request 1", 0.2), ("request 2", 0.201), ("request 3", 0.202), ("request 5", 0.204),
    ]  # fmt: skip
    # five tokens: four gaps of 10 ms after the first
    decode, tpot, e2e = (values(run, metric)[0] for metric in ("decode", "tpot", "e2e"))
    assert decode.value == pytest.approx(100) and tpot.value == pytest.approx(0.01)
    assert e2e.value == pytest.approx(0.24) and e2e.tokens == 5
    assert all(value.metric != "prefill" for value in run.values)


def test_requests_that_share_the_engine_have_no_decode_rate(tmp_path: Path) -> None:
    path = changed(tmp_path, "vllm/A-detailed.json", lambda one: one.update(max_concurrency=8))
    (run,) = found(path).taken.runs
    assert run.load == Load(8) and not values(run, "decode") and len(values(run, "tpot")) == 4


def test_a_load_is_requests_at_a_time_and_a_second(tmp_path: Path) -> None:
    (run,) = taken("vllm/A-busy.json").runs
    assert run.load == Load(8, 4.0) and run.load.words == "8 requests at a time, 4 a second"
    path = changed(
        tmp_path,
        "vllm/A-busy.json",
        lambda one: one.update(max_concurrency=None, request_rate="inf"),
    )
    (run,) = found(path).taken.runs
    assert run.load == Load(math.inf) and run.load.words == "all requests at a time"


def test_lines_of_sglang_are_runs_and_its_bare_infinity_is_no_fault() -> None:
    read = taken("sglang/A.jsonl")
    assert [run.load for run in read.runs] == [Load(1)] * 3
    firsts = [values(run, "ttft")[0] for run in read.runs]
    assert [(value.context, round(value.value, 6)) for value in firsts] == [
        (1024, 0.2015), (1024, 0.2115), (4096, 0.9015),
    ]  # fmt: skip
    # first token and four gaps, of four requests
    assert values(read.runs[0], "e2e")[0].value == pytest.approx(0.2015 + 4 * 0.010075)
    assert all(run.started is None for run in read.runs)


def test_requests_of_sglang_are_taken_one_by_one() -> None:
    (run,) = taken("sglang/A-detailed.jsonl").runs
    assert (run.requests, run.failed) == (4, 1)
    assert [value.seed for value in values(run, "decode")] == [f"request {n}" for n in (2, 3, 4, 5)]


def seconds_for_milliseconds(one: dict[str, Any]) -> None:
    for key in ("mean_ttft_ms", "mean_tpot_ms"):
        one[key] /= 1e3


def milliseconds_for_seconds(one: dict[str, Any]) -> None:
    one["ttfts"] = [1e3 * value for value in one["ttfts"]]


@pytest.mark.parametrize(
    "name, change, complaint",
    [
        ("A", lambda one: one.update(completed=0, failed=4), "no request ended well (4 failed)"),
        ("A", lambda one: one.update(mean_ttft_ms=math.nan), "mean_ttft_ms: nan is no measured value"),
        ("A", lambda one: one.update(mean_ttft_ms=-3), "mean_ttft_ms: -3: a measured value is above 0"),
        ("A", lambda one: one.update(mean_ttft_ms="fast"), "mean_ttft_ms: a text where a number is due"),
        ("A", lambda one: one.update(mean_ttft_ms=True), "mean_ttft_ms: true or false where a number is due"),
        ("A", lambda one: one.update(mean_ttft_ms=None, mean_tpot_ms=0.0), "no request ended well"),
        ("A", seconds_for_milliseconds, "a unit was mistaken, or the file was changed"),
        ("A", lambda one: one.update(completed=2.5), "completed: 2.5 where a count is due"),
        ("A", lambda one: one.update(request_rate="often"), "request_rate: a text where a number is due"),
        ("A", lambda one: one.update(request_rate="trace"), "at the times of a trace"),
        ("A-detailed", milliseconds_for_seconds, "mean_ttft_ms: 201.75 is not the mean of ttfts in milliseconds"),
        ("A-detailed", lambda one: one["ttfts"].pop(), "5 input_lens, 5 output_lens, 4 ttfts, 5 itls"),
        ("A-detailed", lambda one: one.update(errors=["down"] * 5), "no request ended well (5 failed)"),
        ("A-detailed", lambda one: one["itls"].__setitem__(0, 3), "itls[0]: a number where a list is due"),
    ],
)  # fmt: skip
def test_a_planted_fault_is_named(
    tmp_path: Path, name: str, change: Callable[[Any], object], complaint: str
) -> None:
    assert complaint in refused(changed(tmp_path, f"vllm/{name}.json", change))


def test_a_mean_of_nothing_is_missing_and_never_zero(tmp_path: Path) -> None:
    # answers of one token: the tool writes the mean of no gaps as 0
    path = changed(
        tmp_path, "vllm/A.json", lambda one: one.update(mean_tpot_ms=0.0, total_output_tokens=4)
    )
    (run,) = found(path).taken.runs
    assert [value.metric for value in run.values] == ["ttft"]


def test_a_fault_in_a_line_names_the_line(tmp_path: Path) -> None:
    lines = loaded("sglang/A.jsonl")
    lines[1]["mean_ttft_ms"] = math.inf
    assert "given.jsonl:2: mean_ttft_ms: inf is no measured value" in refused(
        written(tmp_path, lines, "given.jsonl")
    )
