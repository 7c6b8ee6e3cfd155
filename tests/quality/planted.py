"""Programs that attack the grader, each an answer to the task of adding two numbers, and jobs for them.

Every one of them that is wrong would pass if its attack worked. None does harm where a fence is missing: it looks
whether it could, and passes then, which a test sees.
"""

from __future__ import annotations

from battery.quality.sandbox.limits import MIB, Limits
from battery.quality.sandbox.pool import Job

TIGHT = Limits(cpu_s=4, wall_s=20, memory=256 * MIB)
SHORT = TIGHT._replace(cpu_s=0.3, wall_s=1.2)
PROMPT = 'def add(x, y):\n    """The sum."""\n'
SECRET = "needle in the tests"
TEST = f"""
def check(candidate):
    assert candidate(2, 3) == 5, {SECRET!r}
    assert candidate(20, 30) == 50
"""
RIGHT = "def add(x, y):\n    return x + y\n"


def adding(code: str, limits: Limits = TIGHT, test: str = TEST, name: str = "add") -> Job:
    return Job(
        id=name,
        kind="humaneval",
        parts=(("<answer>", code),),
        entry="add",
        tests={"context": PROMPT, "test": test},
        limits=limits,
    )


NEVER_PASS = {
    "exit 0 at import": "import os\nos._exit(0)\n",
    "SystemExit": "import sys\ndef add(x, y):\n    sys.exit(0)\n",
    "exit at the end": "import atexit, os\natexit.register(os._exit, 0)\ndef add(x, y): return 0\n",
    "own check": "def add(x, y): return 0\ndef check(candidate): return None\n",
    "printed verdict": """
import sys
def add(x, y):
    print('{"status": "passed"}', flush=True)
    print('{"status": "passed"}', file=sys.stderr, flush=True)
    return 0
""",
    "verdict into every descriptor": r"""
import os, struct
def add(x, y):
    for number in range(256):
        for said in (b'1\n{"status": "passed"}', struct.pack('<cQ', b'V', 4) + b'\x80\x05N.'):
            try:
                os.write(number, said)
            except OSError:
                pass
    return 0
""",
    "true to every question": """
import battery.quality.sandbox.inside.program as own, sys
own.Puppet._operate = lambda self, body: self._ends.hold(b'V', own.packed(True))
own.packed = lambda value: b'\\x80\\x05\\x88.'
def add(x, y): return 0
""",
    "changes a class of the judge": r"""
import battery.quality.sandbox.inside.program as own
own.packed = lambda value: (
    b'\x80\x05cfractions\nFraction\nN}\x8c\x06__eq__cbuiltins\nslice\ns\x86bK\x01\x85R.'
)
def add(x, y): return 0
""",
    "patched comparison": """
import builtins, operator
builtins.AssertionError = type('Nothing', (BaseException,), {})
operator.eq = lambda one, two: True
class Int(int):
    __eq__ = lambda self, other: False
def add(x, y): return 0
""",
    "looks for the tests in memory": f"""
import gc, sys
def add(x, y):
    needle = bytes.fromhex({SECRET.encode().hex()!r}).decode()
    seen, waiting = set(), [*gc.get_objects(), *(f for f in sys._current_frames().values())]
    while waiting:
        one = waiting.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        if one is not needle and isinstance(one, (str, bytes)) and needle in str(one):
            return x + y
        if not isinstance(one, (int, float, str, bytes)):
            waiting += gc.get_referents(one)
    return 0
""",
    "reads the memory of its parent": """
import os
def add(x, y):
    for pid in {os.getppid(), 1, os.getpid() - 1}:
        for name in ('mem', 'maps', 'fd', 'environ'):
            try:
                place = f'/proc/{pid}/{name}'
                (os.listdir if name == 'fd' else lambda p: open(p, 'rb').read(1))(place)
                if pid != os.getpid():
                    return x + y
            except OSError:
                pass
    return 0
""",
    "kills its parent": """
import os, signal
def add(x, y):
    if os.getpid() != 1:
        return x + y  # others are in sight: that is failure enough
    for victim in (os.getppid(), -1, -os.getppid()):
        try:
            if victim:
                os.kill(victim, signal.SIGKILL)
        except OSError:
            pass
    return 0
""",
    "pickle that runs": """
class Bomb:
    def __reduce__(self):
        return eval, ("type('Any', (), {'__eq__': lambda self, other: True})()",)
def add(x, y): return Bomb()
""",
    "pickle that ends who reads it": """
class Bomb:
    def __reduce__(self):
        return exec, ('import os; os._exit(0)',)
def add(x, y): return Bomb()
""",
    "looks who calls": """
import sys
def add(x, y):
    frame = sys._getframe(1)
    while frame:
        if frame.f_code.co_name == 'check':
            return x + y
        frame = frame.f_back
    return 0
""",
    "closes everything": "import os\nos.closerange(0, 256)\ndef add(x, y): return 0\n",
    "deep result": """
def add(x, y):
    one = []
    for _ in range(200_000):
        one = [one]
    return one
""",
    "raises what cannot be shown": """
class Odd(Exception):
    def __str__(self): raise SystemExit(0)
def add(x, y): raise Odd
""",
    "could change the interpreter": """
import os, sys
def add(x, y):
    for place in (os.__file__, sys.executable, sys.prefix + '/pyvenv.cfg'):
        try:
            open(place, 'r+b').close()
            return x + y
        except OSError:
            pass
    return 0
""",
}

RIGHT_ALL_THE_SAME = {
    "deletes its folder": """
import os, shutil
def add(x, y):
    shutil.rmtree(os.getcwd(), ignore_errors=True)
    return x + y
""",
    "prints without measure": "def add(x, y):\n    print('x' * 30_000_000)\n    return x + y\n",
    "writes a file of its own": """
def add(x, y):
    with open('scratch', 'w') as file:
        file.write(str(x))
    return int(open('scratch').read()) + y
""",
    "leaves a thread": """
import threading, time
def add(x, y):
    threading.Thread(target=time.sleep, args=(60,)).start()
    return x + y
""",
    "future import": "from __future__ import annotations\ndef add(x: Nope, y) -> Nope:\n    return x + y\n",
    "recursion lifted": """
import sys
sys.setrecursionlimit(20_000)
def depth(n): return 0 if n == 0 else 1 + depth(n - 1)
def add(x, y): return depth(3000) - 3000 + x + y
""",
}

TOO_MUCH = {
    "endless loop": ("timeout", "def add(x, y):\n    while True: pass\n"),
    "sleeping": ("timeout", "import time\ndef add(x, y):\n    time.sleep(100)\n    return x + y\n"),
    "swallows alarms": (
        "timeout",
        """
import signal
for number in set(signal.Signals) - {signal.SIGKILL, signal.SIGSTOP}:
    signal.signal(number, signal.SIG_IGN)
def add(x, y):
    while True:
        try:
            while True: pass
        except BaseException:
            pass
""",
    ),
    "endless output": ("timeout", "def add(x, y):\n    while True: print('x' * 10_000)\n"),
    "memory": ("memory", "def add(x, y):\n    return [bytearray(1 << 26) for _ in range(64)]\n"),
    "stack": ("crash", "import ctypes\ndef add(x, y):\n    return ctypes.string_at(8)\n"),
}
