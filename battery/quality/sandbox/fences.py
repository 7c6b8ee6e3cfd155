"""What stands between a program and this machine: as much as the system offers, and a list of what it does not.

On Linux the warm server of a worker moves, once, into namespaces of its own: a file system that holds nothing but the
interpreter, its packages and a few devices, all read-only, and a network without interfaces. Each program gets process
ids and shared memory of its own, an empty folder in memory, a user without rights (where the server is an
administrator), and limits; its process can neither see nor signal any other, and what it starts dies with it. Where
namespaces are forbidden (some containers) Landlock keeps an ordinary user's programs from files, TCP and other
processes, as far as the kernel knows it. Without either (macOS, an old kernel) there remain the limits, the process
group, the folder and, for an administrator, the other user.
"""

from __future__ import annotations

import contextlib
import errno
import os
import random
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from battery.quality.sandbox import crowd, kernel, landlock, limits, view
from battery.quality.sandbox.view import WORK

MEMORY_DISK = 32 << 20
_INNER = 1000
_STRANGER = 0x60000000
"""A user id that nobody has, plus twice the server's process id."""


class Unfenced(Exception):
    """Too little stands between a program and this machine; nothing is run."""


class Place(NamedTuple):
    """Where a program runs and what it may use: made ahead, before it is forked."""

    folder: str
    fences: Fences
    held: tuple[limits.Held, ...]


class Fences(NamedTuple):
    """What holds, by name, and what does not, with its reason."""

    standing: tuple[str, ...]
    missing: dict[str, str]
    namespaces: bool
    user: int | None
    """Whom a program becomes; None: it stays who the server is."""
    judge: int | None
    """Whom the judge becomes."""
    granted: tuple[landlock.Grant, ...] | None
    """What Landlock leaves within reach, a program's folder apart; None: it is not used."""
    listing: int | None
    """The system's list of processes (`crowd`)."""


def build(root: str, without: frozenset[str] = frozenset()) -> Fences:
    """Raise all fences that one server shares among its programs; `root` is an empty folder.

    `without` names means that are not to be used ("namespaces", "user", "landlock"): a test of what is left where they
    lack.
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
    listing = None
    try:
        listing = crowd.opened()
        standing.append("memory of all processes")
    except OSError as reason:
        missing["memory of all processes"] = str(reason)
    namespaces = _namespaces(root, without, standing, missing)
    unheld = limits.unheld()
    missing |= unheld
    standing += [name for name in limits.NAMES if name not in unheld]
    user, judge = _strangers(without, missing)
    granted = None
    if user is not None:
        standing.append("unprivileged user")
    elif os.geteuid() == 0 and not namespaces:
        raise Unfenced(
            "as an administrator, without namespaces and without another user to become, a program could end or change"
            f" anything here ({missing['unprivileged user']}); grade as an ordinary user, or where namespaces are"
            " allowed"
        )
    if not namespaces:
        granted = _landlocked(root, without, standing, missing)
        if user is None and "signals by Landlock" not in standing:
            missing["signals"] = "a program can end other processes of this user"
    try:
        kernel.hide_memory()
        standing.append("untraceable")
    except OSError as reason:
        missing["untraceable"] = str(reason)
    return Fences(tuple(standing), missing, namespaces, user, judge, granted, listing)


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
        own = kernel.NEW_MOUNTS | kernel.NEW_NET | kernel.NEW_NAMES
        kernel.unshare(own if admin else own | kernel.NEW_USERS)
        if not admin:
            kernel.map_one_user(_INNER, uid, gid)
        if not _in_a_child(lambda: _forks(kernel.NEW_PIDS | kernel.NEW_IPC)):
            raise OSError(errno.EPERM, "no process ids of a program's own")
        view.narrow(root)
    except OSError as reason:
        missing |= dict.fromkeys(names, f"no namespaces: {reason}")
        return False
    standing += names
    return True


def _landlocked(
    root: str, without: frozenset[str], standing: list[str], missing: dict[str, str]
) -> tuple[landlock.Grant, ...] | None:
    """What Landlock will leave to programs, once it was seen to hold; None where it does not."""
    reason = "not used, as asked" if "landlock" in without else ""
    if not reason:
        try:
            known, granted = landlock.version(), view.grants()
        except OSError as lacking:
            reason = str(lacking)
    if not reason and not _in_a_child(lambda: _held_back(root, granted)):
        reason = "it did not hold when tried"
    if reason:
        missing["Landlock"] = reason
        return None
    standing += landlock.standing(known)
    return granted


def _held_back(root: str, granted: tuple[landlock.Grant, ...]) -> None:
    """OSError where this process, once restricted, cannot read the interpreter, or can leave its folder."""
    kernel.never_gain_privileges()
    landlock.restrict([*granted, (root, landlock.ALL)])
    os.close(os.open(random.__file__, os.O_RDONLY))
    try:
        list(Path(root).parent.iterdir())
    except OSError:
        return
    raise OSError("not restricted")


def _in_a_child(attempt: Callable[[], None]) -> bool:
    """Whether that goes well, tried in a process that ends with it."""
    if (child := os.fork()) == 0:
        try:
            attempt()
            os._exit(0)
        finally:
            os._exit(1)
    return os.waitpid(child, 0)[1] == 0


def _forks(flags: int) -> None:
    """OSError where no child can be had in such namespaces."""
    if (child := kernel.fork(flags)) == 0:
        os._exit(0)
    os.waitpid(child, 0)


def _strangers(without: frozenset[str], missing: dict[str, str]) -> tuple[int | None, int | None]:
    """Ids of users without rights for program and judge; None where we have no rights to give up, or cannot."""
    if os.geteuid() != 0:
        return None, None
    reason = "not used, as asked" if "user" in without else ""
    user = _STRANGER + 2 * os.getpid()
    if not reason and not _in_a_child(lambda: _as_a_stranger(user)):
        reason = "another user could not read the interpreter's files"
    if reason:
        missing["unprivileged user"] = reason
        return None, None
    return user, user + 1


def _as_a_stranger(user: int) -> None:
    """OSError where `user` cannot import: an interpreter below a closed home is out of reach."""
    _become(user)
    os.close(os.open(random.__file__, os.O_RDONLY))


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


def forked(fences: Fences) -> int:
    """As os.fork; with namespaces the child has process ids of its own, and shared memory that ends with it."""
    return kernel.fork(kernel.NEW_PIDS | kernel.NEW_IPC) if fences.namespaces else os.fork()


def enter(place: Place, pipes: tuple[int, int]) -> tuple[int, int]:
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
    limits.hold(place.held)
    give_up_rights(place.fences, place.fences.user, place.folder)
    sys.argv = [""]
    return 3, 4


def give_up_rights(fences: Fences, user: int | None, folder: str | None = None) -> None:
    """Become `user` for good, without any right of an administrator, and end with one's parent.

    Where Landlock stands in for namespaces, a program keeps the interpreter and its `folder` within reach, nothing
    else. The judge, which runs nothing of a program, names no folder and is not restricted.
    """
    if user is not None:
        _become(user)
    elif fences.namespaces:
        kernel.drop_capabilities()
    with contextlib.suppress(OSError):
        kernel.never_gain_privileges()
        kernel.die_with_parent()
        kernel.hide_memory()
    if folder is not None and fences.granted is not None:
        landlock.restrict([*fences.granted, (folder, landlock.ALL)])
