"""Blend the draft's distribution with the target's, and sample from the blend exactly. Lossy.

Rules, meaning of alpha and bounds of the drift are `accept.lossy.Cascade`'s. alpha has no default: where it is not set
the law is off, and says so; alpha = 0 is on, and lossy. Nothing drifts at temperature 0, where the law is not asked and
`runs`, which counts its rulings, stays.
"""

from __future__ import annotations

import msgspec

from switchboard.accept.lossy import Cascade, Rule
from switchboard.accept.ruling import Counted
from switchboard.errors import Declined
from switchboard.registry import Counter, switch


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Options of this switch."""

    alpha: float | None = None
    rule: Rule = "token"

    def __post_init__(self) -> None:
        """Refuse an alpha that the rule has no meaning for; the negation refuses what is no number, too."""
        most = 1.0 if self.rule == "token" else 1e6
        if self.alpha is not None and not 0 <= self.alpha <= most:
            raise ValueError(
                "alpha must be from 0 to 1 with rule=token, and 0 or more with rule=peak"
            )


@switch(stage="law", exactness="lossy", options=Options)
def cascade(options: Options, counter: Counter) -> Counted:
    """Make the law, if alpha is set."""
    if options.alpha is None:
        raise Declined("alpha is not set, so the law is off; cascade:alpha=0 would be on")
    return Counted(Cascade(options.alpha, options.rule), counter)
