"""Let a guess stand when it is likely enough, though the target might have drawn another token. Lossy.

The rule and the bound of its drift are `accept.lossy.Typical`'s: p > min(epsilon, delta e^-H). `delta` is the root of
`epsilon` unless it is given, as Medusa has it. Nothing drifts at temperature 0, where the law is not asked and `runs`,
which counts its rulings, stays.
"""

from __future__ import annotations

import math

import msgspec

from switchboard.accept.lossy import Typical
from switchboard.accept.ruling import Counted
from switchboard.registry import Counter, switch


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Options of this switch."""

    epsilon: float = 0.09
    delta: float | None = None

    def __post_init__(self) -> None:
        """Refuse what is no chance; the negation refuses what is no number, too."""
        if not 0 < self.epsilon <= 1 or not (self.delta is None or 0 < self.delta <= 1):
            raise ValueError("epsilon and delta must be above 0 and at most 1")


@switch(stage="law", exactness="lossy", options=Options)
def typical(options: Options, counter: Counter) -> Counted:
    """Make the law."""
    delta = math.sqrt(options.epsilon) if options.delta is None else options.delta
    return Counted(Typical(options.epsilon, delta), counter)
