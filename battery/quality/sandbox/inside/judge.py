"""The process that makes one verdict: it forks the program's, then reads the tests, runs them here and calls across.

The order is the point. The program's process is forked before the job is read, so tests, expected results and the
job's token are never in its memory, and the pipe for the verdict is closed in it before any of its code runs. A program
can return what it likes; only a right result makes a check pass.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import pickle
import signal
import sys
from collections.abc import Callable
from typing import Any, NamedTuple, NoReturn

from battery.quality.sandbox import fences, limits
from battery.quality.sandbox.inside import program
from battery.quality.sandbox.inside.checking import assertions, humaneval
from battery.quality.sandbox.inside.comparing import graded, recorded
from battery.quality.sandbox.inside.foreign import CannotSend, Raised, Remote
from battery.quality.sandbox.inside.wire import Ends, Gone, NotPlain

SHOWN = 400
READY = b"S"
"""The program's process says that it is fenced in; before that it has run nothing of the program."""
BASE_HOLDS = b"base"
"""A line ahead of the verdict: the base tests passed, whatever becomes of the rest."""
KINDS: dict[str, Callable[[dict[str, Any], Remote, dict[str, Any]], None]] = {
    "humaneval": humaneval,
    "asserts": assertions,
    "inputs": graded,
    "record": recorded,
}
"""How a job is judged; each adds to the verdict and raises where the program fails."""


class Place(NamedTuple):
    """Where a program runs, and as whom."""

    folder: str
    fences: fences.Fences
    spare: int


def judge(job_fd: int, verdict_fd: int, bounds: limits.Limits, place: Place) -> NoReturn:
    """Judge the job behind `job_fd` and write its verdict, one JSON object, to `verdict_fd`; then end."""
    verdict: dict[str, Any] = {}
    try:
        child, ends = _start(bounds, place)
        os.write(verdict_fd, f"{child}\n".encode())
        _restrain(place, bounds)
        with os.fdopen(job_fd, "rb") as source:
            job = pickle.load(source)
        job["tell"] = lambda: os.write(verdict_fd, BASE_HOLDS + b"\n")
        verdict = _verdict(job, ends, child, bounds)
        verdict["token"] = job["token"]
    except BaseException as wrong:
        verdict = {"status": "fault", "detail": f"{type(wrong).__name__}: {wrong}"[:SHOWN]}
    with os.fdopen(verdict_fd, "wb") as sink, contextlib.suppress(OSError):
        sink.write(json.dumps(verdict).encode())
    os._exit(0)


def _start(bounds: limits.Limits, place: Place) -> tuple[int, Ends]:
    """Fork the program's process; its id, and the pipes to it."""
    asked, ask = os.pipe()
    told, tell = os.pipe()
    if place.fences.namespaces:
        fences.own_processes()
    if child := os.fork():
        os.close(asked)
        os.close(tell)
        return child, Ends(told, ask)
    try:
        ends = Ends(*fences.enter(bounds, place, (asked, tell)))
    except (
        BaseException
    ) as wrong:  # nothing of the program has run: the grader's fault, which the judge tells
        os._exit(getattr(wrong, "errno", None) or errno.EPROTO)
    try:
        ends.send(READY, b"")
        program.serve(ends)
    finally:
        os._exit(0)


def _restrain(place: Place, bounds: limits.Limits) -> None:
    """Give up all rights that judging does not need; more memory than the program's, to hold its results twice."""
    os.setpgid(0, 0)
    limits.hold(
        bounds._replace(cpu_s=10 * bounds.wall_s, memory=3 * bounds.memory, files=256), place.spare
    )
    fences.give_up_rights(place.fences, place.fences.judge)
    sys.setrecursionlimit(5000)


def _verdict(job: dict[str, Any], ends: Ends, child: int, bounds: limits.Limits) -> dict[str, Any]:
    """What became of the program."""
    remote = Remote(ends, bounds.memory)
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
        verdict |= _unfenced(child) if stage == "start" else _ended(child, bounds)
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


def _unfenced(child: int) -> dict[str, Any]:
    """Why the program's process never said that it was ready: no answer's fault."""
    code = os.waitstatus_to_exitcode(os.wait4(child, 0)[1])
    reason = os.strerror(code) if code >= 0 else f"ended by {signal.Signals(-code).name}"
    return {"status": "fault", "detail": f"the program's process could not be fenced in: {reason}"}


def _ended(child: int, bounds: limits.Limits) -> dict[str, Any]:
    """Why the program's process is not there any more."""
    _, status, usage = os.wait4(child, 0)
    cpu = usage.ru_utime + usage.ru_stime
    code = os.waitstatus_to_exitcode(status)
    # the kernel's limit is above the one that is kept from outside, so this is one that outran the looks
    if code in (-signal.SIGXCPU, -signal.SIGKILL) and cpu > bounds.cpu_s / 2:
        return {"status": "timeout", "detail": f"it used {cpu:.1f} s of processor time"}
    if code < 0:
        return {"status": "crash", "detail": f"ended by {signal.Signals(-code).name}"}
    return {
        "status": "failed",
        "detail": f"it ended itself (exit {code}) before its checks had run",
    }
