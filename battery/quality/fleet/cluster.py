"""The fleet's machines, through Ray: one worker on each node, which judges as many programs at a time as it has cores.

One worker a node, because a grader tests itself once for a machine, and because a timeout is tried again alone: two
graders on one machine would not know of each other. Tasks and expected results lie in each node's object store once.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import importlib.util
import os
import re
import secrets
import shutil
import signal
import socket
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from typing_extensions import override

from battery import interruption
from battery.ledger import scrub
from battery.ledger.errors import InputError
from battery.quality.fleet.driver import Fleet, Say
from battery.quality.fleet.post import Brief, Post, Ready
from battery.quality.fleet.shards import Came, Judged, Shard
from battery.quality.reference import Reference
from battery.quality.sandbox.pool import GraderError, Sandbox
from battery.quality.sheet import Program
from battery.quality.tasks import Task

LOCAL, AUTO = "local", "auto"
WORKER_S = 120.0
"""Seconds in which a node must have started its worker, or its cores are taken by someone else."""
REACH_S = 10.0
CLOSE_S = 15.0
"""Seconds in which a worker may end the programs that it is running."""
LOOK_S = 1.0
STORE = 512 << 20
"""Bytes of shared memory of a cluster of our own; Ray goes to disk where more is needed."""
ROOM = 36
"""Letters of a folder's path that leave room for the names of Ray's sockets in it (a socket's path has 104 at most)."""
OURS = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
    "RAY_AUTH_MODE": "token",
}
"""A cluster of our own tells nobody, listens on the loopback alone (the third, on every system), and asks for a key."""
_ADDRESS = re.compile(r"[\w.-]+:\d{1,5}|\[[0-9a-fA-F:]+\]:\d{1,5}")

Graders = Callable[[Sequence[Task]], Fleet]


@contextlib.contextmanager
def opened(
    address: str | None,
    *,
    cache: Path | None = None,
    workers: int | None = None,
    say: Say = lambda line: None,
    post: type[Post] = Post,
) -> Iterator[Graders | None]:
    """What makes the grader of a suite on a fleet; None where no address is given, for grading here.

    `address`: `local` starts a cluster on this machine and ends it again; `auto` and HOST:PORT join one. `workers`:
    most programs at a time on each machine, default its cores. InputError where there is no Ray, or no such cluster.
    """
    possible(address)
    if address is None:
        yield None
        return
    if address not in (LOCAL, AUTO):
        _reach(address)
    with _local(workers) if address == LOCAL else _connected({"address": address}) as ray:
        crew = Nodes(ray, workers, post)
        yield functools.partial(Fleet, crew=crew, cache=cache, say=say)


def possible(address: str | None) -> None:
    """InputError where a fleet of this address cannot be: no address, or no Ray here."""
    if address is None:
        return
    if address not in (LOCAL, AUTO) and not _ADDRESS.fullmatch(address):
        raise InputError(f"--fleet {address}: no address; give {LOCAL}, {AUTO}, or HOST:PORT")
    if importlib.util.find_spec("ray") is None:  # not imported yet: it reads `OURS` when it is
        raise InputError(
            "--fleet needs Ray on every machine, and here it is not installed: pip install 'battery[fleet]'; without"
            " --fleet the answers are graded on this machine"
        )


def _reach(address: str) -> None:
    """InputError where nothing listens: Ray itself would try for more than a minute."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), REACH_S).close()
    except (OSError, OverflowError) as refused:
        raise InputError(
            f"--fleet {address}: no Ray cluster answers there ({refused}); start one (ray start --head), or give"
            f" {LOCAL}"
        ) from refused


@contextlib.contextmanager
def _local(workers: int | None) -> Iterator[Any]:
    """Ray with a cluster of our own, of which nothing is left afterwards."""
    paths = [str(Path(__file__).parents[3]), *filter(None, [os.environ.get("PYTHONPATH")])]
    told = {**OURS, "RAY_AUTH_TOKEN": secrets.token_hex(32), "PYTHONPATH": os.pathsep.join(paths)}
    folder = tempfile.mkdtemp(prefix="fleet-")
    try:
        with (
            _environment(told),
            _connected(
                {
                    "address": LOCAL,
                    "num_cpus": workers or Sandbox().workers,
                    "object_store_memory": STORE,
                    "include_dashboard": False,
                    **({"_temp_dir": folder} if len(folder) <= ROOM else {}),
                }
            ) as ray,
        ):
            yield ray
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def _connected(options: Mapping[str, Any]) -> Iterator[Any]:
    """Ray while it is connected; what SIGTERM does stays as it was. InputError where no cluster answers."""
    ray = importlib.import_module("ray")
    heard = signal.getsignal(signal.SIGTERM)
    try:
        try:
            ray.init(**options, log_to_driver=False, logging_level="error")
        except ConnectionError as refused:
            raise InputError(
                f"--fleet {options['address']}: no Ray cluster answers there; start one (ray start --head), or give"
                f" {LOCAL}"
            ) from refused
        except (
            Exception
        ) as failed:  # Ray has no error of its own for it, and a busy machine is enough
            raise GraderError(
                f"--fleet {options['address']}: Ray did not come up ({scrub.text(str(failed)).strip()[:200]});"
                " try again where less is running, or grade without --fleet"
            ) from failed
        finally:
            if threading.current_thread() is threading.main_thread():
                signal.signal(signal.SIGTERM, heard)
        yield ray
    finally:
        ray.shutdown()


@contextlib.contextmanager
def _environment(told: Mapping[str, str]) -> Iterator[None]:
    """These variables for what is started meanwhile."""
    before = {name: os.environ.get(name) for name in told}
    os.environ.update(told)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _heard(post: Any) -> Any:
    """A post for Ray's workers, which start with Ctrl-C blocked: programs would inherit that, and judge otherwise."""

    class Worker(post):  # type: ignore[misc]
        """One node's post."""

        @override
        def test(self) -> Ready:
            signal.pthread_sigmask(signal.SIG_SETMASK, ())
            return super().test()  # type: ignore[no-any-return]

        @override
        def judge(self, programs: Sequence[Program]) -> list[Judged] | str:
            signal.pthread_sigmask(signal.SIG_SETMASK, ())
            return super().judge(programs)  # type: ignore[no-any-return]

        def up(self) -> bool:
            """Whether it stands."""
            return True

    return Worker


class _Got(NamedTuple):
    """What a call of a worker came to."""

    found: Any = None
    why: str | None = None
    gone: bool = False


class Nodes:
    """The nodes of a cluster that Ray is connected to, each with a worker of one suite at a time; a `Crew`."""

    def __init__(self, ray: Any, workers: int | None = None, post: type[Post] = Post) -> None:
        self._ray, self._workers = ray, workers
        self._worker = ray.remote(_heard(post))
        self._posts: dict[str, Any] = {}
        self._flying: dict[Any, str] = {}

    def muster(self, brief: Brief) -> dict[str, Ready]:
        """A worker on every node that has cores; what each says of itself."""
        ray, sent, cores = self._ray, self._ray.put(brief), {}
        placed = importlib.import_module("ray.util.scheduling_strategies")
        nodes = [node for node in ray.nodes() if node["Alive"] and node["Resources"].get("CPU")]
        for number, node in enumerate(nodes, start=1):
            label = f"machine {number}"
            cores[label] = int(node["Resources"]["CPU"])
            there = placed.NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
            made = self._worker.options(
                num_cpus=cores[label], max_concurrency=2, max_restarts=0, scheduling_strategy=there
            )
            self._posts[label] = made.remote(
                sent, min(cores[label], self._workers or cores[label]), label
            )
        up = {post.up.remote(): label for label, post in self._posts.items()}
        begun, late = ray.wait(list(up), num_returns=len(up), timeout=WORKER_S) if up else ([], [])
        said = {}
        for ref in late:
            ray.kill(self._posts.pop(up[ref]))
            said[up[ref]] = Ready(refused=f"no worker within {WORKER_S:g} s: are its cores taken?")
        told = {up[ref]: self._posts[up[ref]].test.remote() for ref in begun}
        for label, ref in told.items():
            got = self._got(ref)
            said[label] = got.found if got.why is None else Ready(refused=got.why)
        return {label: said[label] for label in cores}

    def _got(self, ref: Any) -> _Got:
        """What a worker returned, or why it did not; in our words, as Ray's name hosts and folders."""
        wrong = self._ray.exceptions
        while not self._ray.wait([ref], timeout=LOOK_S)[0]:
            interruption.check()
        try:
            return _Got(self._ray.get(ref))
        except wrong.RayActorError as ended:
            return _Got(why=f"its worker ended ({type(ended).__name__})", gone=True)
        except wrong.RayTaskError as failed:
            return _Got(why=f"its worker failed ({type(failed.cause).__name__})")
        except wrong.RayError as failed:
            return _Got(why=f"its worker's answer was lost ({type(failed).__name__})")

    def references(self, machine: str) -> dict[str, Reference]:
        """What the canonical solutions showed on one node; nothing where it is gone by now."""
        return self._got(self._posts[machine].references.remote()).found or {}

    def send(self, machine: str, shard: Shard) -> None:
        """Give a node's worker a shard."""
        self._flying[self._posts[machine].judge.remote(list(shard.programs))] = machine

    def wait(self) -> Came:
        """What came next."""
        ready: list[Any] = []
        while not ready:
            interruption.check()
            ready, _ = self._ray.wait(list(self._flying), num_returns=1, timeout=LOOK_S)
        machine, got = self._flying.pop(ready[0]), self._got(ready[0])
        if isinstance(got.found, str):
            return Came(machine, failed=got.found)
        return Came(machine, got.found or (), got.why, got.gone)

    def dismiss(self) -> None:
        """End all workers; what they run is ended with them."""
        closing = [post.close.remote() for post in self._posts.values()]
        try:
            if closing:
                self._ray.wait(closing, num_returns=len(closing), timeout=CLOSE_S)
        finally:
            for post in self._posts.values():
                self._ray.kill(post)
            self._posts.clear()
            self._flying.clear()
