"""A warm server: it forks a judge for every job, ends what is left of it, and says what it found.

It is started by `pool` with a socket, over which jobs come as a line of JSON and an open file. It never reads that
file: what it does not know, no program that descends from it can find. One server runs one job at a time.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import select
import signal
import socket
import sys
import time
from pathlib import Path
from typing import Any

from battery.quality.sandbox import fences, limits
from battery.quality.sandbox.crowd import LOOK_S, Crowd
from battery.quality.sandbox.inside.judge import BASE_HOLDS, Place, judge
from battery.quality.sandbox.times import Allowance

LARGEST = 256 << 20
"""Bytes of one verdict."""
END_S = 10.0
"""Most that is waited for what was killed."""
WARM = (
    "abc", "bisect", "cmath", "collections", "copy", "dataclasses", "datetime", "decimal", "enum", "fractions",
    "functools", "hashlib", "heapq", "inspect", "itertools", "math", "operator", "re", "statistics", "string", "typing",
)  # fmt: skip
"""What answers import most, loaded once."""
LAZY = ("numpy",)
"""Loaded once the first program names it."""


def serve(connection: socket.socket, root: str, without: frozenset[str], spare: int) -> None:
    """Answer jobs until the other end closes."""
    for name in WARM:
        importlib.import_module(name)
    try:
        fenced = fences.build(root, without)
    except fences.Unfenced as refused:
        _say(connection, {"refused": str(refused)})
        return
    _say(connection, {"fences": fenced.standing, "missing": fenced.missing})
    while _served(connection, fenced, spare):
        pass


def _served(connection: socket.socket, fenced: fences.Fences, spare: int) -> bool:
    """Answer one job, in a frame that ends with it: whatever is forked for the next finds nothing of this one."""
    line, files, _, _ = socket.recv_fds(connection, 1 << 16, 1)
    if not line:
        return False
    try:
        answer = _job(json.loads(line), files[0], fenced, spare, connection)
    except OSError as wrong:  # no process, pipe or mount to be had: no answer's fault
        answer = {"status": "fault", "detail": f"the grader could not run it: {wrong}"}
    finally:
        for number in files:
            os.close(number)
    _say(connection, answer)
    return True


def _say(connection: socket.socket, told: dict[str, Any]) -> None:
    connection.sendall(json.dumps(told).encode() + b"\n")


def _job(
    head: dict[str, Any], job_fd: int, fenced: fences.Fences, spare: int, connection: socket.socket
) -> dict[str, Any]:
    """Run one job to its end, whatever that is."""
    bounds = limits.parsed(head["limits"])
    for name in LAZY:
        if name in head["needs"] and name not in sys.modules:
            with contextlib.suppress(ImportError):
                importlib.import_module(name)
    began = time.perf_counter()
    with fences.folder(head["folder"], fenced) as where:
        if not fenced.namespaces and fenced.user is not None:
            os.chown(where, fenced.user, fenced.user)
        heard, told = os.pipe()
        try:
            pid = _forked(connection, heard, (job_fd, told, bounds, Place(where, fenced, spare)))
        except OSError:
            os.close(heard)
            raise
        finally:
            os.close(told)
        said, allowance = bytearray(), Allowance(bounds, pid)
        try:
            ended = _hear(said, heard, allowance, Crowd(fenced.listing, bounds, pid))
        finally:
            os.close(heard)
            _end(pid, allowance.program or 0)
    return {**_answer(said, ended), "wall_s": time.perf_counter() - began}


def _forked(
    connection: socket.socket, heard: int, given: tuple[int, int, limits.Limits, Place]
) -> int:
    """A judge's process, which holds neither the socket nor other descriptors of this one's business."""
    if pid := os.fork():
        return pid
    try:
        connection.close()
        os.close(heard)
        if (listing := given[-1].fences.listing) is not None:
            os.close(listing)
        judge(*given)
    finally:
        os._exit(1)


def _hear(said: bytearray, end: int, allowance: Allowance, crowd: Crowd) -> tuple[str, str] | None:
    """Add what the judge writes until it ends or the program had too much: the status that this is, and why."""
    while len(said) < LARGEST:
        if not select.select([end], [], [], min(LOOK_S, allowance.pause()))[0]:
            if late := allowance.over():
                return "timeout", late
            if full := crowd.over(allowance.program):
                return "memory", full
            continue
        if not (piece := os.read(end, 1 << 20)):
            break
        said += piece
        if allowance.program is None and b"\n" in said:
            allowance.program = int(said.partition(b"\n")[0])
    return None


def _answer(said: bytearray, ended: tuple[str, str] | None) -> dict[str, Any]:
    """The verdict that was heard, or what its absence means; lines: the program's id, what holds, the verdict."""
    lines = bytes(said).split(b"\n")
    if len(lines) > 1 and lines[-1]:
        with contextlib.suppress(ValueError):
            return dict(json.loads(lines[-1]))
    so_far = {"base": True} if BASE_HOLDS in lines else {}
    if ended:
        return {**so_far, "status": ended[0], "detail": ended[1]}
    return {**so_far, "status": "crash", "detail": "the checks did not survive its results"}


def _end(pid: int, child: int) -> None:
    """Kill judge and program with all that they started, and reap every one."""
    for group in (pid, child):
        if group > 1:
            for kill in (os.killpg, os.kill):
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    kill(group, signal.SIGKILL)
    until = time.perf_counter() + END_S
    while time.perf_counter() < until:
        for orphan in _children():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(orphan, signal.SIGKILL)
        try:
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                time.sleep(0.0005)
        except ChildProcessError:
            return


def _children() -> list[int]:
    """Children of this process, adopted ones too, where the system lists them."""
    try:
        return [
            int(word)
            for word in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
        ]
    except OSError:
        return []


def main() -> None:
    """Serve as the command line says: socket, root, means not to use, processes of others."""
    number, root, without, spare = sys.argv[1:5]
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the pool's, which closes the socket
    with socket.socket(fileno=int(number)) as connection:
        serve(connection, root, frozenset(filter(None, without.split(","))), int(spare))
