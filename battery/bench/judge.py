"""What a request came to, as one outcome with its reason and evidence: the rules of a cell, in order.

A request that failed is out of memory where an allocator or the kernel says so, lost where its server is gone, and an
error otherwise. One that succeeded must still have been what the plan asked for.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from battery.bench import oom
from battery.bench.client import Completion
from battery.bench.launch import Server
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
    if facts.request.honoured == "changed":
        return "error", f"the sampler was not honoured: {facts.sampler}", evidence
    tokens, least = trace.completion_tokens, plan.sampler.min_tokens
    if tokens is not None and tokens < least:
        reason = f"{tokens} of at least {least} tokens came ({trace.finish_reason})"
        return "short", reason, evidence
    return "ok", None, {}


def failed(
    done: Completion, body: dict[str, Any], server: Server, log_mark: int
) -> tuple[Outcome, str, dict[str, Any]]:
    """Outcome, reason and evidence of a request that did not succeed; `log_mark` is where the log stood before it."""
    if done.outcome == "timeout":
        return "timeout", done.reason or "no end in time", dict(done.evidence)
    status = server.ended()
    log = server.log_tail(since=log_mark)
    evidence = {
        **done.evidence,
        "phase": phase(done),
        "exit_status": status,
        "log_tail": log[-2000:],
    }
    found = out_of_memory(done, body, log) or server.kills.word(status)
    if found:
        evidence["oom"] = found._asdict()
        return "oom", f"during {phase(done)}: {found.text} ({found.where})", evidence
    if status is not None:
        reason = f"the server exited with {status} during {phase(done)}: {done.reason}"
        limit = server.limit
        if limit is not None and limit.group is None:
            # some allocators crash without a word when an address is refused (MLX on the CPU: SIGSEGV)
            reason += f"; it was under {limit.kind} {limit.bytes} and may have met it, but nothing says so"
        return "lost", reason, evidence
    return "error", done.reason or "the request failed", evidence


def phase(done: Completion) -> str:
    """How far a request came; the step after the first token is the one that most often runs out of memory."""
    first = done.phase == "decode" and len(done.trace.events) == 1
    return "first decode" if first else done.phase


def out_of_memory(done: Completion, body: dict[str, Any], log: str) -> oom.Words | None:
    """Allocator's words in the answer or the log that are neither the request's own nor the model's."""
    # never the last bytes: they are the model's own text, which may well speak of memory
    told = {
        "in the answer": done.reason,
        "in the error body": done.evidence.get("error_body"),
        "in the server's log": log,
    }
    asked = [str(message.get("content")) for message in body.get("messages", ())]
    return oom.words(told, [*asked, done.text, done.reasoning])
