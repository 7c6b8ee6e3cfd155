"""The proposer that asks the model's own multi-token head, fed with the hidden states of the passes that went by.

Row i of the head's cache needs the hidden state at place i and the token at i + 1. So the head is always one behind the
text, and is caught up when it is asked:

- in a long prompt at once, piece by piece: no more than `NARROW` hidden states are held back;
- after a verify pass over the tokens that stood, with the target's own hidden states. What stood in its cache for
  guesses is taken back first: those rows were made of states that it foresaw itself;
- a target with linear attention reads accepted tokens twice, to take the others back. The first reading counts, as it
  was computed for the logits anyway; of the second nobody waits for the last layer.

A pass that does not join on to what was seen (another text, a prompt whose beginning was taken up from a pool) starts
the head anew at its place. Rotary positions are relative, so only context is missing then. Whatever it is fed, the
verify loop decides: a head can be wrong, never the text.
"""

from __future__ import annotations

from typing import Any

import mlx.core as mx

from switchboard import cache as kv
from switchboard import lm
from switchboard.drafter import guessed
from switchboard.mtp.head import Ends, Head
from switchboard.mtp.trail import Trail
from switchboard.registry import Counter
from switchboard.sampler import Sampler, Sampling

NARROW = 128
"""Hidden states that may wait to be read: more than a verify pass brings, and no more than a small part of a prompt."""


class Foresight:
    """The head with its cache, kept in step with one text."""

    def __init__(self, head: Head, ends: Ends, depth: int, draws: bool, counter: Counter) -> None:
        self._head = head
        self._ends = ends
        self._depth = depth
        self._draws = draws
        self._counter = counter
        self._sampler = Sampler(Sampling(temperature=0.0), ())
        self._trail = Trail()
        self._text: list[int] = []
        self._prompt = 0
        self._next = 0
        self._forget(0)

    @property
    def draws(self) -> bool:
        """Whether the guesses come with their chances."""
        return self._draws

    def sample_with(self, sampler: Sampler) -> None:
        """Guess by the rules and the randomness of this request."""
        self._sampler = sampler

    def heard(self, place: int, ids: mx.array, hidden: mx.array) -> None:
        """Note a pass of the target."""
        if self._asked and place + ids.shape[0] <= self._trail.end:
            return  # accepted tokens, read once more
        if not self._trail.note(place, ids, hidden):
            self._forget(place)
        if len(self._trail) > NARROW:
            self._catch_up()

    def begin(self, prompt: list[int]) -> None:
        """Take what was heard of this prompt for its beginning; anything else is forgotten."""
        self._text, self._prompt = list(prompt), len(prompt)
        if not prompt or self._used or not self._heard_of(prompt):
            self._trail.restart(0)
            self._forget(0)
        self._trail.cut(len(prompt) - 1)

    def extend(self, tokens: list[int]) -> None:
        """Take what was really produced."""
        self._text += tokens

    def propose(self, limit: int) -> list[int]:
        """A guess after the text, and more by going on from what was foreseen; none where a hidden state is missing."""
        self._counter.runs += 1
        last = len(self._text) - 2
        if not self._trail.first <= last < self._trail.end:
            return []
        self._take_back(last)
        first, hidden = self._next, self._trail.hidden(self._next, last + 1)
        self._trail.drop(last)
        self._next, self._used, self._asked = last + 1, True, True

        def after(guess: mx.array | None) -> mx.array:
            nonlocal hidden
            ids = mx.array(self._text[first + 1 :]) if guess is None else guess
            hidden = self._head(self._ends.embed(ids), hidden, self._cache)[:, -1:]
            return self._ends.logits(hidden)

        depth = min(limit, self._depth)
        made = len(self._text) - self._prompt
        self._guesses = depth - 1
        return guessed(after, self._sampler, made, depth, self._draws)

    def judged(self, proposed: int, accepted: int) -> None:
        """Count what came of the guesses, and let go the hidden states behind those that fell."""
        self._counter.add("proposals")
        self._counter.add("proposed", proposed)
        self._counter.add("accepted", accepted)
        self._trail.cut(len(self._text) + accepted)
        self._asked = False

    def _forget(self, place: int) -> None:
        """An empty cache, whose first row will be this place's."""
        self._cache: Any = lm.caches().KVCache()
        self._first = self._next = place
        """The places of the cache's first row, and of the one that comes next; guesses come behind."""
        self._guesses = 0
        self._ids: list[mx.array] = []
        """The tokens at the places of the rows that were read of a prompt."""
        self._used = self._asked = False
        """Whether the head guessed since it was empty; and since the last verdict."""

    def _heard_of(self, prompt: list[int]) -> bool:
        """Whether all that was heard stands in this prompt."""
        end = min(self._trail.end, len(prompt) - 1)
        if self._next >= end:
            return False
        ids = mx.concatenate([*self._ids, self._trail.ids(self._next, end)])
        return bool(ids.tolist() == prompt[self._first : end])

    def _catch_up(self) -> None:
        """Read all that was heard but for its last place, whose next token is not known; a prompt, in pieces."""
        first, end = self._next, self._trail.end - 1
        self._take_back(first)
        ids = self._trail.ids(first, end + 1)
        self._head(self._ends.embed(ids[1:]), self._trail.hidden(first, end), self._cache)
        mx.eval(kv.arrays([self._cache]))
        self._ids.append(ids[:-1])
        self._trail.drop(end)
        self._next = end

    def _take_back(self, place: int) -> None:
        """Leave the rows of true states only, and of those the ones before this place."""
        back = max(self._next - place, 0)
        kv.rewind([self._cache], self._guesses + back)
        self._guesses, self._next = 0, self._next - back
