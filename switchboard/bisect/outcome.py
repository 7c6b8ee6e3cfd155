"""What a climb found, rung by rung, as it is printed and written."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

Verdict = Literal["passed", "failed", "not applicable"]
RUNGS = ("load", "modules", "blocks", "prefill", "decode", "answers", "audit")


@dataclass(frozen=True)
class Outcome:
    """One rung: what it found, in one line."""

    rung: str
    verdict: Verdict
    told: str
    worst: float | None = None
    """Largest difference as a share of the largest magnitude; 0 is bitwise, None where no numbers were compared."""
    seconds: float = 0.0


@dataclass(frozen=True)
class Climb:
    """All rungs of one switch on one model."""

    switch: str
    model: str
    family: str
    exactness: str
    declined: str | None
    coverage: dict[str, Any] | None
    outcomes: list[Outcome]

    def count(self, verdict: Verdict) -> int:
        """How many rungs came out so."""
        return sum(one.verdict == verdict for one in self.outcomes)

    @property
    def failed(self) -> list[str]:
        """The rungs that failed."""
        return [one.rung for one in self.outcomes if one.verdict == "failed"]


def skip(rung: str, why: str) -> Outcome:
    """A rung that says nothing about this switch, and why."""
    return Outcome(rung, "not applicable", why)
