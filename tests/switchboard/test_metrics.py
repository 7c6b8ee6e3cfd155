"""/metrics as the official parser reads it, held against what was done and what /health says."""

from __future__ import annotations

from collections.abc import Callable

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families
from served import Engine
from test_endings import wait_for

from switchboard.metrics import Family, text

TINY = ("--model", "synthetic:tiny-llama")
Start = Callable[..., Engine]
Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


def read(document: str) -> Samples:
    samples = [one for family in text_string_to_metric_families(document) for one in family.samples]
    found = {(one.name, frozenset(one.labels.items())): one.value for one in samples}
    assert len(found) == len(samples), "a series stands there once"
    return found


def scraped(engine: Engine) -> Samples:
    reply = httpx.get(f"{engine.url}/metrics")
    assert reply.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    return read(reply.text)


def of(samples: Samples, name: str, /, **labels: str) -> float:
    return samples[(f"switchboard_{name}", frozenset(labels.items()))]


def test_totals_are_what_was_done(start: Start) -> None:
    engine = start(
        *TINY, "--switch", "prompt_lookup", "--switch", "fused_qkv", "--memory-limit", "9000000"
    )
    before = scraped(engine)
    assert of(before, "requests_total", outcome="finished") == 0
    assert of(before, "switch_state", switch="fused_qkv", state="armed", exactness="exact") == 1
    body = {"max_tokens": 30, "temperature": 0, "ignore_eos": True}
    told = [engine.complete("abcabcabc", **body) for _ in range(3)]
    assert engine.post("/v1/completions", prompt="").status_code == 400
    leaving = {"prompt": "abc", "max_tokens": 1000, "ignore_eos": True, "stream": True}
    with httpx.stream("POST", f"{engine.url}/v1/completions", json=leaving) as reply:
        next(reply.iter_lines())
    assert wait_for(lambda: engine.health()["cancelled"] == 1)
    after, health = scraped(engine), engine.health()
    assert of(after, "requests_total", outcome="finished") == health["requests"] == 3
    assert of(after, "requests_total", outcome="cancelled") == 1
    assert of(after, "requests_total", outcome="failed") == health["failed"] == 0
    assert of(after, "prompt_tokens_total") == 9 * 3 + 3
    assert of(after, "completion_tokens_total") > 90
    assert (
        of(after, "draft_tokens_proposed_total")
        >= sum(one["timings"]["proposed"] for one in told)
        > 0
    )
    assert of(after, "decode_seconds_total") >= sum(one["timings"]["decode_s"] for one in told)
    assert of(after, "http_responses_total", code="400") == 1
    assert of(after, "switch_state", switch="fused_qkv", state="engaged", exactness="exact") == 1
    assert (
        of(after, "switch_runs_total", switch="fused_qkv")
        == health["switches"]["fused_qkv"]["counters"]["runs"]
    )
    assert of(after, "memory_bytes", kind="limit") == 9_000_000
    assert of(after, "requests_running") == of(after, "requests_waiting") == 0
    assert after[("process_resident_memory_bytes", frozenset())] > 1e7
    assert all(
        value >= before.get(key, 0) for key, value in after.items() if key[0].endswith("_total")
    )


def test_labels_survive_quotes_backslashes_and_line_ends() -> None:
    value = 'a "quoted" C:\\path\nnext'
    told = text([Family("switchboard_x", "gauge", "What.", [({"name": value}, 1.5)])])
    assert of(read(told), "x", name=value) == 1.5


def test_what_is_unknown_is_left_out() -> None:
    assert text([Family("switchboard_x", "gauge", "What.", [])]) == ""
    with pytest.raises(ValueError):
        read("switchboard_x None\n")
