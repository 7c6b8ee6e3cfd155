"""Exhibits: each receipt behind a report in one row, so that a reader can go down from a verdict to the file.

The rows are those that every figure rests on (`rows`); nothing is computed here beside them.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from battery.analyse.admitted import admitted
from battery.analyse.rows import MEASURES, rows
from battery.ledger.loading import load
from battery.ledger.receipt import Receipt
from battery.ledger.store import Campaign

MOST_TEXT = 1200
"""Characters kept of a text that an engine sent: the end of its log says why a cell failed, and that is enough."""


class Exhibit(msgspec.Struct, frozen=True, kw_only=True):
    """One receipt: where it lies, which cell it is of, how that ended, and its figures."""

    sequence: int
    file: str
    sha256: str
    """Of the file as it is now; `verify` holds it against the seal."""
    arm: str
    block: int
    attempt: int
    window: int
    rung: int
    seed: int
    workload: str
    sentinel: bool
    outcome: str
    reason: str
    pooled: bool
    """Whether it enters estimates."""
    figures: dict[str, float]
    """Every metric that it has, in the metric's own unit."""
    facts: dict[str, str]
    """What it proves besides: tokens, cold prefill, sampler, switches, memory source."""
    evidence: dict[str, str]
    """Of a cell that did not end ok: what the server and the machine told, shortened."""


def exhibits(folder: Path) -> tuple[Exhibit, ...]:
    """The receipts of the campaign in `folder` that its findings rest on, in the order of the run."""
    campaign = Campaign(folder)
    header, loaded = campaign.header(), load(campaign)
    kept = admitted(loaded, header).receipts
    names = {int(name.split("-")[0]): name for name in campaign.names()}
    digests = loaded.chain.files
    frame = rows(kept, header)
    pooled = {int(n) for n in frame[frame["pooled"].astype(bool)]["sequence"]}
    figures = {int(row["sequence"]): _figures(row) for row in frame.to_dict("records")}
    found = []
    for one in kept:
        # a receipt whose number was changed lies in no file of that number: verify says so, the page goes on
        name = names.get(one.sequence, "")
        here = one.sequence in pooled, figures[one.sequence]
        found.append(_exhibit(one, name, digests.get(name, ""), *here))
    return tuple(found)


def _figures(row: dict[Any, Any]) -> dict[str, float]:
    """The metrics that a row has; what is missing there (NaN) is left out."""
    return {
        name: float(row[name]) for name in MEASURES if row[name] is not None and row[name] == row[name]
    }  # fmt: skip


def _exhibit(
    one: Receipt, file: str, sha256: str, pooled: bool, figures: dict[str, float]
) -> Exhibit:
    """One receipt's row."""
    cell = one.cell
    return Exhibit(
        sequence=one.sequence, file=file, sha256=sha256, arm=cell.arm, block=cell.block, attempt=one.attempt,
        window=cell.window.number, rung=cell.rung, seed=cell.seed, workload=one.request.workload,
        sentinel=cell.sentinel, outcome=one.outcome, reason=one.reason or "", pooled=pooled, figures=figures,
        facts=_facts(one), evidence={} if one.outcome == "ok" else dict(_evidence(one.evidence)),
    )  # fmt: skip


def _facts(one: Receipt) -> dict[str, str]:
    """What a receipt proves besides its figures, in its own words; what it does not tell is left out."""
    told: dict[str, object] = {
        "prompt tokens": one.trace.prompt_tokens,
        "completion tokens": one.trace.completion_tokens,
        "counted by": one.trace.count_source,
        "prefill": f"{one.cold.value} ({one.cold.evidence})" if one.cold.evidence else one.cold.value,
        "sampler": one.request.honoured,
        "switches": one.engagement.verdict,
        "peak memory from": one.memory.source,
        "text, sha256": one.text.digest if one.text else None,
        "started": one.started,
        "ended": one.ended,
    }  # fmt: skip
    return {name: str(value) for name, value in told.items() if value not in (None, "")}


def _evidence(found: dict[str, Any], at: str = "") -> Iterator[tuple[str, str]]:
    """Everything kept of a failure that is not empty, as dotted paths; of a long text its end."""
    for key, value in found.items():
        path = f"{at}.{key}" if at else str(key)
        if isinstance(value, dict):
            yield from _evidence(value, path)
        elif value not in (None, "", [], ()):
            told = str(value)
            yield path, told if len(told) <= MOST_TEXT else f"…{told[-MOST_TEXT:]}"
