"""The process that times: the same answers as beside us, stamps on our clock, and an end in every case."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from byte_server import PLAIN, ByteServer, chunked, delta
from stopped import children

from battery.bench import measure
from battery.bench.client import Client
from battery.bench.run import Conductor
from battery.bench.stream import stopwatch
from battery.bench.stream.stopwatch import StopwatchLost
from battery.ledger.arm import Arm
from battery.ledger.plan import Plan
from battery.ledger.store import Campaign


def watches() -> list[psutil.Process]:
    return [p for p in psutil.Process().children() if stopwatch.__name__ in p.cmdline()]


def sent(server: ByteServer) -> None:
    """Wait until a request has reached the server."""
    deadline = time.monotonic() + 30
    while not any(head.startswith(b"POST") for head in server.asked):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_the_answer_is_the_same_and_the_clock_is_ours(server: ByteServer) -> None:
    server.script = [*chunked(PLAIN)[:1], 0.05, *chunked(PLAIN)[1:]]
    with Client(server.url) as beside, Client(server.url, apart=True) as apart:
        one = beside.stream("/x", {}, deadline_s=5)
        before = time.perf_counter_ns()
        other = apart.stream("/x", {}, deadline_s=5)
        after = time.perf_counter_ns()
        assert watches()
    assert not watches()
    assert (other.outcome, other.text) == (one.outcome, one.text) == ("ok", "ab")
    assert other.sent_ns is not None and before < other.sent_ns
    first = other.first_token_ns
    assert first is not None and first > 50_000_000 and other.sent_ns + first < after


@pytest.mark.parametrize(
    ("script", "outcome", "words", "deadline_s"),
    [
        ([b"HTTP/1.1 500 No\r\nContent-Length: 2\r\n\r\nno"], "error", "HTTP 500", 20),
        ([*chunked(delta(content="a"))[:-1], "close"], "error", "the connection broke", 20),
        (
            [*chunked(delta(content="a"))[:-1], "hang"],
            "timeout",
            "the deadline of 1 s passed",
            1,
        ),
    ],
)
def test_failures_come_over_whole(
    server: ByteServer,
    script: list[bytes | float | str],
    outcome: str,
    words: str,
    deadline_s: float,
) -> None:
    server.script = script
    with Client(server.url, apart=True) as client:
        done = client.stream("/x", {}, deadline_s=deadline_s)
    assert done.outcome == outcome and words in (done.reason or "")
    assert len(done.trace.events) == ("500" not in words)


def test_a_server_that_is_gone_is_told() -> None:
    gone = ByteServer()
    gone.close()
    with Client(gone.url, apart=True) as client:
        done = client.stream("/x", {}, deadline_s=1)
    assert (done.outcome, done.phase) == ("error", "connect")


def test_the_key_stays_out_of_the_command_line(server: ByteServer) -> None:
    server.script = chunked(PLAIN)
    with Client(server.url, api_key="abc-secret", apart=True) as client:
        assert client.stream("/x", {}, deadline_s=5).outcome == "ok"
        assert watches() and all(
            "abc-secret" not in word for p in watches() for word in p.cmdline()
        )
    assert any(b"Bearer abc-secret" in head for head in server.asked)


def test_a_watch_that_dies_is_no_result_of_the_server(server: ByteServer) -> None:
    server.script = [*chunked(delta(content="a"))[:-1], "hang"]
    with Client(server.url, apart=True) as client:
        kill = threading.Thread(target=lambda: sent(server) or [p.kill() for p in watches()])
        kill.start()
        with pytest.raises(StopwatchLost, match="ended with -9"):
            client.stream("/x", {}, deadline_s=20)
        kill.join()
        server.script = chunked(PLAIN)
        assert client.stream("/x", {}, deadline_s=5).outcome == "ok"  # a new one starts


def test_a_watch_that_cannot_even_start_is_told(
    server: ByteServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    order = stopwatch.Order("/x", b"{}", 5.0, "/health", 5.0)
    for program, words in (("/bin/false", "ended with"), ("/no/such/python", "No such file")):
        monkeypatch.setattr(stopwatch.sys, "executable", program)
        watch = stopwatch.Stopwatch(server.url, {"X": "y" * 200_000})
        with pytest.raises(StopwatchLost, match=words):
            watch.request(order)
        watch.close()


def test_closing_ends_a_request_in_the_midst(server: ByteServer) -> None:
    server.script = [*chunked(delta(content="a"))[:-1], "hang"]
    watch = stopwatch.Stopwatch(server.url, {})
    order = stopwatch.Order("/x", b"{}", 60.0, "/health", 5.0)
    lost: list[BaseException] = []

    def ask() -> None:
        try:
            watch.request(order)
        except StopwatchLost as gone:
            lost.append(gone)

    asking = threading.Thread(target=ask)
    asking.start()
    sent(server)
    assert watches()
    for one in watches():
        one.send_signal(signal.SIGINT)  # the terminal's Ctrl-C is not for it
    time.sleep(0.1)
    assert watches() and not lost
    watches()[0].kill()
    asking.join(5)
    assert lost and not watches()
    watch.close()


def test_a_parent_that_is_killed_leaves_no_watch(server: ByteServer) -> None:
    server.script = [*chunked(delta(content="a"))[:-1], "hang"]
    code = (
        "from battery.bench.client import Client\n"
        f"client = Client({server.url!r}, apart=True)\n"
        "client.stream('/x', {}, deadline_s=60)\n"
    )
    with subprocess.Popen([sys.executable, "-c", code]) as parent:
        deadline = time.monotonic() + 20
        while not (left := psutil.Process(parent.pid).children()) and time.monotonic() < deadline:
            time.sleep(0.02)
        sent(server)
        os.kill(parent.pid, signal.SIGKILL)
    _, alive = psutil.wait_procs(left, timeout=10)
    assert left and not alive


def test_a_campaign_whose_watch_dies_stops_and_can_go_on(
    tmp_path: Path,
    fake_arm: Callable[..., Arm],
    small_plan: Plan,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    timed, calls = measure.Measuring._timed, []

    def dying(self: measure.Measuring, *rest: object) -> object:
        calls.append(self)
        if len(calls) == 2:
            for one in watches():
                one.kill()
                one.wait()
        return timed(self, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(measure.Measuring, "_timed", dying)

    def conduct() -> dict[str, int]:
        lock = tmp_path / "battery.lock"
        return dict(Conductor(small_plan, [fake_arm("A")], tmp_path / "c", lock=lock).run())

    with pytest.raises(StopwatchLost):
        conduct()
    assert Campaign(tmp_path / "c").journal()[-1]["event"] == "failed"
    assert children() == []
    assert conduct() == {"ok": 6}
