"""`battery probe`: one JSON object for any answer, and exit codes that can be trusted. Real sockets throughout."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from byte_server import (
    DONE,
    PLAIN,
    ROLE,
    STOP,
    ByteServer,
    chunked,
    data,
    delta,
    usage,
)
from test_fake_engine import Engine

Probe = Callable[..., tuple[int, dict[str, Any]]]
COLD = usage(2, prompt_tokens_details={"cached_tokens": 0})
TWO = delta(content="a") + delta(content="b")

SAID: dict[str, tuple[bytes, dict[str, Any]]] = {
    "well": (
        ROLE + TWO + STOP + COLD + DONE,
        {"outcome": "ok", "text": "ab", "cold": "cold", "token_count_source": "usage", "finish_reason": "stop",
         "usage": {"prompt_tokens": 9, "completion_tokens": 2, "cached_tokens": 0}, "token_events": 2, "reasoning": ""},
    ),
    "silent about its cache": (PLAIN, {"outcome": "ok", "cold": "unverified"}),
    "cached": (
        TWO + STOP + usage(2, prompt_tokens_details={"cached_tokens": 8}) + DONE,
        {"outcome": "warm", "cold": "warm", "text": "ab"},
    ),
    "no usage": (
        TWO + STOP + DONE,
        {"outcome": "ok", "token_count_source": "estimate", "cold": "unverified", "text": "ab",
         "usage": {"prompt_tokens": None, "completion_tokens": None, "cached_tokens": None}},
    ),
    "usage with choices null": (
        TWO + STOP + data({"choices": None, "usage": {"prompt_tokens": 9, "completion_tokens": 2}}) + DONE,
        {"outcome": "ok", "token_count_source": "usage"},
    ),
    "no [DONE]": (TWO + STOP + COLD, {"outcome": "ok", "text": "ab"}),
    "CRLF": ((TWO + STOP + COLD + DONE).replace(b"\n", b"\r\n"), {"outcome": "ok", "text": "ab"}),
    "an error inside 200": (
        TWO + data({"error": {"message": "engine lost"}}) + DONE,
        {"outcome": "error", "text": "ab", "token_events": 2, "finish_reason": None},
    ),
    "out of memory inside 200": (
        TWO + data({"error": {"message": "CUDA out of memory. Tried to allocate 2 GiB"}}) + DONE,
        {"outcome": "oom", "text": "ab", "token_events": 2},
    ),
    "zoom is no memory": (data({"error": {"message": "cannot zoom"}}) + DONE, {"outcome": "error"}),
    "role only": (ROLE + STOP + usage(0) + DONE, {"outcome": "error", "text": "", "token_events": 0}),
    "nothing": (b"", {"outcome": "error", "token_count_source": None, "token_events": 0}),
    "cut": (TWO, {"outcome": "error", "text": "ab", "token_events": 2}),
    "reasoning only": (
        delta(reasoning_content="hm") + delta(reasoning_content=" so") + STOP + usage(2) + DONE,
        {"outcome": "ok", "reasoning": "hm so", "text": "", "token_events": 2},
    ),
    "reasoning up to the limit": (
        b"".join(delta(reasoning="h ") for _ in range(64)) + delta("length") + usage(64) + DONE,
        {"outcome": "ok", "reasoning": "h " * 64, "text": "", "token_events": 64, "finish_reason": "length"},
    ),
    "more than max_tokens": (
        delta(content="word ") * 90 + delta("length") + usage(90) + DONE,
        {"outcome": "error", "token_events": 90},
    ),
    "stopped for length too soon": (
        delta(content="word ") * 10 + delta("length") + usage(10) + DONE,
        {"outcome": "error", "token_events": 10, "finish_reason": "length"},
    ),
    "an echo of another max_tokens": (
        TWO + STOP + data({"sampler": {"max_tokens": 2}}) + COLD + DONE, {"outcome": "error"},
    ),
    "fewer tokens than usage claims": (TWO + STOP + usage(60) + DONE, {"outcome": "error", "text": "ab"}),
    "several tokens an event, counted": (
        delta(content="a b", ids=[1, 2]) + delta(content="c d e", ids=[3, 4, 5]) + STOP + usage(5) + DONE,
        {"outcome": "ok", "token_count_source": "server", "token_events": 2},
    ),
    "content in parts": (
        delta(content=[{"type": "text", "text": "ab"}]) + STOP + usage(1) + DONE, {"outcome": "ok", "text": "ab"},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SAID)
def test_every_answer_has_its_word_and_its_code(
    server: ByteServer, probed: Probe, name: str
) -> None:
    body, want = SAID[name]
    server.script = chunked(*(line + b"\n\n" for line in body.split(b"\n\n") if line))
    code, seen = probed(f"{server.url}/v1", "--model", "m")
    assert {key: seen[key] for key in want} == want, seen["reason"]
    assert code == (0 if seen["outcome"] == "ok" else 4)
    if seen["token_count_source"] in ("estimate", None):
        assert seen["metrics"]["decode_tok_s"] is None and seen["metrics"]["tpot_s"] is None
    if seen["token_events"]:
        assert seen["metrics"]["ttft_s"] is not None
    else:
        assert set(seen["metrics"].values()) == {None}


def test_rates_are_those_of_the_formulas(server: ByteServer, probed: Probe) -> None:
    """Two tokens, then three after a gap: 3 / gap by counts; by a total alone 4 / gap, and it says so.

    The gap is the probe's own, between two arrivals: a late look at the first makes it shorter than the server's pause.
    """
    for ids, source, tokens in (([[1, 2], [3, 4, 5]], "server", 3), ([None, None], "usage", 4)):
        one, two = (delta(content="a b c", ids=some) for some in ids)
        head, *rest = chunked(one, two, STOP, usage(5), DONE)
        server.script = [head, 0.05, rest[0], 0.4, *rest[1:]]
        _, seen = probed(f"{server.url}/v1")
        assert seen["token_count_source"] == source
        metrics = seen["metrics"]
        gap = tokens / metrics["decode_tok_s"]
        assert gap > 0.1 and metrics["tpot_s"] == pytest.approx(gap / 4)
        assert metrics["ttft_s"] > 0.05
        # what ends an answer may come with its last token, and a sum of floats may be one bit off
        assert metrics["ttft_s"] + gap <= metrics["e2e_s"] * (1 + 1e-12)
        assert ("reads high" in seen["evidence"].get("decode", "")) == (source == "usage")


def test_a_stall_is_a_timeout_that_keeps_what_came(server: ByteServer, probed: Probe) -> None:
    server.script = [*chunked(ROLE, delta(content="a"))[:-1], "hang"]
    code, seen = probed(f"{server.url}/v1", "--timeout", "0.4")
    assert (code, seen["outcome"], seen["text"], seen["token_events"]) == (4, "timeout", "a", 1)
    assert seen["metrics"]["ttft_s"] and seen["metrics"]["e2e_s"] is None
    server.script = ["hang"]
    code, seen = probed(f"{server.url}/v1", "--timeout", "0.2", "--model", "m")
    assert (code, seen["outcome"], seen["token_events"]) == (4, "timeout", 0)


@pytest.mark.parametrize(
    ("fault", "outcome", "source", "events"),
    [
        ("http-500", "error", None, 0),
        ("error-in-stream:3", "error", "estimate", 3),
        ("finish-error", "error", "server", 8),
        ("close-mid-stream:3", "error", "estimate", 3),
        ("no-terminal", "error", "estimate", 8),
        ("bad-json", "error", "server", 8),
        ("empty-answer", "error", "usage", 0),
        ("role-only", "error", None, 0),
        ("wrong-total:2", "error", "usage", 8),
        ("clamp-max-tokens:4", "error", "server", 4),
        ("clamps-silently:4", "error", "server", 4),
        ("stall:3", "timeout", "estimate", 3),
        ("trickle:3", "timeout", "estimate", 3),
        ("no-done", "ok", "server", 8),
        ("no-usage", "ok", "estimate", 8),
        ("no-ids", "ok", "usage", 8),
        ("no-timings", "ok", "server", 8),
        ("short:3", "ok", "server", 3),
    ],
)
def test_faults_of_the_fake_engine(
    engine: Callable[..., Engine], probed: Probe, fault: str, outcome: str, source: str, events: int
) -> None:
    url = f"http://127.0.0.1:{engine('--fault', fault).port}/v1"
    patience = "0.5" if outcome == "timeout" else "30"
    code, seen = probed(url, "--max-tokens", "8", "--timeout", patience)
    assert (seen["outcome"], seen["token_count_source"], seen["token_events"]) == (
        outcome, source, events,
    )  # fmt: skip
    assert code == (0 if outcome == "ok" else 4)
    assert seen["evidence"]["model"] == "fake-tiny"


@pytest.fixture
def engine() -> Iterator[Callable[..., Engine]]:
    running: list[Engine] = []

    def start(*options: str) -> Engine:
        running.append(Engine(*options))
        return running[-1]

    yield start
    for one in running:
        one.close()


def test_the_same_prompt_again_is_warm_and_a_new_one_is_not(
    engine: Callable[..., Engine], probed: Probe
) -> None:
    url = f"http://127.0.0.1:{engine('--fault', 'warm-cache').port}/v1"
    assert [probed(url)[1]["outcome"] for _ in range(2)] == ["ok", "ok"]
    told = [probed(url, "--prompt", "a prompt of our own") for _ in range(2)]
    assert [(code, seen["outcome"], seen["cold"]) for code, seen in told] == [
        (0, "ok", "cold"), (4, "warm", "warm"),
    ]  # fmt: skip
