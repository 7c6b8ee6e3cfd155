"""From logits to tokens: bias and end-of-text masks, then temperature, top-k, top-p and min-p, then one draw.

The order is fixed: temperature first, so top-p and min-p look at the distribution that is drawn from. Each request
has keys of its own from its seed, one for every place in the text, and never touches MLX's global random state: a
seed gives the same tokens whatever ran before, and whichever loop, plain or verified, writes them. Laws other than
`matched` draw with keys that are used once and belong to no place: how a draft was judged depends on what was drawn
behind the place where it ended, so the next draft must not see the same draws again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import mlx.core as mx
import numpy as np

from switchboard.accept.exact import OneByOne, matched
from switchboard.accept.ruling import Drawn, Law, Verdict

ASIDE = 0x9E3779B97F4A7C15
"""Added to a seed for the keys that belong to no place."""


@dataclass(frozen=True)
class Sampling:
    """What a request asked of the sampler, with every default filled in."""

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    seed: int = 0
    min_tokens: int = 0
    ignore_eos: bool = False
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    forced: tuple[int, ...] = ()
    """A recorded answer that takes the place of what is chosen (see forced); empty: the choice stands."""


class Sampler:
    """Chooses tokens for one request."""

    def __init__(self, sampling: Sampling, eos: Sequence[int], law: Law | None = None) -> None:
        """Without a law certain guesses are judged by `matched` and drawn ones by `OneByOne`: both exact."""
        self._sampling = sampling
        self._law = law
        self._aside = mx.random.key((sampling.seed + ASIDE) % 2**64)
        self._eos = tuple(eos)
        self._chain = mx.random.key(sampling.seed)
        self._keys: list[mx.array] = []
        self._greedy = sampling.temperature == 0.0
        self._biases: dict[bool, mx.array | None] = {}

    def choose(self, logits: mx.array, made: int) -> mx.array:
        """A token for the one row of logits, not evaluated yet; `made` tokens came before."""
        logits = self._adjusted(logits, made)
        if self._greedy:
            return mx.argmax(logits, axis=-1)
        return mx.random.categorical(self._filtered(logits), key=self._key(made))

    def margin(self, logits: mx.array, made: int, token: int) -> float:
        """How far the choice is from being this token: 0 when it is.

        Greedy: how much its logit lacks to the largest. Drawn: how much the draw lacks to its share; MLX draws one
        number from 0 to 1 and takes the token in whose share of the summed distribution it falls.
        """
        row = self._adjusted(logits, made)
        if self._greedy:
            return _number(mx.max(row) - row[-1, token])
        shares = self.distributions(row)[-1]
        end = mx.sum(shares[: token + 1])
        drawn = mx.random.uniform(shape=(1, 1), key=self._key(made))[0, 0]
        lacks = mx.maximum(end - shares[token] - drawn, drawn - end)
        return max(0.0, _number(lacks))

    def judge(self, logits: mx.array, draft: Sequence[int], made: int) -> Verdict:
        """What the law says of a draft, given the logits after the last token and after each guess.

        `matched` uses at every place the key that `choose` would use there, so the text is the plain loop's. At
        temperature 0 it stands for every law: the target's row has one token, and nothing else is accepted.
        """
        logits = self._adjusted(logits, made)
        if not self._greedy and (self._law is not None or isinstance(draft, Drawn)):
            return self._ruled(logits, draft)
        if self._greedy:
            choices = mx.argmax(logits, axis=-1)
        else:
            rows = self._filtered(logits)
            draws = [
                mx.random.categorical(rows[place : place + 1], key=self._key(made + place))
                for place in range(len(draft) + 1)
            ]
            choices = mx.concatenate(draws)
        told: list[int] = choices.tolist()  # type: ignore[assignment]
        return matched(told, draft)

    def draw(self, logits: mx.array, made: int) -> tuple[mx.array, mx.array]:
        """A guess of another model from its one row of logits, by the rules of this request, and its row of chances.

        Nothing is evaluated yet. At temperature 0 it is the most likely token.
        """
        logits = self._adjusted(logits, made)
        if self._greedy:
            guess = mx.argmax(logits, axis=-1)
            return guess, _certain(guess, logits.shape[-1])[0]
        rows = self._filtered(logits)
        guess = mx.random.categorical(rows, key=self._fresh())
        return guess, mx.softmax(rows, axis=-1, precise=True)[0]

    def _ruled(self, logits: mx.array, draft: Sequence[int]) -> Verdict:
        """One outcome of the law's ruling, drawn: how many guesses stand, then the token after them."""
        target = self.distributions(logits)
        width = target.shape[-1]
        chances = draft.chances if isinstance(draft, Drawn) else _certain(mx.array([*draft]), width)
        ruling = (self._law or OneByOne()).rule(target, chances, draft)
        stands = np.array(mx.stack([mx.array(one) for one in ruling.stands]), dtype=np.float64)
        drawn = _number(mx.random.uniform(key=self._fresh())) * stands.sum()
        # The first count whose summed chance lies above the number drawn: so one without a chance is never taken.
        count = int(np.searchsorted(np.cumsum(stands), drawn, side="right"))
        count = min(count, int(np.flatnonzero(stands)[-1]))
        token = mx.random.categorical(mx.log(ruling.following(count)), key=self._fresh())
        return Verdict(count, int(_number(token)))

    def distributions(self, logits: mx.array) -> mx.array:
        """The probabilities that are drawn from, a row each, after temperature and filters."""
        return mx.softmax(self._filtered(logits), axis=-1, precise=True)

    def _key(self, place: int) -> mx.array:
        """The key of the place-th new token: its own, whichever loop asks for it."""
        while len(self._keys) <= place:
            self._chain, key = mx.random.split(self._chain)
            self._keys.append(key)
        return self._keys[place]

    def _fresh(self) -> mx.array:
        """A key that nothing else will use."""
        self._aside, key = mx.random.split(self._aside)
        return key

    def _filtered(self, logits: mx.array) -> mx.array:
        """Logits over temperature, all outside top-k, top-p or min-p at minus infinity; ties stay."""
        sampling = self._sampling
        scaled = logits.astype(mx.float32) / sampling.temperature
        if 0 < sampling.top_k < scaled.shape[-1]:
            edge = mx.min(mx.topk(scaled, sampling.top_k, axis=-1), axis=-1, keepdims=True)
            scaled = mx.where(scaled < edge, -mx.inf, scaled)
        if sampling.top_p < 1.0:
            shares = mx.softmax(scaled, axis=-1, precise=True)
            falling = -mx.sort(-shares, axis=-1)
            before = mx.cumsum(falling, axis=-1) - falling
            kept = mx.where(before < sampling.top_p, falling, mx.inf)
            scaled = mx.where(shares < mx.min(kept, axis=-1, keepdims=True), -mx.inf, scaled)
        if sampling.min_p > 0.0:
            best = mx.max(scaled, axis=-1, keepdims=True)
            edge = best + float(np.log(sampling.min_p))
            scaled = mx.where(scaled < edge, -mx.inf, scaled)
        return scaled

    def _adjusted(self, logits: mx.array, made: int) -> mx.array:
        """Add the bias of the request; rows that may not end yet lose the end tokens."""
        count = logits.shape[0]
        early = count if self._sampling.ignore_eos else self._sampling.min_tokens - made
        early = max(0, min(count, early))
        parts = [(logits[:early], True), (logits[early:], False)]
        rows = [self._biased(part, mask) for part, mask in parts if part.shape[0]]
        return rows[0] if len(rows) == 1 else mx.concatenate(rows, axis=0)

    def _biased(self, logits: mx.array, mask_eos: bool) -> mx.array:
        if mask_eos not in self._biases:
            width = logits.shape[-1]
            values = np.zeros(width, dtype=np.float32)
            for token, amount in self._sampling.logit_bias.items():
                values[token] = amount
            if mask_eos:
                values[list(self._eos)] = -np.inf
            self._biases[mask_eos] = mx.array(values) if values.any() else None
        bias = self._biases[mask_eos]
        return logits if bias is None else logits + bias


def _certain(guesses: mx.array, vocabulary: int) -> mx.array:
    """Rows of chances with all weight on the guesses."""
    return (mx.arange(vocabulary)[None] == guesses[:, None]).astype(mx.float32)


def _number(array: mx.array) -> float:
    return float(array.item())  # type: ignore[arg-type]
