"""vLLM's and SGLang's serving results, made by hand of their documented keys: means, requests, planted faults."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from taking import changed, found, loaded, refused, taken, values, written

from battery.analyse.foreign.reading.taken import UNTOLD, Load


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
    assert run.started.tzinfo is UNTOLD
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


def whole(one: dict[str, Any]) -> None:
    """As SGLang writes answers that were not streamed: the first token comes with the last."""
    for key in ("mean_tpot_ms", "mean_itl_ms"):
        one[key] = 0.0
    one["mean_ttft_ms"] = one["mean_e2e_latency_ms"]
    if "ttfts" in one:
        one["ttfts"] = [one["mean_ttft_ms"] / 1e3 if first else 0.0 for first in one["ttfts"]]
        one["itls"] = [[] for _ in one["itls"]]


@pytest.mark.parametrize("name", ["A.jsonl", "A-detailed.jsonl"])
def test_an_answer_in_one_piece_has_no_first_token(tmp_path: Path, name: str) -> None:
    path = changed(tmp_path, f"sglang/{name}", lambda lines: [whole(one) for one in lines])
    read = found(path).taken
    for run in read.runs:
        assert {value.metric for value in run.values} == {"e2e"}
        assert any("there is no first token of theirs" in note for note in run.notes)
    assert "without streaming" in read.absent["ttft"]


def test_prompts_of_which_no_sum_is_told_have_no_context(tmp_path: Path) -> None:
    # what SGLang writes of conversations of several turns
    path = changed(
        tmp_path,
        "sglang/A.jsonl",
        lambda lines: [one.update(total_input_tokens=0) for one in lines],
    )
    assert {value.context for run in found(path).taken.runs for value in run.values} == {None}


def test_prompts_that_were_cached_are_said_to_be(tmp_path: Path) -> None:
    def cache(lines: Any) -> None:
        lines[0]["cache_report"] = {"total_prompt_tokens": 4096, "total_cached_tokens": 1024}
        lines[1]["cache_report"] = {"total_prompt_tokens": 4096, "total_cached_tokens": 0}

    first, second, third = found(changed(tmp_path, "sglang/A.jsonl", cache)).taken.runs
    assert "1,024 prompt tokens came out of the cache" in first.notes[0]
    assert not second.notes and not third.notes


def test_lengths_of_answers_are_their_mean_and_unknown_where_none_is_told(tmp_path: Path) -> None:
    for total, tokens in ((21, 5), (23, 6), (None, None)):
        path = changed(
            tmp_path, "vllm/A.json", lambda one, total=total: one.update(total_output_tokens=total)
        )
        assert {value.tokens for value in found(path).taken.runs[0].values} == {tokens}


def test_what_failed_is_null_where_only_the_asked_requests_are_told(tmp_path: Path) -> None:
    # versions before `failed`: a data set that is too short gives fewer requests, too
    path = changed(
        tmp_path,
        "vllm/A.json",
        lambda one: one.update(failed=None, num_prompts=one["completed"] + 3),
    )
    (run,) = found(path).taken.runs
    assert run.failed is None and "3 requests that were asked for have no result" in run.notes[0]


def test_requests_that_failed_for_long_are_no_slip_of_a_unit(tmp_path: Path) -> None:
    # four requests of a quarter of a second each, and others that hung for a minute
    path = changed(tmp_path, "vllm/A.json", lambda one: one.update(duration=61.0, failed=2))
    assert found(path).taken.runs[0].failed == 2


def test_a_result_without_first_tokens_is_told_by_what_it_has(tmp_path: Path) -> None:
    # vllm bench serve --percentile-metrics e2el
    def only(one: dict[str, Any]) -> None:
        for key in [key for key in one if key.endswith(("ttft_ms", "tpot_ms", "itl_ms"))]:
            del one[key]
        one["mean_e2el_ms"] = 250.0

    (run,) = found(changed(tmp_path, "vllm/A.json", only)).taken.runs
    assert [(value.metric, value.value) for value in run.values] == [("e2e", 0.25)]


def seconds_for_milliseconds(one: dict[str, Any]) -> None:
    for key in ("mean_ttft_ms", "mean_tpot_ms"):
        one[key] /= 1e3


def gaps_in_milliseconds(one: dict[str, Any]) -> None:
    one["itls"] = [[1e3 * gap for gap in gaps] for gaps in one["itls"]]


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
        ("A-detailed", gaps_in_milliseconds, "mean_tpot_ms: 10.1 is not the mean gap of itls in milliseconds (10100)"),
        ("A-detailed", lambda one: one["itls"][0].__setitem__(0, -0.01), "itls[0][0]: -0.01: a measured value is abov"),
        ("A-detailed", lambda one: one["itls"][0].__setitem__(0, 1e308), "itls[0][0]: 1e+308 is outside"),
        ("A", lambda one: one.update(ramp_up_strategy="linear"), "requests were sent faster and faster"),
        ("A", lambda one: one.update(probe_completed=3), "probes ran beside the requests"),
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
