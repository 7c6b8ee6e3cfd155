"""The verify loop: propose, check in one pass, accept, take the rest back.

The proposer guesses, the model reads the last token and all guesses at once, and the acceptance law says how many
stand. Where there is nothing to propose the loop is the plain one, with the next step started ahead; a draft that
turns up meanwhile waits for that step. Counts are kept at the verify pass itself, which needs its result at once:
nothing overlaps it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import mlx.core as mx

from switchboard import cache as kv
from switchboard.decode import Chooser, Tally, forward, start, start_ahead, value
from switchboard.registry import HopefulProposer, Proposer


def verified(
    model: Any,
    cache: list[Any],
    last: int,
    sampler: Chooser,
    proposer: Proposer,
    count: int,
    tally: Tally,
) -> Iterator[list[int]]:
    """Up to `count` tokens after the last prompt token, one or more at a time."""
    made = 0
    current = sampler.choose(forward(model, cache, mx.array([last])), 0)
    start(current)
    hopeful = False
    while made < count:
        ahead = None
        if not hopeful and made + 1 < count:
            ahead = sampler.choose(forward(model, cache, current), made + 1)
            start_ahead(ahead, cache)
        token = value(current)
        made += 1
        proposer.extend([token])
        yield [token]
        if ahead is not None:
            hopeful = _hopes(proposer, count - made - 1)
            start(ahead)
            current = ahead
            continue
        draft = _ask(proposer, count - made - 1)
        while draft:
            tokens = check(model, cache, token, draft, sampler, made, tally, proposer)
            made += len(tokens)
            proposer.extend(tokens)
            yield tokens
            token = tokens[-1]
            draft = _ask(proposer, count - made - 1)
        hopeful = False
        if made < count:
            current = sampler.choose(forward(model, cache, mx.array([token])), made)
            start(current)


def _ask(proposer: Proposer, room: int) -> list[int]:
    """Guesses for the room that is left beside the target's own token; a proposer is not asked for none."""
    return proposer.propose(room) if room > 0 else []


def _hopes(proposer: Proposer, room: int) -> bool:
    """Whether the step after the one that runs ahead had better be a verify pass."""
    if room > 0 and isinstance(proposer, HopefulProposer):
        return proposer.hopes(room)
    return bool(_ask(proposer, room))


def check(
    model: Any,
    cache: list[Any],
    token: int,
    draft: list[int],
    sampler: Chooser,
    made: int,
    tally: Tally,
    proposer: Proposer,
) -> list[int]:
    """One verify pass: the guesses that stand, and the target's own token after them."""
    before, fed = kv.Checkpoint(cache), [token, *draft]
    verdict = sampler.judge(forward(model, cache, mx.array(fed)), draft, made)
    before.keep(model, fed, 1 + verdict.accepted)
    tally.verified(len(draft), verdict.accepted)
    proposer.judged(len(draft), verdict.accepted)
    return [*draft[: verdict.accepted], verdict.following]
