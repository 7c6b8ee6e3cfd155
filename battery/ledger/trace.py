"""One request as the client saw it, and every speed metric computed from it: each formula once.

Times are integers of nanoseconds after `send` on one monotonic clock, taken when bytes reached the
socket. A metric that cannot be computed is None, never 0.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import msgspec

Kind = Literal["content", "reasoning", "tool"]
CountSource = Literal["server", "usage", "estimate"]


class Event(msgspec.Struct, frozen=True, array_like=True):
    """One token event: when its bytes arrived and how many tokens it carried (None: the server does not say)."""

    at_ns: int
    tokens: int | None
    kind: Kind = "content"


class Trace(msgspec.Struct, frozen=True, kw_only=True):
    """When the request left and when each token came. Raw: nothing is averaged here."""

    events: tuple[Event, ...] = ()
    end_ns: int | None = None
    """Last byte of the response."""
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None
    count_source: CountSource = "estimate"
    """Where token counts come from: per event from the server, its total only, or our guess of one per event."""
    finish_reason: str | None = None
    usage: dict[str, Any] | None = None
    """As the server sent it."""
    timings: dict[str, Any] | None = None
    """The server's own clock as it sent it: prompt_s, prompt_tokens, decode_s, decode_tokens, steps,
    proposed, accepted."""
    sampler: dict[str, Any] | None = None
    """The sampler that the server says it applied."""

    @property
    def comparable(self) -> bool:
        """Whether rates may be compared: the token count is the server's, not a guess."""
        return self.count_source != "estimate" and self.completion_tokens is not None


class Metric(msgspec.Struct, frozen=True):
    """A formula with its unit, its direction and the words a table prints."""

    name: str
    title: str
    unit: str
    higher_is_better: bool
    formula: str
    of: Callable[[Trace], float | None]


METRICS: dict[str, Metric] = {}


def metric(
    title: str, unit: str, better: Literal["higher", "lower"]
) -> Callable[[Callable[[Trace], float | None]], Callable[[Trace], float | None]]:
    """Register a function of a Trace as a metric; its docstring's first line is the formula that reports print."""

    def register(of: Callable[[Trace], float | None]) -> Callable[[Trace], float | None]:
        formula = (of.__doc__ or "").strip().splitlines()[0]
        METRICS[of.__name__] = Metric(of.__name__, title, unit, better == "higher", formula, of)
        return of

    return register


def _seconds(timings: dict[str, Any] | None, key: str) -> float | None:
    """A positive number from the server's timings."""
    value = (timings or {}).get(key)
    return (
        float(value)
        if isinstance(value, int | float) and not isinstance(value, bool) and value > 0
        else None
    )


@metric("TTFT", "s", "lower")
def ttft(trace: Trace) -> float | None:
    """t1 − t0: send to the first token event, in seconds."""
    return trace.events[0].at_ns / 1e9 if trace.events else None


@metric("decode", "tok/s", "higher")
def decode(trace: Trace) -> float | None:
    """(N − k) / (tL − t1), k tokens in the first event (1 if only N is told); null if N − k < 1 or N is a guess."""
    return decode_over(trace, None)


def decode_over(trace: Trace, first_n: int | None) -> float | None:
    """Decode rate over the first `first_n` tokens (None: all of them), tok/s.

    Used where two arms stopped at different lengths: both are then timed over the tokens that both
    produced. With per-event counts the cut falls at the last event that ends within `first_n`; without
    them a cut cannot be placed, and the answer is None.
    """
    if not trace.comparable or len(trace.events) < 2 or trace.completion_tokens is None:
        return None
    first = trace.events[0]
    if first_n is None or first_n >= trace.completion_tokens:
        tokens = trace.completion_tokens - (first.tokens or 1)
        span_ns = trace.events[-1].at_ns - first.at_ns
        return tokens * 1e9 / span_ns if tokens >= 1 and span_ns > 0 else None
    if trace.count_source != "server":
        return None
    total, last = 0, first
    for event in trace.events:
        if total + (event.tokens or 0) > first_n:
            break
        total, last = total + (event.tokens or 0), event
    tokens, span_ns = total - (first.tokens or 0), last.at_ns - first.at_ns
    return tokens * 1e9 / span_ns if tokens >= 1 and span_ns > 0 else None


@metric("prefill", "tok/s", "higher")
def prefill(trace: Trace) -> float | None:
    """Pn / server prompt time, else Pn / TTFT; Pn are the prompt tokens really processed, null where unknown."""
    processed = prompt_processed(trace)
    seconds = _seconds(trace.timings, "prompt_s") or ttft(trace)
    return processed / seconds if processed and seconds else None


def prompt_processed(trace: Trace) -> int | None:
    """Prompt tokens that the server says it worked through (P − cached); None when it does not say."""
    said = (trace.timings or {}).get("prompt_tokens")
    if isinstance(said, int) and not isinstance(said, bool) and said >= 0:
        return said
    if trace.prompt_tokens is None or trace.cached_tokens is None:
        return None
    # more cached than there was of it: one of the two figures is wrong, and nobody can say which
    rest = trace.prompt_tokens - trace.cached_tokens
    return rest if rest >= 0 else None


@metric("TPOT", "s", "lower")
def tpot(trace: Trace) -> float | None:
    """(tL − t1) / (N − 1): the first token is excluded; null below two tokens."""
    n = trace.completion_tokens
    if not trace.comparable or n is None or n < 2 or len(trace.events) < 2:
        return None
    span_ns = trace.events[-1].at_ns - trace.events[0].at_ns
    # all of it in one read has no time between its tokens, and none is not the time 0
    return span_ns / 1e9 / (n - 1) if span_ns > 0 else None


@metric("end to end", "s", "lower")
def e2e(trace: Trace) -> float | None:
    """Last byte − t0, in seconds."""
    return trace.end_ns / 1e9 if trace.end_ns is not None else None


@metric("decode, server's clock", "tok/s", "higher")
def decode_server(trace: Trace) -> float | None:
    """Tokens / the server's own decode time, where it reports one."""
    tokens, seconds = _seconds(trace.timings, "decode_tokens"), _seconds(trace.timings, "decode_s")
    return tokens / seconds if tokens and seconds else None


@metric("tokens per step", "1", "higher")
def tokens_per_step(trace: Trace) -> float | None:
    """Tokens gained per verify step, from the server's counters; it depends on the text that the seed led to."""
    tokens, steps = _seconds(trace.timings, "decode_tokens"), _seconds(trace.timings, "steps")
    return tokens / steps if tokens and steps else None


@metric("seconds per step", "s", "lower")
def seconds_per_step(trace: Trace) -> float | None:
    """The server's decode time / verify steps: the speed of the code, almost without the luck of the text."""
    steps, seconds = _seconds(trace.timings, "steps"), _seconds(trace.timings, "decode_s")
    return seconds / steps if steps and seconds else None


@metric("acceptance", "1", "higher")
def acceptance(trace: Trace) -> float | None:
    """Accepted / proposed draft tokens, from the server's counters; null where nothing was proposed."""
    timings = trace.timings or {}
    proposed, accepted = _seconds(timings, "proposed"), timings.get("accepted")
    return accepted / proposed if proposed and isinstance(accepted, int) else None
