"""One engine in a process of its own, asked by lines of JSON; the far side needs nothing but the standard library.

Answers go to what was standard output; whatever else the process prints goes to standard error, so that a chatty
library cannot spoil an answer.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

ROOT = Path(__file__).parents[2]
CLOSE_S = 20


class Engine(Protocol):
    """What can be asked; every method answers with a table."""

    def facts(self) -> dict[str, Any]:
        """What really runs here: threads, BLAS, format, bytes of weights that a pass reads, switches as they stand."""

    def begin(self, prompt: list[int], count: int) -> dict[str, Any]:
        """Read a prompt and choose the first of at most `count` tokens: `prefill_s`, `first_s`, `tokens`."""

    def go(self, least: int) -> dict[str, Any]:
        """At least that many tokens more: `tokens`, `passes`, `seconds` and processor time, `cpu_s`.

        `lead` are tokens that came before the clock started. Nothing is left computing when it answers.
        """

    def end(self) -> dict[str, Any]:
        """Forget the text."""


class Failed(Exception):
    """An engine that could not be started or asked; the message says why."""


def serve(build: Callable[[], Engine]) -> None:
    """Build the engine, tell its facts, and answer until the pipe is closed."""
    out = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)

    def say(told: dict[str, Any]) -> None:
        out.write(json.dumps(told) + "\n")

    try:
        engine = build()
        say({"facts": engine.facts()})
    except Exception as error:  # the boundary of the process: told to the other side
        say({"error": f"{type(error).__name__}: {error}"})
        return
    for line in sys.stdin:
        asked = json.loads(line)
        try:
            say(getattr(engine, asked.pop("do"))(**asked))
        except Exception as error:  # the same boundary
            say({"error": f"{type(error).__name__}: {error}"})


class Remote:
    """The near side: a started engine, in a session of its own, so that Ctrl-C reaches the near side alone."""

    def __init__(self, command: list[str], environment: Mapping[str, str]) -> None:
        self._command, self._environment = command, dict(environment)
        self._launch()

    def again(self) -> None:
        """End the process and start another: memory lies elsewhere in it, which alone changes its rate by percents."""
        self.close()
        self._launch()

    def _launch(self) -> None:
        self._process = subprocess.Popen(
            self._command,
            cwd=ROOT,
            env=self._environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )
        self.pid = self._process.pid
        try:
            self.facts: dict[str, Any] = self._answer()["facts"]
        except Failed:
            self.close()
            raise

    def ask(self, do: str, **more: Any) -> dict[str, Any]:
        """Ask one thing and wait for it; Failed where the engine says so or is gone."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps({"do": do, **more}) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise Failed(f"the process is gone, exit status {self._process.poll()}") from None
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise Failed(f"the process ended with exit status {self._process.wait()}")
        told: dict[str, Any] = json.loads(line)
        if "error" in told:
            raise Failed(str(told["error"]))
        return told

    def close(self) -> None:
        """End it."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(CLOSE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
