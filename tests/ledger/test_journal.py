"""What a journal tells, and lines of it that tell nothing."""

from __future__ import annotations

from battery.ledger.journal import noted_looks, number, set_aside

EVENTS = [
    {"event": "started", "at": "x"},
    {"event": "look", "at": "x", "block": 6, "ends": False, "why": "it goes on", "after": 72},
    {"event": "unreadable", "at": ""},
    {"event": "look", "block": 6, "ends": True, "why": "another look"},
    {"event": "look", "block": "eight", "ends": True},
    {"event": "look", "block": 8, "ends": True, "why": "decided"},
    {"event": "damaged", "file": "0031-b3-A-r128-s1.json", "reason": "torn"},
    {"event": "damaged", "reason": "no file"},
    {},
]


def test_the_first_look_after_a_block_is_the_one_that_binds() -> None:
    looks = noted_looks(EVENTS)
    assert {block: (one.ends, one.after) for block, one in looks.items()} == {
        6: (False, 72), 8: (True, None),
    }  # fmt: skip


def test_receipts_that_were_set_aside_have_their_numbers() -> None:
    (one,) = set_aside(EVENTS)
    assert (one.number, one.reason) == (31, "torn")
    assert number("12345-b1-A-r8-s1.json") == 12345 and number("campaign.json") is None
