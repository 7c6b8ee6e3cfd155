"""Starting and stopping real processes: readiness is ours or nothing, and nothing is left behind."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from battery.bench import launch
from battery.bench.backends import known_backends, load_backend
from battery.bench.launch import Server
from battery.ledger.arm import Arm
from battery.ledger.errors import ArmError, Busy, LaunchError

Make = Callable[..., Arm]


def server(arm: Arm, port: int | None = None, launch_s: float = 10, stop_s: float = 3) -> Server:
    return Server(arm, load_backend(arm.backend), port, launch_s, stop_s)


def gone(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def test_a_server_is_ready_is_ours_and_leaves_nothing(fake_arm: Make) -> None:
    with server(fake_arm("A")) as running:
        assert running.ready["pid"] == running.pid and running.ready["model"]["name"] == "tiny"
        pid, port = running.pid, running.port
    assert gone(pid) and not launch.port_taken(port)


def test_a_server_that_dies_at_start_shows_its_last_lines(fake_arm: Make) -> None:
    with pytest.raises(
        LaunchError, match=r"arm A: the server exited with 3 while starting"
    ) as raised:
        server(fake_arm("A", "--fault", "die-at-start")).__enter__()
    assert len(str(raised.value).splitlines()) > 1


def test_a_server_that_never_gets_ready_is_given_up_and_stopped(fake_arm: Make) -> None:
    slow = server(fake_arm("A", "--fault", "never-ready"), launch_s=0.7)
    with pytest.raises(LaunchError, match=r"not ready after 1 s .*503"):
        slow.__enter__()
    assert gone(slow.pid)


def test_health_of_another_process_is_a_refusal(fake_arm: Make) -> None:
    with pytest.raises(LaunchError, match="answered by process 1, not by the one that was started"):
        server(fake_arm("A", "--fault", "wrong-pid")).__enter__()


def test_another_model_is_a_refusal(fake_arm: Make) -> None:
    with pytest.raises(LaunchError, match="holds model 'other', the arm asks for 'tiny'"):
        server(fake_arm("A", "--fault", "wrong-model-name:other")).__enter__()


def test_a_port_in_use_is_left_alone(fake_arm: Make) -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]
        with pytest.raises(Busy, match=f"port {port} is in use"):
            server(fake_arm("A"), port=port).__enter__()
        assert holder.fileno() >= 0 and launch.port_taken(port)


@pytest.mark.parametrize("fault", ["ignores-sigterm", "forks-worker"])
def test_a_stubborn_server_is_gone_all_the_same(fake_arm: Make, fault: str) -> None:
    with server(fake_arm("A", "--fault", fault), stop_s=1) as running:
        members = running.members()
        port = running.port
    assert all(gone(pid) for pid in members) and not launch.port_taken(port)


def test_a_program_that_does_not_exist_is_named() -> None:
    arm = Arm(name="X", backend="command", model="m", command=["/no/such/engine", "{port}"])
    with pytest.raises(LaunchError, match="cannot start /no/such/engine"):
        server(arm).__enter__()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_parent_that_dies_leaves_no_server(tmp_path: Path, number: signal.Signals) -> None:
    script = tmp_path / "parent.py"
    engine = Path(__file__).parents[1] / "fake_engine.py"
    script.write_text(
        "import sys, time\n"
        "from battery.bench.backends import load_backend\n"
        "from battery.bench.launch import Server\n"
        "from battery.ledger.arm import Arm\n"
        f"arm = Arm(name='A', backend='command', model='tiny', command=[sys.executable, {str(engine)!r},"
        " '--port', '{port}', '--model', 'tiny'])\n"
        "s = Server(arm, load_backend('command'), None, 10, 3)\n"
        "s.start()\n"
        "print(s.pid, flush=True)\n"
        "time.sleep(60)\n"
    )
    with subprocess.Popen(
        [sys.executable, str(script)], stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        os.kill(parent.pid, number)
        parent.wait(10)
    deadline = time.monotonic() + 5
    while not gone(pid) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert gone(pid)


def test_backends_are_found_by_file_name() -> None:
    assert known_backends() == ["command", "switchboard"]
    with pytest.raises(ArmError, match="no backend 'swichboard'; did you mean 'switchboard'"):
        load_backend("swichboard")


def test_the_command_line_of_switchboard_carries_switches_and_flags() -> None:
    arm = Arm(
        name="C",
        backend="switchboard",
        model="smollm2-135m",
        switches={"fused_qkv": True, "prompt_lookup": {"ngram": 3, "draft": 5}, "off_one": False},
        flags={"threads": 2},
    )
    line = load_backend("switchboard").command(arm, "127.0.0.1", 81)
    assert line[1:] == [
        "-m", "switchboard", "serve", "--model", "smollm2-135m", "--host", "127.0.0.1", "--port", "81",
        "--switch", "fused_qkv", "--switch", "prompt_lookup:draft=5,ngram=3", "--threads", "2",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("arm", "words"),
    [
        (Arm(name="X", backend="command", model="m"), "needs command"),
        (
            Arm(name="X", backend="command", model="m", command=["engine"]),
            "no word of its command holds {port}",
        ),
        (
            Arm(name="X", backend="switchboard", model="m", command=["engine"]),
            "belongs to the backend 'command'",
        ),
    ],
)
def test_a_command_that_cannot_be_is_an_arm_error(arm: Arm, words: str) -> None:
    with pytest.raises(ArmError, match=words):
        load_backend(arm.backend).command(arm, "127.0.0.1", 1)
