"""One machine runs one battery at a time: two would time each other."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from pathlib import Path

from battery.ledger.errors import Busy
from battery.ledger.store import utc_now

EVERYONES = "/tmp/battery.lock"
"""Not the user's own temporary folder: the machine is everyone's. BATTERY_LOCK names another file, for tests."""


class MachineLock:
    """Held while a campaign runs; the kernel lets go of it when the holder ends, however it ends."""

    def __init__(self, campaign: str, path: Path | None = None) -> None:
        self._campaign = campaign
        self._path = path or Path(os.environ.get("BATTERY_LOCK", EVERYONES))
        self._handle: int | None = None

    def __enter__(self) -> MachineLock:
        """Take the lock; Busy says who holds it."""
        handle = self._open()
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(handle, 1000, 0).decode("utf-8", "replace").strip()
            os.close(handle)
            raise Busy(
                f"another battery is measuring on this machine ({holder or 'it left no word'}); wait for it: two would"
                " time each other"
            ) from None
        word = {"pid": os.getpid(), "campaign": self._campaign, "since": utc_now()}
        self._handle = handle
        self._write(json.dumps(word).encode())
        return self

    def _open(self) -> int:
        """The lock file, made for every user of the machine; Busy if it cannot be opened."""
        # never through a link: in a folder that everyone may write to, it could lead to any file of ours
        plain = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            try:
                return os.open(self._path, plain)
            except FileNotFoundError:
                handle = os.open(self._path, plain | os.O_CREAT, 0o666)
                os.fchmod(handle, 0o666)  # past the umask: whoever runs it next needs it too
                return handle
        except OSError as refused:
            raise Busy(
                f"{self._path}: the machine's lock cannot be opened ({refused.strerror}); have its owner delete it"
                " while no battery runs, or name another file in BATTERY_LOCK"
            ) from refused

    def _write(self, word: bytes) -> None:
        """Tell others who holds the lock, where the disk has room for it; it holds all the same."""
        if self._handle is not None:
            with contextlib.suppress(OSError):
                os.ftruncate(self._handle, 0)
                os.pwrite(self._handle, word, 0)

    def __exit__(self, *_: object) -> None:
        if self._handle is not None:
            self._write(b"")
            os.close(self._handle)
            self._handle = None
