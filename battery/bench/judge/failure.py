"""What a request without success came to: timeout, out of memory, the server lost, or an error, with its evidence."""

from __future__ import annotations

from typing import Any

from battery.bench.client import Completion
from battery.bench.judge import oom
from battery.bench.launch import Server
from battery.ledger.receipt import Outcome

TAIL = 2000
"""Characters of the server's log that a receipt keeps."""


def of(
    done: Completion, body: dict[str, Any], server: Server, log_mark: int
) -> tuple[Outcome, str, dict[str, Any]]:
    """Outcome, reason and evidence; `log_mark` is where the log stood before the request.

    Out of memory in this order: words in the answer, words in the log, the kernel's word. A timeout never is.
    """
    if done.outcome == "timeout":
        return "timeout", done.reason or "no end in time", dict(done.evidence)
    status = server.ended()
    log = server.log_tail(since=log_mark)
    # the allocator's words come first: servers print pages of tracebacks behind them
    whole = server.log_since(log_mark)
    evidence = {
        **done.evidence,
        "phase": phase(done),
        "exit_status": status,
        "log_tail": log[-TAIL:],
    }
    found = out_of_memory(done, body, whole) or server.kills.word(status)
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
