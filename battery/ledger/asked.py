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
    """The plan's `[quality]`: how arms are asked coding tasks.

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
    allow_code_execution: bool = False
    """Whether programs that a model wrote may be run here to be graded."""


def settings(quality: Quality) -> Iterable[tuple[bool, str]]:
    """What must hold of a plan's `[quality]`: (whether it does, what to do where not)."""
    return [
        (quality.max_tokens >= 1, "quality.max_tokens: must be at least 1"),
        (1 <= quality.samples <= 1000, "quality.samples: must be between 1 and 1000"),
        (1 <= quality.concurrency <= 256, "quality.concurrency: must be between 1 and 256"),
        (0 <= quality.seed < 2**31, "quality.seed: must be between 0 and 2147483647"),
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
    """The `verdict` on the switches, the worse of two looks: `before` the first task and `after` the last."""


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
    seed: int = 0
    """What the answers' seeds were made from, with task and sample."""
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
        """The session whose switches were least as asked: its `verdict`, and the two looks it comes from."""
        told = [session.engagement for session in self.sessions if session.engagement]
        return max(told, key=lambda one: WORSE.index(str(one.get("verdict"))), default={})


WORSE = ("engaged", "unobservable", "declined", "disengaged")
"""Verdicts on switches, each worse than the one before it."""
