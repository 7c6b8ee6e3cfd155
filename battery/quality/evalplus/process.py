"""One process that runs EvalPlus's `sanitize`, in whichever interpreter has EvalPlus, each answer within a limit.

It is spoken to over a socket (`far` is its source). What an answer does to it (a crash, an exception, no end, words
that are none) befalls that answer alone: the process is ended with its group, and the next question starts another.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import msgspec

from battery.ledger.errors import BatteryError

START_S = 60.0
KEPT = ("PATH", "LD_LIBRARY_PATH")
"""What of our environment the interpreter sees: nothing with a key in it."""
_FAR = Path(__file__).with_name("far.py")
_MOST = 1 << 16


class Clean(NamedTuple):
    """What `sanitize` made of an answer."""

    code: str | None
    why: str
    """Why there is no code; empty where there is some, were it blank."""
    seconds: float


class Hello(msgspec.Struct, forbid_unknown_fields=True):
    """Who the process says that it is."""

    version: str
    source: str
    python: str
    parsers: dict[str, str]


class _Said(msgspec.Struct, forbid_unknown_fields=True):
    id: int
    code: str | None = None
    raised: str | None = None


class Lost(Exception):
    """The process is of no use any more; the message says why."""


class Process:
    """Started when it is first needed and again when an answer brought it down."""

    def __init__(self, python: str, limit_s: float, folder: str) -> None:
        self._python, self._limit_s, self._folder = python, limit_s, folder
        self._process: subprocess.Popen[bytes] | None = None
        self._held = contextlib.ExitStack()
        self._number, self._over = 0, False

    def start(self) -> Hello:
        """Start it; who it says that it is. Lost where it does not."""
        environment = {name: os.environ[name] for name in KEPT if name in os.environ}
        environment |= {"HOME": self._folder, "LC_ALL": "C.UTF-8", "OPENBLAS_NUM_THREADS": "1"}
        ours, theirs = socket.socketpair()
        self._socket = self._held.enter_context(ours)
        log = tempfile.TemporaryFile(dir=self._folder)  # noqa: SIM115 - it lives as long as the process
        self._log = self._held.enter_context(log)
        self._heard = b""
        words = ["-I", "-B", "-W", "ignore", str(_FAR), str(self._limit_s)]
        try:
            with theirs:
                self._process = subprocess.Popen(
                    [self._python, *words], stdin=theirs.fileno(), stdout=theirs.fileno(), stderr=self._log,
                    cwd=self._folder, env=environment, start_new_session=True,
                )  # fmt: skip
            line = self._hear(time.monotonic() + START_S, START_S, _MOST)
            return msgspec.json.decode(line, type=Hello)
        except OSError as refused:
            raise self._gone(f"{refused.strerror or refused}") from refused
        except (msgspec.DecodeError, UnicodeDecodeError) as garbled:
            raise self._gone(f"it says what cannot be read ({garbled})") from garbled
        except Lost as lost:
            raise self._gone(str(lost)) from lost

    def _gone(self, why: str) -> Lost:
        """The end of it, with the last line that it said."""
        words = self._last_words()
        self.stop()
        return Lost(f"{why}{f' ({words})' if words else ''}")

    def _last_words(self) -> str:
        """The last line on its error output."""
        self._log.seek(max(0, self._log.seek(0, os.SEEK_END) - 600))
        return (self._log.read().decode(errors="replace").strip().splitlines() or [""])[-1]

    def ask(self, content: str, entry: str) -> Clean:
        """What `sanitize` makes of an answer; BatteryError where it does not even start."""
        if self._process is None:
            try:
                self.start()
            except Lost as lost:
                raise BatteryError(
                    f"{self._python}: EvalPlus does not start again: {lost}; give the same command again"
                ) from lost
        if self._over:
            return Clean(None, "stopped", 0.0)
        begun = time.monotonic()
        try:
            code, why = self._answered(content, entry, begun + self._limit_s)
        except Lost as lost:
            self.stop()
            code, why = None, str(lost)
        return Clean(code, why, round(time.monotonic() - begun, 3))

    def _answered(self, content: str, entry: str, until: float) -> tuple[str | None, str]:
        """Code, or why there is none."""
        self._number += 1
        sent = msgspec.json.encode({"id": self._number, "content": content, "entry": entry})
        try:
            self._socket.settimeout(max(0.001, until - time.monotonic()))
            self._socket.sendall(sent + b"\n")
            # all that comes back is out of what was sent, at worst with every byte escaped
            line = self._hear(until, self._limit_s, _MOST + 8 * len(sent))
            said = msgspec.json.decode(line, type=_Said)
        except TimeoutError:
            raise Lost(self._silent(self._limit_s)) from None
        except OSError:
            raise Lost(self._ended()) from None
        except (msgspec.DecodeError, UnicodeDecodeError) as garbled:
            raise Lost(f"sanitize's process said what cannot be read ({garbled})") from None
        if said.id != self._number or (said.code is None) == (said.raised is None):
            raise Lost("sanitize's process answered something else than it was asked")
        return said.code, f"sanitize raised {said.raised}" if said.code is None else ""

    def _hear(self, until: float, limit_s: float, most: int) -> bytes:
        """The next line; Lost where none comes in time, or a longer one than could be."""
        while b"\n" not in self._heard:
            left = until - time.monotonic()
            if left <= 0:
                raise Lost(self._silent(limit_s))
            self._socket.settimeout(left)
            try:
                piece = self._socket.recv(1 << 16)
            except TimeoutError:
                continue
            if not piece:
                raise Lost(self._ended())
            self._heard += piece
            if len(self._heard) > most:
                raise Lost(f"its process said more than {most:,} bytes")
        line, _, self._heard = self._heard.partition(b"\n")
        return line

    @staticmethod
    def _silent(limit_s: float) -> str:
        """Why there is nothing, in time."""
        return f"no answer in {limit_s:g} s"

    def _ended(self) -> str:
        """How the process ended by itself."""
        assert self._process is not None
        try:
            code = self._process.wait(5)
        except subprocess.TimeoutExpired:
            return "its process closed its mouth"
        if code < 0:
            return f"its process ended by signal {-code} ({signal.strsignal(-code)})"
        return f"its process ended with exit status {code}"

    def kill(self) -> None:
        """End the process and all of its group for good; whoever listens to it hears the end."""
        self._over = True
        self._end()

    def _end(self) -> None:
        """End the group, if it is there."""
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def stop(self) -> None:
        """End it and forget it; the next question starts another."""
        self._end()
        if self._process is not None:
            self._process.wait()
            self._process = None
        self._held.close()
