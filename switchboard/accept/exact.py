"""Laws that keep the target's distribution, whatever the draft is: proved by enumeration to 1e-12.

Three of them, for three kinds of drafts:

- `matched`, for guesses that do not come from chances, or that were drawn with the target's own randomness;
- `OneByOne`, for drawn guesses: rejection sampling place by place (Leviathan et al. 2023, Chen et al. 2023);
- `Block`, for drawn guesses, judged together (Sun et al. 2024, "Block Verification Accelerates Speculative Decoding").

For guesses that are certain all three accept k guesses with the same chance, the product of the target's own. For drawn
ones `Block` accepts at least as many on average as `OneByOne`; neither needs to know why a draft ended where it did.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from switchboard.accept.ruling import Rows, Ruling, Verdict, capped, leftover, positive


def matched(choices: Sequence[int], draft: Sequence[int]) -> Verdict:
    """The exact law of certain guesses; `choices` holds the target's own choice at every place, one more than these.

    At every place the target makes its own choice with that place's own randomness: the most likely token at
    temperature 0, a draw from its distribution p above. A guess x stands when the choice is x, so with chance p(x);
    where it does not stand, the choice is distributed as p given that it is not x. That is rejection sampling, draw for
    draw, so the text has the target's distribution.

    And more: the choices do not depend on the draft. With the same seed the text is the one that the plain loop writes,
    as far as a pass of several rows rounds like passes of one. Two arms can then be timed on the same text.
    """
    for place, guess in enumerate(draft):
        if choices[place] != guess:
            return Verdict(place, choices[place])
    return Verdict(len(draft), choices[len(draft)])


@dataclass(frozen=True)
class OneByOne:
    """Rejection sampling: a guess x drawn from q stands with chance min(1, p(x) / q(x)), while all before it stand.

    Where one does not, the token is drawn from what p has above q; after the last, from p.
    """

    name: str = "exact"
    needs_chances: bool = False

    def rule(self, target: Rows, draft: Rows, guesses: Sequence[int]) -> Ruling:
        """The first guess that does not stand ends it."""
        stands: list[Any] = []
        reached: Any = 1.0
        for place, guess in enumerate(guesses):
            chance = capped(target[place][guess] / draft[place][guess])
            stands.append(reached * (1 - chance))
            reached = reached * chance
        return Ruling([*stands, reached], lambda count: _after(target, draft, count, 1.0))


@dataclass(frozen=True)
class Block:
    """Block verification: the longest beginning of the draft that stands as a whole, though parts of it may not.

    With s(0) = 1 and s(i) = min(1, s(i-1) p(x_i) / q(x_i)), let r(i) be the sum of what s(i) p has above q at the place
    after i guesses. Going back from the last guess, the first i guesses stand with chance r(i) / (r(i) + 1 - s(i)), all
    of them with s(d); the token after i < d of them is drawn from what s(i) p has above q, after all from p. Then i or
    more guesses stand with chance s(i), as the target's own share of them allows.
    """

    name: str = "block"
    needs_chances: bool = True

    def rule(self, target: Rows, draft: Rows, guesses: Sequence[int]) -> Ruling:
        """Judged from the end of the draft to its beginning."""
        shares: list[Any] = [1.0]
        for place, guess in enumerate(guesses):
            shares.append(capped(shares[-1] * target[place][guess] / draft[place][guess]))
        stands: list[Any] = []
        missed: Any = 1.0
        for count in range(len(guesses), -1, -1):
            chance = self._chance(target, draft, count, shares[count], len(guesses))
            stands.append(missed * chance)
            missed = missed * (1 - chance)
        stands.reverse()
        return Ruling(stands, lambda count: _after(target, draft, count, shares[count]))

    @staticmethod
    def _chance(target: Rows, draft: Rows, count: int, share: Any, whole: int) -> Any:
        """The chance that the first `count` guesses stand, given that no longer beginning does."""
        if count == 0:
            return 1.0
        if count == whole:
            return share
        rest = positive(share * target[count] - draft[count]).sum()
        both = rest + 1 - share
        # Both are 0 only where the share is 1 and p is q: then the next beginning has its share of 1, too.
        return rest / (both + (both <= 0))


def _after(target: Rows, draft: Rows, count: int, share: Any) -> Any:
    """Weights of the token after `count` guesses that stand."""
    if count == len(draft):
        return target[count]
    return leftover(share * target[count], draft[count], target[count])
