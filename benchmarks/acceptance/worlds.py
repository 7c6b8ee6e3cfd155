"""Random small targets and drafts: chances after every beginning of a text, filtered by the engine's own sampler.

A world has a vocabulary of 4 to 6 and drafts of up to 3 guesses. Its rows come from random logits through temperature,
top-k, top-p and min-p as a request would have them, so that some tokens are impossible; the draft's logits are the
target's with noise, from a good guesser to one that knows nothing.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from switchboard.sampler import Sampler, Sampling

Floats = NDArray[np.float64]
Text = tuple[int, ...]
Kind = Literal["certain", "drawn", "stopping"]
"""How guesses come about: one for every text; drawn from the draft's row; drawn, until one of them ends the draft."""

VOCABULARIES = (4, 5, 6)
DEPTHS = (1, 2, 3)
SAMPLINGS = (
    Sampling(),
    Sampling(temperature=0.0),
    Sampling(temperature=0.4),
    Sampling(temperature=1.6),
    Sampling(top_k=2),
    Sampling(top_p=0.7),
    Sampling(min_p=0.2),
    Sampling(temperature=0.8, top_k=3, top_p=0.9, min_p=0.05),
)
NOISES = (0.0, 0.5, 1.5, 4.0)
SPREAD = 1.5


@dataclass(frozen=True)
class World:
    """Rows of the target and the draft after every text; a text has one token more than a draft has guesses."""

    vocabulary: int
    depth: int
    sampling: Sampling
    target: Mapping[Text, Floats]
    draft: Mapping[Text, Floats]

    @property
    def length(self) -> int:
        """Tokens of a whole text."""
        return self.depth + 1

    def guesses(self, text: Text, kind: Kind) -> Iterator[tuple[Text, Floats, float]]:
        """Every draft after a text that leaves room for one token more: guesses, their rows, and its chance."""
        room = self.length - len(text) - 1
        if kind == "certain":
            yield self._certain(text, room)
        else:
            yield from self._drawn(text, (), 1.0, room, kind == "stopping")

    def first_row(self, text: Text, kind: Kind) -> Floats:
        """The row of the first guess after a text that leaves room for one."""
        row: Floats = self.draft[text] if kind != "certain" else self._certain(text, 1)[1][0]
        return row

    def _certain(self, text: Text, room: int) -> tuple[Text, Floats, float]:
        """What some rule without chances would guess: now the draft's first choice, now any token."""
        guesses: Text = ()
        for _ in range(room):
            row = self.draft[text + guesses]
            some = (sum(text) + len(text) + len(guesses)) % self.vocabulary
            guesses += (int(row.argmax()) if some % 2 else some,)
        rows = np.zeros((room, self.vocabulary))
        rows[range(room), list(guesses)] = 1.0
        return guesses, rows, 1.0

    def _drawn(
        self, text: Text, so_far: Text, chance: float, room: int, stops: bool
    ) -> Iterator[tuple[Text, Floats, float]]:
        ended = stops and so_far[-1:] == (self.vocabulary - 1,)
        if len(so_far) == room or ended:
            rows = [self.draft[text + so_far[:place]] for place in range(len(so_far))]
            yield so_far, np.array(rows).reshape(len(so_far), self.vocabulary), chance
            return
        for token, share in enumerate(self.draft[text + so_far]):
            if share > 0:
                yield from self._drawn(text, (*so_far, token), chance * share, room, stops)


def worlds(count: int, seed: int) -> Iterator[World]:
    """The first so many worlds of a seed; every sampling meets every vocabulary, depth and noise in turn."""
    shapes = itertools.cycle(itertools.product(DEPTHS, VOCABULARIES, NOISES))
    for place, (depth, vocabulary, noise) in zip(range(count), shapes, strict=False):
        rng = np.random.default_rng((seed, place))
        # 8 samplings against 36 shapes: a step of 5 brings every pair before any comes again
        sampling = SAMPLINGS[(5 * place + place // 36) % len(SAMPLINGS)]
        yield world(rng, vocabulary, depth, noise, sampling)


def world(
    rng: np.random.Generator, vocabulary: int, depth: int, noise: float, sampling: Sampling
) -> World:
    """One world; with no noise the draft is the target."""
    texts = [
        text
        for length in range(depth + 1)
        for text in itertools.product(range(vocabulary), repeat=length)
    ]
    logits = SPREAD * rng.normal(size=(len(texts), vocabulary))
    guessed = logits + noise * rng.normal(size=logits.shape)
    return World(
        vocabulary,
        depth,
        sampling,
        dict(zip(texts, filtered(logits, sampling), strict=True)),
        dict(zip(texts, filtered(guessed, sampling), strict=True)),
    )


def filtered(logits: Any, sampling: Sampling) -> Floats:
    """The rows that the sampler draws from, in double precision; at temperature 0 all weight is on one token."""
    if sampling.temperature == 0:
        rows: Floats = np.eye(logits.shape[-1])[logits.argmax(axis=-1)]
        return rows
    given = mx.array(logits.astype(np.float32))
    rows = np.array(Sampler(sampling, ()).distributions(given)).astype(np.float64)
    return np.asarray(rows / rows.sum(axis=-1, keepdims=True))
