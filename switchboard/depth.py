"""How deep to guess: what a draft is expected to bring, beside what it costs. Pure: no model, no clock.

Everything is counted in plain steps. A pass over d guesses brings, on average,

    tokens(d) = 1 + a1 + a1 a2 + … + a1 a2 … ad,    a_i the chance that guess i stands when those before it do,

and costs the guessing and the verifying of d + 1 tokens; where the cache holds a state, the tokens that stood are read
once more unless all did. It pays where tokens(d) / cost(d) is above 1: the plain loop brings one token a step. The
depth in use is the one where that ratio is largest, and 0 where none is above 1 plus a margin.

How wrong that can go is bounded by an account (`Allowance`): whatever was expected, a draft whose whole loss the
account cannot bear is not made. So guesses that never stand cost what the account began with, and then the share of
the time that it earns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

DECAY = 0.8
"""What an observation still weighs at the next one of its depth: about the latest five count."""
DOUBT = 0.3
"""The chance that a guess stands, before anything is known: enough where verifying is nearly free, too little else."""
FIRM = 4.0
"""Observations that this doubt counts as; they fade like any others."""
KINSHIP = 1.0
"""Observations that the chance one guess earlier counts as, at a depth that was seldom reached."""


@dataclass(frozen=True)
class Costs:
    """What was measured of one model, its switches and its proposer on one machine, in plain steps.

    `widths` are the tokens of a pass, rising from 1, and `ratios` what passes of them cost. `depths` and `guessing` are
    the same for making guesses; `reading` is what the proposer takes to read one more token of the text. `replays`:
    the cache holds a state, so that the tokens of a draft that stood in part are read again. `silent`: the proposer
    guessed nothing where it was measured, so what a guess costs is not known.
    """

    widths: tuple[int, ...]
    ratios: tuple[float, ...]
    depths: tuple[int, ...]
    guessing: tuple[float, ...]
    reading: float = 0.0
    replays: bool = False
    silent: bool = False

    @property
    def deepest(self) -> int:
        """The most guesses that the widest measured pass can hold."""
        return self.widths[-1] - 1

    def verify(self, width: int) -> float:
        """A pass over so many tokens, by straight lines between the measured widths."""
        return _between(self.widths, self.ratios, width)

    def guess(self, depth: int) -> float:
        """Making so many guesses."""
        return _between(self.depths, self.guessing, depth)

    def of(self, depth: int, chances: Sequence[float], behind: int = 0) -> float:
        """One draft of this depth with its pass; `behind` tokens were added since the proposer last read."""
        cost = self.guess(depth) + self.reading * behind + self.verify(depth + 1)
        if self.replays:
            reached = 1.0
            for stood, chance in enumerate(chances[:depth]):
                cost += reached * (1 - chance) * self.verify(stood + 1)
                reached *= chance
        return cost

    def worst(self, depth: int, behind: int = 0) -> float:
        """What a draft of this depth loses beside plain steps when none of it stands."""
        return self.of(depth, [0.0] * depth, behind) - 1

    def break_even(self, depth: int) -> float:
        """Tokens a pass from which on this depth pays."""
        return self.guess(depth) + self.verify(depth + 1) + self.replays


def _between(places: Sequence[int], values: Sequence[float], wanted: int) -> float:
    """Straight lines between points, going on as the last two do, but never down."""
    if wanted <= places[0] or len(places) == 1:
        return values[0]
    for (left, right), (low, high) in zip(pairwise(places), pairwise(values), strict=True):
        slope = (high - low) / (right - left)
        if wanted <= right:
            return low + slope * (wanted - left)
    return values[-1] + max(0.0, slope) * (wanted - places[-1])


def tokens(chances: Sequence[float]) -> float:
    """What a pass over these guesses brings on average, the token after them included."""
    total = reached = 1.0
    for chance in chances:
        reached *= chance
        total += reached
    return total


def gain(costs: Costs, chances: Sequence[float], depth: int, behind: int = 0) -> float:
    """Tokens per plain step's time at this depth; 1 at depth 0."""
    if depth == 0:
        return 1.0
    return tokens(chances[:depth]) / costs.of(depth, chances, behind)


def best(costs: Costs, chances: Sequence[float], most: int, margin: float, behind: int = 0) -> int:
    """The depth with the largest gain, up to `most`; 0 where none is above 1 + margin."""
    found, reached = 0, 1.0 + margin
    for depth in range(1, min(most, len(chances)) + 1):
        brings = gain(costs, chances, depth, behind)
        if brings > reached:
            found, reached = depth, brings
    return found


def hopeful(costs: Costs, most: int, margin: float, behind: int = 0) -> int:
    """The shallowest depth that pays if every guess stands: what a try is made with; 0 where none can ever pay."""
    sure = [1.0] * most
    depths = range(1, most + 1)
    return next((one for one in depths if gain(costs, sure, one, behind) > 1 + margin), 0)


@dataclass
class Acceptance:
    """The chance of every depth that its guess stands, followed with a fading memory.

    A depth that was hardly reached is taken to be like the one before it, and the first begins in doubt.
    """

    deepest: int
    stood: list[float] = field(default_factory=list)
    seen: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Begin with nothing known."""
        self.forget()

    def forget(self) -> None:
        """Know nothing again."""
        self.stood = [DOUBT * FIRM] + [0.0] * (self.deepest - 1)
        self.seen = [FIRM] + [0.0] * (self.deepest - 1)

    def saw(self, depth: int, stood: bool) -> None:
        """Learn whether the guess at this depth, from 1, was the token that came; those before it were."""
        place = depth - 1
        self.stood[place] = DECAY * self.stood[place] + stood
        self.seen[place] = DECAY * self.seen[place] + 1

    def chances(self) -> list[float]:
        """By depth, from 1."""
        told = [self.stood[0] / self.seen[0]]
        for stood, seen in zip(self.stood[1:], self.seen[1:], strict=True):
            told.append((stood + KINSHIP * told[-1]) / (seen + KINSHIP))
        return told


@dataclass
class Allowance:
    """An account of what drafts may lose, in plain steps: it never goes below 0.

    It begins with `held`, earns `share` of every token's time, gets what drafts gained and pays what they lost; beyond
    `most` nothing is saved up, so that a long run of good luck cannot be lost again.
    """

    held: float = 3.0
    share: float = 0.01
    most: float = 12.0

    def earn(self, count: int) -> None:
        """So many tokens were written."""
        self._add(self.share * count)

    def settle(self, brought: int, cost: float) -> None:
        """One draft was verified: the tokens that it brought, and what it cost."""
        self._add(brought - cost)

    def bears(self, loss: float) -> bool:
        """Whether that much can be lost."""
        return self.held >= loss

    def _add(self, amount: float) -> None:
        self.held = min(self.most, self.held + amount)
