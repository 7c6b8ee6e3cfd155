"""An engine that keeps the contract of switchboard over real HTTP, with scripted token times and faults on demand.

    python tests/fake_engine.py --port 8123 --model tiny --switch prompt_lookup --itl-ms 2 --fault stall:5

Standard library only, so that it starts in a few hundredths of a second. One generation at a time. Exit 2: an option is
unknown; 5: the port is taken. `--script FILE.json` holds options by their long names ({"itl_ms": 2, "fault":
["short:3"]}) and may give `events`: [[ms after the request, tokens], …], which replaces the arithmetic of --ttft-ms and
--itl-ms. Faults are listed in fake_faults.py.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import socketserver
import sys
import threading
import time
from pathlib import Path
from typing import Any

import fake_faults
from fake_faults import Faults, log
from fake_generation import Generation, error_of
from fake_model import SWITCHES, Model, prompt_of


class Hangup(Exception):
    """The client went away, or a fault closes the connection."""


class Handler(socketserver.StreamRequestHandler):
    """HTTP/1.1 with kept connections, as far as the battery speaks it."""

    disable_nagle_algorithm = True
    server: Engine

    def handle(self) -> None:
        """Answer requests until the client goes away."""
        with contextlib.suppress(Hangup, OSError):
            while self._one():
                pass

    def _one(self) -> bool:
        """One request; whether the connection stays."""
        line = self.rfile.readline().split()
        if len(line) < 3:
            return False
        headers = {}
        while (header := self.rfile.readline().strip()) != b"":
            name, _, value = header.partition(b":")
            headers[name.lower()] = value.strip()
        raw = self.rfile.read(int(headers.get(b"content-length", b"0")))
        method, path = line[0].decode(), line[1].decode()
        try:
            body = json.loads(raw) if raw else {}
        except ValueError:
            self.reply(400, error_of("the body is no JSON"))
            return True
        self.route(method, path, body if isinstance(body, dict) else {})
        return headers.get(b"connection", b"").lower() != b"close"

    def route(self, method: str, path: str, body: dict[str, Any]) -> None:
        """Every address the engine answers at."""
        model, faults = self.server.model, self.server.model.faults
        if path == "/health":
            never = "never-ready" in faults
            self.slow_health(faults)
            self.reply(503 if never else 200, {"status": "loading"} if never else model.health())
        elif path == "/v1/models":
            one = {"id": model.options.model, "object": "model"}
            self.reply(200, {"object": "list", "data": [one]})
        elif path == "/tokenize" and method == "POST":
            said = prompt_of(body)
            tokens = said[0] if said else []
            self.reply(200, {"count": len(tokens), "tokens": tokens})
        elif path in ("/admin/memory/reset_peak", "/admin/cache/clear") and method == "POST":
            model.reset_peak() if path.endswith("reset_peak") else model.clear_cache()
            self.reply(200, {"status": "ok"})
        elif path in ("/v1/chat/completions", "/v1/completions") and method == "POST":
            self.complete(body, path == "/v1/chat/completions")
        else:
            self.reply(404, error_of(f"nothing at {method} {path}"))

    def slow_health(self, faults: Faults) -> None:
        """What may keep /health from being answered, or be its last word."""
        if "mute-health" in faults:
            self.hang("mute")
        if "trickle-health" in faults:
            self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
            while True:
                self.wfile.write(b" ")
                time.sleep(0.05)
        if "dies-soon" in faults and not self.server.doomed:
            self.server.doomed = True
            wait_s = (faults.number("dies-soon", 1000) or 0) / 1e3
            threading.Timer(wait_s, lambda: os._exit(1)).start()

    def reply(self, status: int, document: object) -> None:
        """One JSON answer."""
        raw = json.dumps(document).encode()
        head = f"HTTP/1.1 {status} Said\r\nContent-Type: application/json\r\n"
        self.wfile.write(f"{head}Content-Length: {len(raw)}\r\n\r\n".encode() + raw)

    def complete(self, body: dict[str, Any], chat: bool) -> None:
        """One completion, streamed or whole."""
        asked_at = time.perf_counter()
        said = prompt_of(body)
        model = self.server.model
        if said is None or not said[0]:
            self.reply(400, error_of("neither messages nor a prompt with a word in it"))
            return
        if len(said[0]) > model.options.context:
            self.reply(400, error_of(f"the prompt is longer than {model.options.context} tokens"))
            return
        with self.server.turn:
            options = model.options
            near = options.only_rung is None or abs(len(said[0]) - options.only_rung) <= 16
            faults = model.faults.of_request(near and model.requests >= options.after)
            if "http-500" in faults:
                model.requests += 1
                self.reply(500, error_of("the engine has a bad day"))
                return
            generation = Generation(model, faults, body, chat, *said, asked_at)
            if body.get("stream"):
                self.stream(generation)
            else:
                for _ in generation.chunks():
                    pass
                model.requests += 1
                self.reply(200, generation.whole())

    def stream(self, generation: Generation) -> None:
        """Send a generation as server-sent events, one HTTP chunk each."""
        head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
        self.wfile.write(f"{head}Transfer-Encoding: chunked\r\n\r\n".encode())
        for chunk in generation.chunks():
            text = chunk if isinstance(chunk, str) else f"data: {json.dumps(chunk)}\n\n"
            raw = text.encode()
            self.wfile.write(b"%x\r\n%s\r\n" % (len(raw), raw))
            if generation.stuck:
                self.hang(generation.stuck)
            if generation.cut:
                raise Hangup
        # counted before the client can know that it is over, and ask health
        self.server.model.requests += 1
        self.wfile.write(b"0\r\n\r\n")

    def hang(self, how: str) -> None:
        """Say nothing more, or only comments byte by byte, until the client goes away."""
        while True:
            if how == "trickle":
                for byte in b": still here\n\n":
                    self.wfile.write(b"1\r\n%c\r\n" % byte)
                    time.sleep(0.01)
                continue
            self.request.settimeout(60)
            if not self.request.recv(1):
                raise Hangup


class Engine(socketserver.ThreadingTCPServer):
    """The listening socket and the model behind it."""

    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 64

    def __init__(self, address: tuple[str, int], model: Model) -> None:
        self.model, self.turn = model, threading.Lock()
        self.doomed = False
        super().__init__(address, Handler)


def options_of(line: list[str] | None) -> argparse.Namespace:
    """The command line over the script file; exit 2 for anything unknown."""
    parser = argparse.ArgumentParser(prog="fake_engine", allow_abbrev=False)
    add = parser.add_argument
    add("--host", default="127.0.0.1")
    add("--port", type=int, required=True)
    add("--script", type=Path, help="JSON with these options by name")
    add("--model", default="fake-tiny")
    add("--build", default="0.0-fake")
    add("--context", type=int, default=131_072)
    add("--switch", action="append", default=[], help="NAME or NAME:key=value,key=value")
    add("--fault", action="append", default=[], help="NAME or NAME:ARGUMENT")
    add("--only-rung", type=int, help="request faults only for prompts within 16 tokens of this")
    add("--after", type=int, default=0, help="request faults only after this many completions")
    add("--load-ms", type=float, default=0)
    add("--ttft-ms", type=float, default=5)
    add(
        "--compile-ms",
        type=float,
        default=0,
        help="before the first prompt of each length, give or take 8",
    )
    add("--itl-ms", type=float, default=1)
    add("--prefill-us-per-token", type=float, default=0)
    add("--tokens-per-event", type=int, default=1)
    add("--speculates-on", default="")  # words of a prompt without which every event has one token
    add("--reasoning", type=int, default=0, help="so many first tokens are reasoning")
    add("--slow", type=float, default=1, help="multiplies every time")
    add("--memory-mb", type=float, default=100)
    add("--memory-kb-per-token", type=float, default=50)
    add("--touch-kb-per-token", type=float, default=0, help="memory that a request really takes")
    add("--touch-when", choices=("prefill", "decode"), default="prefill")
    add("--touch-mb-at-start", type=float, default=0, help="memory that loading really takes")
    parser.set_defaults(events=None)
    early = parser.parse_args(line)
    if early.script is not None:
        script = json.loads(early.script.read_text())
        unknown = sorted(set(script) - set(vars(early)))
        if unknown:
            parser.error(f"{early.script}: unknown option {unknown[0]}")
        parser.set_defaults(**script)
    options = parser.parse_args(line)
    options.switches = {}
    for word in options.switch:
        name, _, settings = word.partition(":")
        if name not in SWITCHES:
            parser.error(f"no switch '{name}'; known: {', '.join(SWITCHES)}")
        pairs = (pair.partition("=") for pair in settings.split(",") if pair)
        options.switches[name] = {key: value for key, _, value in pairs}
    return options


def main(line: list[str] | None = None) -> int:
    """Serve until killed."""
    options = options_of(line)
    faults = Faults(options.fault)
    for name in ("armed-never-runs", "unasked-runs", "declined"):
        for switch in faults.arguments(name):
            if switch not in SWITCHES:
                log(
                    f"fake_engine: fault {name}: no switch '{switch}'; known: {', '.join(SWITCHES)}"
                )
                return 2
    fake_faults.at_start(faults)
    time.sleep(options.load_ms / 1e3)
    try:
        port = 0 if "other-port" in faults else options.port
        engine = Engine((options.host, port), Model(options, faults))
    except OSError as taken:
        log(f"fake_engine: port {options.port}: {taken.strerror}")
        return 5
    fake_faults.after_bind(faults, engine.socket)
    log(f"fake_engine: serving {options.model} at {options.host}:{options.port}")
    with engine, contextlib.suppress(KeyboardInterrupt):
        engine.serve_forever(poll_interval=0.1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
