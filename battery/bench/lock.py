"""One machine runs one battery at a time: two would time each other."""

from __future__ import annotations

import fcntl
import json
import os
from pathlib import Path
from typing import IO

from battery.ledger.errors import Busy
from battery.ledger.store import utc_now

EVERYONES = "/tmp/battery.lock"
"""Not the user's own temporary folder: the machine is everyone's. BATTERY_LOCK names another file, for tests."""


class MachineLock:
    """Held while a campaign runs; the kernel lets go of it when the holder ends, however it ends."""

    def __init__(self, campaign: str, path: Path | None = None) -> None:
        self._campaign = campaign
        self._path = path or Path(os.environ.get("BATTERY_LOCK", EVERYONES))
        self._file: IO[str] | None = None

    def __enter__(self) -> MachineLock:
        """Take the lock; Busy says who holds it."""
        file = self._open()
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = file.read().strip() or "it left no word"
            file.close()
            raise Busy(
                f"another battery is measuring on this machine ({holder}); wait for it: two would time each other"
            ) from None
        file.truncate(0)
        json.dump({"pid": os.getpid(), "campaign": self._campaign, "since": utc_now()}, file)
        file.flush()
        self._file = file
        return self

    def _open(self) -> IO[str]:
        """The lock file, made for every user of the machine; Busy if it cannot be opened."""
        try:
            if not self._path.exists():
                handle = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o666)
                os.fchmod(
                    handle, 0o666
                )  # past the umask: whoever runs the battery next needs it too
                return os.fdopen(handle, "r+")
            return self._path.open("r+")
        except OSError as refused:
            raise Busy(
                f"{self._path}: the machine's lock cannot be opened ({refused.strerror})"
            ) from refused

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.seek(0)
            self._file.truncate(0)
            self._file.close()
