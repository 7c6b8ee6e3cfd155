"""How arms are asked coding tasks: the plan's table for it, and what was fixed when an arm was asked a suite.

`Asked` lies beside the answers (ledger.saved) and is what their scores are completed from: whoever grades later, on
another machine, finds in it what the answers alone do not tell.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from battery.ledger.answers import Dataset
from battery.ledger.arm import Arm

SCHEMA = 1


class Quality(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The plan's `[quality]`: how many tokens an answer may have, and what its figures are held against.

    The sampler is the plan's own, so that answers come as the speed was measured; an answer ends by itself, so
    `min_tokens` is not asked for.
    """

    max_tokens: int = 1024
    """The cap: an answer that reaches it is cut off, and counts as failed in the strict figure."""
    reasoning_effort: str | None = None
    """As the server spells it; None: not sent."""
    samples: int = 1
    """Answers to each task; more than one for pass@k."""
    concurrency: int = 1
    """Requests in flight. Speed is never read from these answers."""
    seed: int = 0
    """Of the answers' seeds, which are the same for every arm (`seed_of` in quality.ask)."""
    margin: float = 0.03
    """Non-inferiority: the share of tasks that an arm may lose against the control, over a pool of suites."""
    margin_humaneval: float = 0.05
    """The same on HumanEval alone, whose 164 tasks cannot show less."""
    allow_code_execution: bool = False
    """Whether programs that a model wrote may be run here to be graded."""


def settings(quality: Quality) -> Iterable[tuple[bool, str]]:
    """What must hold of a plan's `[quality]`: (whether it does, what to do where not)."""
    return [
        (quality.max_tokens >= 1, "quality.max_tokens: must be at least 1"),
        (1 <= quality.samples <= 1000, "quality.samples: must be between 1 and 1000"),
        (1 <= quality.concurrency <= 256, "quality.concurrency: must be between 1 and 256"),
        (0 <= quality.seed < 2**31, "quality.seed: must be between 0 and 2147483647"),
        (0 < quality.margin < 1, "quality.margin: must be between 0 and 1 (0.03 is 3 points)"),
        (0 < quality.margin_humaneval < 1, "quality.margin_humaneval: must be between 0 and 1"),
    ]


class Session(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One launch of the arm in which answers came."""

    started: str
    """UTC."""
    ended: str | None = None
    """None: battery was killed, or is at it."""
    concurrency: int
    answers: int = 0
    """Answers that came in it, errors not counted."""
    errors: int = 0
    engagement: dict[str, Any] = {}
    """The verdict on the switches `before` the first task and `after` the last, as in a receipt of speed."""


class Asked(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What one arm was asked of one suite, and by which server the answers came."""

    schema: int = SCHEMA
    campaign: str
    arm: Arm
    arm_digest: str
    plan_digest: str
    dataset: Dataset
    samples: int
    """Answers asked for each task."""
    tasks: tuple[str, ...]
    """Ids of all tasks that are to be asked, in the order of the dataset."""
    sampler: dict[str, Any]
    """As asked, without the seeds, which stand with the answers."""
    prompt_style: str
    """Name and version of the wording around a task."""
    model: dict[str, Any] = {}
    versions: dict[str, Any] = {}
    machine: dict[str, Any] = {}
    command: tuple[str, ...] = ()
    environment: dict[str, str] = {}
    sessions: tuple[Session, ...] = ()

    @property
    def concurrency(self) -> int:
        """The most requests that were in flight in any session."""
        return max((session.concurrency for session in self.sessions), default=1)

    @property
    def engagement(self) -> dict[str, Any]:
        """The verdict of the first session's beginning and of the last session's end, or of the worst one between."""
        told = [session.engagement for session in self.sessions if session.engagement]
        bad = [one for one in told if _verdict(one) not in ("", "engaged")]
        return (bad or told or [{}])[-1]


def _verdict(engagement: dict[str, Any]) -> str:
    """The verdict at the end of a session; empty where it was not told."""
    after = engagement.get("after")
    return str(after.get("verdict", "")) if isinstance(after, dict) else ""
