"""Warm up one window and time its cells, one request at a time.

Knows the order of things inside a window: wake, coherence, cache probe, engagement; then per cell: gate, memory reset,
health, the timed request, health again. It keeps what happened; outcome.py says what it means and run.py where it goes.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import msgspec

from battery.bench import gate, memory, outcome, prompts, repeat, sensors
from battery.bench.client import Client, Completion, Unreachable
from battery.bench.launch import Server
from battery.bench.progress import Interrupted
from battery.bench.prompts import Messages, Prompt
from battery.ledger import strict
from battery.ledger.cell import Cell
from battery.ledger.errors import BatteryError
from battery.ledger.plan import Plan
from battery.ledger.receipt import (
    Clearance,
    Cold,
    Engagement,
    Memory,
    Outcome,
    Reading,
    Request,
    Text,
)
from battery.ledger.store import utc_now
from battery.ledger.trace import Trace

QUESTIONS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("What is the capital of France? Answer in one short sentence.", ("Paris",)),
    ("What is the opposite of hot? Answer in one short sentence.", ("cold", "cool")),
)
DYING_S = 1.0
NOT_SENT = Cold(value="unverified", evidence="no request was timed")


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """What one cell left, before the campaign's coordinates are added."""

    outcome: Outcome
    reason: str | None
    evidence: dict[str, Any]
    request: Request
    trace: Trace = Trace()
    text: Text | None = None
    cold: Cold = NOT_SENT
    engagement: Engagement
    memory: Memory = Memory(peak=None, source=None)
    gate: Clearance
    samples: tuple[Reading, ...] = ()
    started: str
    ended: str


class WindowFailed(BatteryError):
    """A window that cannot go on; every cell that is left gets this outcome."""

    def __init__(self, outcome: Outcome, reason: str, evidence: dict[str, Any]) -> None:
        super().__init__(reason)
        self.outcome: Outcome = outcome
        self.reason = reason
        self.evidence = evidence


class Measuring:
    """One window on a running server."""

    def __init__(
        self,
        server: Server,
        client: Client,
        plan: Plan,
        baseline: dict[str, Any],
        progress: Callable[[str, str], None] = lambda _phase, _detail: None,
        stop: Callable[[], bool] = lambda: False,
    ) -> None:
        self.server, self.client, self.plan, self.baseline = server, client, plan, baseline
        self.progress, self.stop = progress, stop
        self.health: dict[str, Any] = server.ready
        self.engaged = Engagement(verdict="unobservable", reason="no request yet")
        self.shown = repeat.Shown()
        self._log_mark = 0
        self._kills: int | None = None

    def body(self, messages: Messages, seed: int, **changes: object) -> dict[str, Any]:
        """The request body for these messages: the same bytes for every arm but for the model's name."""
        sampler = self.plan.sampler
        body: dict[str, Any] = {
            "model": self.server.arm.model,
            "messages": messages,
            "stream": True,
            "stream_options": {"include_usage": True},
            "temperature": sampler.temperature,
            "top_p": sampler.top_p,
            "seed": seed,
            "max_tokens": sampler.max_tokens,
            "min_tokens": sampler.min_tokens,
        }
        if sampler.top_k:
            body["top_k"] = sampler.top_k
        return {**body, **changes}

    def warm_up(self) -> None:
        """Wake the server, see that it talks sense and runs what the arm asks for; WindowFailed otherwise."""
        self.progress("warm-up", "")
        self._untimed("Say hello to the reader.", 8, "wake")
        self._check_engaged()
        for question, words in QUESTIONS:
            done = self._untimed(question, 24, "coherence")
            wrong = outcome.incoherent(done.text or done.reasoning, words)
            if wrong:
                raise WindowFailed(
                    "incoherent", wrong, {"question": question, "answer": done.text[:400]}
                )
        self._repeat()

    def _untimed(self, question: str, tokens: int, what: str) -> Completion:
        """One greedy request outside the clock."""
        seed = self.server.port  # any number that no cell uses
        messages = [
            {"role": "system", "content": f"{what}."},
            {"role": "user", "content": question},
        ]
        return self._send(
            self.body(messages, seed, temperature=0.0, max_tokens=tokens, min_tokens=0), what
        )

    def _mark(self) -> None:
        """Remember where the log and the kernel's count of memory kills stand; Interrupted if a stop was asked for."""
        if self.stop():
            raise Interrupted
        self._log_mark, self._kills = self.server.log_size(), memory.oom_kills()

    def _send(self, body: dict[str, Any], what: str) -> Completion:
        """Stream a request that must succeed for the window to go on."""
        self._mark()
        done = self.client.stream(
            self.server.backend.chat, body, deadline_s=self.plan.limits.request_s
        )
        if done.outcome != "ok":
            kind, reason, evidence = self._failed(done)
            raise WindowFailed(kind, f"{what}: {reason}", evidence)
        return done

    def _repeat(self) -> None:
        """Send a prompt twice: what that shows of the server's cache and of its seed."""
        tokens = min(repeat.TOKENS, self.plan.sampler.max_tokens)

        def ask(messages: Messages) -> Completion:
            body = self.body(messages, self.server.port, max_tokens=tokens, min_tokens=tokens)
            return self._send(body, "cache probe")

        words, sampled = repeat.words_for(self.plan.ladder[0]), self.plan.sampler.temperature > 0
        self.shown = repeat.look(ask, self.server.port, words, sampled)

    def _check_engaged(self) -> None:
        """Compare health with the arm after a request."""
        before, self.health = self.server.ready, self._health()
        self.engaged = outcome.engagement(self.server.arm, before, self.health)
        self._refuse_disengaged()

    def _refuse_disengaged(self) -> None:
        """WindowFailed when the arm's switches did not run."""
        found = self.engaged
        declined = found.verdict == "declined" and not self.plan.limits.allow_declined
        if found.verdict == "disengaged" or declined:
            raise WindowFailed("disengaged", found.reason, {"rules": found.rules})

    def _health(self) -> dict[str, Any]:
        """The health document now; an empty one when the server is gone."""
        try:
            status, document = self.client.get_json(self.server.backend.health)
        except Unreachable:
            return {}
        return document if status == 200 and isinstance(document, dict) else {}

    def unsent(self, cell: Cell, prompt: Prompt, failure: WindowFailed) -> Measured:
        """The record of a cell that was not tried because its window had failed before it."""
        _, request = self._prepare(cell, prompt)
        now = utc_now()
        shut = Clearance(
            verdict="not tried", waited_s=0.0, reasons=("the window had failed before",)
        )
        return Measured(
            outcome=failure.outcome,
            reason=failure.reason,
            evidence=failure.evidence,
            request=request,
            engagement=self.engaged,
            gate=shut,
            started=now,
            ended=now,
        )

    def _prepare(self, cell: Cell, prompt: Prompt) -> tuple[dict[str, Any], Request]:
        """The body of a cell's request, and the request as a receipt keeps it."""
        messages = prompts.compose(
            self.plan.workload, cell.seed, cell.rung, prompt.words, prompt.letters
        )
        body = self.body(messages, cell.seed)
        same = {key: value for key, value in body.items() if key != "model"}
        sampler: dict[str, Any] = {
            key: body[key]
            for key in ("temperature", "top_p", "top_k", "seed", "max_tokens", "min_tokens")
            if key in body
        }
        return body, Request(
            body_digest=strict.digest(same),
            prompt_digest=strict.digest(messages),
            prompt_tokens=prompt.tokens,
            workload=self.plan.workload,
            sampler=sampler,
        )

    def look(self) -> Reading:
        """One reading for the gate: load over a quarter of a second, then the calibration work."""
        reading = sensors.glance(self.server.pid)
        if self.plan.gate.calibration is None:
            return reading
        took = statistics.median(sensors.calibrate() for _ in range(3))
        return msgspec.structs.replace(reading, calibration_s=round(took, 6))

    def cell(self, cell: Cell, prompt: Prompt) -> Measured:
        """Gate, then time one request; whatever happens leaves a Measured."""
        started = utc_now()
        body, request = self._prepare(cell, prompt)
        self.progress("gate", "")
        clearance = gate.wait(self.plan.gate, self.baseline, self.look, self.stop)
        if clearance.verdict == "refused":
            return Measured(
                outcome="refused",
                reason="; ".join(clearance.reasons),
                evidence={},
                request=request,
                engagement=self.engaged,
                gate=clearance,
                started=started,
                ended=utc_now(),
            )
        return self._timed(body, request, clearance, started)

    def _timed(
        self, body: dict[str, Any], request: Request, clearance: Clearance, started: str
    ) -> Measured:
        """The timed request with everything read around it."""
        backend, pid = self.server.backend, self.server.pid
        reset = backend.reset_peak is not None and self._reset(backend.reset_peak)
        not_reset = memory.reset_kernel_peak(pid)
        counted = memory.counters(pid)
        self._mark()
        before = self._health()
        self.progress("request", "")
        with sensors.Sampling(pid) as taken:
            done = self.client.stream(backend.chat, body, deadline_s=self.plan.limits.request_s)
        after = self._health()
        samples = taken.readings(done.sent_ns or time.perf_counter_ns())
        used = memory.peak(after, reset, counted, memory.counters(pid), not_reset, samples)
        self.engaged = outcome.engagement(self.server.arm, before, after)
        kept, why = outcome.honoured(request.sampler, done.trace.sampler, done.trace)
        if kept == "honoured" and self.shown.seed is not None:
            kept = "unknown"  # its word that it applied the seed was disproved
        request = msgspec.structs.replace(request, honoured=kept, doubt=self.shown.seed)
        prefill = outcome.cold(done.trace, self.shown.words, self.shown.cache)
        kind, reason, evidence = self._judge(done, request, prefill, used, why)
        if kind == "oom" and done.outcome != "ok":
            used = msgspec.structs.replace(used, lower_bound=True)
        return Measured(
            outcome=kind,
            reason=reason,
            evidence=evidence,
            request=request,
            trace=done.trace,
            text=_text(done),
            cold=prefill,
            engagement=self.engaged,
            memory=used,
            gate=clearance,
            samples=samples,
            started=started,
            ended=utc_now(),
        )

    def _reset(self, path: str) -> bool:
        """Reset the engine's own peak counter; whether it did."""
        try:
            status, _ = self.client.post_json(path, {})
        except Unreachable:
            return False
        return status == 200

    def _judge(
        self, done: Completion, request: Request, prefill: Cold, used: Memory, sampler: str
    ) -> tuple[Outcome, str | None, dict[str, Any]]:
        """The first rule that a finished request breaks, in order of how much it says."""
        if done.outcome != "ok":
            return self._failed(done)
        limits, trace = self.plan.limits, done.trace
        evidence = dict(done.evidence)
        cap = limits.memory_cap_gb
        if cap is not None and used.peak is not None and used.peak > cap * 1e9:
            return (
                "oom",
                f"peak {used.peak / 1e9:.2f} GB crossed the plan's cap of {cap} GB",
                evidence,
            )
        declined = self.engaged.verdict == "declined" and not limits.allow_declined
        if self.engaged.verdict == "disengaged" or declined:
            return "disengaged", self.engaged.reason, evidence
        if prefill.value == "warm":
            return "warm", prefill.evidence, evidence
        if trace.prompt_tokens is not None:
            off = trace.prompt_tokens - request.prompt_tokens
            if abs(off) > limits.prompt_tolerance:
                reason = (
                    f"{trace.prompt_tokens} prompt tokens, but {request.prompt_tokens} were sized"
                )
                return "error", f"the server counts {reason}", evidence
        if request.honoured == "changed":
            return "error", f"the sampler was not honoured: {sampler}", evidence
        tokens = trace.completion_tokens
        if tokens is not None and tokens < self.plan.sampler.min_tokens:
            least = self.plan.sampler.min_tokens
            return (
                "short",
                f"{tokens} of at least {least} tokens came ({trace.finish_reason})",
                evidence,
            )
        return "ok", None, {key: evidence[key] for key in ("notes",) if key in evidence}

    def _failed(self, done: Completion) -> tuple[Outcome, str, dict[str, Any]]:
        """Outcome, reason and evidence of a request that did not succeed."""
        if done.outcome == "timeout":
            return "timeout", done.reason or "no end in time", dict(done.evidence)
        # a dying server closes its socket a moment before it can be waited for
        deadline = time.monotonic() + DYING_S
        while self.server.exit_status is None and time.monotonic() < deadline:
            time.sleep(0.02)
        status = self.server.exit_status
        log = self.server.log_tail(since=self._log_mark)
        evidence = {
            **done.evidence,
            "phase": done.phase,
            "exit_status": status,
            "log_tail": log[-2000:],
        }
        # never the last bytes: they are the model's own text, which may well speak of memory
        told = (done.reason, str(done.evidence.get("error_body")), log)
        words = outcome.oom_words(*told)
        words = words or outcome.kernel_oom(status, self._kills, memory.oom_kills())
        if words:
            return "oom", f"during {done.phase}: {words}", evidence
        if status is not None:
            reason = f"the server exited with {status} during {done.phase}: {done.reason}"
            return "lost", reason, evidence
        return "error", done.reason or "the request failed", evidence


def _text(done: Completion) -> Text | None:
    """Digest and ends of what was generated; None when nothing came."""
    whole = done.reasoning + done.text
    if not whole:
        return None
    ids = strict.digest(list(done.token_ids)) if done.token_ids is not None else None
    return Text(
        digest=strict.digest(whole),
        characters=len(whole),
        ids_digest=ids,
        head=whole[:240],
        tail=whole[-120:] if len(whole) > 240 else "",
    )
