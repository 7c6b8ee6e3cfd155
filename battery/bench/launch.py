"""Start a server for one window, make sure that it is the one we started, and stop it so that nothing is left.

Readiness is bound to the processes we started and to the model's name: a stale server that answers on the port is a
refusal, not a success. A port that someone else holds is never freed by force. Ours is what descends from the process
that was started or carries the window's mark (see leash): a worker in a session of its own is found as well.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import tempfile
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import psutil

from battery.bench import leash
from battery.bench.backends import Backend
from battery.bench.client import Client, Unreachable
from battery.bench.memory import limit, nvml
from battery.bench.memory.kills import Kills
from battery.bench.memory.limit import Limit
from battery.interruption import Interrupted
from battery.ledger import scrub
from battery.ledger.arm import Arm
from battery.ledger.errors import Busy, LaunchError

HOST = "127.0.0.1"
_STEERS = re.compile(
    r"^(CUDA|GGML|GOMP|GOTO|HIP|KMP|LD_PRELOAD|LLAMA|MALLOC|MKL|MLX|NUMEXPR|OMP|OPENBLAS|PYTORCH|ROCR|SGLANG"
    r"|SWITCHBOARD|TORCH|VECLIB|VLLM)"
)
TAIL_LINES = 15
LOG_READ = 1 << 20
HEALTH_S = 2.0
"""How long one look at health may take."""


def free_port() -> int:
    """A port on loopback that nobody holds at this moment."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def port_taken(port: int) -> bool:
    """Whether something listens on the port."""
    with socket.socket() as probe:
        probe.settimeout(0.5)
        # a connection that found itself is no listener: the kernel may pick the very port as its near end
        return probe.connect_ex((HOST, port)) == 0 and probe.getsockname() != probe.getpeername()


class Server:
    """One running server. Use as a context manager; leaving it stops the whole process group."""

    def __init__(
        self,
        arm: Arm,
        backend: Backend,
        port: int | None,
        launch_s: float,
        stop_s: float,
        stop_asked: Callable[[], bool] = lambda: False,
        memory_limit: int | None = None,
        log_cap: int = leash.LOG_CAP,
    ) -> None:
        self.arm, self.backend = arm, backend
        self.port = port or free_port()
        self._launch_s, self._stop_s, self._stop_asked = launch_s, stop_s, stop_asked
        self.command = tuple(backend.command(arm, HOST, self.port))
        self.url = f"http://{HOST}:{self.port}"
        self.environment: dict[str, str] = {}
        """What a receipt tells of the server's environment."""
        self.secrets: tuple[str, ...] = ()
        """What it was given that no record may hold, in whatever words it repeats it."""
        self.ready: dict[str, Any] = {}
        """The health document that showed readiness."""
        self.limit: Limit | None = None
        """What its memory is limited by, once it was started under a plan's memory_limit_gb."""
        self.kills = Kills()
        self.gpu_before: int | None = None
        """Bytes in use on the GPUs just before it started; None where NVML does not tell."""
        self._memory_limit = memory_limit
        self._mark, self._log_cap = uuid.uuid4().hex, log_cap
        self._log = tempfile.TemporaryFile(prefix="battery-server-")  # noqa: SIM115 closed in stop()
        self._process: subprocess.Popen[bytes] | None = None
        self._leash: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Server:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def pid(self) -> int:
        """Process id of the server we started."""
        if self._process is None:
            raise LaunchError(f"arm {self.arm.name}: the server was never started")
        return self._process.pid

    @property
    def exit_status(self) -> int | None:
        """None while it runs; its exit status, negative for a signal, once it is gone."""
        return self._process.poll() if self._process else None

    def ended(self, within_s: float = 1.0) -> int | None:
        """The exit status of a server that may be dying: its sockets close a moment before it can be waited for."""
        deadline = time.monotonic() + within_s
        while self.exit_status is None and time.monotonic() < deadline:
            time.sleep(0.02)
        return self.exit_status

    def log_size(self) -> int:
        """Bytes that the server has printed so far: a mark for log_tail."""
        return 0 if self._log.closed else os.fstat(self._log.fileno()).st_size

    def log_tail(self, lines: int = TAIL_LINES, since: int = 0) -> str:
        """The last lines that the server printed behind the mark `since`."""
        size = self.log_size()
        start = max(since, size - 16_384)
        data = os.pread(self._log.fileno(), 16_384, start) if size > start else b""
        return scrub.text("\n".join(data.decode("utf-8", "replace").splitlines()[-lines:]))

    def log_since(self, mark: int = 0) -> str:
        """All that it printed behind a mark, the last LOG_READ bytes of it where that is more: to be searched."""
        size = self.log_size()
        start = max(mark, size - LOG_READ)
        data = os.pread(self._log.fileno(), LOG_READ, start) if size > start else b""
        return scrub.text(data.decode("utf-8", "replace"))

    def start(self) -> None:
        """Start the process and wait until it answers as the server we meant.

        LaunchError carries the last lines it printed; Busy means that the port is someone else's.
        """
        if port_taken(self.port):
            raise Busy(
                f"port {self.port} is in use by another process, which is left alone; choose another"
            )
        environment = {**os.environ, "PYTHONUNBUFFERED": "1", **self.arm.env}
        self.environment = told_environment(environment, self.arm)
        self.secrets = scrub.hidden_in(environment, self.command)
        command = self._limited()
        self.gpu_before = nvml.used()
        group = self.limit.group if self.limit else None
        # the leash first: there is no moment at which the server runs without it
        self._leash = leash.attach(
            self._mark, self._log, self._log_cap, group.path if group else None
        )
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=self._log,
                stderr=subprocess.STDOUT,
                env={**environment, leash.MARK: self._mark},
                start_new_session=True,
            )
        except OSError as broken:
            raise LaunchError(
                f"arm {self.arm.name}: cannot start {self.command[0]}: {broken}"
            ) from broken
        leash.name_group(self._leash, self._process.pid)
        self._wait_ready(time.monotonic() + self._launch_s)
        self.kills.mark(self.members())

    def _limited(self) -> Sequence[str]:
        """The command line to run, under the memory limit where there is one; the kernel's kills count from here."""
        if self._memory_limit is None:
            self.kills.mark()
            return self.command
        self.limit = limit.impose(self._memory_limit, str(self.port))
        self.kills.close()
        self.kills = Kills(self.limit.group)
        self.kills.mark()
        return self.limit.wrap(self.command)

    def _wait_ready(self, deadline: float) -> None:
        """Poll health until it is ours and ready."""
        last = "nothing answered yet"
        with Client(self.url, timeout_s=HEALTH_S) as client:
            while time.monotonic() < deadline:
                if self._stop_asked():
                    raise Interrupted
                if self.exit_status is not None:
                    word = self.kills.word(self.exit_status)
                    killed = f", killed for memory: {word.text}" if word else ""
                    raise LaunchError(
                        f"arm {self.arm.name}: the server exited with {self.exit_status} while starting{killed}"
                        f" ({' '.join(self.command[:6])} …); its last lines:\n{self.log_tail()}"
                    )
                try:
                    status, document = client.get_json(self.backend.health)
                except Unreachable as not_yet:
                    last = str(not_yet)
                else:
                    last = f"health said {status} {str(document)[:120]}"
                    ours = isinstance(document, dict) and document.get("status") == "ok"
                    if status == 200 and ours:
                        self._check(document)
                        self.ready = document
                        return
                time.sleep(0.05)
        raise LaunchError(
            f"arm {self.arm.name}: not ready after {self._launch_s:.0f} s ({last}{self._elsewhere()}); raise"
            f" limits.launch_s of the plan, or read its last lines:\n{self.log_tail()}"
        )

    def _elsewhere(self) -> str:
        """Words on the ports that the server did open, if they are others."""
        ports: set[int] = set()
        for process in self._family():
            with contextlib.suppress(psutil.Error):
                told = process.net_connections("tcp")
                ports |= {one.laddr.port for one in told if one.status == psutil.CONN_LISTEN}
        if not ports or self.port in ports:
            return ""
        return f"; it listens on {', '.join(map(str, sorted(ports)))} and was given {self.port}"

    def _check(self, document: dict[str, Any]) -> None:
        """LaunchError unless the health document is of our process and of the arm's model."""
        told = document.get("pid")
        if self.limit is not None:
            self.limit.confirm(self.pid)
        if told not in self.members():
            raise LaunchError(
                f"arm {self.arm.name}: port {self.port} is answered by process {told}, not by the one that was"
                f" started ({self.pid}); stop that server, it would have been measured instead"
            )
        model = document.get("model") or {}
        if model.get("name") != self.arm.model:
            raise LaunchError(
                f"arm {self.arm.name}: the server holds model {model.get('name')!r}, the arm asks for"
                f" {self.arm.model!r}"
            )
        if not model.get("digest"):
            raise LaunchError(
                f"arm {self.arm.name}: health gives no model.digest, so runs cannot be told apart"
            )

    def members(self) -> set[int]:
        """Process ids of the server and everything it forked."""
        return {self.pid, *(process.pid for process in self._family())}

    def _family(self) -> set[psutil.Process]:
        """The processes that are alive of the server's tree, of its group, and with its mark."""
        found: set[psutil.Process] = set()
        with contextlib.suppress(psutil.Error):
            root = psutil.Process(self.pid)
            found |= {root, *root.children(recursive=True)}
        # a cgroup of its own knows orphans too
        own = self.limit.group.pids() if self.limit and self.limit.group else set()
        for pid in _group(self.pid) | leash.marked(self._mark) | own:
            with contextlib.suppress(psutil.Error):
                found.add(psutil.Process(pid))
        return {process for process in found if _alive(process)}

    def stop(self) -> None:
        """SIGTERM to the whole group, SIGKILL after `stop_s`; then all of it must be gone and the port free."""
        if self._log.closed:
            return
        gone = False
        try:
            if self._process is not None:
                self._end(self._process)
            gone = True
        finally:
            if self._leash is not None:
                leash.let_go(self._leash, gone)
            self._log.close()
            self.kills.close()
        left = self.limit.lift() if self.limit else None
        if left:
            raise LaunchError(
                f"arm {self.arm.name}: {left}; stop what it holds before measuring again"
            )

    def _end(self, process: subprocess.Popen[bytes]) -> None:
        """Stop every process of ours; LaunchError names what would not go."""
        # who descends from it can be told only while it lives
        ours = self._family()
        _signal_group(process.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(self._stop_s)
        deadline = time.monotonic() + self._stop_s
        while True:
            ours = {one for one in ours if _alive(one)} | self._family()
            for one in ours:
                with contextlib.suppress(psutil.Error):
                    one.kill()
            process.poll()
            if not ours and process.returncode is not None and not port_taken(self.port):
                return
            if time.monotonic() > deadline:
                break
            time.sleep(0.02)
        left = ", ".join(str(one.pid) for one in ours)
        raise LaunchError(
            f"arm {self.arm.name}: {self._stop_s:g} s after SIGKILL "
            + (f"process {left} still lives" if left else f"port {self.port} is still answered")
            + "; stop what is left before measuring again"
        )


def told_environment(environment: Mapping[str, str], arm: Arm) -> dict[str, str]:
    """What the arm sets, and what was inherited of the variables that steer engines and their libraries."""
    told = {
        key: value for key, value in environment.items() if key in arm.env or _STEERS.match(key)
    }
    return scrub.deep(dict(sorted(told.items())))


def _signal_group(group: int, number: int) -> None:
    """Signal every process of a group that still has any."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


def _group(group: int) -> set[int]:
    """Process ids of a group."""
    found = set()
    for pid in psutil.pids():
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if os.getpgid(pid) == group:
                found.add(pid)
    return found


def _alive(process: psutil.Process) -> bool:
    """Whether it still runs: a zombie that waits for its parent does not."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False
