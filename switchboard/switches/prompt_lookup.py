"""Guess that the text goes on as it went on before, and let the verify loop check.

The last `ngram` tokens are looked up among all n-grams so far (then shorter ones, down to `least`); what followed
their latest occurrence is the draft. Costs a table of the text, no model.

The acceptance law is exact, and with the same seed the text is the plain loop's; but a verify pass of several rows may
round differently from passes of one (`switchboard bisect --switch prompt_lookup` tells by how much), so that a
near-tie can flip. So the switch claims `rounding`, not `exact`.

Goes together with every cache that can take rejected tokens back (switchboard/cache.py names the kinds). Over a state,
as in linear attention, a draft that is not accepted whole costs one more pass, over its accepted tokens; `pays` does
not know of it.

Adaptive: a verify pass costs about two plain steps on a CPU, so a draft pays only when more than `pays` of its
tokens are accepted on average. An exponential average of the accepted tokens per draft decides; below `pays` drafts
rest for `rest` tokens, and are then tried once again. The rule looks at tokens only, never at clocks, so that a
seed gives the same text every time. Beside `adaptive_depth`, which knows what a pass costs here, it never rests.

`runs` counts lookups, so engaged means that the table was asked; `proposals`, `proposed` and `accepted` say what
came of the drafts that were verified.
"""

from __future__ import annotations

import msgspec

from switchboard.registry import Counter, Target, switch

MEMORY = 0.7
HOPE = 2.0


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Options of this switch."""

    ngram: int = 3
    least: int = 2
    draft: int = 5
    adaptive: bool = True
    pays: float = 1.0
    rest: int = 16

    def __post_init__(self) -> None:
        """Refuse options that could never propose anything."""
        if not 1 <= self.least <= self.ngram <= 16:
            raise ValueError("1 <= least <= ngram <= 16 must hold")
        if not 1 <= self.draft <= 64 or self.rest < 0 or self.pays < 0:
            raise ValueError("draft must be 1 to 64; rest and pays must not be negative")


class PromptLookup:
    """An n-gram table over the text so far, and a memory of how well its guesses did."""

    def __init__(self, options: Options, counter: Counter) -> None:
        self._options = options
        self._counter = counter
        self._adaptive = options.adaptive
        self.begin([])

    def never_rest(self) -> None:
        """Leave it to another whether drafts pay."""
        self._adaptive = False

    def begin(self, prompt: list[int]) -> None:
        """Start on a new text; every request begins with the same hope."""
        self._text: list[int] = []
        self._follows: dict[tuple[int, ...], int] = {}
        self._gain = HOPE
        self._resting = 0
        self.extend(prompt)

    def extend(self, tokens: list[int]) -> None:
        """Enter each token as the one that follows the n-grams before it."""
        for token in tokens:
            here = len(self._text)
            for size in range(self._options.least, self._options.ngram + 1):
                if size <= here:
                    self._follows[tuple(self._text[here - size : here])] = here
            self._text.append(token)
        self._resting = max(0, self._resting - len(tokens))

    def propose(self, limit: int) -> list[int]:
        """What followed the latest occurrence of the longest known ending, up to `limit` tokens."""
        if self._resting or limit < 1:
            return []
        self._counter.runs += 1
        for size in range(self._options.ngram, self._options.least - 1, -1):
            place = self._follows.get(tuple(self._text[-size:]))
            if place is not None and size <= len(self._text):
                return self._text[place : place + min(limit, self._options.draft)]
        return []

    def judged(self, proposed: int, accepted: int) -> None:
        """Average the tokens gained per draft, and rest when drafts do not pay."""
        self._counter.add("proposals")
        self._counter.add("proposed", proposed)
        self._counter.add("accepted", accepted)
        self._gain = MEMORY * self._gain + (1 - MEMORY) * accepted
        if self._adaptive and self._gain < self._options.pays:
            self._resting = self._options.rest
            # One good draft after the rest is enough to go on.
            self._gain = self._options.pays


@switch(stage="draft", exactness="rounding", options=Options)
def prompt_lookup(options: Options, counter: Counter, target: Target) -> PromptLookup:
    """Make the proposer."""
    return PromptLookup(options, counter)
