"""aiperf 0.13.0: every event of each request, on our clock.

Where it stamps: time.perf_counter_ns() for each read that aiohttp's `content.iter_any` yields (transports/sse_utils.py,
`AsyncSSEStreamReader`): after aiohttp undid the chunked body, before the bytes are split into events or their JSON is
read. Every event that one read completes has that read's stamp, and `iter_any` joins what piled up while the loop was
busy. JSON is parsed in another process, after the request. Streams that end together delay each other's last stamps,
most likely because ending one request and starting the next run in the loop that stamps: in one run of 8 streams that
ended within 8 ms the last stamps were 0.6, 2, 19, 28, 26, 27, 28 and 36 ms late, in the order of their ends; those of
8 requests that ended 3 to 15 ms apart 0.04 to 0.4 ms.

TTFT: first response with content − `start_perf_ns`, taken just before `session.request`: where the pool has no open
connection, connecting is inside. Warm-up requests, as many as streams, open the connections here. Requests run in
worker processes (asyncio with uvloop), fewer of them than cores: one on a machine of two.

Routes: POST /v1/chat/completions with max_completion_tokens, ignore_eos (asked for here) and
stream_options.include_usage. Offline, it takes a tokenizer out of a hub cache only, so a local one is filed there.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from benchmarks.peers import PeerRequest, PeerRun, key_of
from benchmarks.peers import tokenizer as bytes_tokenizer
from benchmarks.peers.clock import OUR_CLOCK
from benchmarks.peers.environment import quiet, run, version

PEER = "aiperf"
START_S = 120


def drive(
    base_url: str, model: str, requests: int, streams: int, tokens: int, workdir: Path
) -> PeerRun:
    """Run `aiperf profile` with raw export and read its records."""
    tokenizer = bytes_tokenizer.in_cache(Path(quiet(workdir)["HF_HOME"]))
    records = workdir / "artifacts" / "profile_export_raw.jsonl"
    records.unlink(missing_ok=True)
    arguments = [
        *("-m", "aiperf", "profile", "--model", model, "--url", base_url),
        *("--endpoint-type", "chat", "--streaming", "--tokenizer", tokenizer),
        *("--concurrency", str(streams), "--request-count", str(requests)),
        *("--warmup-request-count", str(streams), "--warmup-concurrency", str(streams)),
        *("--num-dataset-entries", str(requests), "--random-seed", "1"),
        *("--isl", "64", "--isl-stddev", "0", "--osl", str(tokens), "--osl-stddev", "0"),
        *("--extra-inputs", "ignore_eos:true", "--use-server-token-count"),
        *("--export-level", "raw", "--artifact-dir", str(workdir / "artifacts")),
        *("--ui", "none", "--no-gpu-telemetry", "--no-server-metrics"),
    ]
    run(PEER, arguments, workdir, START_S + requests)
    with records.open() as lines:
        found = read(lines)
    return PeerRun(
        peer=PEER,
        version=version(PEER),
        finest="event",
        requests=found,
        clock=OUR_CLOCK,
        clock_error_ns=0,
    )


def read(lines: Iterable[str]) -> list[PeerRequest]:
    """The timed requests of a raw export, in the order of sending; warm-up and failed ones are left out."""
    records = [json.loads(line) for line in lines if line.strip()]
    timed = [
        one
        for one in records
        if one["metadata"]["benchmark_phase"] == "profiling" and not one.get("error")
    ]
    return [_request(one) for one in sorted(timed, key=lambda one: int(one["start_perf_ns"]))]


def _request(record: dict[str, Any]) -> PeerRequest:
    events: list[int] = []
    words: list[str] = []
    for response in record["responses"]:
        text = "".join(_content(packet) for packet in response["packets"])
        if text:
            events.append(int(response["perf_ns"]))
            words.append(text)
    return PeerRequest(
        key=key_of("".join(words)),
        send_ns=int(record["start_perf_ns"]),
        event_ns=events,
        first_ns=events[0] if events else None,
        last_ns=events[-1] if events else None,
    )


def _content(packet: dict[str, Any]) -> str:
    """The text that one field of an event brings; empty for every other field."""
    if packet["name"] != "data" or not str(packet["value"]).startswith("{"):
        return ""
    choices = json.loads(packet["value"]).get("choices")
    return str(choices[0]["delta"].get("content") or "") if choices else ""
