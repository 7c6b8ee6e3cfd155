"""One candidate against the control at one context, matched and estimated, before it is put into words."""

from __future__ import annotations

import msgspec

from battery.analyse.foreign.estimates import Basis, Estimates, Pair, label
from battery.analyse.foreign.rows import Row
from battery.ledger.trace import Metric


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """One candidate against the control at one context, before it is put into words."""

    metric: Metric
    context: int
    control: str
    candidate: str
    values: tuple[list[Row], list[Row]]
    """Rows of control and candidate, paired or not."""
    pairs: tuple[Pair, ...]
    lost: tuple[int, int]
    """Values of control and candidate without a partner."""
    estimates: Estimates
    claim: float | None

    @property
    def share_lost(self) -> float:
        """Share of the seeds and rounds of either arm that are missing in the other."""
        lost = sum(self.lost)
        return lost / (lost + len(self.pairs)) if lost else 0.0

    def labels(self, basis: Basis) -> list[str]:
        """The seeds or rounds of the pairs, each once."""
        found = (label(pair, basis) for pair in self.pairs)
        return sorted({name for name in found if name is not None})
