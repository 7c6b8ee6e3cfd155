"""Which of a folder's receipts an analysis may use: those of the plan's cells, as far as they belong together."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import NamedTuple

from battery.ledger.errors import ReceiptError
from battery.ledger.pool import Pool
from battery.ledger.receipt import Receipt
from battery.ledger.store import Header, check_pool


class Belonging(NamedTuple):
    """The receipts that may be used, and what is wrong with the others."""

    receipts: list[Receipt]
    """In the order of their numbers."""
    strangers: list[str]
    """A complaint for each whose coordinates the plan does not have."""
    pool: str
    """Why some of the rest were left out, or nothing."""


def belonging(receipts: Sequence[Receipt], header: Header) -> Belonging:
    """The receipts of the plan's cells; where they may not be pooled, the longest set of them that may."""
    kept, strangers = _planned(receipts, header)
    try:
        check_pool(kept, header)
    except ReceiptError as refused:
        return Belonging(_pooled(kept, header), strangers, str(refused))
    return Belonging(kept, strangers, "")


def _planned(receipts: Sequence[Receipt], header: Header) -> tuple[list[Receipt], list[str]]:
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


def _pooled(receipts: list[Receipt], header: Header) -> list[Receipt]:
    """The longest set of receipts, in order, that may be pooled; each is tried with those kept before it."""
    kept: list[Receipt] = []
    with contextlib.suppress(
        ReceiptError
    ):  # a plan that is not the one its digest names: nothing can be
        pool = Pool(header)
        for receipt in receipts:
            with contextlib.suppress(ReceiptError):
                pool.admit(receipt)
                kept.append(receipt)
    return kept
