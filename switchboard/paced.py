"""A proposer that guesses only as deep as it pays, around any other one.

It watches what came of every guess. Where guessing costs next to nothing (a lookup: less than `SHARE` of a step) it
always has the inner one guess as deep as it goes and compares with the tokens that come, verified or not: the plain
loop's tokens judge a draft for nothing. So it needs no tries, a text begins with nothing known, and depth 0 lasts
exactly as long as the guesses are wrong. Where guessing costs (a model) nothing is guessed at depth 0; what is known of
a pair of models is kept from text to text, and now and then it tries the shallowest depth that pays if all stands.

Whatever is verified is paid from one account for all texts (depth.Allowance): what is lost beside plain steps, tries
included, is over the life of the engine at most what the account began with and 1 % of the plain loop's time. This
holds by the measured costs.

The depth follows from earlier tokens and from costs that were measured before: the law that judges is not touched.
With a law under which a guess may stand that is not the target's token (typical, cascade), a guess that was only
watched counts as the exact law would judge it.
"""

from __future__ import annotations

from typing import Any

from switchboard.depth import Acceptance, Allowance, Costs, best, hopeful
from switchboard.registry import Counter, Proposer, RestingProposer, SamplingProposer

SHARE = 0.01
"""Of a plain step: what guessing may cost so that it is done at every token, and what tries may cost on average."""


class Paced:
    """The inner proposer at the depth that pays; `margin` is the gain that it has to be expected to bring."""

    def __init__(
        self, inner: Proposer, costs: Costs, margin: float, start: float, counter: Counter
    ) -> None:
        self.costs = costs
        self.depth = 0
        """The latest choice."""
        self._inner = inner
        self._margin = margin
        self._counter = counter
        cheap = costs.guess(costs.deepest) + costs.reading <= SHARE
        self._watches = cheap and not costs.silent and not self.draws
        self._acceptance = Acceptance(costs.deepest)
        self._allowance = Allowance(start, SHARE)
        self._watched: list[tuple[list[int], int]] = []
        """Guesses with the count of those that came true so far."""
        self._behind = 0
        if isinstance(inner, RestingProposer):
            inner.never_rest()

    @property
    def draws(self) -> bool:
        """Whether the guesses come with their chances."""
        return isinstance(self._inner, SamplingProposer) and self._inner.draws

    def sample_with(self, sampler: Any) -> None:
        """Hand the request's sampler on to a proposer that guesses with it."""
        if isinstance(self._inner, SamplingProposer):
            self._inner.sample_with(sampler)

    def begin(self, prompt: list[int]) -> None:
        """Start on a new text; a lookup knows nothing of it yet."""
        self._inner.begin(prompt)
        self._watched, self._behind = [], 0
        if self._watches and prompt:
            self._acceptance.forget()

    def extend(self, tokens: list[int]) -> None:
        """Take the tokens that were really produced, and see which guesses they were."""
        self._inner.extend(tokens)
        self._behind += len(tokens)
        self._allowance.earn(len(tokens))
        for token in tokens:
            going = []
            for guesses, stood in self._watched:
                right = guesses[stood] == token
                self._acceptance.saw(stood + 1, right)
                if right and stood + 1 < len(guesses):
                    going.append((guesses, stood + 1))
            self._watched = going

    def hopes(self, limit: int) -> bool:
        """Whether the next token had better be followed by a draft."""
        if self._watches:
            return bool(self.propose(limit))
        return self._choice(limit) > 0

    def propose(self, limit: int) -> list[int]:
        """Guesses as deep as pays, or none."""
        self._counter.runs += 1
        if self._watches:
            draft = self._inner.propose(min(limit, self.costs.deepest))
            self.depth = self._choice(len(draft))
        else:
            self.depth = self._choice(limit)
            draft = self._inner.propose(self.depth) if self.depth else []
        if draft:
            self._watched.append((draft, 0))
            self._counter.add("watched", len(draft))
        return draft if self.depth >= len(draft) else draft[: self.depth]

    def judged(self, proposed: int, accepted: int) -> None:
        """Settle what the draft brought and cost."""
        self._inner.judged(proposed, accepted)
        self._counter.add("drafts")
        self._counter.add("guesses", proposed)
        chances = [1.0] * accepted + [0.0] * (proposed - accepted)
        self._allowance.settle(accepted + 1, self.costs.of(proposed, chances, self._behind))
        self._behind = 0

    def _choice(self, limit: int) -> int:
        """The depth that pays, or that is worth a try, among those whose loss the account can bear."""
        most, behind = min(limit, self.costs.deepest), self._behind
        while most > 0 and not self._allowance.bears(self.costs.worst(most, behind)):
            most -= 1
        depth = best(self.costs, self._acceptance.chances(), most, self._margin, behind)
        if depth == 0 and not self._watches:
            depth = hopeful(self.costs, most, self._margin, behind)
        return depth

    def told(self) -> dict[str, Any]:
        """For /health: what passes cost by width, what has to stand by depth, and what is in use."""
        costs = self.costs
        depths = range(1, costs.deepest + 1)
        chances = self._acceptance.chances()
        return {
            "verify_cost": dict(
                zip(map(str, costs.widths), (round(one, 3) for one in costs.ratios), strict=True)
            ),
            "guess_cost": {str(depth): round(costs.guess(depth), 4) for depth in depths},
            "break_even": {str(depth): round(costs.break_even(depth), 3) for depth in depths},
            "chances": {str(depth): round(chances[depth - 1], 3) for depth in depths},
            "deepest": costs.deepest,
            "depth": self.depth,
            "watches": self._watches,
            "allowance": round(self._allowance.held, 3),
        }
