"""Verdicts kept between runs, under keys that name all that they follow from.

The key is a digest of the program, the tests, the limits, the grader's own source, the Python that ran it, the packages
that it could import and the fences that held it. Kept are only verdicts that the same key brings again: a pass, a
failed check, a syntax error, of a program that does not draw on chance or the clock. Time, memory, a crash and a
missing package depend on the machine and its hour; they are found out again each time, and so is the failure of a
program that names what the hour can change.
"""

from __future__ import annotations

import contextlib
import functools
import platform
import re
import sys
from collections.abc import Iterable, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

import msgspec

from battery.ledger import strict
from battery.quality import jobs
from battery.quality.sandbox.pool import Job, Outcome

KEPT = frozenset({"passed", "failed", "syntax_error"})
LEFT = (".dist-info", ".egg-info")
_CHANCE = re.compile(
    r"\b(random|secrets|uuid|urandom|time|datetime|perf_counter|threading|Thread|multiprocessing|subprocess|os|hash|id)\b"
)
"""Words of programs whose verdicts another run may not bring again: chance, the clock, other processes, addresses."""


def lasting(code: str) -> bool:
    """Whether a program must come to the same verdict again: it names nothing that the hour can change."""
    return _CHANCE.search(code) is None


@functools.cache
def surroundings() -> dict[str, Any]:
    """What a verdict depends on besides its job and its fences: the grader's source, Python, what can be imported."""
    return {
        "grader": jobs.grader_version(),
        "python": [platform.python_implementation(), platform.python_version(), platform.machine()],
        "numpy": metadata.version("numpy"),
        "packages": strict.digest(sorted(installed(sys.path))),
    }


def installed(places: Iterable[str]) -> set[str]:
    """Packages and their versions, as the names of the folders say that every installer leaves beside them.

    To read what is in those folders takes a tenth of a second for two hundred packages.
    """
    found: set[str] = set()
    for place in places:
        with contextlib.suppress(OSError):
            found.update(one.name for one in Path(place).iterdir() if one.name.endswith(LEFT))
    return found


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

    def put(self, key: str, outcome: Outcome, code: str) -> None:
        """Keep the verdict on an answer's code, if it is one that time cannot change."""
        if outcome.status not in KEPT or key in self._known or not lasting(code):
            return
        self._known[key] = outcome
        if self._path is not None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._path.open("ab") as file:
                file.write(b"\n" + msgspec.json.encode(_Line(key, outcome)) + b"\n")
