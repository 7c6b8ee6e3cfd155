"""One answer's stamped reads -> what was generated, when, and whether that is a success. Pure: no socket, no clock.

Speaks the dialects of OpenAI-like servers: chat and completion chunks, reasoning under either name, tool calls, usage
with or without choices, timings as switchboard or llama.cpp names them. Null, missing and empty are three cases.

A *token event* brings text: content, reasoning or tool call, not empty. It carries the date of the read that completed
it. Token ids that bring no text wait for the next text (the first token is never earlier than a reader could see
it); ids left over at the end, an end-of-text token or a held-back piece, are one last event at their own arrival, so
that the last token is never earlier than it came. Either way the events' counts add up to every id that was sent.

A success is: status 200; no error inside the stream; every chunk JSON; a finish reason, and not `error` or `abort`;
[DONE], or a body that its framing (chunk terminator, content length) ended; at least one token with text; usage, where
given, equal to the sum of ids, where given. Whatever did come is kept in the trace of a failure.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import msgspec

from battery.bench.sse import Parser, ServerEvent
from battery.ledger.trace import CountSource, Event, Kind, Trace

EVIDENCE_BYTES = 400
FAILED_FINISH = ("error", "abort")

Outcome = Literal["ok", "error", "timeout"]
Phase = Literal["connect", "http", "prefill", "decode"]

_LLAMA_CPP = {
    "prompt_n": ("prompt_tokens", 1),
    "prompt_ms": ("prompt_s", 1e-3),
    "predicted_n": ("decode_tokens", 1),
    "predicted_ms": ("decode_s", 1e-3),
    "cache_n": ("cached_tokens", 1),
    "draft_n": ("proposed", 1),
    "draft_n_accepted": ("accepted", 1),
}


class Answer(msgspec.Struct):
    """One response as it came off the wire. Stamps are perf_counter nanoseconds."""

    unsent: str | None = None
    """Why the request never left; None: it did."""
    connection: str | None = None
    """`kept` from the request that warmed it, or `opened ahead` by a server that keeps none."""
    sent_ns: int = 0
    status: int | None = None
    content_type: str = ""
    framed: bool = False
    """The body carries its own end: chunked, or a content length."""
    reads: list[tuple[int, bytes]] = []
    ended: bool = False
    """The body came to its end: by its framing, or, unframed, with the connection."""
    last_ns: int | None = None
    """When the last byte came."""
    timed_out: bool = False
    broken: str | None = None
    """What cut the answer short, in words."""

    @property
    def tail(self) -> bytes:
        """The last bytes of the body."""
        kept: list[bytes] = []
        for _, data in reversed(self.reads):
            kept.append(data)
            if sum(map(len, kept)) >= EVIDENCE_BYTES:
                break
        return b"".join(reversed(kept))[-EVIDENCE_BYTES:]


class Reading(NamedTuple):
    """What an answer amounts to."""

    outcome: Outcome
    reason: str | None
    phase: Phase
    chunks: Chunks
    trace: Trace
    evidence: dict[str, Any]


class Chunks:
    """Everything that the chunks of one stream said so far; `fault` is the first thing that makes it a failure."""

    def __init__(self, sent_ns: int) -> None:
        self._sent_ns = sent_ns
        self.events: list[Event] = []
        self.texts: dict[Kind, list[str]] = {"content": [], "reasoning": [], "tool": []}
        self.ids: list[int] = []
        self.usage: dict[str, Any] | None = None
        self.timings: dict[str, Any] | None = None
        self.sampler: dict[str, Any] | None = None
        self.finish_reason: str | None = None
        self.done = False
        self.seen = 0
        self.fault: str | None = None
        self.fault_body: str | None = None
        self._waiting = 0
        """Ids that came without text since the last token event."""
        self._waiting_ns = 0
        self._running = 0
        """Completion tokens by the last running usage, for servers that count as they go."""

    def take(self, event: ServerEvent, at_ns: int) -> None:
        """One event of the stream and the stamp of the read that completed it."""
        if self.done:
            return
        if event.data.strip() == "[DONE]":
            self.done = True
            return
        self.seen += 1
        try:
            chunk = msgspec.json.decode(event.data)
        except (msgspec.DecodeError, RecursionError) as broken:
            chunk = None
            if event.event != "error":
                self._fail(f"chunk {self.seen} is no JSON: {broken}", event.data)
        if event.broken:
            self._fail(f"chunk {self.seen} is no UTF-8", event.data)
        said = error_in(chunk)
        if event.event == "error":
            said = said or event.data[:EVIDENCE_BYTES] or "an error event without words"
        if said is not None:
            self._fail(f"error inside the stream: {said}", event.data)
        if isinstance(chunk, dict):
            self._take_chunk(chunk, at_ns - self._sent_ns)
        elif chunk is not None:
            self._fail(f"chunk {self.seen} is no JSON object", event.data)

    def _fail(self, reason: str, body: str) -> None:
        """Keep the first fault."""
        if self.fault is None:
            self.fault, self.fault_body = reason, body[:EVIDENCE_BYTES]

    def _take_chunk(self, chunk: dict[str, Any], at_ns: int) -> None:
        """Totals first, then the first choice; a running usage is what dates its tokens."""
        for name in ("timings", "sampler"):
            if isinstance(chunk.get(name), dict):
                setattr(self, name, {**(getattr(self, name) or {}), **chunk[name]})
        if isinstance(chunk.get("usage"), dict):
            self.usage = chunk["usage"]
        choices = chunk.get("choices")
        choice = choices[0] if isinstance(choices, list) and choices else None
        if not isinstance(choice, dict):
            return
        if isinstance(choice.get("finish_reason"), str):
            self.finish_reason = choice["finish_reason"]
        self._take_tokens(choice, chunk.get("usage"), at_ns)

    def _take_tokens(self, choice: dict[str, Any], usage: object, at_ns: int) -> None:
        """Text and ids of one choice; a token event where there is text."""
        found = texts_in(choice)
        for kind, text in found.items():
            self.texts[kind].append(text)
        ids = choice.get("token_ids")
        if isinstance(ids, list) and ids and all(isinstance(one, int) for one in ids):
            self.ids += ids
            counted: int | None = len(ids)
        else:
            counted = None if self.ids else self._ran_on(usage)
        if found:
            tokens = None if counted is None else counted + self._waiting
            first: Kind = "content" if "content" in found else next(iter(found))
            self.events.append(Event(at_ns, tokens, first))
            self._waiting = 0
        elif counted:
            self._waiting += counted
            self._waiting_ns = at_ns

    def _ran_on(self, usage: object) -> int | None:
        """Tokens since the last chunk, of a server whose every chunk carries the usage so far; None for any other."""
        total = count(usage.get("completion_tokens")) if isinstance(usage, dict) else None
        # A usage that comes first after the first token event is the total, and no running count.
        if not total or total < self._running or (self.events and not self._running):
            return None
        grown, self._running = total - self._running, total
        return grown

    def finish(self) -> None:
        """No more chunks will come: ids that still wait for text become the last event."""
        if self._waiting and self.events:
            self.events.append(Event(self._waiting_ns, self._waiting, self.events[-1].kind))
            self._waiting = 0

    def counts(self) -> tuple[CountSource, int | None, str | None]:
        """(source of the count, completion tokens, what is wrong with them)."""
        known = [event.tokens for event in self.events if event.tokens is not None]
        all_known = bool(known) and len(known) == len(self.events)
        total = count((self.usage or {}).get("completion_tokens"))
        if total is None:
            # Without usage even ids are no total: nothing says that none was left out.
            guess = sum(known) if all_known else len(self.events)
            return "estimate", guess or None, None
        agrees = sum(known) == total
        wrong = None
        if self.ids and (sum(known) > total or (all_known and not agrees)):
            wrong = f"usage counts {total} tokens, but {sum(known)} token ids came"
        return "server" if all_known and agrees else "usage", total, wrong

    def trace(self, end_ns: int | None) -> Trace:
        """The trace of what was taken; `end_ns` is the last byte, None where the answer has no end."""
        source, total, _ = self.counts()
        timings = normal_timings(self.timings)
        usage = self.usage or {}
        details = usage.get("prompt_tokens_details")
        said = (
            details.get("cached_tokens") if isinstance(details, dict) else None,
            usage.get("cached_tokens"),
            (timings or {}).get("cached_tokens"),
        )
        events = self.events
        if source == "estimate":
            events = [msgspec.structs.replace(event, tokens=event.tokens or 1) for event in events]
        return Trace(
            events=tuple(events),
            end_ns=end_ns,
            prompt_tokens=count(usage.get("prompt_tokens")),
            completion_tokens=total,
            cached_tokens=next((n for n in map(count, said) if n is not None), None),
            count_source=source,
            finish_reason=self.finish_reason,
            usage=self.usage,
            timings=timings,
            sampler=self.sampler,
        )


def read(answer: Answer) -> Reading:
    """What one answer amounts to, with the evidence where it is a failure."""
    chunks, parser = Chunks(answer.sent_ns), Parser()
    for at_ns, data in answer.reads:
        for event in parser.feed(data):
            chunks.take(event, at_ns)
    unfinished = parser.close()
    chunks.finish()
    reason = _fault(answer, chunks, unfinished)
    complete = answer.ended or (chunks.done and reason is None)
    end_ns = answer.last_ns - answer.sent_ns if complete and answer.last_ns is not None else None
    timed_out = answer.timed_out and reason == answer.broken
    outcome: Outcome = "ok" if reason is None else "timeout" if timed_out else "error"
    evidence: dict[str, Any] = {"http_status": answer.status, "reads": len(answer.reads)}
    if reason is not None:
        evidence |= {
            "finish_reason": chunks.finish_reason,
            "done": chunks.done,
            "token_events": len(chunks.events),
            "last_bytes": answer.tail.decode("utf-8", "replace"),
            "error_body": chunks.fault_body,
            "last_byte_ns": None if answer.last_ns is None else answer.last_ns - answer.sent_ns,
        }
    elif answer.broken:
        evidence["after_done"] = answer.broken
    phase: Phase = "decode" if chunks.events else "prefill"
    if answer.status not in (None, 200):
        phase = "http"
    return Reading(outcome, reason, phase, chunks, chunks.trace(end_ns), evidence)


def _fault(answer: Answer, chunks: Chunks, unfinished: bytes) -> str | None:
    """Why the answer is a failure, the most telling reason first; None for a success."""
    if answer.status is not None and answer.status != 200:
        body = b"".join(data for _, data in answer.reads)[:65_536]
        return f"HTTP {answer.status}: {_words(body)}"
    if chunks.fault is not None:
        return chunks.fault
    if answer.broken and not (chunks.done and chunks.finish_reason):
        return answer.broken
    if answer.status is None:
        return "no answer"
    if not chunks.seen and not answer.content_type.startswith("text/event-stream"):
        body = answer.tail
        return f"not an event stream ({answer.content_type or 'no content type'}): {_words(body)}"
    return _unfinished(answer, chunks, unfinished) or _miscounted(chunks)


def _unfinished(answer: Answer, chunks: Chunks, rest: bytes) -> str | None:
    """Why the stream is not one that came to its end."""
    if chunks.finish_reason in FAILED_FINISH:
        return f"the server finished with '{chunks.finish_reason}'"
    if chunks.finish_reason is None:
        return "the stream ended without a finish reason"
    if chunks.done:
        return None
    if rest:
        return f"the stream ended inside an event: {rest[-80:]!r}"
    if not answer.framed:
        return "the connection closed without [DONE], and nothing else marks the end"
    return None


def _miscounted(chunks: Chunks) -> str | None:
    """Why the tokens that came are not the ones that the server claims."""
    if not any(map(any, chunks.texts.values())):
        return "no token came: the answer is empty"
    _, total, wrong = chunks.counts()
    return "usage counts no token" if total == 0 else wrong


def texts_in(choice: dict[str, Any]) -> dict[Kind, str]:
    """The text that one choice adds, by kind; kinds without text are left out."""
    delta = choice.get("delta")
    delta = delta if isinstance(delta, dict) else {}
    calls = delta.get("tool_calls")
    functions = [
        call["function"]
        for call in (calls if isinstance(calls, list) else [])
        if isinstance(call, dict) and isinstance(call.get("function"), dict)
    ]
    said: dict[Kind, object] = {
        # Some servers send both spellings with the same text; taking both would count it twice.
        "reasoning": delta.get("reasoning_content") or delta.get("reasoning"),
        "content": delta.get("content") or choice.get("text"),
        "tool": "".join(
            part
            for function in functions
            for part in (function.get("name"), function.get("arguments"))
            if isinstance(part, str)
        ),
    }
    return {kind: text for kind, text in said.items() if isinstance(text, str) and text}


def error_in(chunk: object) -> str | None:
    """The words of an error document, None where it is none (`"error": null` is none)."""
    if not isinstance(chunk, dict):
        return None
    error = chunk if chunk.get("object") == "error" else chunk.get("error")
    if error is None or error is False or error == "":
        return None
    words = error.get("message") if isinstance(error, dict) else error
    return str(words or error)[:EVIDENCE_BYTES]


def normal_timings(sent: dict[str, Any] | None) -> dict[str, Any] | None:
    """The server's timings as sent, with llama.cpp's figures also under our names and in seconds."""
    if sent is None:
        return None
    named: dict[str, Any] = {}
    for theirs, (ours, scale) in _LLAMA_CPP.items():
        value = sent.get(theirs)
        if isinstance(value, int | float) and not isinstance(value, bool) and ours not in sent:
            named[ours] = value if scale == 1 else value * scale
    return {**sent, **named}


def count(value: object) -> int | None:
    """A number of tokens; None for anything else, null and true included."""
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    return None


def _words(body: bytes) -> str:
    """The message in an error body, or its first characters."""
    try:
        said = error_in(msgspec.json.decode(body))
    except msgspec.DecodeError:
        said = None
    return said or body[:200].decode("utf-8", "replace").strip() or "an empty body"
