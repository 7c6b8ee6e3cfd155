"""Framing of server-sent events, in every chunking. Numbers in comments are cases of anchors/FIELD.md."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from battery.bench.sse import Parser, ServerEvent


def parsed(*reads: bytes) -> list[ServerEvent]:
    parser = Parser()
    events = [event for read in reads for event in parser.feed(read)]
    assert parser.close() == b""
    return events


def datas(*reads: bytes) -> list[str]:
    return [event.data for event in parsed(*reads)]


def cut(raw: bytes, at: list[int]) -> list[bytes]:
    edges = [0, *sorted(min(one, len(raw)) for one in at), len(raw)]
    return [raw[one:two] for one, two in itertools.pairwise(edges)]


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (b"data: one\n\ndata: two\n\n", ["one", "two"]),
        (b"data:one\n\n", ["one"]),  # 3: the blank after the colon is optional
        (b"data:  one\n\n", [" one"]),  # and only one blank is taken
        (b"data: one\r\n\r\n", ["one"]),
        (b"data: a\r\ndata: b\r\n\r\ndata: c\r\n\r\n", ["a\nb", "c"]),
        (b"data: one\r\rdata: two\r\r", ["one", "two"]),
        (b"data: one\r\n\ndata: two\n\r\n", ["one", "two"]),
        (b": ping\n\n:\n\ndata: one\n\n", ["one"]),
        (b"data: a\ndata: b\ndata\n\n", ["a\nb\n"]),
        (b"data:\n\n", [""]),
        (b"data\n\n", [""]),
        (b"event: ping\n\n", []),  # no data line, no event
        (b"unknown: x\ndata: one\n\n", ["one"]),
        (b"\xef\xbb\xbfdata: one\n\n", ["one"]),
        (b"\n\n\ndata: one\n\n\n\n", ["one"]),
        (
            "data: a\u2028b\u2029c\x0bd\x0ce\x85f\n\n".encode(),
            ["a\u2028b\u2029c\x0bd\x0ce\x85f"],
        ),  # 6
        ("data: \ufeffé€😀\n\n".encode(), ["\ufeffé€😀"]),
        (b'data: {"a": "raw \\n newline"}\n\n', ['{"a": "raw \\n newline"}']),
    ],
)
def test_framing_is_the_same_in_every_chunking(raw: bytes, expected: list[str]) -> None:
    assert datas(raw) == expected
    assert datas(*(raw[i : i + 1] for i in range(len(raw)))) == expected
    for at in range(len(raw)):
        assert datas(raw[:at], b"", raw[at:]) == expected


TRAPS = (
    "\ufeff: hello\r\nevent: note\nid: 7\nretry: 1500\ndata: é😀\u2028x\r\ndata:second\r\n\r\n"
    'data: {"choices":[{"delta":{"content":"日本"}}]}\n\n\r\rdata: end\r\n\r\n'
).encode()


@given(st.lists(st.integers(0, len(TRAPS)), max_size=30))
def test_any_split_gives_the_same_events(at: list[int]) -> None:
    assert parsed(*cut(TRAPS, at)) == [
        ServerEvent("é😀\u2028x\nsecond", "note", "7", 1500),
        ServerEvent('{"choices":[{"delta":{"content":"日本"}}]}'),
        ServerEvent("end"),
    ]


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r\n\ufeff")))
def test_any_text_comes_back_as_it_was(text: str) -> None:
    raw = f"data: {text}\n\n".encode()
    assert datas(*(raw[i : i + 1] for i in range(len(raw)))) == [text]


def test_a_carriage_return_completes_the_event_at_once() -> None:
    parser = Parser()
    assert parser.feed(b"data: one\r\n") == []
    assert [event.data for event in parser.feed(b"\r")] == ["one"]
    assert parser.feed(b"\n") == []
    assert [event.data for event in parser.feed(b"data: two\n\n")] == ["two"]


def test_fields_do_not_leak_into_the_next_event() -> None:
    one, two = parsed(b"event: error\nid: 1\nretry: 5\ndata: x\n\ndata: y\n\n")
    assert one == ServerEvent("x", "error", "1", 5)
    assert two == ServerEvent("y")


def test_bad_ids_and_retries_are_ignored() -> None:
    assert parsed(b"id: a\0b\nretry: soon\ndata: x\n\n") == [ServerEvent("x")]


def test_a_huge_event_over_many_reads() -> None:  # 5
    text = "x" * 3_000_000
    raw = f"data: {text}\n\n".encode()
    assert datas(*(raw[i : i + 4096] for i in range(0, len(raw), 4096))) == [text]


def test_a_huge_event_is_not_copied_once_per_read() -> None:
    """5: 32 MB in reads of 2 KB; a parser that copies what it has at each read would move 256 GB."""
    text = "é" * 16_000_000
    raw = f"event: x\rdata:{text}\r\r".encode()
    (event,) = parsed(*(raw[i : i + 2048] for i in range(0, len(raw), 2048)))
    assert event.data == text
    lines = 200_000
    assert datas(b"data: x\r\n" * lines + b"\r\n") == ["\n".join("x" * lines)]


@pytest.mark.parametrize(
    ("raw", "rest"),
    [
        (b"data: one\n\ndata: tw", b"data: tw"),
        (b"data: one\n", b"data: one"),
        (b"data: one\ndata: two", b"data: one\ndata: two"),
        (b": only a comment", b""),
        (b"data: one\n\n", b""),
        (b"\xef\xbb\xbf: comment", b""),
    ],
)
def test_what_was_not_finished_is_told_and_not_dispatched(raw: bytes, rest: bytes) -> None:
    parser = Parser()
    assert len(parser.feed(raw)) == raw.count(b"\n\n")
    assert parser.close() == rest


def test_bytes_that_are_no_text_are_marked_and_not_passed_off() -> None:  # 2
    (event,) = parsed(b"data: a\xffb\n\n")
    assert event.broken and event.data == "a\ufffdb"
    (event,) = parsed("data: a\ufffdb\n\n".encode())
    assert not event.broken
