"""llama-benchy's report, whose prefill may be the opener's, and mlx-chronos's sealed result; planted faults in both."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from taking import FOLDER, changed, found, loaded, refused, taken, values, written

from battery.analyse.foreign.reading.taken import ALONE, Load


def test_runs_of_llama_benchy_are_one_mean_for_each_context() -> None:
    read = taken("llama-benchy/A.json")
    alone, two = read.runs
    assert (read.version, alone.load, two.load) == ("0.4.0", Load(1), Load(2))
    told = loaded("llama-benchy/A.json")["benchmarks"]
    singles = [one for one in told if one["concurrency"] == 1]
    # a prompt behind a depth: both are its context
    contexts = [64, 128, 512 + 64, 512 + 128]
    assert [one["context_size"] + one["prompt_size"] for one in singles] == contexts
    for metric, key, per in (("decode", "tg_req_throughput", 1), ("ttft", "e2e_ttft", 1000)):
        taken_out = values(alone, metric)
        assert [value.context for value in taken_out] == contexts
        for value, one in zip(taken_out, singles, strict=True):
            kept = [figure / per for figure in one[key]["values"]]
            assert (value.value, value.low, value.high) == pytest.approx(
                (sum(kept) / 3, min(kept), max(kept))
            )
            assert (value.n, value.seed, value.tokens) == (3, None, None)
    assert not values(two, "decode") and values(two, "ttft")[0].n == 6


def test_a_prefill_rate_to_the_opener_of_the_stream_is_none(tmp_path: Path) -> None:
    read = taken("llama-benchy/A.json")
    assert not [value for run in read.runs for value in values(run, "prefill")]
    assert any("in 8 of 8 tests the first response came well before" in note for note in read.notes)

    def no_opener(report: Any) -> None:
        for one in report["benchmarks"]:
            one["ttfr"] = one["e2e_ttft"]

    read = found(changed(tmp_path, "llama-benchy/A.json", no_opener)).taken
    first = values(read.runs[0], "prefill")[0]
    told = loaded("llama-benchy/A.json")["benchmarks"][0]["pp_req_throughput"]["values"]
    assert first.value == pytest.approx(sum(told) / 3) and first.context == 64


def test_behind_a_context_in_the_cache_only_decode_is_taken(tmp_path: Path) -> None:
    def warm(report: Any) -> None:
        report["prefix_caching_enabled"] = True
        for one in report["benchmarks"]:
            one["ttfr"] = one["e2e_ttft"]
        loading = json.loads(json.dumps(report["benchmarks"][4]))
        report["benchmarks"].append({**loading, "is_context_prefill_phase": True})

    read = found(changed(tmp_path, "llama-benchy/A.json", warm)).taken
    run = read.runs[0]
    assert [value.context for value in values(run, "ttft")] == [64, 128, 512]
    assert [value.context for value in values(run, "prefill")] == [64, 128, 512]
    assert [value.context for value in values(run, "decode")] == [64, 128, 576, 640, 512]
    assert any("are warm: their TTFT and prefill are left out" in note for note in read.notes)


@pytest.mark.parametrize(
    "change, complaint",
    [
        (lambda one: one["benchmarks"].clear(), "no request ended well"),
        (lambda one: one["benchmarks"][0]["e2e_ttft"].update(mean=21), "[0].e2e_ttft.mean: 21 is not the mean"),
        (lambda one: one["benchmarks"][0]["e2e_ttft"]["values"].__setitem__(1, 0), "e2e_ttft.values[1]: 0: a measured"),
        (lambda one: one["benchmarks"][0]["e2e_ttft"]["values"].__setitem__(1, math.nan), "values[1]: nan is no"),
        (lambda one: one["benchmarks"][0].update(prompt_size="64"), "benchmarks[0].prompt_size: a text where"),
        (lambda one: one.pop("version"), "'version' is missing"),
        (lambda one: one.update(benchmarks=3), "benchmarks: a number where a list is due"),
    ],
)  # fmt: skip
def test_a_planted_fault_in_llama_benchy_is_named(
    tmp_path: Path, change: Callable[[Any], object], complaint: str
) -> None:
    assert complaint in refused(changed(tmp_path, "llama-benchy/A.json", change))


def test_trials_of_mlx_chronos_are_told_by_their_prompts() -> None:
    read = taken("mlx-chronos/A.json")
    (run,) = read.runs
    assert (read.version, run.load, run.requests) == ("0.6.0", ALONE, 3)
    assert [value.value for value in values(run, "ttft")] == pytest.approx(
        [0.023840988003939856, 0.03269269899465144, 0.03901348799990956]
    )
    decode = values(run, "decode")
    # 19 tokens after the first in 75.9 ms
    assert decode[0].value == pytest.approx(19 / 0.07592887499777135)
    assert [value.tokens for value in decode] == [20, 20, 20]
    # the server counted 23, 19 and 19 prompt tokens of the throughput trials, and none of the others
    assert {value.context for value in decode} == {20}
    assert {value.context for value in values(run, "ttft")} == {None}
    assert len({value.seed for value in run.values}) == 6
    other = taken("mlx-chronos/C.json").runs[0]
    assert [value.seed for value in other.values] == [value.seed for value in run.values]
    assert any("not asked to clear its cache" in note for note in run.notes)
    assert "misses what Metal allocates" in read.absent["peak_memory"]


def sealed(result: dict[str, Any]) -> dict[str, Any]:
    """The result with the seal that mlx-chronos gives it: sha256 of its canonical JSON without the seal."""
    rest = {key: value for key, value in result.items() if key != "integrity"}
    text = json.dumps(rest, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    digest = hashlib.sha256(text.encode()).hexdigest()
    return {**rest, "integrity": {**result["integrity"], "digest": digest}}


def test_a_result_that_was_changed_after_it_was_sealed_is_refused(tmp_path: Path) -> None:
    result = loaded("mlx-chronos/A.json")
    assert sealed(result) == result
    result["trials"]["ttft_cold_raw"][0] /= 2
    assert "it was changed after it was sealed" in refused(written(tmp_path, result))


def test_a_result_too_deep_to_be_sealed_is_refused(tmp_path: Path) -> None:
    text = (FOLDER / "mlx-chronos" / "A.json").read_text().rstrip().removesuffix("}")
    path = tmp_path / "given.json"
    for depth in range(900, 1000):
        path.write_text(f'{text}, "more": {"[" * depth}{"]" * depth}}}')
        told = ("was changed after it was sealed", "cannot have been sealed", "nested too deep")
        assert any(words in refused(path) for words in told)


@pytest.mark.parametrize(
    "change, complaint",
    [
        (lambda one: one["trials"]["ttft_cold_raw"].pop(), "ttft_cold_raw: 2 values and 3 prompts of 3 trials"),
        (lambda one: one["trials"]["ttft_cold_raw"].__setitem__(0, 0.0), "ttft_cold_raw[0]: 0: a measured value"),
        (lambda one: one["trials"]["decode_elapsed_seconds_raw"].__setitem__(0, 75.9),
         "decode_tokens_per_second_raw[0]: 250.234 is not tokens after the first over their time"),
        (lambda one: one["trials"].update(completion_tokens_raw=[20]), "1 counts of 3 trials"),
        (lambda one: one["integrity"].update(schema="mlx-chronos-integrity-v2"), "a seal of 'mlx-chronos-integrity-v"),
        (lambda one: one["meta"].pop("timestamp"), "meta: 'timestamp' is missing"),
    ],
)  # fmt: skip
def test_a_planted_fault_in_mlx_chronos_is_named(
    tmp_path: Path, change: Callable[[Any], object], complaint: str
) -> None:
    result = loaded("mlx-chronos/A.json")
    change(result)
    assert complaint in refused(written(tmp_path, sealed(result)))


def test_a_result_without_decode_times_has_no_decode(tmp_path: Path) -> None:
    result = loaded("mlx-chronos/A.json")
    result["trials"].update(decode_tokens_per_second_raw=None, decode_elapsed_seconds_raw=None)
    result["meta"]["memory_pressure_warning"] = True
    (run,) = found(written(tmp_path, sealed(result))).taken.runs
    assert {value.metric for value in run.values} == {"ttft"}
    assert any("the result itself warns: the machine swapped" in note for note in run.notes)
