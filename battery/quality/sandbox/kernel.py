"""The few calls of the Linux kernel that fence a program in, for which Python has no function of its own.

Each raises OSError with the kernel's reason. Nothing here decides anything; `fences` does. Elsewhere than on Linux
the module loads and every call fails with ENOSYS.
"""

from __future__ import annotations

import ctypes
import errno
import functools
import os
import signal
import sys
from pathlib import Path
from typing import Any

NEW_MOUNTS, NEW_NAMES, NEW_IPC, NEW_USERS, NEW_PIDS, NEW_NET = (
    0x00020000, 0x04000000, 0x08000000, 0x10000000, 0x20000000, 0x40000000,
)  # fmt: skip
READ_ONLY, NO_SUID, NO_DEV, NO_EXEC, REMOUNT, BIND, RECURSIVE, PRIVATE = (
    1, 2, 4, 8, 32, 4096, 16384, 1 << 18,
)  # fmt: skip
_DETACH = 2
_CLONE3 = 435
"""The number of the call, on every architecture alike."""
_DUMPABLE, _DEATH_SIGNAL, _SUBREAPER, _NO_NEW_PRIVILEGES = 4, 1, 36, 38
_CAPABILITY_VERSION = 0x20080522
_LOCKED = {2: 2, 4: 4, 8: 8, 1024: 1024, 2048: 2048, 4096: 1 << 21}
"""A file system's flags as statvfs gives them and as mount takes them: a user namespace must keep what is set."""


def call(name: str, *arguments: Any) -> int:
    """A function of libc; OSError with its reason where it fails, ENOSYS where there is none."""
    found = getattr(_libc(), name, None) if sys.platform == "linux" else None
    if found is None:
        raise OSError(errno.ENOSYS, f"this system has no {name}")
    ctypes.set_errno(0)
    if (result := found(*arguments)) < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{name}: {os.strerror(code)}")
    return int(result)


@functools.cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


class _Clone(ctypes.Structure):
    """What clone3 is told; Linux, include/uapi/linux/sched.h."""

    _fields_ = [
        (name, ctypes.c_uint64)
        for name in (
            "flags", "pidfd", "child_tid", "parent_tid", "exit_signal", "stack", "stack_size", "tls",
        )
    ]  # fmt: skip


def fork(flags: int) -> int:
    """As os.fork, with the child in new namespaces of the kinds named by `flags`; OSError where there is no such call.

    `unshare` would do for one child alone: who left its process ids for new ones cannot leave them again.
    """
    if sys.platform != "linux":
        raise OSError(errno.ENOSYS, "this system has no clone3")
    told = _Clone(flags=flags, exit_signal=signal.SIGCHLD)
    made = _threadless().syscall
    python = ctypes.pythonapi
    python.PyOS_BeforeFork()
    pid = made(ctypes.c_long(_CLONE3), ctypes.byref(told), ctypes.c_size_t(ctypes.sizeof(told)))
    if pid == 0:
        python.PyOS_AfterFork_Child()
        return 0
    code = ctypes.get_errno()
    python.PyOS_AfterFork_Parent()
    if pid < 0:
        raise OSError(code, f"clone3: {os.strerror(code)}")
    return int(pid)


@functools.cache
def _threadless() -> ctypes.PyDLL:
    """Functions of libc that are called with the interpreter's lock held, as it must be in a fork."""
    return ctypes.PyDLL(None, use_errno=True)


def unshare(flags: int) -> None:
    """Leave the namespaces named by `flags` for new ones."""
    call("unshare", ctypes.c_int(flags))


def map_one_user(inner: int, uid: int, gid: int) -> None:
    """Be user and group `inner` in the user namespace just entered; outside, one stays `uid` and `gid`."""
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"{inner} {uid} 1")
    Path("/proc/self/gid_map").write_text(f"{inner} {gid} 1")


def mount(source: str | None, target: str, kind: str | None, flags: int, options: str = "") -> None:
    """Show `source` at `target`, or change how it is shown there."""
    call(
        "mount",
        source.encode() if source else None,
        target.encode(),
        kind.encode() if kind else None,
        ctypes.c_ulong(flags),
        options.encode() if options else None,
    )


def bind_read_only(source: str, target: str) -> None:
    """Show `source` at `target`, where nothing can be written through it."""
    try:
        mount(source, target, None, BIND)
    except OSError:  # a user namespace may not uncover what is mounted below
        mount(source, target, None, BIND | RECURSIVE)
    held = os.statvfs(target).f_flag
    locked = sum(flag for bit, flag in _LOCKED.items() if held & bit)
    mount(None, target, None, BIND | REMOUNT | READ_ONLY | NO_SUID | locked)


def unmount(target: str) -> None:
    """Take a mount away, at once, whoever still uses it."""
    call("umount2", target.encode(), ctypes.c_int(_DETACH))


def change_root(folder: str) -> None:
    """Make `folder`, which must be a mount, the root, and let go of the old one."""
    os.chdir(folder)
    call("pivot_root", b".", b".")
    unmount(".")
    os.chdir("/")


def never_gain_privileges() -> None:
    """No program started from here gains a right by what it starts (set-user-id files)."""
    call("prctl", _NO_NEW_PRIVILEGES, 1, 0, 0, 0)


def hide_memory() -> None:
    """Other processes of the same user can neither trace this one nor read its memory or descriptors."""
    call("prctl", _DUMPABLE, 0, 0, 0, 0)


def adopt_orphans() -> None:
    """Descendants whose parent ends become children of this process, so that they can be ended and reaped."""
    call("prctl", _SUBREAPER, 1, 0, 0, 0)


def die_with_parent() -> None:
    """Be killed when the process that forked this one ends. A change of user forgets it: ask for it after that."""
    call("prctl", _DEATH_SIGNAL, 9, 0, 0, 0)


def drop_capabilities() -> None:
    """Give up every right of an administrator, in a user namespace too."""
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION, 0)
    call("capset", header, (ctypes.c_uint32 * 6)())
