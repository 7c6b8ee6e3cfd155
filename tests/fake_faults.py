"""The ways in which the fake engine can lie, break or die, each named once with what it does.

A fault is written NAME or NAME:ARGUMENT. Faults of a request obey --only-rung and --after; the others hold throughout.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import socket
import sys
import threading
import time

ORPHAN_S = 60.0
"""No forked child outlives this, so that a test that forgets one leaves nothing behind for long."""

START = {
    "die-at-start": "print log lines to stderr and exit 3",
    "never-ready": "health says 503 loading for ever",
    "ignores-sigterm": "only SIGKILL ends it",
    "forks-worker": "a child in the same process group that ignores SIGTERM",
    "keeps-port": "a child in a session of its own holds the port; argument: seconds (10)",
    "worker-away": "a child in a session of its own; it ignores SIGTERM",
    "worker-orphan": "forked twice away, in a session of its own: its parent is init; it ignores SIGTERM",
    "zombie": "a child that is dead and not waited for",
    "reads-stdin": "reads standard input to its end before it serves",
    "other-port": "listens on a port of its own choice",
    "mute-health": "accepts, and never answers /health",
    "trickle-health": "answers /health byte by byte, without an end",
    "dies-soon": "exit 1 some time after health first said ok; argument: milliseconds (1000)",
    "dirty-log": "prints terminal codes, broken UTF-8 and a key",
    "floods-log": "prints without a pause; argument: megabytes altogether (64)",
    "wrong-pid": "health tells pid 1",
    "wrong-model-digest": "health tells another digest; argument: the digest",
    "wrong-model-name": "health tells another model; argument: the name",
    "bare-health": "health tells status, pid and model only",
    "armed-never-runs": "the switch in the argument stays armed and runs 0 times",
    "unasked-runs": "the switch in the argument runs although nobody asked",
    "declined": "the switch in the argument is declined, with a reason",
    "tells-env": "the reason of a declined switch repeats the variable in the argument",
    "long-traceback": "whoever dies of memory prints so many lines behind the allocator's words",
    "warm-cache": "prompts are cached by prefix, and usage says so",
    "lies-cold": "prompts are cached by prefix, and usage says 0",
}
REQUEST = {
    "http-500": "the completion is answered with HTTP 500",
    "die-after": "exit 1 in prefill once that many completions were answered (argument: N)",
    "oom-at": "abort in the first decode step, with Metal's words, for prompts of N tokens and more",
    "no-usage": "no usage chunk",
    "no-ids": "no token_ids",
    "no-timings": "no timings and no sampler",
    "no-done": "no [DONE], but a finish reason and a proper end of the body",
    "no-terminal": "the stream ends after the text: no finish reason, no [DONE]",
    "error-in-stream": "an error chunk after N tokens, then [DONE]",
    "finish-error": "finish reason `error`",
    "close-mid-stream": "the socket closes after N tokens",
    "stall": "no byte after N tokens, the connection stays open",
    "trickle": "only comments after N tokens, one byte at a time",
    "bad-json": "one chunk is cut off in the middle",
    "empty-answer": "a finish reason and usage, but no token",
    "role-only": "the role chunk and [DONE]",
    "clamp-max-tokens": "never more than N tokens, and the sampler echo says so",
    "clamps-silently": "never more than N tokens, and the sampler echo says what was asked",
    "ignores-seed": "another text every time",
    "short": "stops by itself after N tokens",
    "incoherent": "answers with a word and then '!' for ever",
    "wrong-prompt-count": "usage tells the prompt N tokens longer",
    "wrong-total": "usage tells N tokens more than came",
    "ignores-forced": "forced_tokens is dropped: a free run, and no word of it",
    "forced-silent": "forced_tokens is followed, and the sampler echo does not say so",
    "forced-other": "the echo says forced, but token N (1) is another",
    "forced-short": "the echo says forced, but the answer stops before token N",
    "forced-anyway": "the echo says forced though nobody asked",
    "sampler-changed": "the sampler echo has another temperature",
}
KNOWN = {**START, **REQUEST}


class Faults:
    """The faults that were asked for; `of_request` gives those that hold for one request."""

    def __init__(self, asked: list[str]) -> None:
        self._asked: dict[str, list[str]] = {}
        for word in asked:
            name, _, argument = word.partition(":")
            if name not in KNOWN:
                log(f"fake_engine: no fault '{name}'; known: {', '.join(KNOWN)}")
                raise SystemExit(2)
            self._asked.setdefault(name, []).append(argument)

    def __contains__(self, name: str) -> bool:
        return name in self._asked

    def arguments(self, name: str) -> list[str]:
        """Every argument that a fault was given."""
        return self._asked.get(name, [])

    def number(self, name: str, default: int | None = None) -> int | None:
        """The fault's argument as a number; `default` where the fault or its argument is absent."""
        text = next(iter(self._asked.get(name, [])), "")
        return int(text) if text else default

    def at(self, name: str, tokens: int) -> bool:
        """Whether a fault that waits for N tokens (1 where it does not say) is due."""
        return name in self._asked and tokens >= (self.number(name, 1) or 0)

    def of_request(self, applies: bool) -> Faults:
        """These faults, without those of a request where they do not apply to this one."""
        kept = Faults([])
        kept._asked = {k: v for k, v in self._asked.items() if applies or k in START}
        return kept


def log(line: str) -> None:
    """One line on stderr, as an engine logs."""
    print(line, file=sys.stderr, flush=True)


def at_start(faults: Faults) -> None:
    """What happens before the port is bound."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    if "ignores-sigterm" in faults:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if "forks-worker" in faults and os.fork() == 0:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        time.sleep(ORPHAN_S)
        os._exit(0)
    for name in ("worker-away", "worker-orphan"):
        if name in faults:
            fork_away(twice=name == "worker-orphan")
    if "zombie" in faults and os.fork() == 0:
        os._exit(0)
    if "reads-stdin" in faults:
        sys.stdin.read()
    if "dirty-log" in faults:
        os.write(
            2,
            b"\x1b[31mred\x1b[0m \xff\xfe \x1b]0;title\x07 --api-key hunter2hunter2 sk-abcdef1234567890\n",
        )
    if "floods-log" in faults:
        threading.Thread(
            target=flood, args=(faults.number("floods-log", 64) or 0,), daemon=True
        ).start()
    if "die-at-start" in faults:
        log("loading weights: 3 of 7 shards")
        log("error: shard 4 is truncated")
        raise SystemExit(3)


def fork_away(twice: bool) -> None:
    """Leave a worker in a session of its own, told in the log by its process id."""
    child = os.fork()
    if child:
        if twice:
            os.waitpid(child, 0)
        return
    os.setsid()
    if twice and os.fork():
        os._exit(0)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    log(f"worker {os.getpid()} is away")
    time.sleep(ORPHAN_S)
    os._exit(0)


def flood(megabytes: int) -> None:
    """Print lines of a kilobyte, as fast as they go."""
    lines = b"chatter " * 127 + b"chatte\n"
    for _ in range(megabytes):
        os.write(2, lines * 1024)
    log("fake_engine: said it all")


def after_bind(faults: Faults, listening: socket.socket) -> None:
    """What happens once the port is bound."""
    if "keeps-port" not in faults:
        return
    child = os.fork()
    if child:
        log(f"keeps-port: process {child} holds the port")
        return
    os.setsid()
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    time.sleep(faults.number("keeps-port", 10) or 10)
    with contextlib.suppress(OSError):
        listening.close()
    os._exit(0)


def run_out_of_memory(lines: int = 0) -> None:
    """Die as MLX does when Metal runs out in a command buffer."""
    log(
        "libc++abi: terminating due to uncaught exception of type std::runtime_error: [METAL] Command buffer execution"
        " failed: Insufficient Memory (00000008:kIOGPUCommandBufferCallbackErrorOutOfMemory)"
    )
    for line in range(lines):
        log(f"  at frame {line}")
    os.abort()
