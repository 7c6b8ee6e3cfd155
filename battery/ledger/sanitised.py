"""What EvalPlus's extraction makes of saved answers: its verdicts, kept beside ours in a file of their own.

receipts/<campaign>/quality/evalplus/<arm>.<suite>.json

Only the extraction differs: EvalPlus's `sanitize` takes the code from an answer, and that code alone, without the
prompt, goes through the grader that our verdicts came from, against the same tests and within limits made the same
way. An answer that ended at its token limit fails under both, though EvalPlus itself would never look. Our own verdicts
are not repeated here: they are in the scores, which a reader holds against this by task and sample.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec

from battery.ledger import strict
from battery.ledger.answers import Grader, Status, SuiteName
from battery.ledger.saved import FOLDER

SCHEMA = 1
VERSION = "0.3.1"
"""Of EvalPlus, whose `sanitize` is meant."""
LIMIT_S = 60.0
"""Seconds that `sanitize` has for an answer, unless told otherwise."""
PLACE = "evalplus"
REMEDY = (
    "restore it from version control, or make it again: battery score CAMPAIGN --compare-evalplus"
)

Form = Literal["defines", "lacks", "broken", "blank"]
"""What the sanitised code is: it gives the entry point a function, it parses and does not, it does not parse, or there
is none."""


class Sanitised(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The verdict on the code that `sanitize` took from one answer."""

    task: str
    sample: int
    passed: bool | None
    """None: no verdict, for the reason that `detail` gives; never a fail."""
    status: Status | None
    """As in our own scores; None: no verdict."""
    ran: Status | None = None
    """What running its code came to, cut off or not; None: it was not run."""
    truncated: bool
    base: bool | None = None
    """Whether the base tests passed, in a plus suite."""
    form: Form | None = None
    """None: there is no sanitised code to look at."""
    code_digest: str | None = None
    """sha256 of the sanitised code."""
    suspicious: str | None = None
    detail: str | None = None
    """The end of what went wrong, or why there is no verdict, for a reader."""
    seconds: float | None = None
    """Wall time of `sanitize`, which is about cubic in an answer's lines."""


class Peer(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Whose extraction it was, in which environment."""

    version: str
    """Of EvalPlus."""
    source: str
    """sha256 over the source of its modules `sanitize` and `syncheck`, which decide what code is."""
    python: str
    """Of the interpreter that it ran under: what parses depends on it."""
    parsers: dict[str, str] = {}
    """Versions of tree-sitter and its grammar of Python."""
    limit_s: float
    """Seconds that `sanitize` had for one answer."""

    @property
    def name(self) -> str:
        """As a reader is told of it."""
        return f"EvalPlus {self.version} sanitize"


class Extracted(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """EvalPlus's extraction of one arm's answers to one suite, and the verdict on each."""

    schema: int = SCHEMA
    campaign: str
    arm: str
    arm_digest: str
    suite: SuiteName
    dataset_digest: str
    answers_digest: str
    """sha256 of the bytes of the answers' file."""
    peer: Peer
    grader: Grader
    rows: tuple[Sanitised, ...]
    ended: str
    """UTC."""


def path_of(campaign: Path, arm: str, suite: str) -> Path:
    """Where this lies for an arm and a suite."""
    return campaign / FOLDER / PLACE / f"{arm}.{suite}.json"


def read(path: Path) -> Extracted:
    """One such file; ReceiptError where it cannot be read."""
    return strict.read_json(path, Extracted, REMEDY)
