"""Acceptance laws: how much of a draft stands, and which token follows. Pure.

`matched` is the exact law for a deterministic draft, at any temperature. At every place the target makes its own choice
with that place's own randomness: the most likely token at temperature 0, a draw from its distribution p above (with
temperature, top-k, top-p and min-p applied). A guess x stands when the choice is x, so with probability p(x); where
it does not stand, the choice is distributed as p given that it is not x. That is rejection sampling, draw for draw,
so the text has the target's distribution.

And more: the choices do not depend on the draft. With the same seed the text is the one that the plain loop writes,
as far as a pass of several rows rounds like passes of one. Two arms can then be timed on the same text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Verdict:
    """How many guesses stand, and the target's own token after them."""

    accepted: int
    following: int


def matched(choices: Sequence[int], draft: Sequence[int]) -> Verdict:
    """The exact law; `choices` holds the target's own choice at every place, one more than the draft."""
    for place, guess in enumerate(draft):
        if choices[place] != guess:
            return Verdict(place, choices[place])
    return Verdict(len(draft), choices[len(draft)])
