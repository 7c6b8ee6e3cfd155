"""The far end of `process`: EvalPlus's `sanitize` over a socket, in whichever interpreter has EvalPlus.

This file is run by its path, by another Python (3.9 and later), and imports nothing of ours. It says once who it is;
then for every line that it is sent, a JSON object with `id`, `content` and `entry`, it answers one with `id` and either
`code` or `raised`. Nothing of an answer is executed: `sanitize` parses.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import resource
import signal
import socket
import sys
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

MEMORY = 4 << 30
FILE = 16 << 20
SLACK_S = 5
"""Seconds of processor time above the limit: who measures the limit ends us first, unless they are gone."""
SHOWN = 300


def _hold(kind: int, most: int) -> None:
    """Lower a limit, never above what is allowed; a system that has no such limit is left as it is."""
    try:
        hard = resource.getrlimit(kind)[1]
        wanted = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(kind, (wanted, hard))
    except (ValueError, OSError):
        pass


def _spent() -> float:
    """Seconds of processor time so far."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _introduction() -> dict[str, Any]:
    """Who is at work here."""
    whole = hashlib.sha256()
    for name in ("sanitize", "syncheck"):
        whole.update(Path(importlib.import_module(f"evalplus.{name}").__file__ or "").read_bytes())
    return {
        "version": metadata.version("evalplus"),
        "source": whole.hexdigest(),
        "python": sys.version.split()[0],
        "parsers": {name: metadata.version(name) for name in ("tree-sitter", "tree-sitter-python")},
    }


def _sanitised(sanitize: Callable[..., str], asked: dict[str, Any]) -> dict[str, Any]:
    """What becomes of one answer."""
    try:
        return {"id": asked["id"], "code": sanitize(asked["content"], asked["entry"])}
    except Exception as raised:
        return {"id": asked["id"], "raised": f"{type(raised).__name__}: {raised}"[:SHOWN]}


def main() -> None:
    """Answer until the other side closes; `argv[1]`: the seconds that one answer has."""
    limit_s = float(sys.argv[1])
    channel = socket.socket(fileno=os.dup(0))
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)  # whatever prints, prints there
    signal.signal(signal.SIGXCPU, signal.SIG_DFL)
    _hold(resource.RLIMIT_CORE, 0)
    _hold(resource.RLIMIT_FSIZE, FILE)
    from evalplus.sanitize import sanitize

    _hold(resource.RLIMIT_AS, MEMORY)
    lines = channel.makefile("r", encoding="utf-8", newline="\n")
    channel.sendall(json.dumps(_introduction()).encode() + b"\n")
    for line in lines:
        _hold(resource.RLIMIT_CPU, int(_spent() + limit_s) + SLACK_S)
        channel.sendall(json.dumps(_sanitised(sanitize, json.loads(line))).encode() + b"\n")


if __name__ == "__main__":
    main()
