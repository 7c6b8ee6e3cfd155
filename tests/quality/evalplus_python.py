"""Which interpreter has EvalPlus: BATTERY_EVALPLUS_PYTHON names it, else this one, else the peer's environment."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path

import pytest

PEER = Path(__file__).parents[2] / ".peers" / "evalplus" / "bin" / "python"


def evalplus_python() -> Path:
    """That interpreter; the test that asks is skipped where there is none."""
    if named := os.environ.get("BATTERY_EVALPLUS_PYTHON"):
        return Path(named)
    if importlib.util.find_spec("evalplus"):
        return Path(sys.executable)
    if PEER.is_file():
        return PEER
    pytest.skip("no EvalPlus here: BATTERY_EVALPLUS_PYTHON names an interpreter that has it")


STAND_IN = """#!{python}
import json, os, signal, socket, sys, time
channel = socket.socket(fileno=0)
say = lambda told: channel.sendall(json.dumps(told).encode() + b"\\n")
hello = {{"version": "0.3.1", "source": "0" * 64, "python": "3.11.0", "parsers": {{}}}}
{start}
say(hello)
for line in channel.makefile("r", encoding="utf-8", newline="\\n"):
    asked = json.loads(line)
    words, code = asked["content"].split("\\n", 1)[0].split(), asked["content"]
    if words[:1] == ["hang"]:
        open(words[1], "w").write(str(os.getpid()))
        time.sleep(600)
    elif words[:1] == ["die"]:
        os.kill(os.getpid(), signal.SIGSEGV)
    elif words[:1] == ["leave"]:
        os._exit(3)
    elif words[:1] == ["garble"]:
        channel.sendall(b"no JSON\\n")
    elif words[:1] == ["mistake"]:
        say({{"id": asked["id"] + 1, "code": "x = 1"}})
    elif words[:1] == ["both"]:
        say({{"id": asked["id"], "code": "x = 1", "raised": "ValueError"}})
    elif words[:1] == ["flood"]:
        while True:
            channel.sendall(b"x" * 65536)
    elif words[:1] == ["raise"]:
        say({{"id": asked["id"], "raised": "ValueError: source code string cannot contain null bytes"}})
    else:
        fences = code.split("```")
        code = fences[1].partition("\\n")[2] if len(fences) > 1 else ""
        say({{"id": asked["id"], "code": code}})
"""


def stand_in(folder: Path, start: str = "") -> Path:
    """An interpreter that says it has EvalPlus: the first fence is the code, and some first words are faults.

    `start` is Python that it runs before it says who it is.
    """
    path = folder / f"python-{len(list(folder.glob('python-*')))}"
    path.write_text(STAND_IN.format(python=sys.executable, start=start))
    path.chmod(0o755)
    return path
