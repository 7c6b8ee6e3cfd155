"""guidellm's report: every request by its own figures, its TPOT by our meaning, and what is null or refused."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from taking import changed, found, loaded, refused, taken, values

from battery.analyse.foreign.reading.taken import Load


def requests(report: Any) -> Any:
    return report["benchmarks"][0]["requests"]["successful"]


def test_a_request_is_taken_by_its_own_figures() -> None:
    read = taken("guidellm/A.json")
    (run,) = read.runs
    assert (read.version, run.load, run.requests, run.failed) == ("0.8.1", Load(1), 6, 0)
    assert run.started and run.started.timestamp() == pytest.approx(1796022426.537896)
    assert run.lengths == (16, 13, 15, 14, 16, 16)
    first = {
        metric: values(run, metric)[0] for metric in ("ttft", "tpot", "decode", "prefill", "e2e")
    }
    assert {metric: value.value for metric, value in first.items()} == pytest.approx(
        {
            "ttft": 0.03936028480529785, "tpot": 0.0037233829498291016, "decode": 1000 / 3.7233829498291016,
            "prefill": 16 / 0.03936028480529785, "e2e": 0.09558606147766113,
        }
    )  # fmt: skip
    assert {(value.context, value.tokens) for value in run.values} == {(15, 16)}
    assert all(len(values(run, metric)) == 6 for metric in first)


def test_tpot_is_not_the_one_that_holds_the_first_token() -> None:
    (run,) = taken("guidellm/A.json").runs
    theirs = requests(loaded("guidellm/A.json"))[0]["time_per_output_token_ms"] / 1e3
    ours = values(run, "tpot")[0].value
    whole = values(run, "ttft")[0].value + 15 * ours
    assert ours < 0.7 * theirs and theirs == pytest.approx(whole / 16)


def test_the_same_prompt_has_the_same_label_in_both_reports() -> None:
    labels = [
        [value.seed for value in values(taken(f"guidellm/{arm}.json").runs[0], "ttft")]
        for arm in "AC"
    ]
    assert labels[0] == labels[1] and len(set(labels[0])) == 6
    assert all(label and label.startswith("prompt ") for label in labels[0])


def test_a_request_whose_words_are_not_kept_is_told_by_its_place(tmp_path: Path) -> None:
    def forget(report: Any) -> None:
        for place, one in enumerate(requests(report)):
            one["request_args"] = None if place % 2 else "{"

    (run,) = found(changed(tmp_path, "guidellm/A.json", forget)).taken.runs
    assert [value.seed for value in values(run, "ttft")] == [f"request {n}" for n in range(1, 7)]


def test_a_prefill_rate_needs_a_server_that_says_nothing_was_cached(tmp_path: Path) -> None:
    def cached(report: Any) -> None:
        requests(report)[0]["cached_tokens"] = 8
        requests(report)[1]["cached_tokens"] = None

    (run,) = found(changed(tmp_path, "guidellm/A.json", cached)).taken.runs
    assert len(values(run, "prefill")) == 4 and len(values(run, "ttft")) == 6


@pytest.mark.parametrize(
    "strategy, load",
    [
        ({"type_": "synchronous"}, Load(1)),
        ({"type_": "concurrent", "streams": 4}, Load(4)),
        ({"type_": "throughput"}, Load(math.inf)),
        ({"type_": "constant", "rate": 2.5}, Load(math.inf, 2.5)),
        ({"type_": "odd"}, None),
    ],
)
def test_only_a_request_alone_has_a_decode_rate(
    tmp_path: Path, strategy: dict[str, object], load: Load | None
) -> None:
    path = changed(
        tmp_path,
        "guidellm/A.json",
        lambda one: one["benchmarks"][0]["config"].update(strategy=strategy),
    )
    (run,) = found(path).taken.runs
    assert run.load == load
    assert bool(values(run, "decode")) is bool(values(run, "prefill")) is bool(load and load.alone)
    assert len(values(run, "tpot")) == 6


def test_a_report_without_requests_is_read_by_its_means(tmp_path: Path) -> None:
    path = changed(tmp_path, "guidellm/A.json", lambda one: requests(one).clear())
    (run,) = found(path).taken.runs
    # milliseconds but for the latency, which is in seconds
    assert {value.metric: value.value for value in run.values} == pytest.approx(
        {"ttft": 0.043206016222635895, "tpot": 0.0033057610193888345, "e2e": 0.09684622287750241}
    )
    assert {(value.context, value.n, value.seed) for value in run.values} == {(15, 6, None)}
    assert any("read by its means" in note for note in run.notes)


def test_a_sample_of_the_requests_is_said_to_be_one(tmp_path: Path) -> None:
    (run,) = found(changed(tmp_path, "guidellm/A.json", lambda one: requests(one).pop())).taken.runs
    assert run.notes == ("guidellm: 5 of 6 requests are kept in the report",)


def whole(report: Any) -> None:
    for one in requests(report)[:2]:
        one.update(time_to_first_token_ms=None, inter_token_latency_ms=None)


def test_of_an_answer_that_was_not_streamed_only_its_whole_time_is_read(tmp_path: Path) -> None:
    (run,) = found(changed(tmp_path, "guidellm/A.json", whole)).taken.runs
    assert [len(values(run, metric)) for metric in ("e2e", "ttft", "tpot", "decode")] == [
        6,
        4,
        4,
        4,
    ]
    assert any("2 of 6 requests have no first token" in note for note in run.notes)


def test_a_request_that_is_kept_as_anything_at_all_is_told_by_its_place(tmp_path: Path) -> None:
    def nest(report: Any) -> None:
        for one in requests(report):
            one["request_args"] = "[" * 100_000

    (run,) = found(changed(tmp_path, "guidellm/A.json", nest)).taken.runs
    assert values(run, "ttft")[0].seed == "request 1"


def first(**figures: object) -> Callable[[Any], object]:
    return lambda report: requests(report)[0].update(figures)


def totals(**counts: int) -> Callable[[Any], object]:
    return lambda report: report["benchmarks"][0]["metrics"]["request_totals"].update(counts)


@pytest.mark.parametrize(
    "change, complaint",
    [
        (totals(successful=0, errored=4, incomplete=2), "no request ended well (6 failed)"),
        (lambda one: one["benchmarks"].clear(), "no request ended well"),
        (lambda one: one["metadata"].update(version=1), "layout 1 of guidellm's report, and layout 2 is known"),
        (lambda one: one["metadata"].update(version=3), "layout 3 of guidellm's report"),
        (first(request_latency=95.6), "a response of 95.6 s: a unit was mistaken"),
        (first(time_to_first_token_ms=39360.0), "first token and gaps make 39.4 s of a response of 0.0956 s"),
        (first(request_latency=None), "successful[0]: 'request_latency' is null"),
        (first(inter_token_latency_ms=math.nan), "successful[0].inter_token_latency_ms: nan is no measured value"),
        (first(inter_token_latency_ms=-0.5), "inter_token_latency_ms: -0.5: a measured value is above 0"),
        (first(output_tokens=-1), "successful[0].output_tokens: -1 where a count is due"),
        (lambda one: one["benchmarks"][0].pop("requests"), "benchmarks[0]: 'requests' is missing"),
    ],
)  # fmt: skip
def test_a_planted_fault_is_named(
    tmp_path: Path, change: Callable[[Any], object], complaint: str
) -> None:
    assert complaint in refused(changed(tmp_path, "guidellm/A.json", change))
