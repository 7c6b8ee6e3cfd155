"""AIPerf's two exports: records by the units that stand beside them, means as one value, and planted faults."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from taking import changed, found, refused, taken, values

from battery.analyse.foreign.reading.taken import Load


def test_records_are_taken_one_by_one_without_the_warm_up() -> None:
    read = taken("aiperf/A.jsonl")
    (run,) = read.runs
    assert (run.load, run.requests, run.failed) == (Load(1), 6, 0)
    assert run.lengths == (18, 16, 15, 16, 18, 20)
    first = {
        metric: values(run, metric)[0] for metric in ("ttft", "tpot", "decode", "prefill", "e2e")
    }
    assert {metric: value.value for metric, value in first.items()} == pytest.approx(
        {
            "ttft": 0.035947349, "tpot": 0.003446343533333333, "decode": 1000 / 3.446343533333333,
            "prefill": 18 / 0.035947349, "e2e": 0.087642502,
        }
    )  # fmt: skip
    assert {(value.context, value.tokens) for value in run.values} == {(17, 16)}
    assert first["ttft"].seed == "session_000001 turn 0"
    assert run.notes == ("AIPerf: 1 records of the warm-up are left out",)


def test_the_same_conversation_has_the_same_label_in_both_exports() -> None:
    a, c = (
        [value.seed for value in values(taken(f"aiperf/{arm}.jsonl").runs[0], "ttft")]
        for arm in "AC"
    )
    assert sorted(map(str, a)) == sorted(map(str, c)) and len(set(a)) == 6


def test_means_are_one_value_with_their_ends() -> None:
    read = taken("aiperf/A-means.json")
    (run,) = read.runs
    assert (read.version, run.load, run.requests, run.failed) == ("0.13.0", Load(1), 6, 0)
    (ttft,), (decode,) = values(run, "ttft"), values(run, "decode")
    assert (ttft.value, ttft.low, ttft.high) == pytest.approx(
        (0.035308124666666664, 0.020818163, 0.068852774)
    )
    assert (decode.value, decode.low) == pytest.approx((381.83872465458444, 239.79670227418555))
    assert (ttft.n, ttft.seed, ttft.context, ttft.tokens) == (6, None, 17, 16)
    assert run.started and run.started.isoformat() == "2026-11-30T07:08:04.187084+00:00"
    assert not values(run, "prefill") and any("could be paired" in note for note in read.notes)


def test_requests_that_failed_are_counted_and_in_no_figure() -> None:
    (run,) = taken("aiperf/failing.jsonl").runs
    assert (run.requests, run.failed, len(values(run, "ttft"))) == (2, 2, 2)


def test_requests_at_a_time_are_counted_by_their_stamps(tmp_path: Path) -> None:
    def overlap(records: Any) -> None:
        timed = [one for one in records if one["metadata"]["benchmark_phase"] == "profiling"]
        timed[1]["metadata"]["request_start_ns"] = timed[0]["metadata"]["request_start_ns"] + 1
        # as this one begins the one before it is over
        timed[4]["metadata"]["request_start_ns"] = timed[3]["metadata"]["request_end_ns"]

    (run,) = found(changed(tmp_path, "aiperf/A.jsonl", overlap)).taken.runs
    assert run.load == Load(2) and not values(run, "decode") and not values(run, "prefill")
    assert len(values(run, "tpot")) == 6


def test_a_unit_is_what_stands_beside_the_figure(tmp_path: Path) -> None:
    def in_seconds(records: Any) -> None:
        for record in records:
            told = record["metrics"]["time_to_first_token"]
            told.update(value=told["value"] / 1e3, unit="s")

    (run,) = found(changed(tmp_path, "aiperf/A.jsonl", in_seconds)).taken.runs
    assert values(run, "ttft")[0].value == pytest.approx(0.035947349)


def test_a_prompt_that_was_cached_has_no_prefill_rate(tmp_path: Path) -> None:
    def cache(records: Any) -> None:
        records[1]["metrics"]["usage_prompt_cache_read_tokens"]["value"] = 5
        del records[2]["metrics"]["usage_prompt_cache_read_tokens"]

    (run,) = found(changed(tmp_path, "aiperf/A.jsonl", cache)).taken.runs
    assert len(values(run, "prefill")) == 4


def test_a_run_that_was_cut_short_says_so(tmp_path: Path) -> None:
    path = changed(tmp_path, "aiperf/A-means.json", lambda one: one.update(is_complete=False))
    assert "AIPerf: the run was cut short, by its own word" in found(path).taken.runs[0].notes


def record(**units: object) -> Callable[[Any], object]:
    return lambda records: records[1]["metrics"]["time_to_first_token"].update(units)


def all_failed(records: Any) -> None:
    for one in records:
        one["error"] = {"code": 500}


@pytest.mark.parametrize(
    "name, change, complaint",
    [
        ("A.jsonl", record(unit="fortnights"), ":2: metrics.time_to_first_token.unit: 'fortnights' is no unit of time"),
        ("A.jsonl", record(unit="s"), "metrics.request_latency.value: 87.6425 is not first token and gaps together"),
        ("A.jsonl", record(value=0), "metrics.time_to_first_token.value: 0: a measured value is above 0"),
        ("A.jsonl", record(value=None), "metrics.time_to_first_token: 'value' is null"),
        ("A.jsonl", all_failed, "no request ended well (6 failed)"),
        ("A.jsonl", lambda all: all[1]["metadata"].update(request_end_ns=1), "ended before it began"),
        ("A.jsonl", lambda all: all[1]["metadata"].pop("conversation_id"), "'conversation_id' is missing"),
        ("A-means.json", lambda one: one["request_count"].update(avg=0.0), "no request ended well"),
        ("A-means.json", lambda one: one["request_latency"].update(unit="MB"), "'MB' is no unit of time"),
    ],
)  # fmt: skip
def test_a_planted_fault_is_named(
    tmp_path: Path, name: str, change: Callable[[Any], object], complaint: str
) -> None:
    assert complaint in refused(changed(tmp_path, f"aiperf/{name}", change))
