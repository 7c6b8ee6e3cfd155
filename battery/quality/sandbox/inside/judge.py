"""The process that makes verdicts: it reads a job's tests, runs them here and calls across to the program's process.

The order is the point. The program's process is forked by the server, which never reads a job, so tests, expected
results and the job's token are in no memory that the program's comes from; and it holds no end of what verdicts are
told by. A program can return what it likes; only a right result makes a check pass.

A judge goes on to the next job while nothing of this one can be left in it: see `_leaves`.
"""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import resource
import socket
import sys
from collections.abc import Callable
from typing import Any, NoReturn

from battery.quality.sandbox import fences, limits
from battery.quality.sandbox.inside import program
from battery.quality.sandbox.inside.checking import assertions, humaneval
from battery.quality.sandbox.inside.comparing import graded, recorded
from battery.quality.sandbox.inside.foreign import CannotSend, Raised, Remote
from battery.quality.sandbox.inside.wire import Ends, Gone, NotPlain

SHOWN = 400
GONE = "gone"
"""The status of a program whose process ended before its checks; the one who forked it knows how."""
READY = b"S"
"""The program's process says that it is fenced in; before that it has run nothing of the program."""
BASE_HOLDS = b"base\n"
"""A line ahead of the verdict: the base tests passed, whatever becomes of the rest."""
DEEP = 5000
"""Frames that checks may need."""
LARGE = 128 << 20
"""Bytes that a judge may have held at a time and still go on to the next job."""
KINDS: dict[str, Callable[[dict[str, Any], Remote, dict[str, Any]], None]] = {
    "humaneval": humaneval,
    "asserts": assertions,
    "inputs": graded,
    "record": recorded,
}
"""How a job is judged; each adds to the verdict and raises where the program fails."""


def preside(jobs: socket.socket, standing: fences.Fences, spare: int) -> NoReturn:
    """Judge what comes over `jobs` until it closes; each is a line of JSON with the job's file and two pipes' ends.

    What is told of a job is one line of JSON, after `BASE_HOLDS` where that is so; `leaves` in it says that the next
    job needs another judge.
    """
    _restrain(standing, spare)
    while True:
        line, files, _, _ = socket.recv_fds(jobs, 1 << 12, 3)
        if not line:
            os._exit(0)
        verdict = _judged(jobs, files, json.loads(line)["memory"])
        jobs.sendall(json.dumps(verdict).encode() + b"\n")
        if verdict["leaves"]:
            os._exit(0)


def _judged(jobs: socket.socket, files: list[int], memory: int) -> dict[str, Any]:
    """The verdict on one job: the token that was in it says that it is one."""
    job_fd, incoming, outgoing = files
    leaves = True
    try:
        _allow(3 * memory)  # to hold its results twice
        with os.fdopen(job_fd, "rb") as source:
            job = pickle.load(source)
        job["tell"] = lambda: jobs.sendall(BASE_HOLDS)
        verdict = _verdict(job, Ends(incoming, outgoing), memory)
        verdict["token"] = job["token"]
        leaves = _leaves(job)
    except BaseException as wrong:
        verdict = {"status": "fault", "detail": f"{type(wrong).__name__}: {wrong}"[:SHOWN]}
    finally:
        for end in (incoming, outgoing):
            os.close(end)
    return {**verdict, "leaves": leaves}


def _leaves(job: dict[str, Any]) -> bool:
    """Whether a job may leave something here: tests that import, in what they imported; any, much memory.

    Tests that import nothing have names of their own alone, which end with them.
    """
    parts = [job.get(part) or "" for part in ("context", "test", "setup", "canonical")]
    text = "\n".join([*parts, *job.get("asserts", ()), *job.get("imports", ())])
    text = text.replace("from typing import", "")  # names of types, which nothing can be left in
    return "import" in text or "__" in text or _grown()


def _grown() -> bool:
    """Whether this process once had much more in memory than it needs."""
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return (most if sys.platform == "darwin" else most << 10) > LARGE


def _restrain(standing: fences.Fences, spare: int) -> None:
    """Give up all rights that judging does not need."""
    os.setpgid(0, 0)
    limits.hold(limits.held(limits.Limits(files=256), spare, but=("RLIMIT_AS", "RLIMIT_CPU")))
    fences.give_up_rights(standing, standing.judge)
    sys.setrecursionlimit(DEEP)


def _allow(memory: int) -> None:
    """Bound this process's memory for one job; the time that it takes is kept from outside, with the program's."""
    if (number := getattr(resource, "RLIMIT_AS", None)) is not None:
        hard = resource.getrlimit(number)[1]
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(number, (memory if hard < 0 else min(memory, hard), hard))


def _verdict(job: dict[str, Any], ends: Ends, memory: int) -> dict[str, Any]:
    """What became of the program; `gone` and in which stage where its process is not there any more."""
    remote = Remote(ends, memory)
    verdict: dict[str, Any] = {"status": "passed"}
    stage = "start"
    try:
        if ends.receive(0)[0] != READY:
            raise Gone
        stage = "run"
        remote.run(job["parts"], job["entry"])
        stage = "tests"
        KINDS[job["kind"]](job, remote, verdict)
    except Raised as raised:
        verdict |= {"status": _named(raised.names, stage), "detail": str(raised)}
    except AssertionError as failed:
        verdict |= {"status": "failed", "detail": f"a check failed {failed}".strip()}
    except CannotSend as fault:
        verdict |= {"status": "fault", "detail": str(fault)}
    except NotPlain as wrong:
        verdict |= {"status": "failed", "detail": f"a result that cannot be read: {wrong}"}
    except MemoryError:
        verdict |= {"status": "memory", "detail": "its results do not fit into memory"}
    except Gone:
        verdict |= {"status": GONE, "stage": stage}
    except Exception as wrong:
        verdict |= {"status": "failed", "detail": f"{type(wrong).__name__} in a check: {wrong}"}
    if remote.notes and (verdict["status"] == "passed" or verdict.get("base")):
        verdict["suspicious"] = program.printable(remote.notes[0])
    verdict["detail"] = program.printable(verdict.get("detail") or "")[:SHOWN]
    return verdict


def _named(names: list[str], stage: str) -> str:
    """The status for an exception of these types."""
    for kind, status in (
        ("ImportError", "import_error"), ("MemoryError", "memory"), ("SyntaxError", "syntax_error"),
    ):  # fmt: skip
        if kind in names and (kind != "SyntaxError" or stage == "run"):
            return status
    return "failed"
