"""Stream one completion and date its bytes as they leave the socket.

Warm a connection, send on it, and only read, stamp and store until the last byte (see wire), in a process of
its own where stamps must be exact (see stopwatch); events, JSON and the verdict come after it (see chunks). A server
that closed the warmed connection is warmed again: a request that had to connect is not one that was timed.
"""

from __future__ import annotations

import threading
from typing import Any

import msgspec

from battery.bench.stream import chunks
from battery.bench.stream.chunks import Answer, Outcome, Phase
from battery.bench.stream.dialect import EVIDENCE_BYTES
from battery.bench.stream.stopwatch import Stopwatch
from battery.bench.stream.wire import Headers, Lane, Order, Unreachable
from battery.ledger.trace import Trace

__all__ = ["Client", "Completion", "Unreachable"]


class Completion(msgspec.Struct, frozen=True, kw_only=True):
    """One request from send to last byte: what came, when, and whether it is a success."""

    outcome: Outcome
    reason: str | None
    """Why it is no success; None where it is."""
    phase: Phase
    """How far it came: `connect` (never sent), `http` (an HTTP error came back), `prefill` (no token yet), `decode`."""
    trace: Trace = Trace()
    """Partial where the request failed: every token that did come is in it."""
    text: str = ""
    reasoning: str = ""
    tool_calls: str = ""
    """Names and arguments of tool calls, joined."""
    token_ids: tuple[int, ...] | None = None
    """None where the server does not send them."""
    sent_ns: int | None = None
    """perf_counter_ns just before the first byte of the request was written; None: never sent."""
    evidence: dict[str, Any] = {}

    @property
    def first_token_ns(self) -> int | None:
        """Send to the first token event, None where none came."""
        return self.trace.events[0].at_ns if self.trace.events else None


class Client:
    """A blocking client for one server. `stream` is for one thread at a time; the rest may run beside it."""

    def __init__(
        self,
        base_url: str,
        api_key: str | None = None,
        timeout_s: float = 10.0,
        warm_path: str | None = "/health",
        apart: bool = False,
    ) -> None:
        """`apart`: time in a process of its own (see stopwatch), for stamps that must be exact."""
        headers: Headers = {
            "User-Agent": "battery",
            "Accept": "text/event-stream, application/json",
            "Accept-Encoding": "identity",
            "Content-Type": "application/json",
        }
        if api_key:
            headers["Authorization"] = f"Bearer {api_key}"
        self._secret, self._timeout_s, self._warm_path = api_key, timeout_s, warm_path
        lane = Stopwatch if apart else Lane
        self._timed: Lane | Stopwatch = lane(base_url.rstrip("/"), headers)
        self._aside = Lane(base_url.rstrip("/"), headers)
        self._lock = threading.Lock()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def timing_pid(self) -> int | None:
        """Of the process that times; None where that is this one, or none was needed yet."""
        return self._timed.pid if isinstance(self._timed, Stopwatch) else None

    def close(self) -> None:
        """Close both connections."""
        self._timed.close()
        self._aside.close()

    def get_json(self, path: str) -> tuple[int, Any]:
        """(status, document) of a GET; Unreachable where none comes. A body that is no JSON comes back as text."""
        return self._json("GET", path, None)

    def post_json(self, path: str, body: object = None) -> tuple[int, Any]:
        """(status, document) of a POST; Unreachable where none comes. A body that is no JSON comes back as text."""
        return self._json("POST", path, msgspec.json.encode({} if body is None else body))

    def _json(self, method: str, path: str, payload: bytes | None) -> tuple[int, Any]:
        """One small request on the connection that is never timed."""
        with self._lock:
            status, raw = self._aside.exchange(method, path, payload, self._timeout_s)
        try:
            return status, msgspec.json.decode(raw)
        except msgspec.DecodeError:
            return status, self._hidden(raw[:EVIDENCE_BYTES].decode("utf-8", "replace"))

    def stream(
        self,
        path: str,
        body: dict[str, Any],
        *,
        deadline_s: float,
    ) -> Completion:
        """One completion, timed. It never raises for what a server or a network does; `stream: true` is added.

        `deadline_s` covers the request from send to last byte.
        """
        payload = msgspec.json.encode({**body, "stream": True})
        order = Order(path, payload, deadline_s, self._warm_path, self._timeout_s)
        answer = self._timed.request(order)
        if answer.unsent is not None:
            outcome: Outcome = "timeout" if answer.timed_out else "error"
            return Completion(outcome=outcome, reason=self._hidden(answer.unsent), phase="connect")
        return self._completion(answer)

    def _completion(self, answer: Answer) -> Completion:
        """The answer, read and judged."""
        said = chunks.read(answer)
        taken = said.chunks
        evidence = {**said.evidence, "connection": answer.connection}
        return Completion(
            outcome=said.outcome,
            reason=self._hidden(said.reason),
            phase=said.phase,
            trace=said.trace,
            text=taken.said("content"),
            reasoning=taken.said("reasoning"),
            tool_calls=taken.said("tool"),
            token_ids=tuple(taken.ids) or None,
            sent_ns=answer.sent_ns or None,
            evidence={
                key: self._hidden(value) if isinstance(value, str) else value
                for key, value in evidence.items()
            },
        )

    def _hidden(self, text: str | None) -> str | None:
        """`text` without the API key, which some servers repeat in their complaint."""
        return text.replace(self._secret, "<redacted>") if text and self._secret else text
