"""Teacher forcing: a recorded continuation in place of what the sampler chooses, at the same work.

Every pass is made as it would be: drafts are proposed from the text so far, verify passes have the widths that this
text leads to, rejected guesses are taken back, and the sampler filters and draws. Only its answer is put aside and the
recorded token takes its place. So two engines, or one with other switches, can be timed on one text, whatever
rounding, a lossy cache or another acceptance law would have made of it.

A guess stands when it is the recorded token: what the law for certain guesses does on this text by itself. Guesses that
were drawn, and laws that let more pass (typical, cascade), accept more often on a text that they may lead than on a
given one: for them a forced run counts fewer tokens per step than a free one, and says only what a step costs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import mlx.core as mx

from switchboard.accept.ruling import Verdict
from switchboard.decode import Chooser
from switchboard.errors import RequestError


class Forced:
    """A sampler whose answers are replaced by recorded tokens."""

    def __init__(self, free: Chooser, tokens: Sequence[int]) -> None:
        """`tokens` are the whole answer: the loops must not ask for a place behind them."""
        self._free = free
        self._tokens = list(tokens)

    def choose(self, logits: mx.array, made: int) -> mx.array:
        """The recorded token, known once the sampler has chosen: what follows cannot start before that."""
        chosen = self._free.choose(logits, made)
        recorded = mx.array([self._tokens[made]], dtype=chosen.dtype)
        told: mx.array = mx.depends(recorded, chosen)
        return told

    def judge(self, logits: mx.array, draft: Sequence[int], made: int) -> Verdict:
        """How many guesses are the recorded tokens, and the recorded one after them; the law is asked all the same."""
        verdict = self._free.judge(logits, draft, made)
        recorded = self._tokens[made : made + len(draft) + 1]
        accepted = 0
        while accepted < len(draft) and draft[accepted] == recorded[accepted]:
            accepted += 1
        return replace(verdict, accepted=accepted, following=recorded[accepted])


def checked(
    tokens: Sequence[int],
    lengths: Sequence[int | None],
    stops: Sequence[str],
    vocabulary: int,
    room: int,
) -> tuple[int, ...]:
    """The continuation that a request asks for; RequestError where it cannot be the whole answer.

    `lengths` are the lengths that the request asks for beside it, None where it asks for none; `room` is what the
    context leaves after the prompt. End tokens and ids of special tokens are let through: they were recorded.
    """
    if not tokens:
        raise _wrong("is empty: give the tokens of the answer, or leave the field out")
    for place, token in enumerate(tokens):
        if not 0 <= token < vocabulary:
            raise _wrong(
                f"[{place}] is {token}, which is outside the vocabulary of {vocabulary}",
                "not_in_vocabulary",
            )
    for length in lengths:
        if length is not None and length != len(tokens):
            raise _wrong(
                f"has {len(tokens)} tokens, but max_tokens is {length}: make them agree, or leave max_tokens out"
            )
    if len(tokens) > room:
        raise _wrong(
            f"has {len(tokens)} tokens, but the context has room for {room} after the prompt",
            "context_length_exceeded",
        )
    if stops:
        raise _wrong("is the whole answer, so a stop string cannot end it: leave stop out")
    return tuple(tokens)


def _wrong(what: str, code: str = "fields_disagree") -> RequestError:
    words = f"forced_tokens{'' if what.startswith('[') else ' '}{what}"
    return RequestError(words, code, param="forced_tokens")
