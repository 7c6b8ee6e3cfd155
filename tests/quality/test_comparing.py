"""How results are held against expected ones: EvalPlus's rule, known answers and its oracles."""

from __future__ import annotations

import collections
import datetime
import decimal
import fractions
import importlib
import math
import os
import pickle
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from battery.quality.sandbox.inside import wire
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


KINDS = [
    bytearray(b"ab"), bytearray(), complex(1, -2), frozenset({1, (2,)}), range(1, 9, 2), {1, "a"}, set(),
    slice(1, None, 2), collections.Counter("aab"), collections.OrderedDict([("b", 1), ("a", [2])]),
    collections.deque([1, 2], 3), collections.deque([[1]]), datetime.date(2024, 2, 29),
    datetime.datetime(2024, 1, 1, 1, tzinfo=datetime.UTC),
    datetime.time(1, 2, 3), datetime.timedelta(1, 2, 3), datetime.timezone(datetime.timedelta(hours=2), "two"),
    decimal.Decimal("1.50"), fractions.Fraction(-6, 4), fractions.Fraction(0),
]  # fmt: skip
"""A value at least of every type that is called to be made."""


@pytest.mark.parametrize(
    "value", [*KINDS, KINDS, {"in": tuple(KINDS)}], ids=[str(n) for n in range(len(KINDS) + 2)]
)
def test_every_kind_of_plain_data_travels_unchanged(value: object) -> None:
    found = plain(packed(value))
    assert found == value and type(found) is type(value) and repr(found) == repr(value)
    made = {type(one).__name__ for one in KINDS}
    assert set().union(*wire.PLAIN.values()) == made


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
        pickle.dumps(set),
        pickle.dumps([frozenset, {1}]),
        # 0/0 is as near to any number as one asks
        b"\x80\x05cfractions\nFraction\nK\x01\x85RN}(\x8c\x0a_numeratorK\x00\x8c\x0c_denominatorK\x00u\x86b.",
        b"\x80\x05ccollections\nCounter\n)R}\x8c\x03getccollections\nCounter\nsb.",
        b"\x80\x05cbuiltins\nset\n(K\x01\x90.",
    ],
    ids=[
        "instance", "function", "factory", "system", "eval", "empty", "garbage", "cut", "class", "classes",
        "no fraction", "attribute", "items into a class",
    ],
)  # fmt: skip
def test_only_plain_data_is_taken_in(body: bytes) -> None:
    with pytest.raises(NotPlain):
        plain(body)


CHANGEABLE = [
    ("collections", "Counter"), ("collections", "OrderedDict"), ("decimal", "Decimal"), ("fractions", "Fraction"),
]  # fmt: skip


def taken(body: bytes, cls: type) -> tuple[bool, set[str]]:
    """Whether a message was taken in, and what it changed about a class, which is as before afterwards."""
    before = dict(vars(cls))
    try:
        plain(body)
        came = True
    except NotPlain:
        came = False
    now = dict(vars(cls))
    changed = {name for name in now if now[name] is not before.get(name)}
    for name in changed:
        setattr(cls, name, before[name]) if name in before else delattr(cls, name)
    return came, changed


@pytest.mark.parametrize(
    "name", ["__eq__", "__hash__", "__class__", "__call__", "planted", "_kind"]
)
@pytest.mark.parametrize(("module", "kind"), CHANGEABLE, ids=[kind for _, kind in CHANGEABLE])
def test_nothing_that_is_read_changes_a_class(module: str, kind: str, name: str) -> None:
    """States, items and members for the class itself, which is named in both ways, and then called or not."""
    cls = getattr(importlib.import_module(module), kind)
    words = [
        pickle.SHORT_BINUNICODE + bytes([len(one)]) + one.encode() for one in (module, kind, name)
    ]
    items = b"}" + words[2] + b"cbuiltins\nslice\ns"
    states = (
        b"N" + items + b"\x86b",
        items + b"b",
        words[2] + b"K\x01s",
        b"(K\x01\x90",
        b"(K\x01e",
    )
    for named in (f"c{module}\n{kind}\n".encode(), words[0] + words[1] + b"\x93"):
        for state in states:
            for after in (b")R.", b"K\x01\x85R.", b"."):
                assert taken(b"\x80\x05" + named + state + after, cls) == (False, set())


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
