"""How results are held against expected ones: EvalPlus's rule, known answers and its oracles."""

from __future__ import annotations

import collections
import math
import os
import pickle
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from battery.quality.sandbox.inside.comparing import ORACLES, SHORT, close, right, sameness
from battery.quality.sandbox.inside.wire import CHUNK, HEAD, Ends, Gone, NotPlain, packed, plain

PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text()
    | st.binary(),
    lambda inner: st.lists(inner) | st.lists(inner).map(tuple) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@given(PLAIN)
def test_plain_data_travels_unchanged_and_equals_itself(value: object) -> None:
    found = plain(packed(value))
    assert found == value and type(found) is type(value)
    assert right(found, value, 0.0)
    assert sameness(packed(found)) == sameness(packed(value))


@pytest.mark.parametrize(
    ("found", "wanted", "atol", "expected"),
    [
        (1, 1.0, 0.0, True),
        ([1, 2], (1, 2), 0.0, False),
        (0.1 + 0.2, 0.3, 0.0, True),
        (0.3 + 2e-6, 0.3, 0.0, False),
        (0.3 + 2e-6, 0.3, 1e-4, True),
        (1, 1.0000001, 0.0, False),
        ([0.1 + 0.2, 1.0], [0.3, 1.0], 0.0, True),
        ([0.3], [0.3, 0.3], 0.0, False),
        ([0.1 + 0.2, "a"], [0.3, "a"], 0.0, False),
        (math.inf, math.inf, 0.0, True),
        (-math.inf, math.inf, 1.0, False),
        (None, 0.0, 1e-4, False),
        ("0.3", 0.3, 1.0, False),
        (10**400, 1.0, 1e-4, False),
        (complex(1, 2 + 1e-9), complex(1, 2), 1e-4, True),
    ],
)
def test_the_rule_of_evalplus(found: object, wanted: object, atol: float, expected: bool) -> None:
    assert right(found, wanted, atol) is expected


def test_close_needs_equal_shapes() -> None:
    assert close([[1.0, 2.0]], [[1.0, 2.0 + 1e-9]], 0.0)
    assert not close([[1.0], [2.0]], [[1.0, 2.0]], 1.0)


@pytest.mark.parametrize(
    ("oracle", "given", "found", "wanted", "expected"),
    [
        ("zero", ([1, 2],), -0.5, None, True),
        ("zero", ([1, 2],), 0.5, None, False),
        ("sets", (), [2, 1, 1], (1, 2), True),
        ("sets", (), [2, 1, 3], (1, 2), False),
        ("anything", (), None, True, True),
        ("something", (), True, True, True),
        ("something", (), object(), True, True),
        ("something", (), None, True, False),
        ("something", (), None, None, True),
        ("digits", ("56", "256"), 2, 9, True),
        ("digits", ("56", "256"), 3, 9, False),
        ("surface", (3, 4), 36, 33, False),
        ("surface", (3, 4), 33, 33, True),
        ("surface", (3, 4), 35, 33, True),
    ],
)
def test_oracles(
    oracle: str, given: tuple[object, ...], found: object, wanted: object, expected: bool
) -> None:
    assert ORACLES[oracle](given, found, wanted, 1e-4) is expected


def test_long_results_are_kept_as_digests_and_told_apart() -> None:
    one, two = packed("x" * 10_000), packed("x" * 9_999 + "y")
    assert len(sameness(one)) == 17 and sameness(one) != sameness(two)
    assert sameness(packed(7)) == b"=" + packed(7) and len(packed(7)) < SHORT


class Own:
    pass


@pytest.mark.parametrize(
    "body",
    [
        pickle.dumps(Own()),
        pickle.dumps(print),
        pickle.dumps(collections.defaultdict(list)),
        b"cos\nsystem\n(S'exit 1'\ntR.",
        b"\x80\x05\x8c\x08builtins\x8c\x04eval\x93.",
        b"",
        b"garbage",
        packed([1, 2])[:-3],
    ],
    ids=["instance", "function", "factory", "system", "eval", "empty", "garbage", "cut"],
)
def test_only_plain_data_is_taken_in(body: bytes) -> None:
    with pytest.raises(NotPlain):
        plain(body)


@pytest.mark.parametrize("size", [0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 5 * CHUNK + 3])
def test_messages_of_any_size_come_whole_and_in_order(size: int) -> None:
    incoming, outgoing = os.pipe()
    ends = Ends(incoming, outgoing)
    body = bytes(range(251)) * (size // 251) + bytes(size % 251)

    def send() -> None:
        ends.hold(b"V", b"before")
        ends.hold(b"V", body)
        ends.send(b"X", b"after")
        os.close(outgoing)

    sender = threading.Thread(target=send)
    sender.start()
    try:
        came = [ends.receive(), ends.receive(size), ends.receive()]
        with pytest.raises(Gone):
            ends.receive()
    finally:
        sender.join()
        os.close(incoming)
    assert came == [(b"V", b"before"), (b"V", body), (b"X", b"after")]


def test_a_message_that_ends_early_or_claims_too_much_is_none() -> None:
    for claimed, most, wrong in ((3 * CHUNK, None, Gone), (3 * CHUNK, CHUNK, NotPlain)):
        incoming, outgoing = os.pipe()
        os.write(outgoing, HEAD.pack(b"V", claimed) + b"some")
        os.close(outgoing)
        with pytest.raises(wrong):
            Ends(incoming, -1).receive(most)
        os.close(incoming)
