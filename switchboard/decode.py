"""The plain loop: prefill in pieces, then one token a step. The reference for everything else.

The graph of the next step is built while the current one computes. On a GPU it is also started before the current
token is read. On the CPU starting blocks until that step is nearly done (MLX bounds its queue), and every token
would come out one step late: measured as a TTFT one step too long and a decode rate one step too good. So there
only the first two layers are started ahead, which keeps the CPU busy while a token is read and handed on, and the rest
follows. The loop knows nothing of text, end tokens or clients; whoever reads it stops reading.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import mlx.core as mx

from switchboard import cache as kv
from switchboard.accept.ruling import Verdict


class Chooser(Protocol):
    """What the loops ask of a sampler."""

    def choose(self, logits: mx.array, made: int) -> mx.array:
        """A token for the one row of logits, not evaluated yet; `made` tokens came before."""

    def judge(self, logits: mx.array, draft: Sequence[int], made: int) -> Verdict:
        """What stands of a draft, given the logits after the last token and after each guess."""


@dataclass
class Tally:
    """What one request did, counted where it happens; times in seconds.

    prompt_s ends when the first token is known, decode_s runs from there to the last; decode_tokens are the tokens
    that came in it, and steps the passes that brought them.
    """

    prompt_tokens: int = 0
    prompt_s: float | None = None
    decode_s: float | None = None
    decode_tokens: int = 0
    steps: int = 0
    proposed: int = 0
    accepted: int = 0
    bonus: int = 0
    accepted_by_depth: list[int] = field(default_factory=list)

    def verified(self, proposed: int, accepted: int) -> None:
        """Count one verify pass; a bonus token follows a draft that stood whole."""
        self.proposed += proposed
        self.accepted += accepted
        self.bonus += accepted == proposed
        missing = accepted - len(self.accepted_by_depth)
        self.accepted_by_depth.extend([0] * max(0, missing))
        for depth in range(accepted):
            self.accepted_by_depth[depth] += 1


def prefill(
    model: Any,
    cache: list[Any],
    prompt: Sequence[int],
    chunk: int,
    tally: Tally,
    guard: Callable[[], None],
) -> None:
    """Put all but the last prompt token into the cache, `chunk` at a time.

    The last one is left to the first step: so the output matrix is never multiplied for tokens whose logits nobody
    reads (the lazy graph leaves it out). `guard` may raise between chunks.
    """
    for start in range(0, len(prompt) - 1, chunk):
        guard()
        piece = prompt[start : min(start + chunk, len(prompt) - 1)]
        model(mx.array([piece]), cache=cache)
        mx.eval(kv.arrays(cache))
        tally.prompt_tokens += len(piece)
    mx.clear_cache()
    guard()


def forward(model: Any, cache: list[Any], tokens: mx.array) -> mx.array:
    """Logits after each of the tokens, one row each, not evaluated yet."""
    logits: mx.array = model(tokens[None], cache=cache)[0]
    return logits


def start(tokens: mx.array) -> None:
    """Begin to compute tokens without waiting for them."""
    mx.async_eval(tokens)  # type: ignore[no-untyped-call]


def start_ahead(tokens: mx.array, cache: list[Any]) -> None:
    """Begin the step that makes these tokens as far as that does not delay the token before them.

    On a GPU all of it. On the CPU what the third layer puts into the cache needs the first two and no more; with
    five the queue is full, and the token before comes out a tenth of a step late.
    """
    if mx.default_device() == mx.Device(mx.cpu):
        mx.async_eval(kv.arrays(cache[:3]))  # type: ignore[no-untyped-call]
    else:
        start(tokens)


def value(token: mx.array) -> int:
    """The id of one token, waited for."""
    return int(token.item())  # type: ignore[arg-type]


def plain(
    model: Any, cache: list[Any], last: int, sampler: Chooser, count: int
) -> Iterator[list[int]]:
    """Up to `count` tokens after the last prompt token, one at a time."""
    current = sampler.choose(forward(model, cache, mx.array([last])), 0)
    start(current)
    for made in range(1, count):
        following = sampler.choose(forward(model, cache, current), made)
        start_ahead(following, cache)
        yield [value(current)]
        start(following)
        current = following
    yield [value(current)]
