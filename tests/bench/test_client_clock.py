"""When the client's clock starts and stops, and what a connection may do to it. Numbers: cases of anchors/FIELD.md."""

from __future__ import annotations

import gc
import json
import socket
import time
from typing import Any

import pytest
from byte_server import (
    DONE,
    HEALTH,
    PLAIN,
    ROLE,
    STOP,
    ByteServer,
    check,
    chunked,
    data,
    delta,
    run,
    usage,
)

from battery.bench.client import Client, Unreachable
from battery.bench.stream.wire import Lane
from battery.ledger import trace as formulas


def test_times_are_those_of_the_token_events(server: ByteServer, client: Client) -> None:
    """A late role chunk, usage or [DONE] moves neither the first token nor the last (17, 21, 26, 27)."""
    head, *rest = chunked(ROLE, delta(content="a"), delta(content="b"), STOP, usage(2), DONE)
    server.script = [head]
    for pause, step in zip([0.02, 0.1, 0.1, 2.0, 0.1, 0.0, 0.0], rest, strict=True):
        server.script += [pause, step]
    done = client.stream("/x", {}, deadline_s=10)
    first, last = (event.at_ns / 1e9 for event in done.trace.events)
    assert first > 0.11
    assert 0.05 < last - first < 1.9
    assert (done.trace.end_ns or 0) / 1e9 - last > 2.05
    assert formulas.ttft(done.trace) == first
    assert done.first_token_ns == done.trace.events[0].at_ns


def test_a_gap_of_20_ms_is_seen(server: ByteServer, client: Client) -> None:
    """An event is dated by the read that completed it, not the one that began it."""
    event = delta(content="b")
    head, *rest = chunked(delta(content="a"), event[:9], event[9:], STOP, usage(2), DONE)
    server.script = [head, rest[0], 0.01, rest[1], 0.01, *rest[2:]]
    done = client.stream("/x", {}, deadline_s=10)
    first, last = (event.at_ns / 1e6 for event in done.trace.events)
    assert 19 < last - first < 2000


def test_the_handshake_and_the_warm_up_are_outside(server: ByteServer, client: Client) -> None:
    server.health = [2.0, HEALTH]
    done = run(server, client, PLAIN)
    assert done.evidence["connection"] == "kept"
    assert (done.first_token_ns or 0) < 1.9e9
    assert server.connections == 1
    run(server, client, PLAIN)
    assert server.connections == 1


def test_a_server_that_never_keeps_a_connection(server: ByteServer, client: Client) -> None:
    """HTTP/1.0, as mlx_lm.server speaks it: [DONE] is then the only mark of the end."""
    server.health = [b"HTTP/1.0 200 OK\r\n\r\n{}", "close"]
    head = b"HTTP/1.0 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"
    body = b": keepalive 1/2\n\n" + delta(content="a") + STOP + usage(1)
    server.script = [head, body + DONE, 2.5, "close"]
    done = client.stream("/x", {}, deadline_s=10)
    assert 0 < (done.trace.end_ns or 0) < 2.4e9  # the last byte, and not the close
    assert (done.outcome, done.evidence["connection"]) == ("ok", "opened ahead")
    # usage comes last: with it and a finish reason nothing but [DONE] can be missing
    server.script = [head, body, "close"]
    assert client.stream("/x", {}, deadline_s=10).outcome == "ok"
    server.script = [head, delta(content="a") + STOP, "close"]
    done = client.stream("/x", {}, deadline_s=10)
    assert done.outcome == "error" and "without [DONE]" in (done.reason or "")


def test_a_warmed_connection_that_was_closed_is_warmed_again(
    server: ByteServer, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server closes without a word between warm-up and send: no reconnect may hide in TTFT."""
    warm, closings = client._timed.warm, iter([True, True, False])

    def then_close(path: str, limit_s: float) -> str:
        how = warm(path, limit_s)
        if next(closings):
            server._open[-1].shutdown(socket.SHUT_RDWR)
            time.sleep(0.05)
        return how

    monkeypatch.setattr(client._timed, "warm", then_close)
    done = run(server, client, PLAIN)
    assert done.outcome == "ok" and server.connections == 3
    closings = iter([True] * 3)
    done = run(server, client, PLAIN)
    assert (done.outcome, done.phase, done.sent_ns) == ("error", "connect", None)
    assert "warmed connections" in (done.reason or "")


@pytest.mark.parametrize("how", ["hang", "trickle"])
@pytest.mark.parametrize("tokens", [0, 2])
def test_the_deadline_holds_for_silence_and_for_trickle(
    server: ByteServer, client: Client, how: str, tokens: int
) -> None:
    server.script = [*chunked(ROLE, *[delta(ids=[1], content="a")] * tokens)[:-1], how]
    began = time.monotonic()
    done = client.stream("/x", {}, deadline_s=0.3)
    assert 0.25 < time.monotonic() - began < 2
    assert (done.outcome, done.phase) == ("timeout", "decode" if tokens else "prefill")
    assert "deadline of 0.3 s" in (done.reason or "")
    assert len(done.trace.events) == tokens and done.trace.end_ns is None
    assert done.text == "a" * tokens


def test_the_deadline_holds_before_the_head(server: ByteServer, client: Client) -> None:
    server.script = ["hang"]
    done = client.stream("/x", {}, deadline_s=0.2)
    assert (done.outcome, done.phase) == ("timeout", "prefill")
    assert done.evidence["http_status"] is None


def test_a_body_that_never_ends_after_done_is_no_wait(server: ByteServer, client: Client) -> None:
    server.script = [*chunked(PLAIN)[:-1], "hang"]
    began = time.monotonic()
    done = client.stream("/x", {}, deadline_s=30)
    assert done.outcome == "ok" and time.monotonic() - began < 5
    assert done.evidence["after_done"]


@pytest.mark.parametrize("tail", ["chunk", "between"])
def test_tokens_before_a_break_are_kept(server: ByteServer, client: Client, tail: str) -> None:
    """12: and a finish reason alone is no end where the body was cut."""
    body = delta(ids=[1], content="a") + delta(ids=[2], content="b") + STOP
    server.script = [
        *chunked(body)[:-1],
        *([b"ff\r\ndata: {"] if tail == "chunk" else []),
        "close",
    ]
    done = client.stream("/x", {}, deadline_s=10)
    assert (done.outcome, done.phase, done.text) == ("error", "decode", "ab")
    assert "the connection broke" in (done.reason or "")
    check(done, {"tokens": [1, 1], "source": "estimate", "total": 2})
    assert done.trace.end_ns is None and done.evidence["last_byte_ns"] > 0


def test_a_server_that_dies_in_prefill(server: ByteServer, client: Client) -> None:
    server.script = ["close"]
    done = client.stream("/x", {}, deadline_s=10)
    assert (done.outcome, done.phase) == ("error", "prefill")
    assert done.sent_ns is not None and done.trace.events == ()


@pytest.mark.parametrize(
    ("status", "body", "reason"),
    [
        (500, b'{"error": {"message": "CUDA out of memory"}}', "HTTP 500: CUDA out of memory"),
        (429, b"slow down", "HTTP 429: slow down"),
        (400, b"", "HTTP 400: an empty body"),
    ],
)
def test_an_http_error(
    server: ByteServer, client: Client, status: int, body: bytes, reason: str
) -> None:
    server.script = [b"HTTP/1.1 %d X\r\nContent-Length: %d\r\n\r\n%s" % (status, len(body), body)]
    done = client.stream("/x", {}, deadline_s=10)
    assert (done.outcome, done.phase, done.reason) == ("error", "http", reason)
    assert done.evidence["http_status"] == status


def test_an_answer_that_is_no_stream(server: ByteServer, client: Client) -> None:
    body = b'{"choices": [{"message": {"content": "hi"}}]}'
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    server.script = [head % len(body) + body]
    done = client.stream("/x", {}, deadline_s=10)
    assert done.outcome == "error" and "not an event stream (application/json)" in (
        done.reason or ""
    )


def test_timings_and_sampler_in_any_chunk(server: ByteServer, client: Client) -> None:
    llama = {"prompt_n": 7, "prompt_ms": 500.0, "predicted_n": 3, "predicted_ms": 250, "cache_n": 2}
    body = delta(content="a")
    body += data(
        {"choices": [{"delta": {}, "finish_reason": "stop"}], "sampler": {"temperature": 0.7}}
    )
    done = run(server, client, body + data({"choices": [], "timings": llama}) + DONE)
    timings = done.trace.timings or {}
    assert (timings["prompt_s"], timings["decode_s"]) == (0.5, 0.25)
    assert (timings["prompt_tokens"], timings["decode_tokens"]) == (7, 3)
    assert llama.items() <= timings.items()
    assert done.trace.cached_tokens == 2 and done.trace.sampler == {"temperature": 0.7}
    ours = {"prompt_s": 0.5, "prompt_tokens": 9, "decode_s": 1.5, "decode_tokens": 2, "steps": 2}
    done = run(
        server, client, delta(content="a") + STOP + data({"timings": ours}) + usage(1) + DONE
    )
    assert done.trace.timings == ours


def test_the_request_and_the_key(server: ByteServer) -> None:
    body = {"model": "m", "messages": [{"role": "user", "content": "é"}], "seed": 1}
    server.script = [
        b"HTTP/1.1 401 X\r\nContent-Length: 21\r\n\r\nwrong key: abc-secret"[: -0 or None]
    ]
    with Client(server.url + "/", api_key="abc-secret") as client:
        done = client.stream("/v1/chat/completions", body, deadline_s=5)
    assert done.reason == "HTTP 401: wrong key: <redacted>"
    assert "abc-secret" not in str(done)
    head, _, sent = server.asked[-1].partition(b"\r\n\r\n")
    assert head.startswith(b"POST /v1/chat/completions HTTP/1.1")
    assert b"Bearer abc-secret" in head and b"Accept-Encoding: identity" in head
    assert json.loads(sent) == {**body, "stream": True}


def test_json_beside_a_stream(server: ByteServer, client: Client) -> None:
    server.script = [b"HTTP/1.1 404 X\r\nContent-Length: 4\r\n\r\nnope"]
    assert client.get_json("/health") == (200, {})
    assert client.post_json("/x") == (404, "nope")
    server.health = ["hang"]
    with Client(server.url, timeout_s=0.1) as quick, pytest.raises(Unreachable, match=r"0\.1 s"):
        quick.get_json("/health")
    with Client(server.url, timeout_s=0.1) as quick:
        done = quick.stream("/x", {}, deadline_s=1)
    assert (done.outcome, done.phase) == ("timeout", "connect")


def test_a_kept_connection_that_closes_under_a_small_request_is_opened_again(
    server: ByteServer, client: Client
) -> None:
    """llama.cpp closes after a stream without a word, and the next GET may already be on its way."""
    assert client.get_json("/health") == (200, {})
    for before in (1, 2):
        assert server.connections == before
        server.hang_ups = 1  # the connection is up until the request has come, and then it is not
        assert client.get_json("/health") == (200, {})
    server.hang_ups = 2
    with pytest.raises(Unreachable, match="disconnected"):
        client.get_json("/health")


def test_nobody_at_home() -> None:
    with socket.create_server(("127.0.0.1", 0)) as gone:
        url = f"http://127.0.0.1:{gone.getsockname()[1]}"
    with Client(url) as client:
        with pytest.raises(Unreachable, match="refused"):
            client.get_json("/health")
        done = client.stream("/x", {}, deadline_s=1)
    assert (done.outcome, done.phase) == ("error", "connect")


def test_the_collector_is_held_and_comes_back(
    server: ByteServer, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    held: list[bool] = []
    timed = Lane._timed

    def look(*words: Any, **options: Any) -> Any:
        held.append(gc.isenabled())
        return timed(*words, **options)

    monkeypatch.setattr(Lane, "_timed", look)
    server.script = chunked(PLAIN)
    done = client.stream("/x", {}, deadline_s=5)
    assert done.outcome == "ok" and held == [False] and gc.isenabled()
