"""Which receipts of a campaign enter its analysis: those that can be read, that the plan has, and that may be pooled.

Everything that reads a campaign's receipts for a report starts here, so that a figure and the receipts shown behind it
can never be of different sets.
"""

from __future__ import annotations

import contextlib

import msgspec

from battery.ledger.errors import ReceiptError
from battery.ledger.loading import Loaded
from battery.ledger.pool import Pool
from battery.ledger.receipt import Receipt
from battery.ledger.store import Header, check_pool


class Admitted(msgspec.Struct, frozen=True, kw_only=True):
    """The receipts in the order of the run, and what was left out."""

    receipts: list[Receipt]
    complaints: list[str]
    """One for each receipt that cannot be read or is no cell of the plan."""
    pool: str = ""
    """Why some may not be pooled with the others; those were left out, too."""


def admitted(loaded: Loaded, header: Header) -> Admitted:
    """Those of a campaign's receipts that may be analysed under its `header`; ReceiptError is never raised for one."""
    kept, strangers = _planned(loaded.receipts, header)
    complaints = [*loaded.complaints.values(), *strangers]
    try:
        check_pool(kept, header)
    except ReceiptError as refused:
        return Admitted(receipts=_belonging(kept, header), complaints=complaints, pool=str(refused))
    return Admitted(receipts=kept, complaints=complaints)


def _planned(receipts: list[Receipt], header: Header) -> tuple[list[Receipt], list[str]]:
    """The receipts whose coordinates the plan has, in order, and a complaint for each other one."""
    kept, complaints = [], []
    arms = {arm.name for arm in header.arms}
    for receipt in sorted(receipts, key=lambda receipt: receipt.sequence):
        cell = receipt.cell
        known = 1 <= cell.block <= len(header.order) and cell.rung in header.plan.ladder
        known = known and receipt.request.workload in header.plan.mix
        if known and cell.arm in arms:
            kept.append(receipt)
        else:
            where = f"arm {cell.arm}, block {cell.block}, {cell.rung} tokens of {receipt.request.workload}"
            complaints.append(f"receipt {receipt.sequence}: {where} is no cell of the plan")
    return kept, complaints


def _belonging(receipts: list[Receipt], header: Header) -> list[Receipt]:
    """The longest set of receipts, in order, that may be pooled; each is tried with those kept before it."""
    kept: list[Receipt] = []
    try:
        pool = Pool(header)
    except ReceiptError:  # a plan that is not the one its digest names: nothing can be pooled
        return kept
    for receipt in receipts:
        with contextlib.suppress(ReceiptError):
            pool.admit(receipt)
            kept.append(receipt)
    return kept
