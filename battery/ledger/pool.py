"""Which receipts belong together: those of one campaign, plan, schema, arm and model, each cell once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from battery.ledger.errors import ReceiptError
from battery.ledger.receipt import Receipt

if TYPE_CHECKING:
    from battery.ledger.store import Header


class Pool:
    """Receipts that belong together, one after the other.

    Those do not that are of another campaign, plan, schema, arm or model, a replay among free runs, or of a cell that
    has a receipt already. ReceiptError at once for a plan that is not the one its digest names.
    """

    def __init__(self, header: Header) -> None:
        if header.plan.digest != header.plan_digest:
            raise ReceiptError(
                f"{header.campaign}: campaign.json holds another plan than its digest names; restore the file"
            )
        self._header, self._replayed = header, header.plan.replayed is not None
        self._seen: dict[tuple[object, ...], int] = {}
        self._models: dict[str, object] = {}

    def admit(self, receipt: Receipt) -> None:
        """Take one more in; ReceiptError, and nothing is taken in, where it does not belong to those so far."""
        header, arm = self._header, receipt.cell.arm
        where = f"{header.campaign}: receipt {receipt.sequence}"
        same = (
            ("schema", receipt.schema, header.schema),
            ("campaign", receipt.campaign, header.campaign),
            ("plan digest", receipt.plan_digest, header.plan_digest),
            (f"digest of arm {arm}", receipt.arm_digest, header.arm_digests.get(arm)),
        )
        for what, found, wanted in same:
            if found != wanted:
                raise ReceiptError(
                    f"{where}: {what} is {found}, the campaign's is {wanted}; these may not be pooled"
                )
        forced = "forced_tokens" in receipt.request.sampler
        if receipt.outcome == "ok" and forced != self._replayed:
            kinds = ("a replay", "free") if self._replayed else ("free", "a replay")
            raise ReceiptError(
                f"{where}: the campaign is {kinds[0]} and this run was {kinds[1]}; these may not be pooled"
            )
        key = (receipt.attempt, msgspec.json.encode(receipt.cell))
        if key in self._seen:
            raise ReceiptError(
                f"{where}: the same cell as receipt {self._seen[key]}; a cell has one receipt"
            )
        digest = receipt.model.get("digest")
        if digest is not None and self._models.get(arm, digest) != digest:
            raise ReceiptError(f"{where}: arm {arm} ran on two models ({digest} here)")
        self._seen[key] = receipt.sequence
        if digest is not None:
            self._models[arm] = digest
