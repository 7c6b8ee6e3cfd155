"""How things end: clients that leave, signals, memory that is not there, doors that stay shut."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
from served import Engine, launch, refused

TINY = ("--model", "synthetic:tiny-llama")
Start = Callable[..., Engine]


def wait_for(what: Callable[[], bool], patience_s: float = 5.0) -> bool:
    until = time.monotonic() + patience_s
    while time.monotonic() < until:
        if what():
            return True
        time.sleep(0.02)
    return False


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_leaves_ends_its_generation(start: Start, stream: bool) -> None:
    engine = start(*TINY)
    body = {"prompt": "abc", "max_tokens": 2000, "ignore_eos": True, "stream": stream}
    if stream:
        with httpx.stream("POST", f"{engine.url}/v1/completions", json=body) as reply:
            next(reply.iter_lines())
    else:
        with pytest.raises(httpx.ReadTimeout):
            httpx.post(f"{engine.url}/v1/completions", json=body, timeout=0.3)
    assert wait_for(lambda: engine.health()["cancelled"] == 1)
    assert engine.health()["requests"] == 0
    started = time.perf_counter()
    engine.complete("abc", max_tokens=2)
    assert time.perf_counter() - started < 5.0, "the worker is free again"


def test_a_client_that_leaves_while_it_waits_is_never_served(start: Start) -> None:
    engine = start(*TINY)
    url = f"{engine.url}/v1/completions"
    body = {"prompt": "abc", "max_tokens": 2000, "ignore_eos": True, "stream": True}
    with httpx.stream("POST", url, json=body) as first:
        lines = first.iter_lines()
        next(lines)
        with pytest.raises(httpx.ReadTimeout):
            httpx.post(url, json={"prompt": "abc", "max_tokens": 7}, timeout=0.2)
    assert wait_for(lambda: engine.health()["cancelled"] == 2)
    figures = httpx.get(f"{engine.url}/metrics").text
    assert "switchboard_prompt_tokens_computed_total 3\n" in figures, "the second was not begun"
    assert "switchboard_requests_waiting 0\n" in figures


def test_requests_at_once_wait_their_turn_and_do_not_mix(start: Start) -> None:
    engine = start(*TINY, "--switch", "prompt_lookup")
    bodies = [{"seed": seed, "max_tokens": 20, "ignore_eos": True} for seed in range(8)]

    def ids(body: dict[str, Any]) -> list[int]:
        found: list[int] = engine.complete("abcabc", **body)["choices"][0]["token_ids"]
        return found

    alone = [ids(body) for body in bodies]
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(ids, bodies)) == alone
    assert len(set(map(tuple, alone))) == 8


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_server_in_the_middle_of_an_answer(number: int) -> None:
    engine = launch(*TINY)
    with httpx.stream(
        "POST",
        f"{engine.url}/v1/completions",
        json={"prompt": "abc", "max_tokens": 2000, "ignore_eos": True, "stream": True},
    ) as reply:
        next(reply.iter_lines())
        started = time.perf_counter()
        engine.process.send_signal(number)
        assert engine.process.wait(10) == 0
        assert time.perf_counter() - started < 6.0
    assert engine.process.stderr is not None
    engine.process.stderr.close()


def test_out_of_memory_is_an_event_and_leaves_the_server_alive(start: Start) -> None:
    engine = start(*TINY, "--memory-limit", "1000")
    events = engine.events("/v1/completions", prompt="abc", max_tokens=5)
    assert events[0]["error"]["code"] == "out_of_memory"
    assert "out of memory" in events[0]["error"]["message"]
    assert events[1]["choices"][0]["finish_reason"] == "error"
    assert engine.post("/v1/completions", prompt="abc").status_code == 507
    assert engine.health()["memory"]["limit"] == 1000


def test_a_key_is_needed_when_one_is_set(start: Start) -> None:
    status, line = refused(*TINY, "--port", "0", "--api-key-env", "NO_SUCH_KEY")
    assert (status, "not set" in line) == (2, True)
    engine = start(*TINY, "--api-key-env", "SB_KEY", env={"SB_KEY": "secret"}, key="secret")
    assert httpx.get(f"{engine.url}/health").status_code == 401
    assert (
        httpx.get(f"{engine.url}/health", headers={"Authorization": "Bearer x"}).status_code == 401
    )
    assert engine.health()["status"] == "ok"
