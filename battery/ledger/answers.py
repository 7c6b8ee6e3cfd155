"""What a quality run leaves behind: every answer as it came, and what the grader found in each.

Two files for an arm and a suite, below the campaign's `quality/`: `<arm>.<suite>.jsonl` holds one `Answer` a line,
appended as they come; `<arm>.<suite>.json` holds the `Scores`, which name the digest of the answers that they were
taken from. Answers are never rewritten; scores can be taken again, offline and later. Shares and intervals are not
kept: they follow from the rows.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from battery.ledger.arm import Arm

SCHEMA = 1

SuiteName = Literal["humaneval", "humaneval+", "mbpp", "mbpp+"]
SUITES: tuple[str, ...] = SuiteName.__args__  # type: ignore[attr-defined]

Status = Literal[
    "passed", "failed", "syntax_error", "import_error", "timeout", "memory", "crash", "empty", "cut_off",
    "request_error",
]  # fmt: skip
"""What became of an answer: `cut_off` ended at the token limit and did not pass, `empty` has no code."""


class Answer(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One answer to one task, as it came; a cut-off or empty answer is data, never asked again."""

    suite: SuiteName
    task: str
    sample: int
    seed: int
    request_digest: str
    """Over the body without the model's name, so that arms can be compared."""
    content: str = ""
    reasoning: str | None = None
    """What came in a field of its own; None: the server has no such field."""
    finish_reason: str | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    sampler: dict[str, Any] | None = None
    """As the server says that it applied it; None: it does not say."""
    attempts: int = 1
    """Requests that were sent for it; more than one after transport errors alone."""
    error: str | None = None
    """Why there is no answer, after all attempts."""
    started: str
    """UTC."""

    @property
    def truncated(self) -> bool:
        """Whether it ended at the token limit."""
        return self.finish_reason == "length"


class Graded(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The grader's verdict on one answer."""

    task: str
    sample: int
    passed: bool
    status: Status
    truncated: bool
    base: bool | None = None
    """Whether the base tests passed, in a plus suite; a task passes plus only with both. None: no plus suite."""
    completion_tokens: int | None = None
    rule: str = ""
    """How the program was found in the answer."""
    suspicious: str | None = None
    """Why a pass wants a look, such as a result that equals everything."""
    detail: str | None = None
    """The end of what went wrong, for a reader."""
    seconds: float | None = None
    """Wall time of its program; None: it was not run, or its verdict came from the cache."""
    program_digest: str | None = None


class Dataset(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The tasks that were really read."""

    suite: SuiteName
    source: str
    """The package, loader or file name they came from; never a path of the machine."""
    digest: str
    """sha256 of the file's bytes once decompressed."""
    known: str | None = None
    """The name of the release that this digest is; None: unknown to battery, and shown as such."""
    tasks: int


class Machine(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One machine of a fleet: what held programs there, and what its grader's test of itself showed."""

    label: str
    """`machine 1`; never a host's name or address."""
    system: str = ""
    """Such as `Linux x86_64`; empty where its worker never came up."""
    workers: int = 0
    """Programs at a time."""
    programs: int = 0
    """Programs that it judged, those of all arms that were graded together."""
    refused: str | None = None
    """Why it graded nothing, or nothing any more."""
    limits: dict[str, Any] = {}
    fences: tuple[str, ...] = ()
    missing: dict[str, str] = {}
    self_test: dict[str, Any] = {}


class Grader(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Who graded, under which limits, and behind which fences; of a fleet, what holds of every machine that graded."""

    name: str
    version: str
    limits: dict[str, Any] = {}
    """Seconds, bytes and counts that a program may use."""
    fences: tuple[str, ...] = ()
    """Means that held the programs: namespaces, limits, process groups."""
    missing: dict[str, str] = {}
    """Means that this platform lacks, each with its reason."""
    self_test: dict[str, Any] = {}
    """Canonical solutions passed and planted wrong ones failed, before anything was graded."""
    python: str = ""
    """That ran the programs; empty where an older battery graded."""
    machines: tuple[Machine, ...] = ()
    """Those of a fleet, the ones that refused too; empty: this machine graded alone."""


class Scores(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The quality receipt of one arm and one suite: who was asked what, and the verdict on every answer."""

    schema: int = SCHEMA
    campaign: str
    arm: Arm
    arm_digest: str
    dataset: Dataset
    samples: int
    """Answers asked for each task."""
    tasks: tuple[str, ...]
    """Ids of all tasks that were to be asked, in the order of the dataset."""
    sampler: dict[str, Any]
    """As asked: temperature, top_p, max_tokens …"""
    concurrency: int
    prompt_style: str
    """Name and version of the wording around a task."""
    answers_digest: str
    """sha256 of the bytes of the answers' file."""
    engagement: dict[str, Any] = {}
    """The verdict of the switches before and after, as in a receipt of speed."""
    versions: dict[str, Any] = {}
    model: dict[str, Any] = {}
    machine: dict[str, Any] = {}
    grader: Grader
    graded: tuple[Graded, ...]
    ended: str
    """UTC."""
