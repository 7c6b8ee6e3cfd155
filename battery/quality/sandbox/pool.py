"""Programs judged on all cores: warm servers, the heaviest jobs first, and a timeout tried once more alone.

A timeout by processor time that was counted exactly is not tried again: the program had all of it.

with Sandbox() as sandbox:
    for job, outcome in sandbox.run(jobs): ...
"""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import queue
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec
import psutil

from battery.ledger.errors import BatteryError
from battery.quality.sandbox.limits import Limits
from battery.quality.sandbox.times import PATIENCE

START_S = 60.0
GRACE_S = 30.0
"""Seconds beyond the longest that a job may take after which its server is given up."""
_START = (
    "import sys; sys.path.insert(0, {root!r}); from battery.quality.sandbox.server import main;"
    " del sys.path[0]; main()"
)

_ENVIRONMENT = {
    "PYTHONHASHSEED": "0",
    "LC_ALL": "C.UTF-8",
    "OPENBLAS_NUM_THREADS": "1",
    "HOME": "/",
}


class GraderError(BatteryError):
    """The grader itself failed, so what it was to grade has no verdict: never a failed answer."""


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """One program and how it is judged."""

    id: str
    kind: str
    """Which of `judge.KINDS`."""
    parts: tuple[tuple[str, str], ...]
    """Compile units by file name, the answer's last; see `program`."""
    entry: str
    tests: dict[str, Any] | Callable[[], dict[str, Any]]
    """What its kind needs: source, or pickled inputs with what is expected; or what makes it."""
    limits: Limits = Limits()
    weight: float = 0.0
    """Seconds that it is thought to take; the heaviest start first."""


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a program."""

    status: str
    detail: str = ""
    base: bool | None = None
    suspicious: str | None = None
    seconds: float | None = None
    """Of all calls together, where they were recorded."""
    expected: tuple[bytes, ...] = ()
    """Results, where they were recorded."""
    wall_s: float = 0.0
    spent: bool = False
    """Whether a timeout is one of processor time, counted exactly."""
    retried: bool = False
    """Whether a timeout was tried again."""


class _Lost(GraderError):
    """A server ended while it worked."""


class _Server:
    """One warm process and the socket to it; it is started anew where a program brings it down."""

    def __init__(self, without: Iterable[str]) -> None:
        self.root = tempfile.mkdtemp(prefix="battery-")
        Path(self.root).chmod(0o711)
        self._without = ",".join(without)
        self.fences: tuple[str, ...] = ()
        self.missing: dict[str, str] = {}
        self._inside = False
        self.judge = 0
        self._start()

    def _start(self) -> None:
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - it lives as long as the server
        self._socket, theirs = socket.socketpair()
        home = str(Path(__file__).parents[3])
        words = [str(theirs.fileno()), self.root, self._without, str(_spare())]
        self._process = subprocess.Popen(
            [sys.executable, "-B", "-s", "-P", "-c", _START.format(root=home), *words],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=self._log,
            env=_ENVIRONMENT,
            start_new_session=True,
        )
        theirs.close()
        self._heard = b""

    def ready(self) -> None:
        """Wait until the fences stand; GraderError where too little would."""
        told = self._hear(START_S)
        if "refused" in told:
            self.close()
            raise GraderError(str(told["refused"]))
        self.fences, self.missing = tuple(told["fences"]), dict(told["missing"])
        self._inside = "own process ids" in self.fences

    @property
    def pid(self) -> int:
        """The process that programs descend from."""
        return self._process.pid

    def _hear(self, seconds: float) -> dict[str, Any]:
        self._socket.settimeout(seconds)
        while b"\n" not in self._heard:
            try:
                piece = self._socket.recv(1 << 20)
            except TimeoutError:
                piece = b""
            if not piece:
                raise _Lost(f"the sandbox's server ended or hangs: {self.last_words()}")
            self._heard += piece
        line, _, self._heard = self._heard.partition(b"\n")
        return dict(json.loads(line))

    def last_words(self) -> str:
        """The end of what the server said on its error output."""
        self._log.seek(0)
        return self._log.read().decode(errors="replace").strip()[-600:] or "it said nothing"

    def judged(self, job: Job) -> Outcome:
        """One job's outcome; GraderError where the fault is not the program's.

        A program that brings the server down, which takes the lack of a fence, is tried once more on a fresh one.
        """
        for _ in range(2):
            try:
                return self._judged(job)
            except (_Lost, BrokenPipeError, ConnectionError):
                self._stop()
                self._start()
                self.ready()
        return Outcome(status="crash", detail="it ended the grader's own process, twice")

    def _judged(self, job: Job) -> Outcome:
        token = secrets.token_hex(16)
        tests = job.tests() if callable(job.tests) else job.tests
        payload = {
            **tests,
            "kind": job.kind,
            "parts": list(job.parts),
            "entry": job.entry,
            "token": token,
        }
        code = "".join(source for _, source in job.parts)
        folder = self.root if self._inside else tempfile.mkdtemp(dir=self.root)
        needs = [name for name in ("numpy",) if name in code]
        head = {"limits": job.limits._asdict(), "needs": needs, "folder": folder}
        try:
            with tempfile.TemporaryFile() as sent:
                pickle.dump(payload, sent, 5)
                sent.flush()
                os.lseek(sent.fileno(), 0, os.SEEK_SET)
                socket.send_fds(self._socket, [json.dumps(head).encode()], [sent.fileno()])
                told = self._hear(PATIENCE * job.limits.wall_s + GRACE_S)
        finally:
            if not self._inside:
                _removed(folder)
        self.judge = told.pop("judge", 0)
        known = told.pop("token", None) == token
        if told["status"] == "fault" or not (
            known or told["status"] in ("timeout", "crash", "memory")
        ):
            raise GraderError(f"{job.id}: no verdict: {told.get('detail') or told['status']}")
        told["expected"] = tuple(bytes.fromhex(one) for one in told.get("expected", ()))
        return msgspec.convert(told, Outcome)

    def dismiss(self) -> None:
        """Have it end by itself, without waiting for that."""
        self._socket.close()

    def close(self) -> None:
        """End the server and what it left."""
        self._stop()
        _removed(self.root)

    def _stop(self) -> None:
        self._socket.close()
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._log.close()


class Sandbox:
    """Warm servers, one for each worker; a context manager."""

    def __init__(self, workers: int | None = None, without: Sequence[str] = ()) -> None:
        """`workers`: as many as there are cores; `without`: means not to use, as if the system lacked them."""
        if sys.platform not in ("linux", "darwin"):
            raise GraderError(
                f"{sys.platform}: programs cannot be fenced in here; use Linux or macOS"
            )
        self.workers = workers or _cores()
        self._without = tuple(without)
        self._servers: list[_Server] = []

    def __enter__(self) -> Self:
        try:
            for _ in range(self.workers):
                self._servers.append(_Server(self._without))
            for server in self._servers:
                server.ready()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for server in self._servers:
            server.dismiss()
        for server in self._servers:
            server.close()
        self._servers.clear()

    @property
    def servers(self) -> list[int]:
        """Process ids of the servers; all programs descend from them."""
        return [server.pid for server in self._servers]

    @property
    def judges(self) -> list[int]:
        """Process ids of those that wait to judge the next program."""
        return [server.judge for server in self._servers if server.judge]

    @property
    def fences(self) -> tuple[str, ...]:
        """What holds a program."""
        return self._servers[0].fences

    @property
    def missing(self) -> dict[str, str]:
        """What does not, with its reason."""
        return self._servers[0].missing

    def run(self, jobs: Iterable[Job]) -> Iterator[tuple[Job, Outcome]]:
        """Every job with its outcome, as they come; those that the clock stopped last, after a second try alone."""
        waiting: queue.SimpleQueue[Job] = queue.SimpleQueue()
        ordered = sorted(jobs, key=lambda job: -job.weight)
        for job in ordered:
            waiting.put(job)
        done: queue.SimpleQueue[tuple[Job, Outcome] | BaseException] = queue.SimpleQueue()
        stop = threading.Event()
        threads = [
            threading.Thread(target=_work, args=(server, waiting, done, stop), daemon=True)
            for server in self._servers
        ]
        for thread in threads:
            thread.start()
        late: list[Job] = []
        try:
            for _ in ordered:
                found = done.get()
                if isinstance(found, BaseException):
                    raise found
                if found[1].status == "timeout" and not found[1].spent:
                    late.append(found[0])
                else:
                    yield found
        finally:
            stop.set()
            for thread in threads:
                thread.join()
        for job in late:
            outcome = self._servers[0].judged(job)
            yield job, msgspec.structs.replace(outcome, retried=True)


def _work(
    server: _Server,
    waiting: queue.SimpleQueue[Job],
    done: queue.SimpleQueue[tuple[Job, Outcome] | BaseException],
    stop: threading.Event,
) -> None:
    """Judge what is waiting, on one server."""
    while not stop.is_set():
        try:
            job = waiting.get_nowait()
        except queue.Empty:
            return
        try:
            done.put((job, server.judged(job)))
        except BaseException as wrong:  # it is raised where the results are read
            done.put(wrong)
            return


def _cores() -> int:
    """Cores that this process may use."""
    if sys.platform == "linux":
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _spare() -> int:
    """Processes and threads of this user, which a limit on processes counts too; none for an administrator."""
    if os.geteuid() == 0:
        return 0
    total = 0
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.uids().effective == os.geteuid():
                total += process.num_threads()
    return total + 16


def _removed(folder: str) -> None:
    """Remove a folder, closed ones in it too."""
    for place, _, _ in os.walk(folder):
        with contextlib.suppress(OSError):
            Path(place).chmod(0o700)
    shutil.rmtree(folder, ignore_errors=True)
