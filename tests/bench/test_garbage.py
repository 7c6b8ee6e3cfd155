"""Whatever a server sends, reading it never raises, and what cannot be a success is none."""

from __future__ import annotations

import json
from typing import Any

import hypothesis
import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from battery.bench import probe
from battery.bench.client import Completion
from battery.bench.judge import outcome
from battery.bench.stream import chunks
from battery.ledger.trace import METRICS

LEAF = st.one_of(
    st.none(), st.booleans(), st.integers(-3, 2**70), st.floats(allow_nan=False), st.text(max_size=5),
    st.just("\ud83d"),
)  # fmt: skip
NAME = st.text(max_size=4) | st.just("\ud83d")
ANY = st.recursive(
    LEAF, lambda kids: st.lists(kids, max_size=3) | st.dictionaries(NAME, kids, max_size=3), max_leaves=6
)  # fmt: skip


def table(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """A table in which each field is as it should be, or anything, or missing; or anything in its place."""
    mixed = {name: kind | ANY for name, kind in fields.items()}
    return st.fixed_dictionaries({}, optional=mixed) | ANY


TEXT = st.sampled_from(["", "a", "é😀", " "])
PARTS = st.lists(table(type=st.sampled_from(["text", "thinking"]), text=TEXT, thinking=TEXT), max_size=2)  # fmt: skip
CALLS = st.lists(table(index=st.just(0), function=table(name=TEXT, arguments=TEXT)), max_size=2)
COUNT = st.integers(0, 9)
USAGE = table(
    prompt_tokens=COUNT, completion_tokens=COUNT, prompt_tokens_details=table(cached_tokens=COUNT),
    completion_tokens_details=table(reasoning_tokens=COUNT),
)  # fmt: skip
DELTA = table(
    role=st.just("assistant"), content=TEXT | PARTS, reasoning=TEXT, reasoning_content=TEXT, tool_calls=CALLS,
    function_call=table(name=TEXT, arguments=TEXT), refusal=TEXT,
)  # fmt: skip
CHOICE = table(
    index=st.sampled_from([0, 1]), delta=DELTA, text=TEXT, finish_reason=st.sampled_from(["stop", "error", ""]),
    token_ids=st.lists(COUNT, max_size=3), usage=USAGE,
)  # fmt: skip
CHUNK = table(
    choices=st.lists(CHOICE, max_size=2), usage=USAGE, error=table(message=TEXT),
    timings=table(prompt_n=COUNT, prompt_ms=COUNT, predicted_n=COUNT, cache_n=COUNT),
    sampler=table(max_tokens=COUNT, temperature=COUNT),
)  # fmt: skip
EVENTS = st.lists(CHUNK.map(json.dumps) | st.sampled_from(["[DONE]", "", "{", '"\\ud83d"']), max_size=6)  # fmt: skip

# one thing askew in a stream that is well otherwise
ASKEW = st.lists(
    st.one_of(
        st.fixed_dictionaries({"choices": st.lists(st.fixed_dictionaries({"delta": DELTA}), max_size=1)}),
        st.fixed_dictionaries({"usage": USAGE}),
        st.fixed_dictionaries({"timings": ANY, "sampler": ANY, "choices": st.none()}),
    ),
    max_size=3,
)  # fmt: skip
WORD = {"choices": [{"index": 0, "delta": {"content": "word"}}]}
END = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}


def answered(*reads: bytes, status: int = 200) -> chunks.Answer:
    return chunks.Answer(
        sent_ns=1, status=status, content_type="text/event-stream", framed=True, ended=True,
        reads=[(10 + place, data) for place, data in enumerate(reads)], last_ns=10 + len(reads),
    )  # fmt: skip


def consistent(answer: chunks.Answer) -> chunks.Reading:
    """What holds for every reading."""
    said = chunks.read(answer)
    trace = said.trace
    assert (said.reason is None) == (said.outcome == "ok")
    if said.outcome == "ok":
        assert trace.events and trace.finish_reason and (trace.completion_tokens or 0) >= 1
    stamps = [event.at_ns for event in trace.events]
    assert stamps == sorted(stamps) and all(stamp > 0 for stamp in stamps)
    assert all(event.tokens is None or event.tokens >= 1 for event in trace.events)
    for metric in METRICS.values():
        value = metric.of(trace)
        assert value is None or value >= 0
    done = Completion(outcome=said.outcome, reason=said.reason, phase=said.phase, trace=trace)
    seen = probe.judged(done, 4, {})
    assert (seen.exit_code == 0) == (seen.outcome == "ok") and json.dumps(seen.evidence)
    msgspec.json.encode(
        [trace, said.evidence, said.reason, *map(said.chunks.said, said.chunks.texts)]
    )
    assert outcome.honoured({"max_tokens": 4}, trace.sampler, trace)[0]
    return said


@settings(max_examples=400, deadline=None)
@given(EVENTS)
def test_any_chunks(events: list[str]) -> None:
    consistent(answered(*(f"data: {event}\n\n".encode() for event in events)))


@settings(max_examples=400, deadline=None)
@given(ASKEW, st.booleans())
def test_any_one_thing_askew(askew: list[Any], counted: bool) -> None:
    """Nothing that is odd between them loses the words that came, and most of it is no failure."""
    totals = [{"choices": [], "usage": {"completion_tokens": 2}}] if counted else []
    events = [json.dumps(one) for one in (WORD, *askew, WORD, END, *totals)]
    said = consistent(answered(*(f"data: {event}\n\n".encode() for event in (*events, "[DONE]"))))
    text = said.chunks.said("content")
    assert text.startswith("word") and text.endswith("word") and said.chunks.done
    hypothesis.event(f"{said.outcome}: {(said.reason or '')[:20]}")


@settings(max_examples=200, deadline=None)
@given(st.lists(st.binary(max_size=12), max_size=8), st.sampled_from([200, 204, 404]))
def test_any_bytes(reads: list[bytes], status: int) -> None:
    consistent(answered(*filter(None, reads), status=status))


@settings(max_examples=200, deadline=None)
@given(CHUNK.map(json.dumps))
def test_any_document_in_one_piece(whole: str) -> None:
    consistent(answered(whole.encode()))
