"""Files that are there whole or not at all, and the error that says what to do when the disk refuses.

A name that begins with .part- is a file on its way.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from battery.ledger.errors import DiskError, ReceiptError

PART = ".part-"


def inside(folder: Path, name: str) -> Path:
    """A file of this name in the folder; ReceiptError for a name that leads elsewhere, as a foreign record may hold."""
    path = folder / name
    if path.parent != folder or name.startswith(".") or "\\" in name:
        raise ReceiptError(
            f"{name!r}: no name for a file in {folder}; whoever made it may name it so: rename it"
        )
    return path


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """DiskError with what to do, instead of the system's bare word, when `path` cannot be written."""
    try:
        yield
    except OSError as refused:
        raise DiskError(
            f"{path}: cannot be written ({refused.strerror or refused}); make room or give write access there, and"
            " run the same command again: what was written before is whole"
        ) from refused


@contextlib.contextmanager
def _part(path: Path, data: bytes, mode: int) -> Iterator[Path]:
    """`data` on disk under a name of its own beside `path`, which is gone afterwards."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(prefix=PART, dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).chmod(mode)
        yield Path(temporary)
    finally:
        Path(temporary).unlink(missing_ok=True)
    _sync_folder(path.parent)


def try_writing(path: Path) -> None:
    """DiskError unless a file could be written at `path` now; nothing stays, and no folder is made for it."""
    there = next(folder for folder in path.absolute().parents if folder.is_dir())
    with writing(path), _part(there / path.name, bytes(4096), 0o600):
        pass


def write_once(path: Path, data: bytes, mode: int = 0o444) -> None:
    """Write `data` to `path` so that it is there whole or not at all; an existing file is never replaced.

    Temporary file, fsync, then a hard link to the final name, which fails if the name is taken.
    """
    with writing(path), _part(path, data, mode) as temporary:
        try:
            os.link(temporary, path)
        except FileExistsError as taken:
            raise ReceiptError(
                f"{path}: exists already; a receipt is written once and never replaced"
            ) from taken


def replace(path: Path, data: bytes) -> None:
    """Write `data` to `path` atomically, replacing what stood there."""
    with writing(path), _part(path, data, 0o644) as temporary:
        temporary.replace(path)


def append(path: Path, line: bytes) -> None:
    """Add a line to a log so that it survives a power cut, behind whatever a crash may have left of the last one."""
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        new = not path.is_file()
        torn = not new and path.stat().st_size and not path.read_bytes().endswith(b"\n")
        handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            write_all(handle, b"\n" + line if torn else line)
            os.fsync(handle)
        finally:
            os.close(handle)
        if new:
            _sync_folder(path.parent)


def write_all(handle: int, data: bytes) -> None:
    """Write without a buffer that would try once more on close."""
    while data:
        data = data[os.write(handle, data) :]


def _sync_folder(folder: Path) -> None:
    """Make a new name in `folder` survive a power cut."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
