"""Warm up one window and time its cells, one request at a time.

Knows the order of things inside a window: wake, engagement, coherence, cache probe; then per cell: the rung's untimed
request before its first, gate, memory reset, health, the timed request, health again. It keeps what happened; judge/
says what it means and run.py where it goes.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import msgspec

from battery.bench import gate, memory, prompts, schedule, sensors
from battery.bench.answer import text_of
from battery.bench.client import Client, Completion, Unreachable
from battery.bench.judge import breach, failure, outcome, repeat, rules
from battery.bench.judge.followed import FIELD
from battery.bench.launch import Server
from battery.bench.progress import at_once, suspensions
from battery.bench.prompts import Messages, Prompt
from battery.interruption import Interrupted
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
NOT_TRIED = Memory(peak=None, source=None)
SUSPENDED = "battery was suspended (Ctrl-Z) during the request, so somebody else was at the machine"
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
    memory: Memory = NOT_TRIED
    gate: Clearance
    samples: tuple[Reading, ...] = ()
    no_samples: str | None = None
    breach: tuple[str, ...] = ()
    started: str
    ended: str


class WindowFailed(BatteryError):
    """A window that cannot go on; every cell that is left gets this outcome."""

    def __init__(
        self,
        outcome: Outcome,
        reason: str,
        evidence: dict[str, Any],
        memory: Memory = NOT_TRIED,
    ) -> None:
        super().__init__(reason)
        self.memory = memory
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
        glances: sensors.Glances | None = None,
        sampler: sensors.Sampler | None = None,
    ) -> None:
        self.glances, self.sampler = glances or sensors.Glances(), sampler or sensors.Sampler()
        self.server, self.client, self.plan, self.baseline = server, client, plan, baseline
        self.progress, self.stop = progress, stop
        self.health: dict[str, Any] = server.ready
        self.engaged = Engagement(verdict="unobservable", reason="no request yet")
        self._warmed: set[int] = set()
        """Rungs that had their untimed request."""
        self.shown = repeat.Shown()
        self._log_mark = 0

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
        """Wake the server, see that it talks sense (unless its weights are random) and runs what the arm asks for.

        WindowFailed otherwise.
        """
        self.progress("warm-up", "")
        self._untimed("Say hello to the reader.", 8, "wake")
        self._check_engaged()
        senseless = outcome.random_weights(self.server.arm.model, self.health)
        for question, words in () if senseless else QUESTIONS:
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
        """Remember where the log and the kernel's counts of kills stand; Interrupted if a stop was asked for."""
        if self.stop():
            raise Interrupted
        self._log_mark = self.server.log_size()
        self.server.kills.mark(self.server.members())

    def _send(self, body: dict[str, Any], what: str) -> Completion:
        """Stream a request that must succeed for the window to go on."""
        self._mark()
        done = self._stream(body)
        if done.outcome != "ok":
            kind, reason, evidence = failure.of(done, body, self.server, self._log_mark)
            # only a server that ran out of memory has a peak that is a bound
            held = memory.at_death(self.server.limit) if kind == "oom" else NOT_TRIED
            raise WindowFailed(kind, f"{what}: {reason}", evidence, held)
        return done

    def _stream(self, body: dict[str, Any]) -> Completion:
        """One request, which a second Ctrl-C may cut off."""
        with at_once():
            return self.client.stream(
                self.server.backend.chat, body, deadline_s=self.plan.limits.request_s
            )

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

    def unsent(self, cell: Cell, prompt: Prompt, failed: WindowFailed) -> Measured:
        """The record of a cell that was not tried because its window had failed before it."""
        _, request = self._prepare(cell, prompt)
        now = utc_now()
        shut = Clearance(
            verdict="not tried", waited_s=0.0, reasons=("the window had failed before",)
        )
        return Measured(
            outcome=failed.outcome,
            reason=failed.reason,
            evidence=failed.evidence,
            request=request,
            engagement=self.engaged,
            memory=failed.memory,
            gate=shut,
            started=now,
            ended=now,
        )

    def _prepare(self, cell: Cell, prompt: Prompt) -> tuple[dict[str, Any], Request]:
        """The body of a cell's request, and the request as a receipt keeps it."""
        workload = schedule.workload_of(self.plan, cell.seed)
        messages = prompts.compose(workload, cell.seed, cell.rung, prompt.words, prompt.letters)
        forced = prompt.forced
        follow = {FIELD: forced, "max_tokens": len(forced)} if forced else {}
        body = self.body(messages, cell.seed, **follow)
        return body, self._request(body, messages, prompt.tokens, workload)

    def _request(
        self, body: dict[str, Any], messages: Messages, tokens: int, workload: str
    ) -> Request:
        """A request as a receipt keeps it."""
        same = {key: value for key, value in body.items() if key != "model"}
        sampler: dict[str, Any] = {
            key: body[key]
            for key in ("temperature", "top_p", "top_k", "seed", "max_tokens", "min_tokens")
            if key in body
        }
        if FIELD in body:
            sampler[FIELD] = len(body[FIELD])
        return Request(
            body_digest=strict.digest(same),
            prompt_digest=strict.digest(messages),
            prompt_tokens=tokens,
            workload=workload,
            sampler=sampler,
        )

    def look(self) -> Reading:
        """One reading for the gate: load over a quarter of a second, then the calibration work."""
        return self.glances.look(self.server.pid, self.plan.gate.calibration is not None)

    def cell(self, cell: Cell, prompt: Prompt) -> Measured:
        """Gate, then time one request; whatever happens leaves a Measured."""
        started = utc_now()
        body, request = self._prepare(cell, prompt)
        died = self._warm_rung(cell, prompt, started)
        if died is not None:
            return died
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
                breach=tuple(f"the gate stayed shut: {reason}" for reason in clearance.reasons),
                started=started,
                ended=utc_now(),
            )
        return self._timed(body, request, clearance, started)

    def _warm_rung(self, cell: Cell, prompt: Prompt, started: str) -> Measured | None:
        """Before the first cell of a rung, an untimed request of its length; the cell's record if the server died."""
        tokens = self.plan.warm_up_tokens
        if cell.rung in self._warmed or not tokens:
            return None
        self._warmed.add(cell.rung)
        self.progress("warm-up", "of this length")
        workload = schedule.workload_of(self.plan, cell.seed)
        messages = prompts.compose(
            workload, self.server.port, cell.rung, prompt.words, prompt.letters
        )
        body = self.body(messages, self.server.port, max_tokens=tokens, min_tokens=tokens)
        shut = Clearance(verdict="not tried", waited_s=0.0, reasons=("it was the untimed warm-up",))
        request = self._request(body, messages, prompt.tokens, workload)
        came = self._timed(body, request, shut, started)
        # any other failure shows itself in the timed request too
        if came.outcome not in ("oom", "lost", "timeout"):
            return None
        return msgspec.structs.replace(came, reason=f"in the untimed warm-up: {came.reason}")

    def _timed(
        self, body: dict[str, Any], request: Request, clearance: Clearance, started: str
    ) -> Measured:
        """The timed request with everything read around it."""
        peaks = memory.Peaks(
            memory.EngineCounter(self._reset), self.server.members, self.server.limit, self.server.gpu_before
        )  # fmt: skip
        peaks.begin()
        self._mark()
        before, suspended = self._health(), suspensions()
        self.progress("request", "")
        with self.sampler.during(self.server.pid, self._own()) as taken, peaks:
            done = self._stream(body)
        after = self._health()
        samples = taken.readings(done.sent_ns or time.perf_counter_ns())
        used = peaks.end(after)
        self.engaged = outcome.engagement(self.server.arm, before, after)
        request, why = self._honoured(request, done.trace)
        prefill = outcome.cold(done.trace, self.shown.words, self.shown.cache)
        facts = rules.Facts(request, prefill, used, self.engaged, why, body.get(FIELD, ()))
        kind, reason, evidence = (
            rules.finished(done, facts, self.plan)
            if done.outcome == "ok"
            else failure.of(done, body, self.server, self._log_mark)
        )
        held = (SUSPENDED,) if suspensions() > suspended else ()
        if kind == "ok" and held:
            kind, reason = "error", SUSPENDED
        if kind == "oom" and done.outcome != "ok":
            used = msgspec.structs.replace(used, lower_bound=True)
        return Measured(
            outcome=kind,
            reason=reason,
            evidence=evidence,
            request=request,
            trace=done.trace,
            text=text_of(done, self.server.secrets),
            cold=prefill,
            engagement=self.engaged,
            memory=used,
            gate=clearance,
            samples=samples,
            no_samples=taken.why,
            # running out of memory is a result, and swaps first: it asks for no rerun, and counts whatever another
            # cell of its block asks for
            breach=() if kind == "oom" else (*breach.judge(samples, self.plan.gate), *held),
            started=started,
            ended=utc_now(),
        )

    def _own(self) -> tuple[int, ...]:
        """Processes of ours that work while a request runs, beside this one and the sampler."""
        return () if self.client.timing_pid is None else (self.client.timing_pid,)

    def _honoured(self, request: Request, trace: Trace) -> tuple[Request, str]:
        """The request with what is known of its sampler, and what differs, in words."""
        kept, why = outcome.honoured(request.sampler, trace.sampler, trace)
        if kept == "honoured" and self.shown.seed is not None:
            kept = "unknown"  # its word that it applied the seed was disproved
        return msgspec.structs.replace(request, honoured=kept, doubt=self.shown.seed), why

    def _reset(self) -> str | None:
        """Reset the engine's own peak counter; why it was not."""
        path = self.server.backend.reset_peak
        if path is None:
            return "this backend has no such call"
        try:
            status, _ = self.client.post_json(path, {})
        except Unreachable as broken:
            return f"{path}: {broken}"
        return None if status == 200 else f"{path} answered {status}"
