"""guidellm 0.8.1: the first and the last token of each request, on the wall clock.

Where it stamps: time.time() once per line that httpx's `aiter_lines` yields (backends/openai/http.py,
`_resolve_streaming`): after the chunked body was undone, decoded as text and split into lines, before the line's JSON
is read. Lines of one read are stamped one after another, each when its forerunners were parsed. It keeps the first
and the last stamp of a line that brought text (`first_token_iteration`, `last_token_iteration`) and a count; the
stamps between are not kept, so its gaps cannot be compared, only their mean: (last − first)/(N − 1), its ITL.

TTFT: first token − `request_start`, taken when httpcore starts to write the request's headers, after connecting: the
connection is not in it. It leaves the loop at [DONE], before the end of the body, so httpx closes most connections and
opens one for the next request. Requests run in worker processes of its own, all of them asyncio with uvloop.

With one stream its report lacks the last request (4 of 4 runs: created 8, processed 7, "processing" 1): the worker's
last message is not waited for. So one more request per stream is asked for, and the first ones by sending time are
taken.

Routes: GET /health, POST /v1/chat/completions with max_completion_tokens, ignore_eos, stream_options.include_usage and
continuous_usage_stats. Some tokenizer is needed to size prompts: a local one.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks.peers import PeerRequest, PeerRun, key_of
from benchmarks.peers import tokenizer as bytes_tokenizer
from benchmarks.peers.clock import Conversion, offset
from benchmarks.peers.environment import run, version

PEER = "guidellm"
START_S = 120
"""Torch is read from disk before the first request."""


def drive(
    base_url: str, model: str, requests: int, streams: int, tokens: int, workdir: Path
) -> PeerRun:
    """Run `guidellm run` with a concurrent profile and read its report."""
    tokenizer = bytes_tokenizer.write(workdir / "tokenizer")
    report = workdir / "report.json"
    report.unlink(missing_ok=True)
    arguments = [
        *("-m", "guidellm", "run"),
        *("--backend", f"kind=openai_http,target={base_url},model={model}"),
        *("--profile", f"kind=concurrent,streams={streams}"),
        *("--constraint", f"kind=max_requests,count={requests + streams}"),
        *("--tokenizer", f"kind=hf_auto,model={tokenizer}"),
        *("--data", f"kind=synthetic_text,prompt_tokens=64,output_tokens={tokens}"),
        *("--output", f"kind=json,path={report}"),
        "--disable-console-interactive",
    ]
    before = offset()
    run(PEER, arguments, workdir, START_S + requests)
    clock = Conversion(before, offset())
    clock.check()
    return PeerRun(
        peer=PEER,
        version=version(PEER),
        finest="first-last",
        requests=read(json.loads(report.read_text()), clock)[:requests],
        clock=clock.words(),
        clock_error_ns=clock.error_ns,
    )


def read(report: dict[str, Any], clock: Conversion) -> list[PeerRequest]:
    """The completed requests of a report, in the order in which they were sent."""
    found = [one for run in report["benchmarks"] for one in run["requests"]["successful"]]
    found.sort(key=lambda one: float(one["info"]["timings"]["request_start"]))
    return [_request(one, clock) for one in found]


def _request(one: dict[str, Any], clock: Conversion) -> PeerRequest:
    stamps = one["info"]["timings"]
    names = ("request_start", "first_token_iteration", "last_token_iteration")
    send, first, last = (
        None if stamps[name] is None else clock.ours(stamps[name]) for name in names
    )
    return PeerRequest(key=key_of(one["output"] or ""), send_ns=send, first_ns=first, last_ns=last)
