"""A warm server: it forks a process for every program, has a judge make the verdict, and ends what is left.

It is started by `pool` with a socket, over which jobs come as a line of JSON and an open file. It never reads that
file, nor the verdict that the judge leaves there, nor does any process that programs are forked from: what it does not
know, none of them can find, in memory that was given back either. One server runs one job at a time.
"""

from __future__ import annotations

import contextlib
import errno
import importlib
import json
import os
import select
import signal
import socket
import sys
import time
from typing import Any, NoReturn

from battery.quality.sandbox import fences, limits
from battery.quality.sandbox.crowd import LOOK_S, Crowd
from battery.quality.sandbox.ending import Program
from battery.quality.sandbox.inside import program
from battery.quality.sandbox.inside.judge import BASE_HOLDS, GONE, READY, preside
from battery.quality.sandbox.inside.wire import Ends
from battery.quality.sandbox.times import Allowance

LARGEST = 1 << 16
"""Bytes of what a judge says of one job."""
WAIT_S = 0.002
"""Between looks at a program that closed its pipes and may go on."""
WARM = (
    "abc", "bisect", "cmath", "collections", "copy", "dataclasses", "datetime", "decimal", "enum", "fractions",
    "functools", "hashlib", "heapq", "inspect", "itertools", "math", "operator", "re", "statistics", "string", "typing",
)  # fmt: skip
"""What answers import most, loaded once."""
LAZY = ("numpy",)
"""Loaded once the first program names it."""


class _Untouched(Exception):
    """The judge ended before it had read its job: nothing that the program did, so another judge is asked, once."""


class _Judge:
    """The process that judges one job after the other, and the socket to it; forked when a job finds none."""

    def __init__(self) -> None:
        self.pid = 0
        """0: there is none."""
        self.heard: socket.socket

    def there(self) -> bool:
        """Whether one waits for a job."""
        if self.pid and os.waitpid(self.pid, os.WNOHANG)[0]:
            self.heard.close()
            self.pid = 0
        return self.pid != 0

    def hand(self, memory: int, files: list[int]) -> None:
        """Give it a job."""
        socket.send_fds(self.heard, [json.dumps({"memory": memory}).encode()], files)

    def piece(self) -> bytes:
        """Some of what it says; nothing where it has ended, with its job unread, too."""
        try:
            return self.heard.recv(1 << 20)
        except ConnectionResetError:
            return b""

    def leave(self) -> None:
        """End it; the next job finds another."""
        if self.pid:
            self.heard.close()
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
            self.pid = 0


class Server:
    """What all jobs of a server share."""

    def __init__(self, connection: socket.socket, fenced: fences.Fences, spare: int) -> None:
        self._connection, self._fenced, self._spare = connection, fenced, spare
        self._judge = _Judge()
        self._bound, self._jobs = limits.own(), 0

    def served(self) -> bool:
        """Answer one job, in a frame that ends with it: whatever is forked for the next finds nothing of this one.

        False where there are no more, or where another server must answer them: a program changed this one's limits.
        """
        line, files, _, _ = socket.recv_fds(self._connection, 1 << 16, 1)
        if not line:
            return False
        try:
            try:
                answer = self._job(json.loads(line), files[0])
            except _Untouched:
                answer = self._job(json.loads(line), files[0])
        except Exception as wrong:
            # no process, pipe or mount to be had, or an error here: no answer's fault
            answer = {
                "status": "fault",
                "detail": f"the grader could not run it: {type(wrong).__name__}: {wrong}",
            }
        finally:
            for number in files:
                os.close(number)
        _say(self._connection, {**answer, "judge": self._judge.pid})
        return not self._fenced.exposed or limits.own() == self._bound

    def _job(self, head: dict[str, Any], job_fd: int) -> dict[str, Any]:
        """Run one job to its end, whatever that is."""
        bounds = limits.parsed(head["limits"])
        for name in LAZY:
            if name in head["needs"] and name not in sys.modules:
                with contextlib.suppress(ImportError):
                    importlib.import_module(name)
        began = time.perf_counter()
        fenced, self._jobs = self._fenced.of_job(self._jobs), self._jobs + 1
        with fences.folder(head["folder"], fenced) as where:
            if not fenced.namespaces and fenced.user is not None:
                os.chown(where, fenced.user, fenced.user)
            held = limits.held(bounds, self._spare)
            running = self._begun(fences.Place(where, fenced, held), bounds, job_fd)
            answer: dict[str, Any] = {}
            try:
                answer = self._heard(running, bounds)
                if answer.pop("lost", False) and os.lseek(job_fd, 0, os.SEEK_CUR) == 0:
                    raise _Untouched("the judge was gone before it had read the job")
            finally:
                running.end()
                if answer.pop("leaves", True) or self._fenced.exposed:
                    self._judge.leave()
        if answer["status"] == GONE:
            answer |= running.unfenced() if answer["stage"] == "start" else running.ended(bounds)
        answer.pop("stage", None)
        return {**answer, "wall_s": time.perf_counter() - began}

    def _begun(self, place: fences.Place, bounds: limits.Limits, job_fd: int) -> Program:
        """Fork the program's process, and hand the job with the pipes to it over to the judge."""
        ends: list[int] = []
        try:
            if not self._judge.there():
                self._call_judge(job_fd)
            told, tell = _pipe(ends)
            asked, ask = _pipe(ends)
            if (pid := fences.forked(self._fenced)) == 0:
                self._become(place, (asked, tell))
            # with process ids of their own, orphans go to the first of them and not here
            listing = None if self._fenced.namespaces else self._fenced.listing
            running = Program(pid, self._judge.pid, listing)
            try:
                self._judge.hand(bounds.memory, [job_fd, told, ask])
            except OSError as gone:
                running.end()
                self._judge.leave()
                raise _Untouched(f"the judge was gone when the job came: {gone}") from gone
            return running
        finally:
            for end in ends:
                os.close(end)

    def _call_judge(self, job_fd: int) -> None:
        """Fork a judge; it is handed its jobs, `job_fd` like those after it, and keeps none of them."""
        self._judge.heard, theirs = socket.socketpair()
        with theirs:
            if (pid := os.fork()) == 0:
                try:
                    self._let_go()
                    os.close(job_fd)
                    preside(theirs, self._fenced, self._spare)
                finally:
                    os._exit(1)
            self._judge.pid = pid

    def _become(self, place: fences.Place, pipes: tuple[int, int]) -> NoReturn:
        """Be the process that runs a program."""
        try:
            self._let_go()
            ends = Ends(*fences.enter(place, pipes))
        except BaseException as wrong:  # nothing of the program has run: the grader's fault
            os._exit(getattr(wrong, "errno", None) or errno.EPROTO)
        try:
            ends.send(READY, b"")
            program.serve(ends)
        finally:
            os._exit(0)

    def _let_go(self) -> None:
        """Close, in a process just forked, what is the server's alone."""
        self._connection.close()
        self._judge.heard.close()
        if self._fenced.listing is not None:
            os.close(self._fenced.listing)

    def _heard(self, running: Program, bounds: limits.Limits) -> dict[str, Any]:
        """What the judge says, or what had an end before that: the program's time, its memory, or the judge."""
        allowance = Allowance(bounds, self._judge.pid)
        allowance.program = running.pid
        crowd = Crowd(self._fenced.listing, bounds, self._judge.pid)
        said, so_far = bytearray(), dict[str, Any]()
        while not said.endswith(b"\n"):
            pause = min(LOOK_S, allowance.pause())
            if select.select([self._judge.heard], [], [], pause)[0]:
                piece = self._judge.piece()
                said += piece
                if said.startswith(BASE_HOLDS):
                    so_far = {"base": True}
                    del said[: len(BASE_HOLDS)]
                if not piece or len(said) > LARGEST:
                    return {
                        **so_far,
                        "status": "crash",
                        "detail": "the checks did not survive its results",
                        "lost": not piece,
                    }
            elif much := _excess(running, allowance, crowd):
                return so_far | much
        answer = dict(json.loads(said))
        while answer["status"] == GONE and not running.gone():
            if much := _excess(running, allowance, crowd):
                return {**answer, **much}
            time.sleep(WAIT_S)
        return answer


def _pipe(ends: list[int]) -> tuple[int, int]:
    """A new pipe, whose ends are added to `ends`."""
    pair = os.pipe()
    ends += pair
    return pair


def _excess(running: Program, allowance: Allowance, crowd: Crowd) -> dict[str, Any]:
    """The outcome of a program that had too much; nothing while it had not."""
    if late := allowance.over():
        return {"status": "timeout", "detail": late, "spent": allowance.spent}
    if full := crowd.over(running.pid):
        return {"status": "memory", "detail": full}
    return {}


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
    server = Server(connection, fenced, spare)
    while server.served():
        pass


def _say(connection: socket.socket, told: dict[str, Any]) -> None:
    connection.sendall(json.dumps(told).encode() + b"\n")


def main() -> None:
    """Serve as the command line says: socket, root, means not to use, processes of others."""
    number, root, without, spare = sys.argv[1:5]
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the pool's, which closes the socket
    with socket.socket(fileno=int(number)) as connection:
        serve(connection, root, frozenset(filter(None, without.split(","))), int(spare))
        os._exit(0)  # nothing is left to be put in order, and that would take its time
