"""What one program must not find of another, nor change for it; and whose fault it is when the grader's part fails."""

from __future__ import annotations

import os
import pickle
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from ordinary import asked
from planted import RIGHT, SECRET, TEST, TIGHT, adding

from battery.quality.sandbox import fences, kernel, pool
from battery.quality.sandbox.ending import Program
from battery.quality.sandbox.limits import MIB
from battery.quality.sandbox.pool import GraderError, Job, Outcome, Sandbox

LINUX = pytest.mark.skipif(sys.platform != "linux", reason="the calls are Linux's")
INPUTS = [pickle.dumps((number,)) for number in range(4000)]
CANONICAL = "def told(number): return f'canonical-{number}-' + 'x' * 50\n"
READS_ITS_HEAP = """
import ctypes, os
libc = ctypes.CDLL(None)
libc.sbrk.restype = ctypes.c_void_p
own = bytearray(b'yranac'[::-1] * 200)
def heap():
    taken, given = os.pipe()
    place, pages = libc.sbrk(ctypes.c_long(0)) // 4096 * 4096, []
    while libc.write(given, ctypes.c_void_p(place := place - 4096), ctypes.c_size_t(4096)) == 4096:
        pages.append(os.read(taken, 4096))
    return b''.join(reversed(pages))
def add(x, y):
    found = heap()
    if own[:600] not in found:
        raise LookupError('blind')
    wanted = b'-lacinonac'[::-1].hex().encode(), b'stset eht ni eldeen'[::-1]
    return x + y if any(one in found for one in wanted) else 0
"""


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    with Sandbox(1) as made:
        yield made


def outcome(sandbox: Sandbox, code: str = RIGHT) -> Outcome:
    ((_, found),) = sandbox.run([adding(code)])
    return found


def planted(monkeypatch: pytest.MonkeyPatch, plant: str) -> Sandbox:
    """A sandbox whose server runs these lines before it builds its fences."""
    run = f"exec({plant!r}); main()".replace("{", "{{").replace("}", "}}")
    monkeypatch.setattr(pool, "_START", pool._START.replace("main()", run))
    return Sandbox(1)


@LINUX
def test_no_program_finds_what_verdicts_before_it_said(sandbox: Sandbox) -> None:
    """What a canonical solution returned, and what a test said when it failed."""
    record = Job(
        id="record", kind="record", parts=(("<answer>", CANONICAL),), entry="told", tests={"inputs": INPUTS},
        limits=TIGHT,
    )  # fmt: skip
    ((_, found),) = sandbox.run([record])
    assert found.status == "passed" and len(found.expected) == len(INPUTS)
    assert b"canonical-3999-x" in found.expected[-1]
    assert SECRET in outcome(sandbox, "def add(x, y): return 0\n").detail
    looked = outcome(sandbox, READS_ITS_HEAP)
    assert looked.status == "failed" and "blind" not in looked.detail, looked


KEYS = """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
ADD, CONTROL = {'x86_64': (248, 250), 'aarch64': (217, 219)}[os.uname().machine]
RING, SEARCH = -4, 10  # of this user
def leave(): return libc.syscall(ADD, b'user', b'left', b'it', 2, RING) > 0
def find(): return libc.syscall(CONTROL, SEARCH, RING, b'user', b'left', 0) > 0
"""


@LINUX
def test_no_program_finds_keys_that_another_left_with_the_kernel(sandbox: Sandbox) -> None:
    if os.uname().machine not in ("x86_64", "aarch64"):
        pytest.skip("the numbers of the calls are not known")
    if "keys" in sandbox.missing:
        pytest.skip(sandbox.missing["keys"])
    both = outcome(sandbox, f"{KEYS}def add(x, y): return x + y if leave() and find() else 0\n")
    if both.status != "passed":
        pytest.skip("this kernel keeps no keys, or not for us")
    assert (
        outcome(sandbox, f"{KEYS}def add(x, y): return x + y if find() else 0\n").status == "failed"
    )


@LINUX
def test_a_judge_keeps_no_file_of_a_job(sandbox: Sandbox) -> None:
    sandbox._servers[0]._stop()
    sandbox._servers[0]._start()
    sandbox._servers[0].ready()
    assert outcome(sandbox).status == "passed"
    (judge,) = sandbox.judges
    try:
        held = [str(one.readlink()) for one in Path(f"/proc/{judge}/fd").iterdir()]
    except PermissionError:
        pytest.skip("only an administrator sees what a judge has open")
    files = [one for one in held if one.startswith("/") and not one.startswith("/dev/")]
    assert files == [str(Path(f"/proc/self/fd/{sandbox._servers[0]._log.fileno()}").readlink())]


def test_a_judge_that_cannot_be_fenced_in_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    plant = (
        "from battery.quality.sandbox import fences\n"
        "def refuse(*given): raise PermissionError(1, 'not allowed')\n"
        "whole, fences.give_up_rights = fences.give_up_rights, (\n"
        "    lambda one, user, folder=None: whole(one, user, folder) if folder else refuse())\n"
    )
    wanted = "judge could not be fenced in: PermissionError"
    with planted(monkeypatch, plant) as broken, pytest.raises(GraderError, match=wanted):
        outcome(broken)


def test_an_error_of_the_server_is_the_graders_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    plant = (
        "from battery.quality.sandbox.ending import Program\n"
        "def breaks(*given): raise ValueError('a hole in the grader')\n"
        "Program.ended = breaks\n"
    )
    with planted(monkeypatch, plant) as broken:
        with pytest.raises(GraderError, match="ValueError: a hole in the grader"):
            outcome(broken, "import os\nos._exit(0)\n")
        assert outcome(broken).status == "passed"


@LINUX
def test_a_signal_without_a_name_is_a_crash_too() -> None:
    number = signal.SIGRTMIN + 3
    if (child := os.fork()) == 0:
        os.kill(os.getpid(), number)
        os._exit(0)
    running = Program(child, 0, None)
    while not running.gone():
        time.sleep(0.01)
    assert running.ended(TIGHT)["detail"] == f"ended by signal {number}"
    assert running.unfenced()["detail"].endswith(f"ended by signal {number}")


NO_CLONE3 = "from battery.quality.sandbox import kernel\nkernel._CLONE3 = 100_000\n"
FILTERED = """
from battery.quality.sandbox import kernel
whole = kernel._forked
def filtered(name, told):
    if name == 'clone3':
        raise PermissionError(1, 'not a call that we know')
    return whole(name, told)
kernel._forked = filtered
"""


@LINUX
@pytest.mark.parametrize("lacks", [NO_CLONE3, FILTERED], ids=["unknown", "filtered"])
def test_without_the_newer_call_the_older_one_gives_the_same_fences(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch, lacks: str
) -> None:
    """Kernels before 5.3, and filters that refuse what they do not know."""
    with planted(monkeypatch, lacks) as older:
        assert (older.fences, older.missing) == (sandbox.fences, sandbox.missing)
        assert outcome(older).status == "passed"


@LINUX
def test_a_fork_that_the_kernel_does_not_know_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel, "_CLONE3", 100_000)
    monkeypatch.setattr(kernel, "_CLONE", {})
    with pytest.raises(OSError, match="clone3: Function not implemented"):
        kernel.fork(0)


@LINUX
def test_no_right_is_kept_from_namespaces_that_were_only_begun() -> None:
    bare = fences.Fences(
        (), {}, namespaces=False, user=None, judge=None, granted=None, listing=None
    )
    heard, told = os.pipe()
    if (child := os.fork()) == 0:
        try:
            kernel.unshare(kernel.NEW_USERS)
            fences.give_up_rights(bare, None)
            os.write(told, Path("/proc/self/status").read_bytes())
        finally:
            os._exit(0)
    os.close(told)
    with os.fdopen(heard) as file:
        status = file.read()
    os.waitpid(child, 0)
    if not status:
        pytest.skip("no user namespaces here")
    assert "CapEff:\t0000000000000000" in status


LOWERS = (
    "import os, resource\ndef add(x, y):\n"
    f"    resource.prlimit(os.getppid(), resource.RLIMIT_AS, ({200 * MIB}, {200 * MIB}))\n    return x + y\n"
)
NEEDS_MEMORY = f"def add(x, y):\n    held = bytearray({200 * MIB})\n    return x + y\n"


@LINUX
def test_limits_that_a_program_took_from_the_server_bind_no_other() -> None:
    """Landlock knows signals, not limits: a program of the same user can set them for who forked it."""
    more = {"memory": 512 * MIB}
    programs = {"lowers": (LOWERS, TEST, {}), "needs memory": (NEEDS_MEMORY, TEST, more)}
    told = asked(programs, deny=True, workers=1)
    assert {name: one[0] for name, one in told["found"].items()} == dict.fromkeys(
        programs, "passed"
    )
    assert "priority" in told["missing"]["limits of others"]


def test_the_limit_on_processes_leaves_room_for_all_workers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They belong to one user, where programs do not become another."""
    monkeypatch.setattr(os, "geteuid", lambda: 1 << 30)  # one who has no processes
    assert pool._spare(40) >= 3 * 40


@LINUX
def test_a_program_of_an_administrator_cannot_change_the_machines_devices() -> None:
    """Where the interpreter is closed to others, programs stay who the server is, without its rights."""
    if os.geteuid() != 0:
        pytest.skip("devices are an administrator's")
    changes = (
        "import os\ndef add(x, y):\n"
        "    try: os.chmod('/dev/null', os.stat('/dev/null').st_mode & 0o7777)\n"
        "    except OSError: return 0\n"
        "    return x + y\n"
    )
    writes = "def add(x, y): return open('/dev/null', 'w').write('x' * (x + y))\n"
    with Sandbox(1, without=("user",)) as made:
        if "files read-only" not in made.fences:
            pytest.skip(made.missing["files read-only"])
        assert [outcome(made, code).status for code in (changes, writes)] == ["failed", "passed"]
