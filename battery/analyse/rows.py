"""Receipts as one tidy table, one row per receipt.

This room turns stored records into columns and decides which rows may be pooled. It estimates nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pandas as pd

from battery.ledger.receipt import Receipt
from battery.ledger.store import Header, complete_blocks
from battery.ledger.trace import METRICS, Metric

PEAK_MEMORY = Metric(
    name="peak_memory",
    title="peak memory",
    unit="bytes",
    higher_is_better=False,
    formula="highest memory of the server up to the end of the cell, from the source that is named.",
    of=lambda trace: None,
)
"""Peak memory comes from the receipt's memory record rather than from its trace."""

MEASURES: dict[str, Metric] = {**METRICS, PEAK_MEMORY.name: PEAK_MEMORY}
"""Everything that a table or a chart can show, by name."""


def rows(receipts: Iterable[Receipt], header: Header) -> pd.DataFrame:
    """One row per receipt, in the order of the run; a metric that does not exist is NaN.

    `counted` marks the receipts of each block's first attempt that is whole and stands (`store.whole_attempts`);
    `pooled` those of them that ended `ok` and are no sentinel. Only pooled rows enter an estimate.
    """
    kept = sorted(receipts, key=lambda receipt: receipt.sequence)
    counted = {
        receipt.sequence for block in complete_blocks(kept, header).values() for receipt in block
    }
    told = [_row(receipt, receipt.sequence in counted) for receipt in kept]
    return pd.DataFrame(told, columns=[*_COLUMNS, *MEASURES])


_COLUMNS = (
    "campaign", "sequence", "block", "attempt", "window", "position", "place", "arm", "rung", "seed", "sentinel",
    "outcome", "reason", "counted", "pooled", "prefill_source", "memory_source", "n_tokens", "prompt_tokens",
    "count_source", "cold", "honoured", "engagement", "text_digest", "ids_digest", "body_digest", "workload",
)  # fmt: skip


def _row(receipt: Receipt, counted: bool) -> tuple[Any, ...]:
    """One receipt's columns, in their order."""
    cell, trace, text, own = receipt.cell, receipt.trace, receipt.text, values(receipt)
    return (
        receipt.campaign, receipt.sequence, cell.block, receipt.attempt, cell.window.number, cell.window.position,
        cell.place, cell.arm, cell.rung, cell.seed, cell.sentinel, receipt.outcome, receipt.reason, counted,
        counted and receipt.outcome == "ok" and not cell.sentinel,
        "server" if _server_times_prefill(receipt) else "client-ttft", receipt.memory.source, trace.completion_tokens,
        trace.prompt_tokens, trace.count_source, receipt.cold.value, receipt.request.honoured,
        receipt.engagement.verdict, text.digest if text else None, text.ids_digest if text else None,
        receipt.request.body_digest, receipt.request.workload, *(own[name] for name in MEASURES),
    )  # fmt: skip


def out_of_order(frame: pd.DataFrame) -> tuple[int, ...]:
    """Complete blocks that ran after a block of a higher number, ascending: they were measured again later."""
    counted = frame[frame["counted"].astype(bool)]
    first = {int(str(b)): int(here["sequence"].min()) for b, here in counted.groupby("block")}
    return tuple(
        block
        for block, at in sorted(first.items())
        if any(other > block and since < at for other, since in first.items())
    )


def values(receipt: Receipt) -> dict[str, float | None]:
    """Every metric of a receipt; all are None unless it ended `ok`, and prefill also where the prompt was warm.

    Rates over a guessed token count are None already in their formulas (ledger.trace).
    """
    if receipt.outcome != "ok":
        return dict.fromkeys(MEASURES)
    found = {name: metric.of(receipt.trace) for name, metric in METRICS.items()}
    if receipt.cold.value == "warm":
        found["prefill"] = None
    peak = receipt.memory.peak
    found[PEAK_MEMORY.name] = float(peak) if peak and not receipt.memory.lower_bound else None
    return found


def _server_times_prefill(receipt: Receipt) -> bool:
    """Whether the prefill rate rests on the server's own clock rather than on the client's time to first token."""
    seconds = (receipt.trace.timings or {}).get("prompt_s")
    return isinstance(seconds, int | float) and not isinstance(seconds, bool) and seconds > 0
