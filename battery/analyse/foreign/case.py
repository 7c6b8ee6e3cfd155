"""One candidate against the control at one context, matched and estimated, before it is put into words."""

from __future__ import annotations

import msgspec

from battery.analyse.foreign.estimates import Basis, Estimates, Pair, label
from battery.analyse.foreign.rows import Row
from battery.ledger.trace import Metric


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """One candidate against the control at one context, before it is put into words."""

    metric: Metric
    context: int | None
    """None: the files do not say."""
    control: str
    candidate: str
    values: tuple[list[Row], list[Row]]
    """Rows of control and candidate, paired or not."""
    pairs: tuple[Pair, ...]
    lost: tuple[int, int]
    """Values of control and candidate without a partner."""
    estimates: Estimates
    claim: float | None
    launches: bool = False
    """Whether the rows came out of files of another tool, each of which is taken for one launch."""

    @property
    def share_lost(self) -> float:
        """Share of the seeds and rounds of either arm that are missing in the other."""
        lost = sum(self.lost)
        return lost / (lost + len(self.pairs)) if lost else 0.0

    @property
    def one_launch(self) -> bool:
        """Whether all values of an arm are of one file, so that what differs between launches is in no interval.

        Several runs of one file are rounds, but nothing tells that the server was started again between them.
        """
        sides = (
            {pair.control.line for pair in self.pairs},
            {pair.candidate.line for pair in self.pairs},
        )
        return self.launches and any(len(files) == 1 for files in sides)

    def labels(self, basis: Basis) -> list[str]:
        """The seeds or rounds of the pairs, each once."""
        found = (label(pair, basis) for pair in self.pairs)
        return sorted({name for name in found if name is not None})
