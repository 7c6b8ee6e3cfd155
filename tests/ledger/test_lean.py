from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from battery.ledger.lean import Lean, events_of, packed
from battery.ledger.loading import load
from battery.ledger.receipt import Receipt
from battery.ledger.store import Campaign
from battery.ledger.trace import Event

ROOT = Path(__file__).parents[2]
COMMITTED = [
    name for name in ("reference-cpu", "speculation-cpu", "h200") if (ROOT / "receipts" / name).is_dir()
]  # fmt: skip


def blank(whole: Receipt) -> Receipt:
    """A receipt with what `lean.LEFT_OUT` names taken out by hand."""
    switches = tuple(replace(one, counters=None) for one in whole.engagement.switches)
    sources = {name: replace(one, bytes=None) for name, one in whole.memory.sources.items()}
    gate = whole.gate
    reading = replace(gate.reading, counters={}, temps={}) if gate.reading else None
    return replace(
        whole,
        trace=replace(whole.trace, usage=None, sampler=None),
        text=replace(whole.text, ids=None, head="", tail="") if whole.text else None,
        engagement=replace(whole.engagement, switches=switches),
        memory=replace(whole.memory, sources=sources),
        gate=replace(gate, reading=reading),
        samples=tuple(
            replace(one, temps={}, fans={}, pressure={}, counters={}, rose={}, missing={})
            for one in whole.samples
        ),
    )


def unpacked(lean: Receipt) -> Receipt:
    """A lean receipt with its rows as tuples."""
    trace = replace(lean.trace, events=tuple(lean.trace.events))
    return replace(lean, trace=trace, samples=tuple(lean.samples))


@pytest.mark.parametrize("name", COMMITTED)
def test_a_lean_receipt_lacks_what_is_named_and_nothing_else(name: str) -> None:
    campaign = Campaign(ROOT / "receipts" / name)
    whole, loaded = campaign.receipts(), load(campaign)
    assert list(map(unpacked, loaded.receipts)) == list(map(blank, whole))
    assert loaded.chain == campaign.chain() and not loaded.complaints
    first, last = loaded.receipts[0], loaded.receipts[-1]
    assert first.machine is last.machine and first.versions["battery"] == last.versions["battery"]


def test_a_packed_row_is_read_like_the_tuple() -> None:
    row = (Event(5, 1), Event(2**40, None, "reasoning"), Event(9, 3, "tool"))
    found = events_of(packed(row))
    assert len(found) == 3 and tuple(found) == row and found == row and found
    assert [found[0], found[1], found[-1], found[-2]] == [row[0], row[1], row[-1], row[-2]]
    assert found[1:] == row[1:]
    with pytest.raises(IndexError):
        found[3]
    none = events_of(packed(()))
    assert not none and len(none) == 0 and list(none) == []
    with pytest.raises(IndexError):
        none[0]


def test_equal_parts_are_held_once_and_unlike_ones_apart() -> None:
    lean = Lean()
    one, other = {"a": 1}, {"a": 1}
    assert lean.share(one) is lean.share(other) is one
    for unlike in ({"a": 1.0}, {"a": True}, {"a": "1"}, ("a", 1)):
        assert lean.share(unlike) is unlike
    huge = {"a": 2**70}
    assert lean.share(huge) is huge


def test_a_number_of_more_than_64_bits_stays_what_it_is() -> None:
    path = next((ROOT / "receipts" / "reference-cpu").glob("0002-*.json"))
    whole = msgspec.json.decode(path.read_bytes(), type=Receipt)
    odd = replace(whole, trace=replace(whole.trace, events=(Event(2**70, 1),)))
    assert Lean().receipt(odd).trace.events == odd.trace.events
