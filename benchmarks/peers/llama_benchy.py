"""llama-benchy 0.4.0: every read that brought text, on our clock; its own files hold less.

Where it stamps: time.perf_counter() for each read that aiohttp's `content.iter_any` yields (client.py,
`LLMClient.run_generation`): after aiohttp undid the chunked body, before decoding, splitting and JSON, which run in the
same loop before the next read. Every event of one read has that read's stamp.

Its result file has rates, a TTFT per request, and a series per request that starts at 0 with the first token: no
absolute stamp, and no name by which an answer could be found. So it is started through `llama_benchy_launch`, which
runs its command line unchanged and, once a stream is over, copies the stamps that it holds in memory. Note that what
it *reports* per token are these stamps only where the server sends `token_ids` with every event; where there is usage
alone it lays the tokens out evenly between the first and the last stamp. The reads' own stamps are taken here in both
cases.

TTFT ("e2e_ttft"): first token − start, taken just before `session.post`: a connection that has to be opened is
inside. Its warm-up batch opens them here. Requests go out as batches of `streams`, one task each, all
in one process.

Routes: POST /v1/chat/completions, also without `stream` (two warm-up requests of one token each); max_tokens,
min_tokens, ignore_eos, cache_prompt, return_token_ids, stream_options.include_usage. It wants a tokenizer and a book:
local ones; the book lies where it would have cached a fetched one.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from benchmarks.peers import PeerRequest, PeerRun, key_of
from benchmarks.peers import tokenizer as bytes_tokenizer
from benchmarks.peers.clock import OUR_CLOCK
from benchmarks.peers.environment import quiet, run, version

PEER = "llama-benchy"
LAUNCH = Path(__file__).with_name("llama_benchy_launch.py")
BOOK = "http://127.0.0.1/book"
"""Never asked for: its cache is filled beforehand."""
START_S = 60


def drive(
    base_url: str, model: str, requests: int, streams: int, tokens: int, workdir: Path
) -> PeerRun:
    """Run llama-benchy's command line through the launcher and read what that kept."""
    tokenizer = bytes_tokenizer.write(workdir / "tokenizer")
    cache = Path(quiet(workdir)["HOME"]) / ".cache" / "llama-benchy"
    cache.mkdir(parents=True, exist_ok=True)
    name = hashlib.md5(BOOK.encode(), usedforsecurity=False).hexdigest()
    (cache / f"{name}.txt").write_text(bytes_tokenizer.text())
    stamps = workdir / "stamps.jsonl"
    stamps.unlink(missing_ok=True)
    arguments = [
        *("-P", str(LAUNCH), str(stamps)),
        *("--base-url", f"{base_url}/v1", "--model", model, "--tokenizer", str(tokenizer)),
        *("--book-url", BOOK, "--pp", "64", "--tg", str(tokens), "--exact-tg", "--no-cache"),
        *("--runs", str(requests // streams), "--concurrency", str(streams)),
        *("--latency-mode", "none", "--skip-coherence"),
        *("--save-result", str(workdir / "result.json"), "--format", "json"),
    ]
    run(PEER, arguments, workdir, START_S + requests)
    with stamps.open() as lines:
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
    """The timed requests that the launcher kept, in the order in which they were sent."""
    records = [json.loads(line) for line in lines if line.strip()]
    sent = sorted(records, key=lambda one: float(one["start_s"]))
    return [_request(one) for one in sent if not one["error"]]


def _request(record: dict[str, Any]) -> PeerRequest:
    events = [_ns(at) for at in record["event_s"]]
    return PeerRequest(
        key=key_of(record["text"]),
        send_ns=_ns(record["start_s"]),
        event_ns=events,
        first_ns=events[0] if events else None,
        last_ns=events[-1] if events else None,
    )


def _ns(seconds: float) -> int:
    return round(seconds * 1e9)
