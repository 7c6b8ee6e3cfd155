"""A server in its own process, and the shortest way to ask it something."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import Any

import httpx

START_S = 120.0


@dataclass
class Engine:
    """A running server, and the shortest way to ask it something."""

    process: subprocess.Popen[bytes]
    port: int
    key: str = ""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def health(self) -> dict[str, Any]:
        headers = {"Authorization": f"Bearer {self.key}"} if self.key else {}
        return httpx.get(f"{self.url}/health", headers=headers, timeout=30).json()

    def switch(self, name: str) -> dict[str, Any]:
        return self.health()["switches"][name]

    def post(self, path: str, **body: Any) -> httpx.Response:
        return httpx.post(f"{self.url}{path}", json=body, timeout=300)

    def complete(self, prompt: Any, **body: Any) -> dict[str, Any]:
        reply = self.post("/v1/completions", prompt=prompt, **body)
        assert reply.status_code == 200, reply.text
        return reply.json()

    def events(self, path: str, **body: Any) -> list[dict[str, Any]]:
        """The documents of a stream, without its end mark, which must be there."""
        seen: list[dict[str, Any]] = []
        with httpx.stream(
            "POST", f"{self.url}{path}", json={**body, "stream": True}, timeout=300
        ) as reply:
            assert reply.status_code == 200, reply.read()
            lines = [line[6:] for line in reply.iter_lines() if line.startswith("data: ")]
        assert lines[-1] == "[DONE]"
        seen.extend(json.loads(line) for line in lines[:-1])
        return seen


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def command(*flags: str) -> list[str]:
    return [sys.executable, "-m", "switchboard", "serve", *flags]


def launch(*flags: str, env: dict[str, str] | None = None, key: str = "") -> Engine:
    """Start a server and wait until it answers."""
    port = free_port()
    process = subprocess.Popen(
        command("--port", str(port), *flags),
        env={**os.environ, **(env or {})},
        stderr=subprocess.PIPE,
    )
    engine = Engine(process, port, key)
    until = time.monotonic() + START_S
    while time.monotonic() < until:
        try:
            engine.health()
            return engine
        except httpx.TransportError:
            if process.poll() is not None:
                raise AssertionError(process.communicate()[1].decode()) from None
            time.sleep(0.05)
    process.kill()
    raise AssertionError(f"no answer within {START_S} s")


def close(engine: Engine) -> None:
    engine.process.terminate()
    engine.process.wait(10)
    if engine.process.stderr is not None:
        engine.process.stderr.close()


def refused(*flags: str, env: dict[str, str] | None = None) -> tuple[int, str]:
    """Exit status and the last line of stderr of a server that does not start."""
    done = subprocess.run(
        command(*flags),
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, **(env or {})},
    )
    return done.returncode, done.stderr.strip().splitlines()[-1]
