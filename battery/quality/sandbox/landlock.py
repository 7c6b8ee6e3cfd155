"""Linux's Landlock: a process gives up, for itself and for all that it starts, every file that it has not named.

It needs neither namespaces nor a right, so it is what is left for an ordinary user where containers forbid namespaces:
files since Linux 5.13, connections over TCP since 6.7, signals and abstract sockets since 6.12. A process so restricted
can trace none that is not. It does not hold back looking whether a file is there, changes of a file's mode, owner and
times, nor UDP.
"""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Iterable
from pathlib import Path

from battery.quality.sandbox import kernel

_CREATE, _ADD, _RESTRICT = 444, 445, 446
"""Numbers of the system calls, the same on every machine that Python and Landlock share but Alpha."""
_ASK_VERSION, _BENEATH = 1, 1
_EXECUTE, _WRITE, _READ, _LIST = 1, 2, 4, 8
_REFER, _TRUNCATE, _DEVICE = 1 << 13, 1 << 14, 1 << 15
_FILES = {1: (1 << 13) - 1, 2: _REFER, 3: _TRUNCATE, 5: _DEVICE}
"""Kinds of access to files by the version that began to know them; the first thirteen came together."""
_OF_A_FILE = _EXECUTE | _WRITE | _READ | _TRUNCATE | _DEVICE
_TCP, _SCOPES = 3, 3
"""To listen and to connect; abstract sockets and signals."""
_KNOWS_TCP, _KNOWS_SCOPES = 4, 6

LIST = _LIST
READ = _EXECUTE | _READ | _LIST
USE = _READ | _WRITE
ALL = -1
"""What can be granted: names in a folder; files to be read; devices to be used; everything."""

Grant = tuple[str, int]
"""A file or folder, with all beneath it, and what may be done there."""


def version() -> int:
    """Which of the kernel's versions of Landlock this is; OSError where there is none, or it is turned off."""
    return kernel.call("syscall", *map(ctypes.c_long, (_CREATE, 0, 0, _ASK_VERSION)))


def standing(known: int) -> tuple[str, ...]:
    """What that version holds, by name."""
    names = (
        ("files by Landlock", 1),
        ("no TCP by Landlock", _KNOWS_TCP),
        ("signals by Landlock", _KNOWS_SCOPES),
    )
    return tuple(name for name, since in names if known >= since)  # fmt: skip


def restrict(grants: Iterable[Grant]) -> None:
    """Let this process, for good, reach nothing but `grants`; it must have forsworn new privileges before."""
    known = version()
    files = sum(kinds for since, kinds in _FILES.items() if known >= since)
    tcp = _TCP if known >= _KNOWS_TCP else 0
    scopes = _SCOPES if known >= _KNOWS_SCOPES else 0
    asked = struct.pack("=QQQ", files, tcp, scopes)
    rules = kernel.call(
        "syscall", ctypes.c_long(_CREATE), asked, ctypes.c_long(len(asked)), ctypes.c_long(0)
    )
    try:
        for place, kinds in grants:
            _grant(rules, place, kinds & files)
        kernel.call("syscall", *map(ctypes.c_long, (_RESTRICT, rules, 0)))
    finally:
        os.close(rules)


def _grant(rules: int, place: str, kinds: int) -> None:
    where = os.open(place, os.O_PATH | os.O_CLOEXEC)
    try:
        if not Path(place).is_dir():
            kinds &= _OF_A_FILE
        rule = struct.pack("=Qi", kinds, where)
        kernel.call("syscall", *map(ctypes.c_long, (_ADD, rules, _BENEATH)), rule, ctypes.c_long(0))
    finally:
        os.close(where)
