"""What servers say and how they frame it, beyond the plain stream: over a real socket, in every chunking.

Numbers in comments are cases of anchors/FIELD.md.
"""

from __future__ import annotations

import gzip
import json
from typing import Any

import pytest
from byte_server import (
    DONE,
    HEAD,
    PLAIN,
    ROLE,
    STOP,
    ByteServer,
    Want,
    check,
    chunked,
    data,
    delta,
    run,
    usage,
)

from battery.bench.client import Client

NUMB: dict[str, Any] = {"prompt_tokens": 9, "completion_tokens": 1}


def ended(reason: str, **delta: object) -> bytes:
    return data({"choices": [{"index": 0, "delta": delta, "finish_reason": reason}]})


GOOD: dict[str, tuple[bytes, Want]] = {
    "content in typed parts": (
        delta(content=[{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}])
        + delta(content=[{"type": "text", "text": "a"}, {"type": "text", "text": "b"}, "c"])
        + delta(content=[]) + STOP + usage(3) + DONE,
        {"text": "abc", "reasoning": "hm", "kinds": ["reasoning", "content"], "total": 3},
    ),
    "a refusal is text that was generated": (
        delta(content=None, refusal="No.") + STOP + usage(2) + DONE, {"text": "No.", "n": 1},
    ),
    "the old function call": (
        delta(function_call={"name": "f", "arguments": ""}) + delta(function_call={"arguments": "{}"})
        + ended("function_call") + usage(2) + DONE,
        {"tool": "f{}", "n": 2},
    ),
    "an empty finish reason is none": (
        data({"choices": [{"delta": {"content": "a"}, "finish_reason": ""}]}) + STOP + usage(1) + DONE,
        {"finish": "stop", "text": "a"},
    ),
    "a finish reason that is a table": (
        delta(content="a") + data({"choices": [{"delta": {}, "finish_reason": {"type": "length"}}]}) + usage(1) + DONE,
        {"finish": "length"},
    ),
    "finish twice, usage after each": (
        delta(content="a") + STOP + usage(1) + STOP + usage(1, cached_tokens=0) + DONE,
        {"finish": "stop", "total": 1, "cached": 0},
    ),
    "a null usage takes nothing back": (
        delta(content="a") + STOP + usage(1) + data({"choices": None, "usage": {"completion_tokens": None}}) + DONE,
        {"total": 1, "prompt": 9, "source": "usage"},
    ),
    "usage inside the choice": (
        delta(content="a")
        + data({"choices": [{"delta": {}, "finish_reason": "stop", "usage": NUMB}]}) + DONE,
        {"total": 1, "prompt": 9, "source": "usage"},
    ),
    "a count that is written as a float": (
        delta(content="a") + STOP + data({"usage": {"completion_tokens": 1.0}}) + DONE, {"total": 1},
    ),
    "the same total in every chunk is no running count": (
        b"".join(data({"choices": [{"delta": {"content": "ab"}}], "usage": {"completion_tokens": 6}}) for _ in "123")
        + STOP + DONE,
        {"tokens": [None, None, None], "source": "usage", "total": 6},
    ),
    "keep-alives of every kind": (
        b"data:\n\n" + b"event: ping\ndata: still here\n\n" + data({"type": "ping"}) + delta(content="a") + b":\n\n"
        + STOP + usage(1) + DONE,
        {"n": 1, "text": "a"},
    ),
    "a character cut over two chunks as escapes": (  # 1, 2
        data(r'{"choices":[{"delta":{"content":"x\ud83d"}}]}') + data(r'{"choices":[{"delta":{"content":"\ude00y"}}]}')
        + STOP + usage(3) + DONE,
        {"text": "x😀y", "n": 2},
    ),
    "other choices without text do not matter": (
        data({"choices": [{"index": 1, "delta": {}}, {"index": 0, "delta": {"content": "a"}}]})
        + STOP + usage(1) + DONE,
        {"text": "a", "n": 1},
    ),
    "a cache told anywhere is told": (
        delta(content="a") + STOP + usage(1, prompt_tokens_details={"cached_tokens": 0})
        + data({"choices": [], "timings": {"cache_n": 4}}) + DONE,
        {"cached": 4},
    ),
    "cached tokens under another name": (
        delta(content="a") + STOP + usage(1, prompt_cache_hit_tokens=7) + DONE, {"cached": 7},
    ),
    "[DONE] without its blank line": (delta(content="a") + STOP + usage(1) + b"data: [DONE]", {"n": 1}),
    "CR, LF and CRLF mixed, data over several lines": (  # 4
        b': hi\r\rdata: {"choices": [{\rdata: "delta":\ndata: {"content": "a"}}]}\r\n\n'
        + STOP.replace(b"\n", b"\r") + usage(1).replace(b"\n", b"\r\n") + DONE,
        {"text": "a", "n": 1},
    ),
    "line separators of other alphabets are text": (  # 6
        delta(content="a\u2028b\u2029c\u0085d\x0be") + STOP + usage(5) + DONE,
        {"text": "a\u2028b\u2029c\u0085d\x0be"},
    ),
    "a prompt of nought tokens was not counted": (
        delta(content="a") + STOP + data({"usage": {"prompt_tokens": 0, "completion_tokens": 1}}) + DONE,
        {"prompt": None, "total": 1},
    ),
    "a byte order mark first": (b"\xef\xbb\xbf" + PLAIN, {"text": "ab"}),
}  # fmt: skip

BAD: dict[str, tuple[bytes, str, Want]] = {
    "a second choice": (
        delta(content="a") + data({"choices": [{"index": 1, "delta": {"content": "x"}}]}) + delta(content="b")
        + STOP + usage(3) + DONE,
        "choice 1 came beside the one that was asked for", {"text": "ab", "n": 2},
    ),
    "two choices in one chunk": (
        data({"choices": [{"index": 0, "delta": {"content": "a"}}, {"index": 1, "delta": {"content": "x"}}]})
        + STOP + usage(2) + DONE,
        "choice 1 came", {"text": "a", "n": 1},
    ),
    "failed in capitals": (delta(content="a") + ended("ERROR") + usage(1) + DONE, "finished with 'ERROR'", {}),
    "failed, then finished": (
        delta(content="a") + ended("error") + STOP + usage(1) + DONE, "finished with 'error'", {"finish": "error"},
    ),
    "cut for want of resources": (
        delta(content="a") + ended("insufficient_system_resource") + usage(1) + DONE, "insufficient", {"n": 1},
    ),
    "half a character": (
        data(r'{"choices":[{"delta":{"content":"x\ud83d"}}]}') + STOP + usage(1) + DONE,
        "the content holds half of a character", {"text": "x\ufffd"},
    ),
    "usage claims more than the text can hold": (  # 11
        delta(content="a") + delta(content="b") + STOP + usage(200) + DONE,
        "usage counts 200 tokens, but only 2 bytes of text came", {"n": 2, "total": 200},
    ),
    "an error by its type": (
        delta(content="a") + data({"type": "error", "message": "overloaded"}), "stream: overloaded", {"n": 1},
    ),
    "an error event with a document": (
        delta(content="a") + b'event: error\ndata: {"code": 500, "message": "lost"}\n\n', "stream: lost", {"n": 1},
    ),
    "an error event without words": (
        delta(content="a") + b"event: error\ndata:\n\n", "an error event without words", {"n": 1},
    ),
    "no number": (data('{"choices": [NaN]}') + DONE, "chunk 1 is no JSON", {}),
}  # fmt: skip


@pytest.mark.parametrize("how", ["whole", "bytes", "split 1", "split 2"])
@pytest.mark.parametrize("name", GOOD)
def test_success_in_every_chunking(server: ByteServer, client: Client, name: str, how: str) -> None:
    body, want = GOOD[name]
    done = run(server, client, body, how)
    assert (done.outcome, done.reason) == ("ok", None)
    check(done, want)


@pytest.mark.parametrize("how", ["whole", "bytes", "split 3"])
@pytest.mark.parametrize("name", BAD)
def test_failure_keeps_what_came(server: ByteServer, client: Client, name: str, how: str) -> None:
    body, reason, want = BAD[name]
    done = run(server, client, body, how)
    assert done.outcome == "error" and reason in (done.reason or "")
    check(done, want)


def test_tokens_that_are_not_shown_make_no_rate(server: ByteServer, client: Client) -> None:
    """18, 20: hidden reasoning was generated before the first text; a total with it fits no time."""
    hidden = usage(500, completion_tokens_details={"reasoning_tokens": 498})
    done = run(server, client, delta(content="a") + delta(content="b") + STOP + hidden + DONE)
    assert (done.outcome, done.trace.count_source) == ("ok", "estimate")
    assert "498 of 500 tokens were never sent" in done.evidence["notes"][0]
    shown = delta(reasoning="r") + delta(content="a") + STOP
    done = run(server, client, shown + usage(2, completion_tokens_details={"reasoning_tokens": 1}) + DONE)  # fmt: skip
    assert (done.trace.count_source, done.trace.completion_tokens) == ("usage", 2)
    assert "notes" not in done.evidence


def test_more_events_than_tokens_make_the_count_a_guess(server: ByteServer, client: Client) -> None:
    done = run(server, client, delta(content="a") * 5 + STOP + usage(2) + DONE)
    assert (done.outcome, done.trace.count_source) == ("ok", "estimate")
    assert done.evidence["notes"] == ["usage counts 2 tokens, but 5 token events came"]


def answer(head: bytes, body: bytes) -> list[bytes | float | str]:
    return [b"HTTP/1.1 " + head + b"\r\n\r\n" + body]


def test_a_body_with_a_length_and_one_that_ends_with_the_connection(
    server: ByteServer, client: Client
) -> None:
    sse = b"200 OK\r\nContent-Type: text/event-stream; charset=utf-8"
    for end in (DONE, b""):
        body = delta(content="é\u2028") + STOP + usage(1) + end
        server.script = answer(sse + b"\r\nContent-Length: %d" % len(body), body)
        done = client.stream("/x", {}, deadline_s=5)
        assert (done.outcome, done.text) == ("ok", "é\u2028")
        server.script = [*answer(sse + b"\r\nConnection: close", body), "close"]
        assert client.stream("/x", {}, deadline_s=5).outcome == "ok"
    server.script = [*answer(sse + b"\r\nContent-Length: %d" % (len(body) + 1), body), "close"]
    done = client.stream("/x", {}, deadline_s=5)
    assert done.outcome == "error" and "the connection broke" in (done.reason or "")


@pytest.mark.parametrize(
    "kind", ["", "Content-Type: TEXT/Event-Stream\r\n", "Content-Type: x/y\r\n"]
)
def test_the_content_type_decides_nothing_where_events_came(
    server: ByteServer, client: Client, kind: str
) -> None:
    server.script = answer(f"200 OK\r\n{kind}Content-Length: {len(PLAIN)}".encode(), PLAIN)
    assert client.stream("/x", {}, deadline_s=5).outcome == "ok"


def test_interim_answers_are_waited_out(server: ByteServer, client: Client) -> None:
    early = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n"
    server.script = [early, 0.02, *chunked(PLAIN)]
    done = client.stream("/x", {}, deadline_s=5)
    assert (done.outcome, done.text, done.evidence["http_status"]) == ("ok", "ab", 200)


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_a_redirect_is_told_and_not_followed(
    server: ByteServer, client: Client, status: int
) -> None:
    server.script = answer(b"%d Moved\r\nLocation: /elsewhere\r\nContent-Length: 0" % status, b"")
    done = client.stream("/x", {}, deadline_s=5)
    assert (done.outcome, done.phase) == ("error", "http")
    assert f"HTTP {status}: a redirect to /elsewhere, which is not followed" in (done.reason or "")
    assert [asked.split()[0] for asked in server.asked] == [b"GET", b"POST"]


@pytest.mark.parametrize("coding", [b"gzip", b"GZIP", b"br"])
def test_an_encoded_body_is_refused_in_clear_words(
    server: ByteServer, client: Client, coding: bytes
) -> None:
    body = gzip.compress(PLAIN)
    head = (
        b"200 OK\r\nContent-Type: text/event-stream\r\nContent-Encoding: %s\r\nContent-Length: %d"
    )
    server.script = answer(head % (coding, len(body)), body)
    done = client.stream("/x", {}, deadline_s=5)
    assert done.outcome == "error" and done.trace.events == ()
    assert f"encoded ({coding.decode().lower()}), though identity was asked" in (done.reason or "")
    assert b"Accept-Encoding: identity" in server.asked[-1]


def test_odd_framing_of_http(server: ByteServer, client: Client) -> None:
    """Chunk extensions, trailers, several events in one chunk, one event over several, line feeds only in the head."""
    one, two = PLAIN[:31], PLAIN[31:]
    head = b"HTTP/1.1 200 OK\nCONTENT-TYPE:text/event-stream\nTRANSFER-ENCODING: Chunked\n\n"
    body = b"%x;name=value\r\n%s\r\n%X\r\n%s\r\n0\r\nX-Trailer: 1\r\n\r\n"
    server.script = [head + body % (len(one), one, len(two), two)]
    for _ in range(2):  # and the connection is kept in good order
        done = client.stream("/x", {}, deadline_s=5)
        assert (done.outcome, done.text) == ("ok", "ab"), done.reason


def test_an_answer_in_one_piece_keeps_its_words(server: ByteServer, client: Client) -> None:
    """A server that does not stream: its text and usage are told, and no time is made up."""
    whole = {
        "choices": [{"message": {"content": "hi", "reasoning_content": "hm"}, "finish_reason": "stop"}],
        "usage": NUMB,
    }  # fmt: skip
    body = json.dumps(whole).encode()
    head = b"200 OK\r\nContent-Type: application/json\r\nContent-Length: %d" % len(body)
    server.script = answer(head, body)
    done = client.stream("/x", {}, deadline_s=5)
    assert done.outcome == "error" and "not an event stream" in (done.reason or "")
    check(done, {"text": "hi", "reasoning": "hm", "n": 0, "prompt": 9, "finish": "stop"})


@pytest.mark.parametrize("kind", [b"application/json", b"text/event-stream", b"text/html"])
def test_an_error_in_place_of_a_stream_is_told(
    server: ByteServer, client: Client, kind: bytes
) -> None:
    """9: with 200, and whatever the head calls it."""
    body = b'{"error": {"message": "model is still loading", "code": 503}}'
    head = b"200 OK\r\nContent-Type: " + kind + b"\r\nContent-Length: %d" % len(body)
    server.script = answer(head, body)
    done = client.stream("/x", {}, deadline_s=5)
    assert done.outcome == "error"
    assert done.reason == "an error instead of a stream: model is still loading"


def test_done_ends_a_body_byte_by_byte_that_stays_open(server: ByteServer, client: Client) -> None:
    body = PLAIN.replace(b"\n", b"\r")
    server.script = [f"{HEAD}\r\n".encode(), *(body[i : i + 1] for i in range(len(body))), "hang"]
    done = client.stream("/x", {}, deadline_s=60)
    assert done.outcome == "ok" and (done.trace.end_ns or 0) < 30e9


def test_role_and_empty_chunks_are_no_tokens(server: ByteServer, client: Client) -> None:  # 17
    body = ROLE * 3 + delta(content="") + delta(content="a") + delta(content="") + STOP + usage(1)
    check(run(server, client, body + DONE), {"n": 1, "tokens": [None], "total": 1})
