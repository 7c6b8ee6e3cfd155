"""What the terminal tells while a campaign runs."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from battery.ledger.store import Campaign
from battery.terminal import Clock

ROOT = Path(__file__).parents[1]


def test_cells_of_an_attempt_that_was_given_up_are_not_counted_as_done() -> None:
    receipts = Campaign(ROOT / "receipts" / "reference-cpu").receipts()[:25]
    clock = Clock(receipts[:21], total=42)  # block 1 is complete
    assert clock.done == 21 and clock.left() == ""
    for receipt in receipts[21:24]:
        clock.count(receipt)
    assert clock.done == 24 and "left" in clock.left()
    clock.count(msgspec.structs.replace(receipts[21], attempt=2))
    assert clock.done == 22


@pytest.mark.parametrize("done", [0, 21])
def test_nothing_is_foretold_before_the_first_receipt(done: int) -> None:
    receipts = Campaign(ROOT / "receipts" / "reference-cpu").receipts()[:done]
    assert Clock(receipts, total=42).left() == ""
