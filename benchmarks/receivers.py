"""Clients that date the events of streams, each in a process of its own: ours, and what it is held against.

    python -m benchmarks.receivers floor --url http://127.0.0.1:8123 --streams 8 --tokens 250

Prints one JSON list, an object per request: {key, send_ns, event_ns: […]}. Several streams run in as many threads
(aiohttp: tasks), as a user of that library would run them. No library but the standard one is imported before a
client is chosen, so that `aiohttp` may run in an environment that has nothing else.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import socket
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

PATH = "/v1/chat/completions"
Record = dict[str, Any]


class Asked(NamedTuple):
    """What one go is to send."""

    tokens: int
    requests: int
    """Of each stream, one after the other."""
    streams: int
    ready: threading.Barrier
    """Where the threads wait for each other, so that no stream starts while another still connects."""


def body_of(tokens: int) -> dict[str, Any]:
    """The request, the same for every client."""
    return {
        "model": "stamped",
        "messages": [{"role": "user", "content": "Count."}],
        "stream": True,
        "stream_options": {"include_usage": True},
        "max_tokens": tokens,
    }


def content_of(line: str | bytes) -> str | None:
    """The text that a line of the stream brings; None for every other line."""
    text = line.decode() if isinstance(line, bytes) else line
    if not text.startswith("data: {"):
        return None
    choices = json.loads(text[6:]).get("choices")
    found = choices[0]["delta"].get("content") if choices else None
    return str(found) if found else None


def floor(url: str, asked: Asked) -> list[Record]:
    """A bare blocking socket into one preallocated buffer: what Python can do at best."""
    host, _, port = url.removeprefix("http://").partition(":")
    raw = json.dumps(body_of(asked.tokens)).encode()
    head = f"POST {PATH} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
    head += f"Content-Length: {len(raw)}\r\n\r\n"
    buffer = memoryview(bytearray(4_000_000))
    records: list[Record] = []
    with socket.create_connection((host, int(port))) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.sendall(f"GET /health HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
        connection.recv(4096)
        asked.ready.wait()
        for _ in range(asked.requests):
            at, clock, receive = 0, time.perf_counter_ns, connection.recv_into
            stamps: list[tuple[int, int]] = []
            send_ns = clock()
            connection.sendall(head.encode() + raw)
            while True:
                got = receive(buffer[at:])
                stamps.append((clock(), at + got))
                at += got
                if not got or buffer[max(0, at - 7) : at] == b"\r\n0\r\n\r\n":
                    break
            records.append({"send_ns": send_ns, **_dated(bytes(buffer[:at]), stamps)})
    return records


def _dated(raw: bytes, stamps: list[tuple[int, int]]) -> Record:
    """Token events with the stamp of the read that completed each, out of all that was read."""
    events: list[int] = []
    key, at, reads = None, 0, iter(stamps)
    stamp, end = next(reads)
    for line in raw.splitlines(keepends=True):
        at += len(line)
        text = content_of(line)
        if text is None:
            continue
        # the blank line that ends the event is one byte further
        while end < at + 1:
            stamp, end = next(reads)
        events.append(stamp)
        key = key or text.partition("-")[0]
    return {"key": key, "event_ns": events}


def ours(url: str, asked: Asked) -> list[Record]:
    """The client of battery, as a cell uses it: timing in a process of its own."""
    from battery.bench.client import Client

    records: list[Record] = []
    with Client(url, apart=True) as client:
        client.stream(PATH, body_of(2), deadline_s=120)  # starts the process that times
        asked.ready.wait()
        for _ in range(asked.requests):
            done = client.stream(PATH, body_of(asked.tokens), deadline_s=120)
            if done.outcome != "ok" or done.sent_ns is None:
                raise SystemExit(f"ours: {done.outcome}: {done.reason}")
            events = [done.sent_ns + event.at_ns for event in done.trace.events]
            key = done.text.partition("-")[0]
            records.append({"key": key, "send_ns": done.sent_ns, "event_ns": events})
    return records


def ours_watched(url: str, asked: Asked) -> list[Record]:
    """The same beside all that runs in a cell: the live display, drawn into nothing, and the sensors."""
    from rich.console import Console

    from battery.bench import sensors
    from battery.terminal import Grid

    with Path(os.devnull).open("w") as nowhere:
        console = Console(file=nowhere, force_terminal=True, width=120)
        with Grid(console), sensors.Sampler() as sampler, sampler.during(os.getpid()):
            return ours(url, asked)


def httpx_lines(url: str, asked: Asked) -> list[Record]:
    """A plain httpx loop: iter_lines, date what parses to text."""
    import httpx

    records: list[Record] = []
    with httpx.Client(timeout=120, trust_env=False) as http:
        http.get(f"{url}/health")
        asked.ready.wait()
        for _ in range(asked.requests):
            events: list[int] = []
            key = None
            send_ns = time.perf_counter_ns()
            with http.stream("POST", url + PATH, json=body_of(asked.tokens)) as answer:
                for line in answer.iter_lines():
                    text = content_of(line)
                    if text:
                        events.append(time.perf_counter_ns())
                        key = key or text.partition("-")[0]
            records.append({"key": key, "send_ns": send_ns, "event_ns": events})
    return records


async def _aiohttp_one(session: Any, url: str, asked: Asked) -> list[Record]:
    records: list[Record] = []
    for _ in range(asked.requests):
        events: list[int] = []
        key = None
        send_ns = time.perf_counter_ns()
        async with session.post(url + PATH, json=body_of(asked.tokens)) as answer:
            async for line in answer.content:
                text = content_of(line)
                if text:
                    events.append(time.perf_counter_ns())
                    key = key or text.partition("-")[0]
        records.append({"key": key, "send_ns": send_ns, "event_ns": events})
    return records


async def _aiohttp_all(url: str, asked: Asked) -> list[Record]:
    import aiohttp

    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        async with session.get(f"{url}/health") as warm:
            await warm.read()
        tasks = (_aiohttp_one(session, url, asked) for _ in range(asked.streams))
        return [record for records in await asyncio.gather(*tasks) for record in records]


THREADED: dict[str, Callable[[str, Asked], list[Record]]] = {
    "floor": floor,
    "ours": ours,
    "ours-watched": ours_watched,
    "httpx": httpx_lines,
}


def receive(name: str, url: str, asked: Asked) -> list[Record]:
    """Every request of `asked.streams` streams through the client of that name."""
    if name == "aiohttp":
        return asyncio.run(_aiohttp_all(url, asked))
    one, records = THREADED[name], list[Record]()
    threads = [
        threading.Thread(target=lambda: records.extend(one(url, asked)))
        for _ in range(asked.streams)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return records


def main() -> None:
    """One client, one go."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("name", choices=[*THREADED, "aiohttp"])
    parser.add_argument("--url", required=True)
    parser.add_argument("--tokens", type=int, default=200, help="events of each request")
    parser.add_argument(
        "--requests", type=int, default=1, help="of each stream, one after the other"
    )
    parser.add_argument("--streams", type=int, default=1)
    line = parser.parse_args()
    asked = Asked(line.tokens, line.requests, line.streams, threading.Barrier(line.streams))
    gc.collect()
    json.dump(receive(line.name, line.url, asked), sys.stdout)


if __name__ == "__main__":
    main()
