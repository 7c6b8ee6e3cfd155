"""A server that dates every token event at the moment it hands it to the socket, and tells its dates afterwards.

    python -m benchmarks.stamping_server --port 8123 --rate 1000

Speaks enough of the OpenAI API for load generators: chat and text completions as chunked server-sent events, a token an
event, `max_tokens` of them. All streams together get `--rate` events per second, in turn, from one thread that sends
and does nothing else, so that no stream waits for another's interpreter lock. GET /stamps gives, per request in the
order of arrival, {key, arrived_ns, sent_ns: […]} on time.perf_counter_ns, which is one clock for all processes of a
machine, and forgets them. POST /rate {"rate": 100} sets the rate of the requests to come. The first words of a text
are its key: `r17-0`.
"""

from __future__ import annotations

import argparse
import contextlib
import heapq
import json
import queue
import socket
import socketserver
import threading
import time
from typing import Any

MODEL = "stamped"
DEFAULT_TOKENS = 64
FIRST_S = 0.02
"""From a request's arrival to its first token."""


class Stream:
    """One request that is being answered."""

    def __init__(
        self, key: str, connection: socket.socket, tokens: int, chat: bool, usage: bool
    ) -> None:
        self.key, self.connection, self.tokens = key, connection, tokens
        self.chat, self.usage = chat, usage
        self.arrived_ns = time.perf_counter_ns()
        self.sent_ns: list[int] = []
        self.over = threading.Event()
        self.frames = [self._frame(f"{key}-{place} ") for place in range(tokens)]

    def _chunk(self, delta: dict[str, Any], finish: str | None = None) -> bytes:
        """One chunk as JSON."""
        choice: dict[str, Any] = {"index": 0, "finish_reason": finish}
        choice |= {"delta": delta} if self.chat else {"text": delta.get("content", "")}
        kind = "chat.completion.chunk" if self.chat else "text_completion"
        return self._event({"choices": [choice]}, kind)

    def _event(self, more: dict[str, Any], kind: str) -> bytes:
        """One event in one HTTP chunk."""
        document = {"id": self.key, "object": kind, "created": 1, "model": MODEL, **more}
        return framed(b"data: " + json.dumps(document).encode() + b"\n\n")

    def _frame(self, text: str) -> bytes:
        return self._chunk({"content": text})

    def head(self) -> bytes:
        """Status, headers, and the opening chunk that brings no token."""
        opening = self._chunk({"role": "assistant", "content": ""}) if self.chat else b""
        return (
            b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
            + opening
        )

    def end(self) -> bytes:
        """Finish reason, usage, [DONE], and the end of the body."""
        said = {
            "prompt_tokens": 8,
            "completion_tokens": self.tokens,
            "total_tokens": 8 + self.tokens,
        }
        kind = "chat.completion.chunk" if self.chat else "text_completion"
        usage = self._event({"choices": [], "usage": said}, kind) if self.usage else b""
        return self._chunk({}, "length") + usage + framed(b"data: [DONE]\n\n") + framed(b"")


def framed(raw: bytes) -> bytes:
    """An HTTP chunk."""
    return b"%x\r\n%s\r\n" % (len(raw), raw)


class Sender(threading.Thread):
    """Sends the events of all streams, each when it is due."""

    def __init__(self, rate: float) -> None:
        super().__init__(name="sender", daemon=True)
        self.rate, self.fresh = rate, queue.SimpleQueue[Stream]()
        self._due: list[tuple[int, int, Stream]] = []
        self._ticket = 0

    def run(self) -> None:
        while True:
            self._admit()
            due_ns, _, stream = self._due[0]
            left_ns = due_ns - time.perf_counter_ns()
            if left_ns > 0:
                time.sleep(min(left_ns / 1e9, 0.005))
                continue
            heapq.heappop(self._due)
            self._send(stream, due_ns)

    def _admit(self) -> None:
        """Take new streams in; wait for one where there is none."""
        with contextlib.suppress(queue.Empty):
            while True:
                stream = self.fresh.get(block=not self._due)
                with contextlib.suppress(OSError):
                    stream.connection.sendall(stream.head())
                self._put(stream, stream.arrived_ns + int(FIRST_S * 1e9))
                if self.fresh.empty():
                    return

    def _put(self, stream: Stream, due_ns: int) -> None:
        self._ticket += 1
        heapq.heappush(self._due, (due_ns, self._ticket, stream))

    def _send(self, stream: Stream, due_ns: int) -> None:
        """One token; the next is due when every other stream had its turn."""
        frame = stream.frames[len(stream.sent_ns)]
        try:
            stream.sent_ns.append(time.perf_counter_ns())
            stream.connection.sendall(frame)
            if len(stream.sent_ns) == stream.tokens:
                stream.connection.sendall(stream.end())
                stream.over.set()
                return
        except OSError:
            stream.over.set()
            return
        # A sender that fell behind goes on from now: a burst would time the receiver's queue.
        step = int((len(self._due) + 1) * 1e9 / self.rate)
        self._put(stream, max(due_ns + step, time.perf_counter_ns()))


class Handler(socketserver.StreamRequestHandler):
    """HTTP/1.1 with kept connections."""

    disable_nagle_algorithm = True
    server: StampingServer

    def handle(self) -> None:
        with contextlib.suppress(OSError):
            while self._one():
                pass

    def _one(self) -> bool:
        line = self.rfile.readline().split()
        if len(line) < 3:
            return False
        headers = {}
        while (header := self.rfile.readline().strip()) != b"":
            name, _, value = header.partition(b":")
            headers[name.lower()] = value.strip()
        raw = self.rfile.read(int(headers.get(b"content-length", b"0")))
        self._route(line[0].decode(), line[1].decode().partition("?")[0], raw)
        return headers.get(b"connection", b"").lower() != b"close"

    def _route(self, method: str, path: str, raw: bytes) -> None:
        body = json.loads(raw) if raw else {}
        if method == "POST" and path in ("/v1/chat/completions", "/v1/completions"):
            self._complete(body, path.endswith("chat/completions"))
        elif path == "/stamps":
            self._reply(self.server.told())
        elif path == "/rate":
            self.server.sender.rate = float(body["rate"])
            self._reply({})
        elif path == "/v1/models":
            self._reply({"object": "list", "data": [{"id": MODEL, "object": "model"}]})
        else:
            self._reply({"status": "ok"})

    def _reply(self, document: object) -> None:
        raw = json.dumps(document).encode()
        head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(raw)}\r\n\r\n"
        self.wfile.write(head.encode() + raw)

    def _complete(self, body: dict[str, Any], chat: bool) -> None:
        tokens = int(body.get("max_completion_tokens") or body.get("max_tokens") or DEFAULT_TOKENS)
        usage = bool((body.get("stream_options") or {}).get("include_usage"))
        stream = self.server.stream(self.connection, tokens, chat, usage)
        if body.get("stream"):
            self.server.sender.fresh.put(stream)
            stream.over.wait()
            return
        text = "".join(f"{stream.key}-{place} " for place in range(tokens))
        choice: dict[str, Any] = {"index": 0, "finish_reason": "length"}
        choice |= {"message": {"role": "assistant", "content": text}} if chat else {"text": text}
        said = {"prompt_tokens": 8, "completion_tokens": tokens, "total_tokens": 8 + tokens}
        self._reply({"id": stream.key, "model": MODEL, "choices": [choice], "usage": said})


class StampingServer(socketserver.ThreadingTCPServer):
    """The listening socket, the sender, and the dates."""

    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, port: int, rate: float) -> None:
        super().__init__(("127.0.0.1", port), Handler)
        self.sender = Sender(rate)
        self.sender.start()
        self._streams: list[Stream] = []
        self._number = 0
        self._turn = threading.Lock()

    def stream(self, connection: socket.socket, tokens: int, chat: bool, usage: bool) -> Stream:
        """A numbered stream."""
        with self._turn:
            made = Stream(f"r{self._number}", connection, tokens, chat, usage)
            self._number += 1
            self._streams.append(made)
        return made

    def told(self) -> list[dict[str, Any]]:
        """The dates of every request since the last call."""
        with self._turn:
            streams, self._streams = self._streams, []
        return [
            {"key": one.key, "arrived_ns": one.arrived_ns, "sent_ns": one.sent_ns}
            for one in streams
        ]


def main() -> None:
    """Serve until killed; the first line printed is the port."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument(
        "--rate", type=float, default=1000, help="events per second, all streams together"
    )
    asked = parser.parse_args()
    with StampingServer(asked.port, asked.rate) as server:
        print(server.server_address[1], flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            server.serve_forever()


if __name__ == "__main__":
    main()
