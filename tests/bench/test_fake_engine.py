"""The fake engine keeps its contract, and every fault of its list does what it says."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from battery.bench.client import Client, Completion, Unreachable

ENGINE = Path(__file__).parents[1] / "fake_engine.py"
Start = Callable[..., "Engine"]


class Engine:
    """A running fake engine and a client for it."""

    def __init__(self, *options: str, ready: bool = True) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.process = subprocess.Popen(
            [sys.executable, str(ENGINE), "--port", str(self.port), *options],
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        self.client = Client(f"http://127.0.0.1:{self.port}", timeout_s=5)
        deadline = time.monotonic() + 10
        while ready and time.monotonic() < deadline:
            with contextlib.suppress(Unreachable):
                self.client.get_json("/health")
                return
            time.sleep(0.02)

    def health(self) -> dict[str, Any]:
        return self.client.get_json("/health")[1]

    def ask(self, text: str = "tell me a story", path: str = "chat/", **more: Any) -> Completion:
        body: dict[str, Any] = {
            "model": "fake-tiny",
            "max_tokens": 8,
            "temperature": 0.7,
            "seed": 1,
        }
        asked = {"messages": [{"role": "user", "content": text}]} if path else {"prompt": text}
        return self.client.stream(f"/v1/{path}completions", body | asked | more, deadline_s=5)

    def last_words(self) -> str:
        """Wait for the end; what it printed."""
        return self.process.communicate(timeout=10)[1].decode()

    def close(self) -> None:
        self.client.close()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        if self.process.stderr:
            self.process.stderr.close()


@pytest.fixture
def start() -> Iterator[Start]:
    running: list[Engine] = []

    def begin(*options: str, ready: bool = True) -> Engine:
        running.append(Engine(*options, ready=ready))
        return running[-1]

    yield begin
    for engine in running:
        engine.close()


def test_health_tokenizer_and_switches(start: Start) -> None:
    engine = start("--switch", "prompt_lookup:n=3", "--model", "m")
    before = engine.health()
    assert (before["status"], before["pid"]) == ("ok", engine.process.pid)
    assert before["model"]["name"] == "m" and len(before["model"]["digest"]) == 64
    lookup = before["switches"]["prompt_lookup"]
    assert (lookup["asked"], lookup["state"], lookup["options"]) == (True, "armed", {"n": "3"})
    assert before["switches"]["fused_qkv"]["state"] == "off"
    messages = [{"role": "user", "content": "one two three"}]
    _, said = engine.client.post_json("/tokenize", {"messages": messages})
    assert said["count"] == len(said["tokens"]) == 6
    done = engine.ask("one two three")
    assert done.trace.prompt_tokens == 6
    after = engine.health()
    assert after["switches"]["prompt_lookup"]["state"] == "engaged"
    assert after["switches"]["prompt_lookup"]["counters"]["runs"] > 0
    assert after["requests"] == 1 and after["memory"]["peak"] > before["memory"]["peak"]
    assert engine.client.get_json("/v1/models")[1]["data"][0]["id"] == "m"
    assert engine.client.get_json("/nowhere")[0] == 404


def test_memory_follows_the_prompt_and_can_be_reset(start: Start) -> None:
    engine = start()
    engine.ask("word " * 500)
    high = engine.health()["memory"]["peak"]
    engine.ask("short")
    assert engine.health()["memory"]["peak"] == high
    assert engine.client.post_json("/admin/memory/reset_peak")[0] == 200
    engine.ask("short")
    assert engine.health()["memory"]["peak"] < high


def test_answers_are_reproducible_and_make_sense(start: Start) -> None:
    engine = start("--tokens-per-event", "3")
    one, same, other = engine.ask(), engine.ask(), engine.ask(seed=2)
    assert one.text == same.text != other.text and one.token_ids == same.token_ids
    assert engine.ask(temperature=0).text == engine.ask(temperature=0, seed=9).text
    assert (one.outcome, one.trace.finish_reason) == ("ok", "length")
    assert [event.tokens for event in one.trace.events] == [3, 3, 2]
    assert (one.trace.completion_tokens, one.trace.count_source) == (8, "server")
    assert one.trace.sampler == {"temperature": 0.7, "seed": 1, "max_tokens": 8}
    timings = one.trace.timings or {}
    assert (timings["steps"], timings["decode_tokens"], timings["accepted"]) == (2, 5, 3)
    for question, word in [
        ("the capital of France", "Paris"),
        ("2 + 2", "4"),
        ("opposite of hot", "cold"),
    ]:
        answer = engine.ask(f"What is {question}?", max_tokens=24)
        assert word in answer.text and answer.trace.finish_reason == "stop"
    assert (
        engine.ask(path="").text != ""
        and len(engine.ask("2 + 2", min_tokens=8).token_ids or ()) == 8
    )
    whole = engine.client.post_json(
        "/v1/chat/completions", {"messages": [{"role": "user", "content": "2 + 2"}]}
    )
    assert whole[1]["choices"][0]["message"]["content"] == "2 + 2 is 4."


def test_times_are_scripted(start: Start, tmp_path: Path) -> None:
    engine = start(
        "--ttft-ms", "40", "--itl-ms", "20", "--prefill-us-per-token", "1000", "--slow", "2"
    )
    done = engine.ask("a " * 17)  # 20 tokens: (40 + 20) ms twice
    first, *_, last = (event.at_ns / 1e6 for event in done.trace.events)
    assert 119 < first < 400 and 270 < last - first < 600
    script = tmp_path / "script.json"
    script.write_text(json.dumps({"events": [[10, 1], [60, 4]], "itl_ms": 5, "reasoning": 1}))
    done = start("--script", str(script)).ask()
    assert [event.tokens for event in done.trace.events] == [1, 4, 1, 1, 1]
    assert done.trace.events[0].kind == "reasoning" and done.trace.events[1].kind == "content"
    assert 40 < (done.trace.events[1].at_ns - done.trace.events[0].at_ns) / 1e6 < 300


@pytest.mark.parametrize(
    ("fault", "outcome", "reason", "tokens"),
    [
        ("http-500", "error", "HTTP 500", 0),
        ("error-in-stream:3", "error", "error inside the stream", 3),
        ("finish-error", "error", "finished with 'error'", 8),
        ("close-mid-stream:3", "error", "connection broke", 3),
        ("no-terminal", "error", "without a finish reason", 8),
        ("bad-json", "error", "no JSON", 8),
        ("empty-answer", "error", "no token", 0),
        ("role-only", "error", "without a finish reason", 0),
        ("wrong-total:2", "error", "usage counts 10 tokens, but 8", 8),
        ("no-done", "ok", None, 8),
        ("no-usage", "ok", None, 8),
        ("no-ids", "ok", None, 8),
        ("no-timings", "ok", None, 8),
        ("short:3", "ok", None, 3),
        ("clamp-max-tokens:4", "ok", None, 4),
    ],
)
def test_faults_of_a_stream(
    start: Start, fault: str, outcome: str, reason: str | None, tokens: int
) -> None:
    engine = start("--fault", fault, "--after", "1")
    assert engine.ask().outcome == "ok"
    done = engine.ask()
    assert done.outcome == outcome and (reason or "") in (done.reason or "")
    assert len(done.trace.events) == tokens
    assert engine.health()["status"] == "ok"


@pytest.mark.parametrize("fault", ["stall:3", "trickle:3"])
def test_faults_that_never_end(start: Start, fault: str) -> None:
    engine = start("--fault", fault, "--only-rung", "200")
    assert engine.ask("a few words").outcome == "ok"
    body = {"messages": [{"role": "user", "content": "word " * 197}]}
    done = engine.client.stream("/v1/chat/completions", body, deadline_s=0.4)
    assert (done.outcome, done.phase, len(done.trace.events)) == ("timeout", "decode", 3)
    assert engine.ask("a few words").outcome == "ok"


def test_lies_about_figures(start: Start) -> None:
    engine = start("--fault", "wrong-prompt-count:40", "--fault", "sampler-changed")
    done = engine.ask("one two three")
    assert done.trace.prompt_tokens == 46 and (done.trace.sampler or {})["temperature"] == 1.0
    engine = start("--fault", "ignores-seed")
    assert engine.ask().text != engine.ask().text
    engine = start("--fault", "incoherent")
    assert engine.ask("capital of France").text == "Paris!!!!!!!"


def test_caches(start: Start) -> None:
    times = ("--prefill-us-per-token", "1000", "--ttft-ms", "1")
    for fault, told in (("warm-cache", 61), ("lies-cold", 0)):
        engine = start("--fault", fault, *times)
        first, second = engine.ask("lamp " * 59), engine.ask("lamp " * 59)
        assert (first.trace.cached_tokens, second.trace.cached_tokens) == (0, told)
        assert (second.first_token_ns or 0) < 0.5 * (first.first_token_ns or 0)
        assert engine.ask("another prompt").trace.cached_tokens == 0


def test_lies_in_health(start: Start) -> None:
    line: list[str] = ["--switch", "prewarm", "--switch", "prompt_lookup"]
    for fault in ("wrong-pid", "wrong-model-digest", "wrong-model-name:x", "armed-never-runs:prewarm",
                  "unasked-runs:fused_qkv", "declined:prompt_lookup"):  # fmt: skip
        line += ["--fault", fault]
    engine = start(*line)
    engine.ask()
    health = engine.health()
    assert (health["pid"], health["model"]["digest"], health["model"]["name"]) == (1, "0" * 64, "x")
    switches = health["switches"]
    assert (switches["prewarm"]["state"], switches["prewarm"]["counters"]["runs"]) == ("armed", 0)
    assert switches["fused_qkv"]["state"] == "engaged" and not switches["fused_qkv"]["asked"]
    assert switches["prompt_lookup"]["state"] == "declined" and switches["prompt_lookup"]["reason"]
    assert set(start("--fault", "bare-health").health()) == {"status", "pid", "model"}
    assert start("--fault", "never-ready").client.get_json("/health") == (
        503,
        {"status": "loading"},
    )


def test_deaths(start: Start) -> None:
    engine = start("--fault", "die-at-start", ready=False)
    assert "shard 4" in engine.last_words() and engine.process.returncode == 3
    engine = start("--fault", "die-after:1")
    assert engine.ask().outcome == "ok"
    done = engine.ask()
    assert (done.outcome, done.phase) == ("error", "prefill")
    assert "lost the device" in engine.last_words() and engine.process.returncode == 1
    engine = start("--fault", "oom-at:100")
    assert engine.ask().outcome == "ok"
    done = engine.ask("word " * 100)
    assert (done.outcome, done.phase, len(done.trace.events)) == ("error", "decode", 1)
    assert "Insufficient Memory (00000008" in engine.last_words()
    assert engine.process.returncode == -signal.SIGABRT


def test_ways_to_stay(start: Start) -> None:
    engine = start()
    engine.process.terminate()
    assert engine.process.wait(5) == 0
    engine = start("--fault", "ignores-sigterm")
    engine.process.terminate()
    with pytest.raises(subprocess.TimeoutExpired):
        engine.process.wait(0.3)
    engine = start("--fault", "forks-worker")
    engine.process.terminate()
    assert engine.process.wait(5) == 0
    os.killpg(engine.process.pid, 0)  # the worker is still there
    engine = start("--fault", "keeps-port:1")
    engine.process.terminate()
    assert engine.process.wait(5) == 0
    held, deadline = [], time.monotonic() + 10
    while not held or (held[-1] and time.monotonic() < deadline):
        with socket.socket() as probe:
            held.append(probe.connect_ex(("127.0.0.1", engine.port)) == 0)
        time.sleep(0.05)
    assert held[0] and not held[-1]


@pytest.mark.parametrize(
    ("line", "status", "words"),
    [
        (["--nope"], 2, "unrecognized"),
        (["--switch", "promt_lookup"], 2, "known: fused_qkv"),
        (["--fault", "nope"], 2, "known: die-at-start"),
        (["--fault", "declined:nope"], 2, "no switch 'nope'"),
    ],
)
def test_unknown_words_are_refused(line: list[str], status: int, words: str) -> None:
    done = subprocess.run(
        [sys.executable, str(ENGINE), "--port", "1", *line], capture_output=True, text=True
    )
    assert done.returncode == status and words in done.stderr


def test_a_taken_port() -> None:
    with socket.create_server(("127.0.0.1", 0)) as holder:
        line = [sys.executable, str(ENGINE), "--port", str(holder.getsockname()[1])]
        done = subprocess.run(line, capture_output=True, text=True)
    assert done.returncode == 5 and len(done.stderr.splitlines()) == 1
