"""What servers do to processes, ports and logs: nothing of ours is left, nothing of others is touched.

The numbers are those of the field's public defects: 47 workers that outlive a killed parent, 48 a stale server that
answers, 49 unrelated servers killed, 52 endless waits, 55 secrets in logs.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from stopped import until

from battery.bench import launch, leash
from battery.bench.backends import load_backend
from battery.bench.launch import Server
from battery.ledger.arm import Arm
from battery.ledger.errors import Busy, LaunchError

Make = Callable[..., Arm]
ENGINE = Path(__file__).parents[1] / "fake_engine.py"


def server(arm: Arm, port: int | None = None, **limits: float) -> Server:
    kept = {"launch_s": 10.0, "stop_s": 3.0, **limits}
    cap = int(kept.pop("log_cap", leash.LOG_CAP))
    return Server(arm, load_backend(arm.backend), port, log_cap=cap, **kept)  # type: ignore[arg-type]


def gone(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def worker(running: Server) -> int:
    """The process id that the server's worker printed."""
    assert until(lambda: "is away" in running.log_tail())
    found = re.search(r"worker (\d+) is away", running.log_tail())
    assert found
    return int(found[1])


@pytest.fixture
def stale() -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """Someone else's server, of the very same program, ready on a port."""
    port = launch.free_port()
    line = [sys.executable, str(ENGINE), "--port", str(port), "--model", "tiny"]
    with subprocess.Popen(line, stderr=subprocess.DEVNULL, start_new_session=True) as other:
        assert until(lambda: launch.port_taken(port))
        yield other, port
        other.kill()


@pytest.mark.parametrize("fault", ["worker-away", "worker-orphan", "keeps-port:30", "zombie"])
def test_whatever_a_server_forked_is_gone_and_the_port_is_free(fake_arm: Make, fault: str) -> None:
    with server(fake_arm("A", "--fault", fault), stop_s=2) as running:
        pids = {running.pid}
        if fault.startswith("worker"):
            away = worker(running)
            assert os.getsid(away) != os.getsid(running.pid)
            pids.add(away)
        assert pids <= running.members()
        pids |= running.members()
    assert len(pids) > 1 or fault == "zombie"
    assert all(gone(pid) for pid in pids) and not launch.port_taken(running.port)


@pytest.mark.parametrize("fault", ["worker-away", "worker-orphan", "keeps-port:30"])
def test_a_worker_does_not_outlive_a_server_that_died_by_itself(fake_arm: Make, fault: str) -> None:
    with server(fake_arm("A", "--fault", fault), stop_s=2) as running:
        pids = running.members() | ({worker(running)} if fault.startswith("worker") else set())
        os.kill(running.pid, signal.SIGKILL)
        assert until(lambda: running.exit_status is not None)
    assert all(gone(pid) for pid in pids) and not launch.port_taken(running.port)


@pytest.mark.parametrize("found", [leash.marked, leash.marked_by_ps])
def test_the_mark_finds_ours_and_nothing_else(found: Callable[[str], set[int]]) -> None:
    env = {**os.environ, leash.MARK: "0123abc"}
    line = [sys.executable, "-c", "import time; print(flush=True); time.sleep(60)"]
    with (
        subprocess.Popen(line, env=env, stdout=subprocess.PIPE) as ours,
        subprocess.Popen(
            line, env={**env, leash.MARK: "0123abcd"}, stdout=subprocess.PIPE
        ) as other,
    ):
        for one in (ours, other):
            assert one.stdout is not None and one.stdout.readline()
        assert found("0123abc") == {ours.pid} and found("0123abcd") == {other.pid}
        for one in (ours, other):
            one.kill()


PARENT = """
import os, pathlib, signal, subprocess, sys, time
from battery.bench.backends import load_backend
from battery.bench.launch import Server
from battery.ledger.arm import Arm
line = [sys.executable, sys.argv[2], "--port", "{port}", "--model", "tiny", *sys.argv[3:]]
one = Server(Arm(name="A", backend="command", model="tiny", command=line), load_backend("command"), None, 10, 3)
print(one._mark, flush=True)
if sys.argv[1] == "fork":  # die between fork and exec of the server, or just behind: as early as Popen comes back
    real = subprocess.Popen
    def die(*words, **options):
        made = real(*words, **options)
        if words[0] == one.command:
            os.kill(os.getpid(), signal.SIGKILL)
        return made
    subprocess.Popen = die
one.start()
print("ready", flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize(
    ("moment", "fault"),
    [("fork", "forks-worker"), ("fork", "worker-orphan"), ("ready", "worker-orphan"), ("ready", "keeps-port:30"),
     ("random", "forks-worker"), ("random", "ignores-sigterm")],
)  # fmt: skip
def test_47_a_killed_parent_leaves_no_server_no_worker_no_leash(
    tmp_path: Path, moment: str, fault: str
) -> None:
    script = tmp_path / "parent.py"
    script.write_text(PARENT)
    line = [sys.executable, str(script), moment, str(ENGINE), "--fault", fault]
    with subprocess.Popen(line, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        mark = parent.stdout.readline().strip()
        if moment == "random":
            time.sleep(int.from_bytes(os.urandom(2), "big") / 65535 * 0.3)
        if moment == "ready":
            assert parent.stdout.readline() == "ready\n" and leash.marked(mark)
        if moment != "fork":
            parent.kill()
        parent.wait(10)
    assert until(lambda: not leash.marked(mark) and not leashes(mark)), leash.marked(mark)
    time.sleep(0.1)
    assert not leash.marked(mark), "one was on its way"


def leashes(mark: str) -> list[int]:
    """Process ids of the leashes that hold the mark."""
    found = []
    for one in psutil.process_iter(["pid", "cmdline"]):
        words = one.info["cmdline"] or []
        if mark in words and any(word.endswith("leash.py") for word in words):
            found.append(one.info["pid"])
    return found


def test_a_leash_that_died_or_hangs_holds_nobody_up(fake_arm: Make) -> None:
    for number in (signal.SIGKILL, signal.SIGSTOP):
        running = server(fake_arm("A"))
        running.start()
        (held,) = leashes(running._mark)
        os.kill(held, number)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(leash, "WAIT_S", 0.3)
            running.stop()
        assert gone(running.pid) and gone(held)


def test_a_server_that_cannot_be_killed_is_an_error_that_names_it(fake_arm: Make) -> None:
    freezer = Path("/sys/fs/cgroup/freezer") / f"battery-test-{os.getpid()}"
    try:
        freezer.mkdir()
    except OSError as refused:
        pytest.skip(f"no freezer to make a process that SIGKILL does not end: {refused}")
    running = server(fake_arm("A"), stop_s=0.3)
    try:
        running.start()
        (freezer / "cgroup.procs").write_text(str(running.pid))
        (freezer / "freezer.state").write_text("FROZEN")
        with (
            pytest.MonkeyPatch.context() as patch,
            pytest.raises(LaunchError, match=rf"process {running.pid} still lives; stop what is"),
        ):
            patch.setattr(leash, "WAIT_S", 0.3)
            running.stop()
    finally:
        (freezer / "freezer.state").write_text("THAWED")
        assert until(lambda: gone(running.pid))
        assert running._process is not None
        running._process.wait(5)
        assert until(lambda: not (freezer / "cgroup.procs").read_text())
        freezer.rmdir()


def test_48_49_a_stale_server_is_refused_and_lives_on(
    fake_arm: Make, stale: tuple[subprocess.Popen[bytes], int]
) -> None:
    other, port = stale
    with pytest.raises(Busy, match=f"port {port} is in use by another process, which is left"):
        server(fake_arm("A"), port=port).__enter__()
    # the other one came between our look and our server's bind
    with pytest.MonkeyPatch.context() as patch, pytest.raises(LaunchError) as raised:
        patch.setattr(launch, "port_taken", lambda _: False)
        server(fake_arm("A"), port=port).__enter__()
    assert "exited with 5 while starting" in str(raised.value) or (
        f"answered by process {other.pid}, not by the one that was started" in str(raised.value)
    )
    with server(fake_arm("A")) as running:  # the same command line but for the port
        assert running.ready["pid"] != other.pid
    assert other.poll() is None and launch.port_taken(port)


def test_52_a_server_on_another_port_is_told(fake_arm: Make) -> None:
    with pytest.raises(LaunchError, match=r"it listens on \d+ and was given"):
        server(fake_arm("A", "--fault", "other-port"), launch_s=0.7).__enter__()


@pytest.mark.parametrize("fault", ["mute-health", "trickle-health"])
def test_52_health_that_never_comes_to_an_end_is_given_up(fake_arm: Make, fault: str) -> None:
    one = server(fake_arm("A", "--fault", fault), launch_s=0.5)
    with (
        pytest.MonkeyPatch.context() as patch,
        pytest.raises(LaunchError, match=r"not ready after 0 s .*no whole answer in 0\.2 s"),
    ):
        patch.setattr(launch, "HEALTH_S", 0.2)
        one.__enter__()
    assert gone(one.pid)


def test_a_server_that_reads_its_standard_input_finds_it_empty(fake_arm: Make) -> None:
    with server(fake_arm("A", "--fault", "reads-stdin")) as running:
        assert running.ready["status"] == "ok"


def test_55_a_log_comes_without_secrets_and_terminal_codes(fake_arm: Make) -> None:
    with server(fake_arm("A", "--fault", "dirty-log")) as running:
        tail = running.log_tail()
    assert "red" in tail and "\ufffd" in tail
    assert "\x1b" not in tail and "\x07" not in tail and "title" not in tail
    assert "hunter2" not in tail and "sk-abc" not in tail and tail.count("<redacted>") == 2


def test_a_log_that_is_flooded_stays_small_and_keeps_its_end(fake_arm: Make) -> None:
    with server(fake_arm("A", "--fault", "floods-log:96"), log_cap=4 << 20) as running:
        assert until(lambda: "said it all" in running.log_tail(), 30)
        assert running.log_size() > 95 << 20
        mark = running.log_size()
        held = running._log.fileno()
        assert until(lambda: os.fstat(held).st_blocks * 512 < 4 << 20)
        tail = running.log_tail()
        assert tail.endswith("said it all") and "chatter chatter" in tail and "\0" not in tail
        assert running.log_tail(since=mark) == ""


def test_trimming_keeps_places_and_what_comes_next(tmp_path: Path) -> None:
    with (tmp_path / "log").open("w+b") as log:
        log.write(b"x" * (3 << 20) + b"the end")
        log.flush()
        os.fsync(log.fileno())  # blocks are counted once they are given out
        size = os.fstat(log.fileno()).st_size
        leash.trim(log.fileno(), 8 << 20)
        assert os.fstat(log.fileno()).st_blocks * 512 >= 3 << 20, "it was below its cap"
        leash.trim(log.fileno(), 1 << 20)
        assert os.fstat(log.fileno()).st_blocks * 512 <= 2 * leash.KEEP
        log.write(b" and more")
        log.flush()
        assert os.pread(log.fileno(), 100, size - 7) == b"the end and more"


def test_a_server_leaves_no_descriptor_and_no_temporary_file(fake_arm: Make) -> None:
    def held() -> tuple[int, set[str]]:
        temporary = {p.name for p in Path(launch.tempfile.gettempdir()).glob("battery-server-*")}
        return psutil.Process().num_fds(), temporary

    with server(fake_arm("A")):
        pass
    before = held()
    for fault in ("ignores-sigterm", "die-at-start"):
        with contextlib.suppress(LaunchError), server(fake_arm("A", "--fault", fault), stop_s=0.3):
            pass
    with contextlib.suppress(LaunchError):
        server(Arm(name="X", backend="command", model="m", command=["/no", "{port}"])).__enter__()
    now = held()
    assert now[0] <= before[0] and now[1] == before[1]
