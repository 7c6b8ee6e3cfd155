"""One streamed request to any OpenAI-compatible server, judged like a cell of a campaign: a first look at it.

The base URL is given as for the openai client (…/v1). Nothing is started and nothing is written. The server is foreign:
it need not know /health, it may cache, and what it does not tell stays null. The prompt begins with digits of its own
each time, so that a second look does not meet the first one's cache.
"""

from __future__ import annotations

import os
import secrets
from typing import Any
from urllib.parse import urlsplit

import httpcore
import msgspec

from battery.bench.client import Client, Completion, Unreachable
from battery.bench.judge import oom, outcome
from battery.ledger import scrub
from battery.ledger.errors import InputError
from battery.ledger.receipt import Cold
from battery.ledger.receipt import Outcome as Word
from battery.ledger.trace import METRICS, CountSource

MAX_TOKENS = 64
TIMEOUT_S = 600.0
LOOK_S = 5.0
"""How long the list of models may take; it is only looked at for a name."""
CHAT = "/chat/completions"
SHOWN = ("ttft", "decode", "tpot", "e2e")


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens as the server counts them; null where it does not."""

    prompt_tokens: int | None
    completion_tokens: int | None
    cached_tokens: int | None


class Metrics(msgspec.Struct, frozen=True, kw_only=True):
    """The formulas of battery.ledger.trace; null where one cannot be computed."""

    ttft_s: float | None
    decode_tok_s: float | None
    tpot_s: float | None
    e2e_s: float | None


class Look(msgspec.Struct, frozen=True, kw_only=True):
    """One request, as `battery probe --json` prints it."""

    outcome: Word
    reason: str | None
    finish_reason: str | None
    text: str
    reasoning: str
    usage: Usage
    token_count_source: CountSource | None
    """None where no token came and no count was told."""
    cold: str
    metrics: Metrics
    token_events: int
    evidence: dict[str, Any]

    @property
    def exit_code(self) -> int:
        """0: ok; 6: the request could not be sent; 4: any other outcome."""
        if self.outcome == "ok":
            return 0
        return 6 if self.evidence.get("phase") == "connect" else 4


def base_url(text: str) -> str:
    """The base URL without its last slash; InputError for what is none."""
    try:
        parts = urlsplit(text)
        port_is_one = parts.port is None or 0 < parts.port < 65_536
    except ValueError as broken:
        raise InputError(f"URL '{text}': {broken}") from broken
    if parts.username or parts.password:
        # not quoted: it holds a secret
        raise InputError("the URL holds a name or a password; give the key with --api-key-env NAME")
    plain = text.isascii() and text.isprintable() and " " not in text
    if parts.scheme not in ("http", "https") or not parts.hostname or not port_is_one or not plain:
        raise InputError(f"URL '{text}': give a base URL such as http://127.0.0.1:8080/v1")
    if parts.query or parts.fragment or parts.path.rstrip("/").endswith(CHAT):
        raise InputError(
            f"URL '{text}': give the base URL only, without {CHAT}, query or fragment: http://host:port/v1"
        )
    return text.rstrip("/")


def first_model(url: str, key: str | None, limit_s: float) -> tuple[str, str]:
    """(the model to ask for, where its name is from); Unreachable where nobody takes the connection."""
    with Client(url, api_key=key, timeout_s=limit_s) as client:
        try:
            status, said = client.get_json("/models")
        except Unreachable as silent:
            cause = silent.__cause__
            if isinstance(cause, httpcore.ConnectError | httpcore.ConnectTimeout):
                raise
            return "default", f"default: {silent}"
    listed = said.get("data") if isinstance(said, dict) else None
    for one in listed if isinstance(listed, list) else []:
        if isinstance(one, dict) and isinstance(one.get("id"), str) and one["id"]:
            return one["id"], f"the first of {url}/models"
    return "default", f"default: {url}/models answered {status} and names none"


def look(
    url: str,
    *,
    model: str | None = None,
    max_tokens: int = MAX_TOKENS,
    prompt: str | None = None,
    key: str | None = None,
    timeout_s: float = TIMEOUT_S,
) -> Look:
    """Send one streamed chat request and judge what comes back; it never raises for what a server does."""
    url = base_url(url)
    facts: dict[str, Any] = {"url": url, "model": model, "model_from": "--model"}
    if model is None:
        try:
            facts["model"], facts["model_from"] = first_model(url, key, min(LOOK_S, timeout_s))
        except Unreachable as gone:
            facts |= {"model_from": None}
            lost = Completion(outcome="error", reason=f"cannot connect: {gone}", phase="connect")
            return judged(lost, max_tokens, facts)
    facts["prompt"] = "--prompt" if prompt is not None else "battery's own, new each time"
    opening = f"{secrets.token_hex(5)}: write a short story about a lighthouse and a storm."
    body = {
        "model": facts["model"],
        "messages": [{"role": "user", "content": opening if prompt is None else prompt}],
        "max_tokens": max_tokens,
        "stream_options": {"include_usage": True},
    }
    # The connection is opened ahead and nothing else is asked on it: a foreign server may serve one at a time.
    with Client(url, api_key=key, timeout_s=timeout_s, warm_path=None) as client:
        seen = judged(client.stream(CHAT, body, deadline_s=timeout_s), max_tokens, facts)
    return msgspec.convert(scrub.without(msgspec.to_builtins(seen), [key or ""]), Look)


def judged(done: Completion, max_tokens: int, facts: dict[str, Any]) -> Look:
    """The request as a cell, by the rules that hold in a campaign."""
    trace = done.trace
    cold = outcome.cold(trace, "a single request has no cache probe")
    word, reason = _word(done, cold, max_tokens)
    values = {name: METRICS[name].of(trace) for name in SHOWN}
    told = bool(trace.events) or trace.completion_tokens is not None
    guessed = trace.count_source == "estimate"
    return Look(
        outcome=word,
        reason=reason,
        finish_reason=trace.finish_reason,
        text=done.text,
        reasoning=done.reasoning,
        usage=Usage(
            prompt_tokens=trace.prompt_tokens,
            completion_tokens=None if guessed else trace.completion_tokens,
            cached_tokens=trace.cached_tokens,
        ),
        token_count_source=trace.count_source if told else None,
        cold=cold.value,
        metrics=Metrics(
            ttft_s=values["ttft"],
            decode_tok_s=values["decode"],
            tpot_s=values["tpot"],
            # the time of a refusal is no time of an answer
            e2e_s=values["e2e"] if trace.events else None,
        ),
        token_events=len(trace.events),
        evidence=_evidence(done, cold, facts),
    )


def _word(done: Completion, cold: Cold, max_tokens: int) -> tuple[Word, str | None]:
    """The first rule that the request breaks, in the order of a campaign's cells."""
    if done.outcome == "error":
        said = {"in the answer": done.reason, "in the error body": done.evidence.get("error_body")}
        found = oom.words(said, [done.text, done.reasoning])
        if found:
            return "oom", f"during {done.phase}: {found.text} ({found.where})"
    if done.outcome != "ok":
        return done.outcome, _advised(done.reason or "the request failed")
    if cold.value == "warm":
        return "warm", f"the prefill was not cold: {cold.evidence}"
    echo = done.trace.sampler or {}
    kept, why = outcome.honoured(
        {"max_tokens": max_tokens},
        {"max_tokens": echo["max_tokens"]} if "max_tokens" in echo else None,
        done.trace,
    )
    return ("error", f"the sampler was not honoured: {why}") if kept == "changed" else ("ok", None)


def _advised(reason: str) -> str:
    """A reason with what to do about it, where that is known."""
    if "CERTIFICATE_VERIFY_FAILED" in reason:
        return f"{reason}; if it is yours, trust it with SSL_CERT_FILE=its-certificate.pem"
    if reason.startswith("HTTP 404"):
        return f"{reason} (the base URL is given as for the openai client; most end in /v1)"
    return reason


def _evidence(done: Completion, cold: Cold, facts: dict[str, Any]) -> dict[str, Any]:
    """What the verdict rests on, and what a reader of the figures must know."""
    trace, found = done.trace, {**facts, "phase": done.phase, **done.evidence}
    found["cold"] = cold.evidence
    if done.tool_calls:
        found["tool_calls"] = done.tool_calls
    if trace.count_source == "estimate" and trace.completion_tokens:
        found["tokens_estimated"] = trace.completion_tokens
    total, events = trace.completion_tokens or 0, len(trace.events)
    if (
        trace.count_source == "usage"
        and events
        and trace.events[0].tokens is None
        and total > events + 1
    ):
        found["decode"] = (
            f"{total} tokens came in {events} events and nobody tells how many in the first, which counts as one:"
            " the decode rate reads high by the rest"
        )
    for name, value in (
        ("usage", trace.usage),
        ("timings", trace.timings),
        ("sampler", trace.sampler),
    ):
        if value is not None:
            found[f"{name}_as_sent"] = value
    return found


def key_of(variable: str | None) -> str | None:
    """The API key out of an environment variable; InputError where that is not set."""
    if variable is None:
        return None
    key = os.environ.get(variable, "").strip()
    if not key:
        raise InputError(f"--api-key-env {variable}: that variable is not set or empty")
    if not key.isascii() or not key.isprintable():
        raise InputError(
            f"--api-key-env {variable}: its value is no key: it holds a line end or the like"
        )
    return key


def summary(seen: Look) -> list[str]:
    """The look in lines for people."""
    metrics, usage, found = seen.metrics, seen.usage, seen.evidence
    shown = {
        "outcome": seen.outcome if seen.reason is None else f"{seen.outcome}: {seen.reason}",
        "model": f"{found['model']} ({found['model_from']})" if found.get("model") else "unknown",
        "finish reason": seen.finish_reason,
        "TTFT": _figure(metrics.ttft_s, "s"),
        "decode": _figure(metrics.decode_tok_s, "tok/s"),
        "TPOT": _figure(metrics.tpot_s, "s"),
        "end to end": _figure(metrics.e2e_s, "s"),
        "tokens": f"{usage.completion_tokens if usage.completion_tokens is not None else 'unknown'} in"
        f" {seen.token_events} events (source: {seen.token_count_source or 'none'})",
        "prompt tokens": f"{usage.prompt_tokens if usage.prompt_tokens is not None else 'unknown'},"
        f" cached {usage.cached_tokens if usage.cached_tokens is not None else 'unknown'}",
        "cold": f"{seen.cold} ({found['cold']})",
        "notes": "; ".join([*found.get("notes", ()), *filter(None, [found.get("decode")])]) or None,
        "reasoning": _ends(seen.reasoning),
        "text": _ends(seen.text),
    }  # fmt: skip
    return [f"{name:<14} {value}" for name, value in shown.items() if value]


def _figure(value: float | None, unit: str) -> str:
    """A figure with its unit; a dash where there is none."""
    return "–" if value is None else f"{value:.4g} {unit}"


def _ends(text: str) -> str | None:
    """The beginning of a text on one line."""
    return repr(text if len(text) <= 160 else f"{text[:160]}…") if text else None
