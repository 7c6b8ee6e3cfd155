"""The client against a scripted server on a real socket. Numbers in comments are cases of anchors/FIELD.md."""

from __future__ import annotations

import itertools

import pytest
from byte_server import (
    DONE,
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
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from battery.bench.client import Client

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
