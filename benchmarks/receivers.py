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
import socket
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

PATH = "/v1/chat/completions"
Record = dict[str, Any]


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


def floor(url: str, tokens: int) -> Record:
    """A bare blocking socket into one preallocated buffer: what Python can do at best."""
    host, _, port = url.removeprefix("http://").partition(":")
    raw = json.dumps(body_of(tokens)).encode()
    head = f"POST {PATH} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
    head += f"Content-Length: {len(raw)}\r\n\r\n"
    buffer = memoryview(bytearray(4_000_000))
    stamps: list[tuple[int, int]] = []
    with socket.create_connection((host, int(port))) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.sendall(f"GET /health HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
        connection.recv(4096)
        at, clock, receive = 0, time.perf_counter_ns, connection.recv_into
        send_ns = clock()
        connection.sendall(head.encode() + raw)
        while True:
            got = receive(buffer[at:])
            stamps.append((clock(), at + got))
            at += got
            if not got or buffer[max(0, at - 7) : at] == b"\r\n0\r\n\r\n":
                break
    return {"send_ns": send_ns, **_dated(bytes(buffer[:at]), stamps)}


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


def ours(url: str, tokens: int) -> Record:
    """The client of battery, as a cell uses it: timing in a process of its own."""
    from battery.bench.client import Client

    with Client(url, apart=True) as client:
        client.stream(PATH, body_of(2), deadline_s=120)  # starts the process that times
        done = client.stream(PATH, body_of(tokens), deadline_s=120)
    if done.outcome != "ok" or done.sent_ns is None:
        raise SystemExit(f"ours: {done.outcome}: {done.reason}")
    events = [done.sent_ns + event.at_ns for event in done.trace.events]
    return {"key": done.text.partition("-")[0], "send_ns": done.sent_ns, "event_ns": events}


def httpx_lines(url: str, tokens: int) -> Record:
    """A plain httpx loop: iter_lines, date what parses to text."""
    import httpx

    events: list[int] = []
    key = None
    with httpx.Client(timeout=120, trust_env=False) as http:
        http.get(f"{url}/health")
        send_ns = time.perf_counter_ns()
        with http.stream("POST", url + PATH, json=body_of(tokens)) as answer:
            for line in answer.iter_lines():
                text = content_of(line)
                if text:
                    events.append(time.perf_counter_ns())
                    key = key or text.partition("-")[0]
    return {"key": key, "send_ns": send_ns, "event_ns": events}


async def _aiohttp_one(session: Any, url: str, tokens: int) -> Record:
    events: list[int] = []
    key = None
    send_ns = time.perf_counter_ns()
    async with session.post(url + PATH, json=body_of(tokens)) as answer:
        async for line in answer.content:
            text = content_of(line)
            if text:
                events.append(time.perf_counter_ns())
                key = key or text.partition("-")[0]
    return {"key": key, "send_ns": send_ns, "event_ns": events}


async def _aiohttp_all(url: str, tokens: int, streams: int) -> list[Record]:
    import aiohttp

    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        async with session.get(f"{url}/health") as warm:
            await warm.read()
        return await asyncio.gather(*(_aiohttp_one(session, url, tokens) for _ in range(streams)))


def aiohttp_lines(url: str, tokens: int, streams: int) -> list[Record]:
    """A plain aiohttp loop: a task per stream, date what parses to text."""
    return asyncio.run(_aiohttp_all(url, tokens, streams))


THREADED: dict[str, Callable[[str, int], Record]] = {
    "floor": floor,
    "ours": ours,
    "httpx": httpx_lines,
}


def receive(name: str, url: str, tokens: int, streams: int) -> list[Record]:
    """`streams` requests at once through the client of that name."""
    if name == "aiohttp":
        return aiohttp_lines(url, tokens, streams)
    one = THREADED[name]
    if streams == 1:
        return [one(url, tokens)]
    records: list[Record] = []
    threads = [
        threading.Thread(target=lambda: records.append(one(url, tokens))) for _ in range(streams)
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
    parser.add_argument("--tokens", type=int, default=200, help="events of each stream")
    parser.add_argument("--streams", type=int, default=1)
    asked = parser.parse_args()
    gc.collect()
    json.dump(receive(asked.name, asked.url, asked.tokens, asked.streams), sys.stdout)


if __name__ == "__main__":
    main()
