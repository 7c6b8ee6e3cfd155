"""Streams recorded from real servers, replayed over a real socket in every chunking.

What each must come to is not written by what reads it: the same request in one piece at temperature 0 stands in the
fixture, and the rest is looked up in the raw bytes. tests/fixtures/streams/record.py says how they were made.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h11
import pytest
from byte_server import ByteServer

from battery.bench.client import Client, Completion
from battery.bench.stream import chunks
from battery.ledger.trace import METRICS

FOLDER = Path(__file__).parents[1] / "fixtures" / "streams"
FIXTURES = {path.stem: json.loads(path.read_text()) for path in sorted(FOLDER.glob("*.json"))}
SERVERS = ("llama.cpp", "mlx_lm", "switchboard", "switchboard-drafts")
STREAMS = [name for name in FIXTURES if not name.endswith("-error")]
_TEXT = re.compile(rb'"(?:content|text)":\s*"(?:[^"\\]|\\.)+"')


def reads_of(name: str) -> list[tuple[int, bytes]]:
    return [(at, text.encode("latin-1")) for at, text in FIXTURES[name]["reads"]]


def raw_of(name: str) -> bytes:
    return b"".join(data for _, data in reads_of(name))


def number(raw: bytes, key: str) -> int | None:
    """The last whole number under a key in the raw bytes, None where there is none."""
    found = re.findall(rb'"%s":\s*(\d+)' % key.encode(), raw)
    return int(found[-1]) if found else None


def script(server: ByteServer, name: str, how: str) -> None:
    """Let the server send the recorded bytes, cut as `how` says."""
    raw = raw_of(name)
    if how == "as recorded":
        pieces = [data for _, data in reads_of(name)]
    elif how == "bytes":
        pieces = [raw[i : i + 1] for i in range(len(raw))]
    else:
        dice = random.Random(how)
        edges = sorted(dice.sample(range(len(raw)), k=min(40, len(raw) - 1))) if how != "whole" else []  # fmt: skip
        pieces = [raw[a:b] for a, b in zip([0, *edges], [*edges, len(raw)], strict=True)]
    server.script = [*pieces]
    if raw.startswith(b"HTTP/1.0") or b"Connection: close" in raw:
        server.script.append("close")


def said(name: str) -> tuple[str, str, dict[str, Any]]:
    """(text, finish reason, usage) of the same request in one piece."""
    whole = FIXTURES[name]["whole"]
    choice = whole["choices"][0]
    text = choice["message"]["content"] if "message" in choice else choice["text"]
    return text, choice["finish_reason"], whole["usage"]


def check(name: str, done: Completion) -> None:
    """Everything that the recorded bytes and the answer in one piece say about a stream."""
    raw, trace = raw_of(name), done.trace
    text, finish, usage = said(name)
    assert (done.outcome, done.reason) == ("ok", None)
    assert (done.text, done.reasoning, trace.finish_reason) == (text, "", finish)
    assert len(trace.events) == len(_TEXT.findall(raw))
    ids = FIXTURES[name]["whole"]["choices"][0].get("token_ids")
    assert list(done.token_ids or ()) == (ids or [])
    if b'"usage"' not in raw:
        assert trace.count_source == "estimate" and METRICS["decode"].of(trace) is None
        assert trace.prompt_tokens is None
    else:
        assert trace.count_source == ("server" if ids else "usage")
        assert trace.completion_tokens == usage["completion_tokens"]
        assert trace.prompt_tokens == usage["prompt_tokens"]
    assert trace.cached_tokens == number(raw, "cached_tokens" if b"cached_tokens" in raw else "cache_n")  # fmt: skip
    assert "notes" not in done.evidence


HOW = ["whole", "bytes", "as recorded", "split 1", "split 2"]


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("name", STREAMS)
def test_a_real_stream_comes_to_what_the_server_says_in_one_piece(
    server: ByteServer, client: Client, name: str, how: str
) -> None:
    script(server, name, how)
    check(name, client.stream("/v1/chat/completions", {}, deadline_s=30))


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("of", SERVERS)
def test_a_real_refusal_is_told_in_its_own_words(
    server: ByteServer, client: Client, of: str, how: str
) -> None:
    name = f"{of}-error"
    script(server, name, how)
    done = client.stream("/v1/chat/completions", {}, deadline_s=30)
    error = FIXTURES[name]["whole"]["error"]
    words = error if isinstance(error, str) else error["message"]
    assert (done.outcome, done.phase, done.reason) == ("error", "http", f"HTTP 400: {words}")
    assert done.trace.events == () and done.trace.completion_tokens is None


def stamped(name: str) -> chunks.Answer:
    """The recorded answer with the dates of its reads, its HTTP framing undone by h11."""
    wire = h11.Connection(our_role=h11.CLIENT)
    wire.send(h11.Request(method="POST", target="/", headers=[("Host", "x")]))
    wire.send(h11.EndOfMessage())
    answer = chunks.Answer(sent_ns=0, framed=not raw_of(name).startswith(b"HTTP/1.0"))
    for at, data in [*reads_of(name), (0, b"")]:
        wire.receive_data(data)
        while not isinstance(event := wire.next_event(), type(h11.NEED_DATA)):
            if isinstance(event, h11.Response):
                answer.status = event.status_code
            elif isinstance(event, h11.Data):
                answer.reads.append((at, bytes(event.data)))
            else:
                break
        answer.last_ns = at or answer.last_ns
    answer.ended = True
    return answer


@pytest.mark.parametrize("name", STREAMS)
def test_times_are_those_of_the_recorded_reads(name: str) -> None:
    """t1 and tL are the reads in which the first and the last text became whole, looked up in the raw bytes."""
    trace = chunks.read(stamped(name)).trace
    raw, dates, so_far = raw_of(name), [], 0
    ends = [raw.index(b"\n\n", match.end()) + 2 for match in _TEXT.finditer(raw)]
    for at, data in reads_of(name):
        dates += [at for end in ends if so_far < end <= so_far + len(data)]
        so_far += len(data)
    assert [event.at_ns for event in trace.events] == dates
    assert METRICS["ttft"].of(trace) == dates[0] / 1e9
    assert trace.end_ns == reads_of(name)[-1][0]
    total, gap = said(name)[2]["completion_tokens"], dates[-1] - dates[0]
    rate = METRICS["decode"].of(trace)
    if b'"usage"' in raw and len(dates) > 1:
        assert rate == pytest.approx((total - (trace.events[0].tokens or 1)) * 1e9 / gap)
    else:
        assert rate is None


@pytest.mark.parametrize("of", SERVERS)
def test_a_servers_own_figures_are_kept(server: ByteServer, client: Client, of: str) -> None:
    name = f"{of}-usage"
    script(server, name, "whole")
    trace, raw = client.stream("/x", {}, deadline_s=30).trace, raw_of(name)
    timings = trace.timings or {}
    if of == "mlx_lm":
        assert trace.timings is None and trace.sampler is None
    elif of == "llama.cpp":
        (ms,) = re.findall(rb'"prompt_ms":([\d.]+)', raw)
        assert timings["prompt_s"] == pytest.approx(float(ms) / 1e3)
        assert timings["prompt_tokens"] == number(raw, "prompt_n")
        assert timings["decode_tokens"] == number(raw, "predicted_n") == 12
        assert (trace.prompt_tokens or 0) == timings["prompt_tokens"] + (trace.cached_tokens or 0)
    else:
        assert (timings["decode_tokens"], timings["prompt_tokens"]) == (11, trace.prompt_tokens)
        assert (trace.sampler or {})["max_tokens"] == 12


@pytest.mark.parametrize("name", [name for name in STREAMS if not name.endswith("-completion")])
def test_the_probe_reads_it_alike(
    server: ByteServer, probed: Callable[..., tuple[int, dict[str, Any]]], name: str
) -> None:
    script(server, name, "split 3")
    text, finish, usage = said(name)
    most = str(FIXTURES[name]["body"]["max_tokens"])
    code, seen = probed(f"{server.url}/v1", "--model", "m", "--max-tokens", most)
    cached = seen["usage"]["cached_tokens"]
    want = ("warm", 4) if cached else ("ok", 0)
    assert (seen["outcome"], code) == want and (seen["cold"] == "warm") == bool(cached)
    assert (seen["text"], seen["finish_reason"]) == (text, finish)
    told = seen["usage"]["completion_tokens"]
    assert told == (usage["completion_tokens"] if b'"usage"' in raw_of(name) else None)


def test_every_server_that_runs_here_was_recorded() -> None:
    kinds = {"plain", "usage", "again", "stop", "one", "letters", "completion", "error"}
    assert set(FIXTURES) == {f"{server}-{kind}" for server in SERVERS for kind in kinds}
    for name, kept in FIXTURES.items():
        assert name.startswith(kept["server"]) and kept["version"] and kept["command"]
    # drafts bring several tokens in one event
    drafts = re.findall(rb'"token_ids":\[([\d,]+)\]', raw_of("switchboard-drafts-letters"))
    assert max(ids.count(b",") for ids in drafts) >= 1
    # a prompt that comes again is warm where the server caches, and says so
    assert (number(raw_of("llama.cpp-again"), "cached_tokens") or 0) > 0
    assert (number(raw_of("mlx_lm-again"), "cached_tokens") or 0) > 0
    assert number(raw_of("switchboard-again"), "cached_tokens") == 0
