"""Laws that accept more than the target would write: faster, and another distribution. Off unless asked for.

How far they may drift is bounded, in total variation from the target's own text. `most` is the bound b of one place;
as every place is judged by itself, a text of n places drifts by at most 1 - (1 - b)^n with the largest b of its places.
At temperature 0 the target's row has one token, nothing else is ever accepted, and no law drifts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from switchboard.accept.exact import OneByOne
from switchboard.accept.ruling import Rows, Ruling, positive

Rule = Literal["token", "peak"]


@dataclass(frozen=True)
class Typical:
    """A guess x stands when p(x) > t = min(epsilon, delta e^-H), H the entropy of p in nats; else p is drawn from.

    Medusa's typical acceptance (Cai et al. 2024): where the target is unsure, any likely token will do. A place drifts
    by less than 1 - t: a guess that stands has a chance of more than t with the target, too. That is a weak promise
    where epsilon is small, and it is met nearly when the draft always guesses the same token with a chance just over t.
    """

    epsilon: float
    delta: float
    name: str = "typical"
    needs_chances: bool = False

    def threshold(self, row: Any) -> Any:
        """The least chance that is typical of this row."""
        bent = self.delta * math.e ** -entropy(row)
        return bent * (bent < self.epsilon) + self.epsilon * (bent >= self.epsilon)

    def rule(self, target: Rows, draft: Rows, guesses: Sequence[int]) -> Ruling:
        """Whether each guess stands is certain; only the token after them is drawn."""
        stands: list[Any] = []
        reached: Any = 1.0
        for place, guess in enumerate(guesses):
            good = (target[place][guess] > self.threshold(target[place])) * 1.0
            stands.append(reached * (1 - good))
            reached = reached * good
        return Ruling([*stands, reached], lambda count: target[count])

    def most(self, target: Any, draft: Any) -> Any:
        """The bound of one place: the draft's weight on what is typical, times 1 - t."""
        edge = self.threshold(target)
        return (draft * (target > edge)).sum() * (1 - edge)


@dataclass(frozen=True)
class Cascade:
    """Speculative cascades (Narasimhan et al. 2024): exact sampling from a blend of draft q and target p.

    - rule `token` (their third token-specific rule): tokens with p(v) >= (1 - alpha) max p are good enough to be taken
      from the draft: blend(v) = q(v) [v is good] + p(v) q(not good). A place drifts by at most q(good)
      (1 - (1 - alpha) max p). alpha is from 0 (only the target's first choice) to 1 (any token).
    - rule `peak` (their optimal rule): the draft is believed where max q >= max p - alpha TV(p, q), and then blend = q,
      else p. A place drifts by TV(p, q) where it is believed, which nothing bounds below 1: a draft that is sure of
      nonsense is believed. It compares how sure two models are, so it needs drawn guesses. alpha is 0 or more.

    alpha = 0 turns neither off: both still take tokens from the draft that the target would not draw as often.
    """

    alpha: float
    kind: Rule
    name: str = "cascade"

    @property
    def needs_chances(self) -> bool:
        """`peak` needs them: a certain guess is always as sure as the target, and would always stand."""
        return self.kind == "peak"

    def blend(self, target: Any, draft: Any) -> Any:
        """The row that is drawn from instead of the target's."""
        if self.kind == "token":
            edge = (1 - self.alpha) * target.max()
            return draft * (target >= edge) + target * (draft * (target < edge)).sum()
        believed = draft.max() >= target.max() - self.alpha * positive(target - draft).sum()
        return draft * believed + target * (1 - believed)

    def rule(self, target: Rows, draft: Rows, guesses: Sequence[int]) -> Ruling:
        """Rejection sampling with the blends in the target's place; after the last guess, the target."""
        blends = [self.blend(target[place], draft[place]) for place in range(len(guesses))]
        return OneByOne().rule([*blends, target[len(guesses)]], draft, guesses)

    def most(self, target: Any, draft: Any) -> Any:
        """The bound of one place."""
        if self.kind == "token":
            edge = (1 - self.alpha) * target.max()
            return (draft * (target >= edge)).sum() * (1 - edge)
        return positive(target - self.blend(target, draft)).sum()


def entropy(row: Any) -> Any:
    """Of one row, in nats."""
    held = row + (row <= 0)
    return -(row * (np.log(held) if isinstance(row, np.ndarray) else held.log())).sum()
