"""Whether a request that succeeded was what the plan asked for: the rules of a cell, in order. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from battery.bench.client import Completion
from battery.bench.judge.followed import strayed
from battery.ledger.plan import Plan
from battery.ledger.receipt import Cold, Engagement, Memory, Outcome, Request

Judged = tuple[Outcome, str | None, dict[str, Any]]


class Facts(NamedTuple):
    """What was found around a request."""

    request: Request
    cold: Cold
    memory: Memory
    engaged: Engagement
    sampler: str
    """What the server's sampler differs in, in words."""
    forced: Sequence[int] = ()
    """The recorded answer that it was asked to follow; nothing in a free campaign."""


def finished(done: Completion, facts: Facts, plan: Plan) -> Judged:
    """The first rule that a successful request breaks, in order of how much it says; `ok` where it breaks none."""
    limits, trace = plan.limits, done.trace
    evidence = dict(done.evidence)
    cap, peak = limits.memory_cap_gb, facts.memory.peak
    if cap is not None and peak is not None and peak > cap * 1e9:
        return "oom", f"peak {peak / 1e9:.2f} GB crossed the plan's cap of {cap} GB", evidence
    declined = facts.engaged.verdict == "declined" and not limits.allow_declined
    if facts.engaged.verdict == "disengaged" or declined:
        return "disengaged", facts.engaged.reason, evidence
    if facts.cold.value == "warm":
        return "warm", facts.cold.evidence, evidence
    sized = facts.request.prompt_tokens
    if (
        trace.prompt_tokens is not None
        and abs(trace.prompt_tokens - sized) > limits.prompt_tolerance
    ):
        reason = f"the server counts {trace.prompt_tokens} prompt tokens, but {sized} were sized"
        return "error", reason, evidence
    away = strayed(facts.forced, done) if facts.forced else None
    if away is not None:
        return "error", away, evidence
    if facts.request.honoured == "changed":
        return "error", f"the sampler was not honoured: {facts.sampler}", evidence
    tokens, least = trace.completion_tokens, plan.sampler.min_tokens
    if tokens is not None and tokens < least:
        reason = f"{tokens} of at least {least} tokens came ({trace.finish_reason})"
        return "short", reason, evidence
    # what a reader of the figures must know, though it is no failure
    return "ok", None, {key: evidence[key] for key in ("notes",) if key in evidence}
