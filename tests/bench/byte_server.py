"""A server that sends exactly the bytes it is told, when it is told, over a real socket; and bytes to tell it."""

from __future__ import annotations

import contextlib
import json
import random
import socket
import ssl
import threading
import time
from typing import Any

from battery.bench.client import Client, Completion

HEAD = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
HEALTH = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"


class ByteServer:
    """Answers a GET with HEALTH and a POST with a script: bytes are sent, numbers slept, words done."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self._tls = tls
        self.script: list[bytes | float | str] = []
        self.health: list[bytes | float | str] = [HEALTH]
        self.asked: list[bytes] = []
        self.connections = 0
        self.hang_ups = 0
        """So many GETs are read and never answered: the connection closes instead."""
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
                thread = threading.Thread(target=self._greet, args=(connection,), daemon=True)
                self._threads.append(thread)
                thread.start()

    def _greet(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError):
            if self._tls is not None:
                connection = self._tls.wrap_socket(connection, server_side=True)
            self._serve(connection)

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
                if head.startswith(b"GET") and self.hang_ups:
                    self.hang_ups -= 1
                    return
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


PLAIN = ROLE + delta(content="a") + delta(content="b") + STOP + usage(2) + DONE
"""An ordinary answer of two tokens."""
