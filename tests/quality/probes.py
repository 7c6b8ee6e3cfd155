"""Programs that look whether one fence is there, each with a way to take just that fence away.

Each adds two numbers, and is right only where it gets through: with the fence it must not pass, without it it must.
None of them does harm where it gets through: it connects to a port that the test holds, reads or writes a file that
the test made, opens without writing, sends the signal that is none, and stops counting early.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from planted import TIGHT

from battery.quality.sandbox.limits import Limits


class Ground(NamedTuple):
    """What the test holds ready for a probe that gets through."""

    port: int
    """Where somebody listens, TCP and UDP."""
    readable: Path
    """A file for all to read."""
    writable: Path
    """A folder for all to write into."""
    room: Path
    """A folder for programs to run in that are not kept from this machine's files."""


@contextlib.contextmanager
def ground(folder: Path) -> Iterator[Ground]:
    """Make it in `folder`, which all must be able to reach."""
    readable, writable, room = (folder / name for name in ("A.humaneval.jsonl", "shared", "room"))
    readable.write_text("{}")
    readable.chmod(0o644)
    for place in (writable, room):
        place.mkdir()
        place.chmod(0o777)
    with (
        socket.create_server(("127.0.0.1", 0)) as listening,
        socket.socket(type=socket.SOCK_DGRAM) as hearing,
    ):
        port = listening.getsockname()[1]
        hearing.bind(("127.0.0.1", port))
        yield Ground(port, readable, writable, room)


class Probe(NamedTuple):
    """A program, the status that it has behind its fence, and the lines that take the fence away in a server."""

    code: str
    plant: str
    status: str = "failed"
    limits: Limits = TIGHT

    def on(self, place: Ground) -> Probe:
        """The same with the test's port and files in it."""
        code, plant = self.code, self.plant
        for name, value in place._asdict().items():
            told = repr(value if isinstance(value, int) else str(value))
            code, plant = code.replace(name.upper(), told), plant.replace(name.upper(), told)
        return self._replace(code=code, plant=plant)


def tried(*lines: str) -> str:
    """A program that is right if the lines raise nothing that a fence raises."""
    inside = "\n".join(f"        {line}" for line in lines)
    return f"""
import os, resource, socket, time
def add(x, y):
    try:
{inside}
    except OSError:
        return 0
    return x + y
"""


def no_limit(name: str) -> str:
    """Lines that forget one of the kernel's limits."""
    return f"""
from battery.quality.sandbox import limits
told = limits._bounds
limits._bounds = lambda *given: {{name: bound for name, bound in told(*given).items() if name != {name!r}}}
"""


PRIVATE = "kernel.mount(None, '/', None, kernel.PRIVATE | kernel.RECURSIVE)"
ALL_FILES = f"""
from battery.quality.sandbox import fences, kernel, view
view.narrow = lambda root: {PRIVATE}
fences.WORK = ROOM
"""
ONE_PROCESS_SPACE = "from battery.quality.sandbox import fences, kernel\nkernel.NEW_PIDS = 0\n"
ONE_USER = "fences._strangers = lambda *given: (None, None)\n"
BUSY = tried("while time.process_time() < 0.6: pass")

PROBES = {
    "connects": Probe(
        tried("socket.create_connection(('127.0.0.1', PORT), 2).close()"),
        "from battery.quality.sandbox import kernel\nkernel.NEW_NET = 0\n",
    ),
    "sends a datagram": Probe(
        tried("socket.socket(type=socket.SOCK_DGRAM).sendto(b'x', ('127.0.0.1', PORT))"),
        "from battery.quality.sandbox import kernel\nkernel.NEW_NET = 0\n",
    ),
    "reads the answers' file": Probe(tried("open(READABLE).read()"), ALL_FILES),
    "writes outside its folder": Probe(
        tried("open(WRITABLE + '/planted', 'w').close()"), ALL_FILES
    ),
    "sees the processes of others": Probe(tried("os.listdir('/proc/1')"), ALL_FILES),
    "reads the memory of its parent": Probe(
        tried("open(f'/proc/{os.getppid()}/maps').read(1)"),
        ALL_FILES
        + ONE_PROCESS_SPACE
        + ONE_USER
        + "kernel.hide_memory = lambda: kernel.call('prctl', 4, 1, 0, 0, 0)\n"
        + "kernel.drop_capabilities = lambda: None\n",
    ),
    "could end its parent": Probe(
        # the one process that it can name behind the fence is itself
        tried("os.kill(os.getppid() or -1 << 20, 0)"),
        ONE_PROCESS_SPACE + ONE_USER,
    ),
    "could change the interpreter": Probe(
        tried("open(os.__file__, 'r+b').close()"),
        "from battery.quality.sandbox import fences, kernel\n"
        "kernel.bind_read_only = lambda place, target: kernel.mount(place, target, None, kernel.BIND)\n"
        "fences._strangers = lambda *given: (None, None)\n",
    ),
    "finds the tests in a descriptor": Probe(
        "import os\n"
        "def add(x, y):\n"
        "    for number in range(3, 64):\n"
        "        try:\n"
        "            if b'needle' in os.pread(number, 1 << 16, 0): return x + y\n"
        "        except OSError: pass\n"
        "    return 0\n",
        "import os, socket\nos.closerange = lambda low, high: None\ntakes = socket.recv_fds\n"
        "def recv_fds(*given):\n"
        "    line, files, *more = takes(*given)\n"
        "    return line, [os.dup2(files[0], 40)] if len(files) == 1 else files, *more\n"
        "socket.recv_fds = recv_fds\n",
    ),
    "finds what another left": Probe(
        "import os\ndef add(x, y):\n    return x + y if 'left' in os.listdir('.') else 0\n",
        """
import contextlib
from battery.quality.sandbox import fences
whole, kept = fences.folder, []
@contextlib.contextmanager
def folder(place, fenced):
    if not kept:
        kept.append(whole(place, fenced))
        kept[0].__enter__()
        with open(fences.WORK + '/left', 'w'): pass
    yield fences.WORK
fences.folder = folder
""",
    ),
    "much memory": Probe(
        "def add(x, y):\n    held = [bytearray(1 << 26) for _ in range(4)]\n    return x + y\n",
        no_limit("RLIMIT_AS"),
        "memory",
    ),
    "much memory in many processes": Probe(
        tried(
            "for _ in range(4):",
            "    if os.fork() == 0:",
            "        held = b'x' * (150 << 20)",
            "        time.sleep(20)",
            "        os._exit(0)",
            "time.sleep(1.5)",
        ),
        "from battery.quality.sandbox import crowd\ncrowd.TOGETHER = 1 << 20\n",
        "memory",
    ),
    "a long file": Probe(
        tried("open('long', 'wb').write(bytes(20 << 20))"), no_limit("RLIMIT_FSIZE")
    ),
    "many files": Probe(
        tried("for n in range(4): open(str(n), 'wb').write(bytes(12 << 20))"),
        "from battery.quality.sandbox import fences\nfences.MEMORY_DISK = 1 << 30\n",
    ),
    "many descriptors": Probe(
        tried("held = [os.open(os.devnull, os.O_RDONLY) for _ in range(100)]"),
        no_limit("RLIMIT_NOFILE"),
    ),
    "many processes": Probe(
        tried(
            "for _ in range(60):",
            "    if os.fork() == 0:",
            "        time.sleep(20)",
            "        os._exit(0)",
        ),
        no_limit("RLIMIT_NPROC"),
    ),
    "much processor time": Probe(
        BUSY,
        no_limit("RLIMIT_CPU")
        + "from battery.quality.sandbox.times import Allowance\n"
        + "Allowance.__init__.__kwdefaults__['count'] = lambda pid: None\n",
        "timeout",
        TIGHT._replace(cpu_s=0.2),
    ),
    "long sleep": Probe(
        tried("time.sleep(1.5)"),
        "from battery.quality.sandbox.times import Allowance\nAllowance.over = lambda self: ''\n",
        "timeout",
        TIGHT._replace(wall_s=0.6),
    ),
    "ends as if all were well": Probe(
        "import os\nos._exit(0)\n",
        "from battery.quality.sandbox.ending import Program\n"
        "Program.ended = lambda *given: {'status': 'passed'}\n",
    ),
}
"""By what they try; those of memory and files need no more than the limits of `TIGHT`."""
