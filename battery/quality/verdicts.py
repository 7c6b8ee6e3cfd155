"""Verdicts kept between runs, under keys that name all that they follow from.

The key is a digest of the program, the tests, the limits, the grader's own source and the Python that ran it. Kept are
only verdicts that the same key must always bring: a pass, a failed check, a syntax error. Time, memory, a crash and a
missing package depend on the machine and its hour; they are found out again each time.
"""

from __future__ import annotations

import platform
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

import msgspec

from battery.ledger import strict
from battery.quality import jobs
from battery.quality.sandbox.pool import Job, Outcome

KEPT = frozenset({"passed", "failed", "syntax_error"})


def surroundings() -> dict[str, Any]:
    """What a verdict depends on besides its job: the grader's source, and the Python and numpy that run programs."""
    return {
        "grader": jobs.grader_version(),
        "python": [platform.python_implementation(), platform.python_version(), platform.machine()],
        "numpy": metadata.version("numpy"),
    }


def key(job: Job, tests_digest: str, where: Mapping[str, Any] | None = None) -> str:
    """What a verdict on this job is kept under; `where`: the surroundings of another machine, as it told them."""
    parts = {
        "program": [source for _, source in job.parts],
        "entry": job.entry,
        "tests": tests_digest,
        "limits": job.limits,
        **(surroundings() if where is None else where),
    }
    return strict.digest(parts)


class _Line(msgspec.Struct, frozen=True):
    key: str
    outcome: Outcome


class Verdicts:
    """A file of verdicts, one a line, that only grows; None keeps nothing."""

    def __init__(self, path: Path | None) -> None:
        """Lines that do not parse, as a crash leaves them, are passed over."""
        self._path = path
        self._known: dict[str, Outcome] = {}
        if path is None or not path.is_file():
            return
        for line in path.read_bytes().split(b"\n"):
            try:
                kept = msgspec.json.decode(line, type=_Line)
            except (msgspec.DecodeError, UnicodeDecodeError):
                continue
            if kept.outcome.status in KEPT:
                self._known[kept.key] = kept.outcome

    def __len__(self) -> int:
        return len(self._known)

    def get(self, key: str) -> Outcome | None:
        """The verdict kept under a key."""
        return self._known.get(key)

    def put(self, key: str, outcome: Outcome) -> None:
        """Keep a verdict, if it is one that time cannot change."""
        if outcome.status not in KEPT or key in self._known:
            return
        self._known[key] = outcome
        if self._path is not None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._path.open("ab") as file:
                file.write(b"\n" + msgspec.json.encode(_Line(key, outcome)) + b"\n")
