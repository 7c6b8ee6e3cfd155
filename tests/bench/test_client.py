"""The client against a scripted server on a real socket. Numbers in comments are cases of anchors/FIELD.md."""

from __future__ import annotations

import contextlib
import gc
import itertools
import json
import random
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from battery.bench.client import Client, Completion, Unreachable
from battery.bench.wire import Lane
from battery.ledger import trace as formulas

HEAD = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
HEALTH = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"


class ByteServer:
    """Answers a GET with HEALTH and a POST with a script: bytes are sent, numbers slept, words done."""

    def __init__(self) -> None:
        self.script: list[bytes | float | str] = []
        self.health: list[bytes | float | str] = [HEALTH]
        self.asked: list[bytes] = []
        self.connections = 0
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        self._open: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def close(self) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        for one in self._open:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(5)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listening.accept()
                self.connections += 1
                self._open.append(connection)
                thread = threading.Thread(target=self._serve, args=(connection,), daemon=True)
                self._threads.append(thread)
                thread.start()

    def _serve(self, connection: socket.socket) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with connection, connection.makefile("rb") as lines, contextlib.suppress(OSError):
            while line := lines.readline():
                head = line
                while (line := lines.readline()).strip():
                    head += line
                length = next(
                    (int(h.split(b":")[1]) for h in head.split(b"\r\n") if b"ontent-Len" in h), 0
                )
                self.asked.append(head + b"\r\n" + lines.read(length))
                steps = self.health if head.startswith(b"GET") else self.script
                if not self._play(connection, steps):
                    return

    def _play(self, connection: socket.socket, steps: list[bytes | float | str]) -> bool:
        for step in steps:
            if isinstance(step, bytes):
                connection.sendall(step)
            elif step == "close":
                return False
            elif step == "hang":
                connection.recv(1)
                return False
            elif step == "trickle":
                while True:
                    connection.sendall(chunk(b":"))
                    time.sleep(0.01)
            else:
                time.sleep(float(step))
        return True


@pytest.fixture
def server() -> Iterator[ByteServer]:
    one = ByteServer()
    yield one
    one.close()


@pytest.fixture
def client(server: ByteServer) -> Iterator[Client]:
    with Client(server.url, timeout_s=5) as one:
        yield one


def chunk(raw: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(raw), raw)


def chunked(*pieces: bytes) -> list[bytes | float | str]:
    """A whole chunked response, each piece a send of its own."""
    head = f"{HEAD}Transfer-Encoding: chunked\r\n\r\n".encode()
    return [head, *map(chunk, filter(None, pieces)), b"0\r\n\r\n"]


def data(document: object) -> bytes:
    text = document if isinstance(document, str) else json.dumps(document, ensure_ascii=False)
    return f"data: {text}\n\n".encode()


def delta(finish: str | None = None, ids: list[int] | None = None, **fields: object) -> bytes:
    choice: dict[str, Any] = {"index": 0, "delta": fields, "finish_reason": finish}
    if ids is not None:
        choice["token_ids"] = ids
    return data({"choices": [choice]})


def usage(tokens: int | None, **more: object) -> bytes:
    said: dict[str, Any] = {"prompt_tokens": 9, "completion_tokens": tokens, **more}
    return data({"choices": [], "usage": said})


ROLE = delta(role="assistant", content="")
STOP = delta("stop")
DONE = data("[DONE]")


def run(server: ByteServer, client: Client, body: bytes, how: str = "whole") -> Completion:
    """Stream one body, cut as `how` says."""
    if how == "whole":
        pieces = [body]
    elif how == "bytes":
        pieces = [body[i : i + 1] for i in range(len(body))]
    else:
        dice = random.Random(how)
        edges = sorted(dice.sample(range(len(body)), k=min(25, len(body) - 1)))
        pieces = [body[a:b] for a, b in zip([0, *edges], [*edges, len(body)], strict=True)]
    server.script = chunked(*pieces)
    return client.stream("/v1/chat/completions", {"messages": []}, deadline_s=10)


Want = dict[str, Any]
GOOD: dict[str, tuple[bytes, Want]] = {
    "plain": (
        ROLE + delta(content="a") + delta(content="b") + STOP + usage(2) + DONE,
        {"text": "ab", "n": 2, "tokens": [None, None], "source": "usage", "total": 2},
    ),
    "ids": (  # 19, 20: several tokens in an event
        ROLE + delta(ids=[1, 2, 3], content="a b c") + delta(ids=[4], content="d") + STOP + usage(4) + DONE,
        {"n": 2, "tokens": [3, 1], "source": "server", "total": 4, "ids": (1, 2, 3, 4)},
    ),
    "ids without text wait for the next text": (
        delta(ids=[1], content="") + delta(ids=[2], content="é") + STOP + usage(2) + DONE,
        {"n": 1, "tokens": [2], "source": "server", "total": 2},
    ),
    "ids left over in the finish chunk are an event of their own": (
        delta(ids=[1], content="a") + delta("stop", ids=[2], content="") + usage(2) + DONE,
        {"n": 2, "tokens": [1, 1], "source": "server", "total": 2, "text": "a"},
    ),
    "reasoning, both spellings": (  # 18
        delta(reasoning="x") + delta(reasoning_content="y") + delta(content="z") + STOP + usage(3) + DONE,
        {"reasoning": "xy", "text": "z", "kinds": ["reasoning", "reasoning", "content"]},
    ),
    "both spellings in one event count once": (  # 26
        delta(reasoning="x", reasoning_content="x") + STOP + usage(1) + DONE,
        {"reasoning": "x", "n": 1},
    ),
    "tool calls": (
        delta(tool_calls=[{"index": 0, "function": {"name": "look", "arguments": ""}}])
        + delta(tool_calls=[{"index": 0, "function": {"name": None, "arguments": "{}"}}])
        + delta("tool_calls")
        + usage(2)
        + DONE,
        {"n": 2, "kinds": ["tool", "tool"], "tool": "look{}"},
    ),
    "null, missing and empty": (  # 7, 8
        data({"choices": None})
        + data({"choices": []})
        + data({})
        + data({"choices": [None]})
        + data({"choices": [{"delta": None}], "usage": None, "error": None, "timings": None})
        + delta(content=None, tool_calls=None, reasoning_content=None)
        + delta(ids=[], content="a")
        + STOP
        + usage(1, prompt_tokens_details=None)
        + DONE,
        {"n": 1, "text": "a", "cached": None, "source": "usage"},
    ),
    "usage rides on the finish chunk": (
        delta(content="a")
        + data({"choices": [{"delta": {}, "finish_reason": "length"}], "usage": {"completion_tokens": 1}})
        + DONE,
        {"total": 1, "source": "usage", "finish": "length", "prompt": None},
    ),
    "a usage on the last token alone is no running count": (
        delta(content="a")
        + data({"choices": [{"delta": {"content": "b"}}], "usage": {"completion_tokens": 5}})
        + STOP
        + DONE,
        {"total": 5, "tokens": [None, None], "source": "usage"},
    ),
    "running usage dates its tokens": (
        data({"choices": [{"delta": {"role": "assistant"}}], "usage": {"completion_tokens": 0}})
        + data({"choices": [{"delta": {"content": "a"}}], "usage": {"completion_tokens": 2}})
        + data({"choices": [{"delta": {"content": "b"}}], "usage": {"completion_tokens": 5}})
        + STOP
        + usage(5)
        + DONE,
        {"tokens": [2, 3], "source": "server", "total": 5},
    ),
    "no usage is an estimate": (
        delta(content="a") + delta(content="b") + STOP + DONE,
        {"source": "estimate", "total": 2, "tokens": [1, 1]},
    ),
    "ids without usage are no total": (
        delta(ids=[1, 2], content="a b") + STOP + DONE,
        {"source": "estimate", "total": 2, "tokens": [2]},
    ),
    "completions": (
        data({"choices": [{"text": "a", "finish_reason": None}]})
        + data({"choices": [{"text": "", "finish_reason": "length"}]})
        + usage(1)
        + DONE,
        {"text": "a", "n": 1, "finish": "length"},
    ),
    "cached, nested": (
        delta(content="a") + STOP + usage(1, prompt_tokens_details={"cached_tokens": 0}) + DONE,
        {"cached": 0, "prompt": 9},
    ),
    "cached, flat": (delta(content="a") + STOP + usage(1, cached_tokens=4) + DONE, {"cached": 4}),
    "no [DONE], but a proper end": (delta(content="a") + STOP + usage(1), {"n": 1}),
    "comments": (b": ping\n\n" + delta(content="a") + b": ping\n\n" + STOP + usage(1) + DONE, {"n": 1}),
    "no blank, CRLF, raw line separators": (  # 3, 6
        'data:{"choices":[{"delta":{"content":"é\u2028😀"}}]}\r\n\r\n'.encode() + STOP + usage(1) + DONE,
        {"text": "é\u2028😀", "n": 1},
    ),
    "multi-field events": (  # 4
        b"event: message\nid: 1\nretry: 10\n" + delta(content="a") + STOP + usage(1) + DONE,
        {"n": 1},
    ),
    "a huge event": (delta(content="x" * 200_000) + STOP + usage(1) + DONE, {"n": 1}),  # 5
    "[DONE] without usage after it is the end": (delta(content="a") + STOP + usage(1) + DONE + b"data: ?\n\n", {}),
}  # fmt: skip

BAD: dict[str, tuple[bytes, str, Want]] = {
    "error inside 200": (  # 9
        delta(content="a") + data({"error": {"message": "KV full"}}) + STOP + usage(1) + DONE,
        "error inside the stream: KV full",
        {"n": 1, "text": "a"},
    ),
    "error as text": (data({"error": "boom"}), "error inside the stream: boom", {"n": 0}),
    "error without words": (data({"error": {}}), "error inside the stream: {}", {}),
    "error object": (data({"object": "error", "message": "no"}), "error inside the stream: no", {}),
    "error event": (
        delta(content="a") + b"event: error\ndata: out of memory\n\n",
        "error inside the stream: out of memory",
        {"n": 1},
    ),
    "finish reason error": (
        delta(content="a") + delta("error") + usage(1) + DONE,
        "the server finished with 'error'",
        {"n": 1, "finish": "error"},
    ),
    "no finish reason": (delta(content="a") + DONE, "without a finish reason", {"n": 1}),
    "ends after the text": (delta(content="a"), "without a finish reason", {"n": 1}),
    "ends inside an event": (
        delta(content="a") + STOP + b'data: {"usage": ',
        "ended inside an event",
        {"n": 1},
    ),
    "bad JSON": (  # 13
        delta(content="a") + data('{"choices": [') + delta(content="b") + STOP + usage(2) + DONE,
        "chunk 2 is no JSON",
        {"n": 2, "text": "ab"},
    ),
    "no object": (data([1]) + DONE, "chunk 1 is no JSON object", {}),
    "no UTF-8": (
        b'data: {"choices":[{"delta":{"content":"\xff"}}]}\n\n' + STOP + usage(1) + DONE,
        "chunk 1 is no UTF-8",
        {},
    ),
    "empty answer": (ROLE + STOP + usage(0) + DONE, "no token came", {"n": 0, "total": 0}),  # 10
    "only an end-of-text id": (delta("stop", ids=[2]) + usage(1) + DONE, "no token came", {"n": 0}),
    "role only": (ROLE + DONE, "without a finish reason", {"n": 0, "total": None}),
    "nothing": (b"", "without a finish reason", {"n": 0}),
    "usage claims more": (
        delta(ids=[1], content="a") + STOP + usage(3) + DONE,
        "usage counts 3 tokens, but 1 token ids came",
        {"n": 1},
    ),
    "usage claims fewer": (
        delta(ids=[1, 2], content="a") + STOP + usage(1) + DONE,
        "usage counts 1 tokens, but 2 token ids came",
        {"n": 1},
    ),
    "usage counts none": (delta(content="a") + STOP + usage(0) + DONE, "usage counts no token", {}),
}


def check(done: Completion, want: Want) -> None:
    """Every figure that a case names."""
    trace = done.trace
    got = {
        "n": len(trace.events),
        "tokens": [event.tokens for event in trace.events],
        "kinds": [event.kind for event in trace.events],
        "source": trace.count_source,
        "total": trace.completion_tokens,
        "prompt": trace.prompt_tokens,
        "cached": trace.cached_tokens,
        "finish": trace.finish_reason,
        "text": done.text,
        "reasoning": done.reasoning,
        "tool": done.tool_calls,
        "ids": done.token_ids,
    }
    assert {key: got[key] for key in want} == want
    if trace.count_source == "server":
        assert sum(event.tokens or 0 for event in trace.events) == trace.completion_tokens


@pytest.mark.parametrize("how", ["whole", "bytes", "split 1", "split 2"])
@pytest.mark.parametrize("name", GOOD)
def test_success_in_every_chunking(server: ByteServer, client: Client, name: str, how: str) -> None:
    body, want = GOOD[name]
    if how == "bytes" and len(body) > 10_000:
        how = "split 3"  # one send per byte would take seconds
    done = run(server, client, body, how)
    assert (done.outcome, done.reason, done.phase) == ("ok", None, "decode")
    assert done.trace.end_ns is not None
    check(done, want)


@pytest.mark.parametrize("how", ["whole", "bytes", "split 3"])
@pytest.mark.parametrize("name", BAD)
def test_failure_keeps_what_came(server: ByteServer, client: Client, name: str, how: str) -> None:
    body, reason, want = BAD[name]
    done = run(server, client, body, how if body else "whole")
    assert done.outcome == "error" and reason in (done.reason or "")
    assert done.phase == ("decode" if done.trace.events else "prefill")
    assert done.evidence["last_bytes"] == body[-400:].decode("utf-8", "replace")
    check(done, want)


STORY = (
    ROLE
    + delta(ids=[1], reasoning_content="考え\u2028中")
    + delta(ids=[2, 3], content="é😀")
    + b": ping\r\n\r\n"
    + delta("stop", ids=[4], content="")
    + usage(4)
    + DONE
)


def test_random_splits_change_nothing_but_times() -> None:
    server = ByteServer()

    @settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.lists(st.integers(1, len(STORY) - 1), max_size=40, unique=True))
    def splits(at: list[int]) -> None:
        edges = [0, *sorted(at), len(STORY)]
        server.script = chunked(*(STORY[a:b] for a, b in itertools.pairwise(edges)))
        done = client.stream("/x", {}, deadline_s=10)
        assert (done.outcome, done.text, done.reasoning) == ("ok", "é😀", "考え\u2028中")
        check(done, {"tokens": [1, 2, 1], "source": "server", "ids": (1, 2, 3, 4)})
        stamps = [event.at_ns for event in done.trace.events]
        assert stamps[0] > 0 and stamps == sorted(stamps)
        assert (done.trace.end_ns or 0) >= stamps[-1]

    with Client(server.url) as client:
        splits()
    server.close()


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
    done = run(server, client, GOOD["plain"][0])
    assert done.evidence["connection"] == "kept"
    assert (done.first_token_ns or 0) < 1.9e9
    assert server.connections == 1
    run(server, client, GOOD["plain"][0])
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
    server.script = [head, body, "close"]
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
    done = run(server, client, GOOD["plain"][0])
    assert done.outcome == "ok" and server.connections == 3
    closings = iter([True] * 3)
    done = run(server, client, GOOD["plain"][0])
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
    server.script = [*chunked(GOOD["plain"][0])[:-1], "hang"]
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
    timed = Lane.timed

    def look(*words: Any, **options: Any) -> Any:
        held.append(gc.isenabled())
        return timed(*words, **options)

    monkeypatch.setattr(Lane, "timed", look)
    server.script = chunked(GOOD["plain"][0])
    done = client.stream("/x", {}, deadline_s=5)
    assert done.outcome == "ok" and held == [False] and gc.isenabled()
