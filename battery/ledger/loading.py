"""All receipts of a campaign in one pass over its files: each is read once, hashed, decoded and made lean.

Reading 100,000 receipts makes millions of objects, and the collector of garbage would go through all of them over and
over for nothing: none of them can be garbage. It rests meanwhile (`resting`), and while they are analysed, which takes
no more memory for it.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator
from typing import NamedTuple

from battery.ledger import strict
from battery.ledger.errors import ReceiptError
from battery.ledger.lean import Lean
from battery.ledger.receipt import Receipt
from battery.ledger.store import RECEIPT_REMEDY, Campaign, Seal


class Loaded(NamedTuple):
    """What a campaign's folder holds."""

    receipts: list[Receipt]
    """Those that can be read, lean, in the order of their numbers."""
    complaints: dict[str, str]
    """One for each that cannot, by the name of its file."""
    chain: Seal
    """Over the files as they are now."""


def load(campaign: Campaign) -> Loaded:
    """Every receipt of a campaign, and the chain over the very bytes that they were read from."""
    lean, receipts, complaints = Lean(), list[Receipt](), dict[str, str]()
    digests: list[tuple[str, str]] = []
    with resting():
        for path in campaign.paths():
            try:
                data = path.read_bytes()
            except IsADirectoryError:
                complaints[path.name] = f"{path.name}: a folder in the place of a receipt"
                continue
            digests.append((path.name, strict.digest(data)))
            try:
                receipts.append(lean.receipt(strict.decoded(data, path, Receipt, RECEIPT_REMEDY)))
            except ReceiptError as broken:
                complaints[path.name] = str(broken)
    return Loaded(receipts, complaints, campaign.chained(digests))


@contextlib.contextmanager
def resting() -> Iterator[None]:
    """No collection of garbage in between."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()
