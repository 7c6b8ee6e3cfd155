"""One answer's stamped reads -> what was generated, when, and whether that is a success. Pure: no socket, no clock.

What servers call things stands in dialect; here stands what it amounts to.

A *token event* brings text: content, reasoning or tool call, not empty. It carries the date of the read that completed
it. Token ids that bring no text wait for the next text (the first token is never earlier than a reader could see
it); ids left over at the end, an end-of-text token or a held-back piece, are one last event at their own arrival, so
that the last token is never earlier than it came. Either way the events' counts add up to every id that was sent.

A success is: status 200; no error inside the stream; every chunk JSON; one choice; a finish reason, and not `error` or
`abort`; [DONE], or a body that its framing (chunk terminator, content length) ended, or usage, which comes last; at
least one token with text; usage, where given, equal to the sum of ids, where given, and no more than the text can hold.
Whatever did come is kept in the trace of a failure.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import msgspec

from battery.bench.sse import Parser, ServerEvent
from battery.bench.stream import dialect
from battery.bench.stream.dialect import EVIDENCE_BYTES, count, error_words
from battery.ledger.trace import CountSource, Event, Kind, Trace

Outcome = Literal["ok", "error", "timeout"]
Phase = Literal["connect", "http", "prefill", "decode"]


class Answer(msgspec.Struct):
    """One response as it came off the wire. Stamps are perf_counter nanoseconds."""

    unsent: str | None = None
    """Why the request never left; None: it did."""
    connection: str | None = None
    """`kept` from the request that warmed it, or `opened ahead` by a server that keeps none."""
    sent_ns: int = 0
    status: int | None = None
    content_type: str = ""
    encoding: str = ""
    """Its content coding, which we never ask for."""
    location: str = ""
    """Where a redirect points; it is not followed."""
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
    def body(self) -> bytes:
        """All of the body that came."""
        return b"".join(data for _, data in self.reads)

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
        self.notes: list[str] = []
        """What a reader of the figures must know, though it is no failure."""
        self.fault: str | None = None
        self.fault_body: str | None = None
        self._waiting = 0
        """Ids that came without text since the last token event."""
        self._waiting_ns = 0
        self._running = 0
        """Completion tokens by the last running usage, for servers that count as they go."""
        self._stands = False
        """A usage came with text and had not grown: it is no running count."""

    def take(self, event: ServerEvent, at_ns: int) -> None:
        """One event of the stream and the stamp of the read that completed it."""
        if self.done:
            return
        if event.data.strip() == "[DONE]":
            self.done = True
            return
        blank = not event.data.strip() and event.event != "error"
        if blank or event.event in dialect.KEEP_ALIVE:
            return
        self.seen += 1
        try:
            chunk = dialect.document(event.data)
        except (ValueError, RecursionError) as broken:
            chunk = None
            if event.event != "error":
                self._fail(f"chunk {self.seen} is no JSON: {broken}", event.data)
        if event.broken:
            self._fail(f"chunk {self.seen} is no UTF-8", event.data)
        said = dialect.error_in(chunk)
        if event.event == "error":
            said = said or dialect.error_in({"error": chunk}) or event.data[:EVIDENCE_BYTES]
            said = said or "an error event without words"
        if said is not None:
            self._fail(f"error inside the stream: {said}", event.data)
        if isinstance(chunk, dict):
            self._take_chunk(chunk, at_ns - self._sent_ns)
        elif chunk is not None:
            self._fail(f"chunk {self.seen} is no JSON object", event.data)

    def _fail(self, reason: str, body: str) -> None:
        """Keep the first fault."""
        if self.fault is None:
            self.fault, self.fault_body = dialect.mended([reason, body[:EVIDENCE_BYTES]])

    def _take_chunk(self, chunk: dict[str, Any], at_ns: int) -> None:
        """Totals first, then the first choice; a running usage is what dates its tokens."""
        for name in ("timings", "sampler"):
            if isinstance(chunk.get(name), dict):
                setattr(self, name, {**(getattr(self, name) or {}), **chunk[name]})
        choice = self._choice(chunk.get("choices"))
        usage = dialect.usage_in(chunk, choice)
        if usage is not None:
            self.usage = dialect.grown(self.usage, usage)
        if choice is None:
            return
        # a server that failed does not become well by finishing once more
        if not dialect.failed(self.finish_reason):
            self.finish_reason = dialect.finish_in(choice) or self.finish_reason
        self._take_tokens(choice, usage, at_ns)

    def _choice(self, choices: object) -> dict[str, Any] | None:
        """The choice that was asked for; text of another one is a fault: usage counts it, and it took time."""
        first = None
        for choice in choices if isinstance(choices, list) else []:
            if not isinstance(choice, dict):
                continue
            if choice.get("index") in (None, 0):
                first = first or choice
            elif dialect.texts_in(choice):
                number = choice["index"]
                self._fail(f"choice {number!r} came beside the one that was asked for", str(choice))
        return first

    def _take_tokens(
        self, choice: dict[str, Any], usage: dict[str, Any] | None, at_ns: int
    ) -> None:
        """Text and ids of one choice; a token event where there is text."""
        found = dialect.texts_in(choice)
        for kind, text in found.items():
            self.texts[kind].append(text)
        ids = choice.get("token_ids")
        if isinstance(ids, list) and ids and all(isinstance(one, int) for one in ids):
            self.ids += ids
            counted: int | None = len(ids)
        else:
            counted = None if self.ids else self._ran_on(usage)
        if found:
            self._stands |= counted == 0
            tokens = None if counted is None else counted + self._waiting
            first: Kind = "content" if "content" in found else next(iter(found))
            self.events.append(Event(at_ns, tokens, first))
            self._waiting = 0
        elif counted:
            self._waiting += counted
            self._waiting_ns = at_ns

    def _ran_on(self, usage: dict[str, Any] | None) -> int | None:
        """Tokens since the last chunk, of a server whose every chunk carries the usage so far; None for any other."""
        total = count((usage or {}).get("completion_tokens"))
        # A usage that comes first after the first token event is the total, and no running count.
        if not total or total < self._running or (self.events and not self._running):
            return None
        grown, self._running = total - self._running, total
        return grown

    def take_whole(self, answer: dict[str, Any]) -> None:
        """An answer that was not streamed: what it says, without any time."""
        said = dialect.error_in(answer)
        if said is not None:
            self._fail(f"an error instead of a stream: {said}", str(answer))
        choice = dialect.message_in(answer) or {}
        self.usage, self.finish_reason = dialect.usage_in(answer, choice), dialect.finish_in(choice)
        for kind, text in dialect.texts_in(choice).items():
            self.texts[kind].append(text)

    def finish(self) -> None:
        """No more chunks will come: ids that still wait for text become the last event."""
        if self._stands and not self.ids:
            self.events = [msgspec.structs.replace(event, tokens=None) for event in self.events]
            self._waiting = 0
        if self._waiting and self.events:
            self.events.append(Event(self._waiting_ns, self._waiting, self.events[-1].kind))
            self._waiting = 0
        for kind in self.texts:
            if dialect.joined(self.texts[kind])[1]:
                self._fail(f"the {kind} holds half of a character", self.said(kind)[-80:])

    def said(self, kind: Kind) -> str:
        """All text of one kind."""
        return dialect.joined(self.texts[kind])[0]

    def counts(self) -> tuple[CountSource, int | None, str | None]:
        """(source of the count, completion tokens, what is wrong with them)."""
        known = [event.tokens for event in self.events if event.tokens is not None]
        all_known = bool(known) and len(known) == len(self.events)
        total = count((self.usage or {}).get("completion_tokens"))
        guess = sum(known) if all_known else len(self.events)
        if total is None:
            # Without usage even ids are no total: nothing says that none was left out.
            return "estimate", guess or None, None
        agrees = sum(known) == total
        if self.ids:
            wrong = sum(known) > total or (all_known and not agrees)
            said = f"usage counts {total} tokens, but {sum(known)} token ids came"
            source: CountSource = "server" if all_known and agrees else "usage"
            return source, total, said if wrong else None
        return self._plausible(total, "server" if all_known and agrees else "usage")

    def _plausible(
        self, total: int, source: CountSource
    ) -> tuple[CountSource, int | None, str | None]:
        """The same where no ids tell: a token event holds a token at least, a token a byte at least."""
        if total == 0:
            return source, total, None
        hidden = dialect.unshown(self.usage or {}, bool(self.texts["reasoning"]))
        size = sum(
            len(piece.encode("utf-8", "replace")) for kind in self.texts.values() for piece in kind
        )
        room = size + hidden + dialect.UNSHOWN * (4 if self.texts["tool"] else 1)
        if total > room:
            return source, total, f"usage counts {total} tokens, but only {size} bytes of text came"
        if hidden:
            self._note(f"{hidden} of {total} tokens were never sent: they are no part of any rate")
            return "estimate", total, None
        if total < len(self.events):
            self._note(f"usage counts {total} tokens, but {len(self.events)} token events came")
            return "estimate", len(self.events), None
        return source, total, None

    def _note(self, words: str) -> None:
        """Keep a note once."""
        if words not in self.notes:
            self.notes.append(words)

    def trace(self, end_ns: int | None) -> Trace:
        """The trace of what was taken; `end_ns` is the last byte, None where the answer has no end."""
        source, total, _ = self.counts()
        timings = dialect.normal_timings(self.timings)
        usage = self.usage or {}
        events = self.events
        if source == "estimate":
            events = [msgspec.structs.replace(event, tokens=event.tokens or 1) for event in events]
        return Trace(
            events=tuple(events),
            end_ns=end_ns,
            # no chat prompt has no token: a nought is a server that did not count
            prompt_tokens=count(usage.get("prompt_tokens")) or None,
            completion_tokens=total,
            cached_tokens=dialect.cached_in(usage, timings),
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
    if unfinished.replace(b" ", b"") == b"data:[DONE]":
        chunks.done, unfinished = True, b""
    if not chunks.seen and not chunks.done:
        _whole(answer, chunks)
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
    if chunks.notes:
        evidence["notes"] = list(chunks.notes)
    phase: Phase = "decode" if chunks.events else "prefill"
    if answer.status not in (None, 200):
        phase = "http"
    return Reading(outcome, reason, phase, chunks, chunks.trace(end_ns), evidence)


def _whole(answer: Answer, chunks: Chunks) -> None:
    """Take an answer that is one JSON document: its words are kept, though it has no times."""
    try:
        document = msgspec.json.decode(answer.body)
    except (msgspec.DecodeError, RecursionError):
        return
    if isinstance(document, dict):
        chunks.take_whole(document)


def _fault(answer: Answer, chunks: Chunks, unfinished: bytes) -> str | None:
    """Why the answer is a failure, the most telling reason first; None for a success."""
    if answer.status is not None and answer.status != 200:
        return f"HTTP {answer.status}: {_refusal(answer)}"
    if answer.encoding not in ("", "identity"):
        return (
            f"the body is encoded ({answer.encoding}), though identity was asked for:"
            " its events can neither be read nor dated"
        )
    if chunks.fault is not None:
        return chunks.fault
    if answer.broken and not (chunks.done and chunks.finish_reason):
        return answer.broken
    if answer.status is None:
        return "no answer"
    if not chunks.seen and not answer.content_type.startswith("text/event-stream"):
        kind = answer.content_type or "no content type"
        return f"not an event stream ({kind}): {error_words(answer.body)}"
    return _unfinished(answer, chunks, unfinished) or _miscounted(chunks)


def _refusal(answer: Answer) -> str:
    """What an answer other than 200 says."""
    if answer.location and 300 <= (answer.status or 0) < 400:
        return f"a redirect to {answer.location[:EVIDENCE_BYTES]}, which is not followed; give that address"
    return error_words(answer.body[:65_536])


def _unfinished(answer: Answer, chunks: Chunks, rest: bytes) -> str | None:
    """Why the stream is not one that came to its end."""
    if dialect.failed(chunks.finish_reason):
        return f"the server finished with '{chunks.finish_reason}'"
    if chunks.finish_reason is None:
        nothing = "" if chunks.seen else ": no event came"
        return f"the stream ended without a finish reason{nothing}"
    if chunks.done:
        return None
    if rest:
        return f"the stream ended inside an event: {rest[-80:]!r}"
    # usage comes after the last token: a stream that holds both it and a finish reason lacks no token
    if not answer.framed and chunks.usage is None:
        return "the connection closed without [DONE], and nothing else marks the end"
    return None


def _miscounted(chunks: Chunks) -> str | None:
    """Why the tokens that came are not the ones that the server claims."""
    if not any(map(any, chunks.texts.values())):
        return "no token came: the answer is empty"
    if not chunks.events:
        return "the answer came in one piece and not as events: nothing in it can be dated"
    _, total, wrong = chunks.counts()
    return "usage counts no token" if total == 0 else wrong
