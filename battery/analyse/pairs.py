"""Which measurement of one arm may stand against which of the other, and what was lost on the way.

A pair shares block, rung, seed and request bytes. Nothing is imputed: what cannot be paired is counted with its reason.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np
import pandas as pd

from battery.analyse.lengths import fewest
from battery.ledger.plan import Plan
from battery.ledger.trace import Trace, decode_over

BODIES_DIFFER = "request bodies differ"


class Pair(msgspec.Struct, frozen=True, kw_only=True):
    """Two values of one metric for the same prompt, in the same block."""

    block: int
    control: float
    candidate: float
    cut: bool
    """The arms stopped at different lengths, and both were timed over the tokens that both produced."""
    receipts: tuple[int, int]

    @property
    def log(self) -> float:
        """The logarithm of candidate / control."""
        return math.log(self.candidate) - math.log(self.control)


class Pairs(msgspec.Struct, frozen=True, kw_only=True):
    """All pairs of one metric at one rung, and the count of each reason for which a planned pair is missing."""

    kept: tuple[Pair, ...]
    planned: int
    lost: dict[str, int]
    metric: str

    @property
    def share_lost(self) -> float:
        """Share of the planned pairs that are missing."""
        return 1 - len(self.kept) / self.planned if self.planned else 1.0

    def by_block(self) -> dict[int, float]:
        """D per block: the mean log ratio of its pairs; for peak memory the log ratio of the blocks' highest peaks."""
        found: dict[int, float] = {}
        for block in sorted({pair.block for pair in self.kept}):
            here = [pair for pair in self.kept if pair.block == block]
            if self.metric == "peak_memory":
                found[block] = math.log(max(p.candidate for p in here)) - math.log(
                    max(p.control for p in here)
                )
            else:
                found[block] = float(np.mean([pair.log for pair in here]))
        return found

    def by_block_medians(self) -> dict[int, float]:
        """D per block by within-window medians: the log ratio of the medians of each arm's own requests."""
        found: dict[int, float] = {}
        for block in sorted({pair.block for pair in self.kept}):
            here = [pair for pair in self.kept if pair.block == block]
            logs = [
                float(np.median(np.log(values)))
                for values in ([p.candidate for p in here], [p.control for p in here])
            ]
            found[block] = logs[0] - logs[1]
        return found


def match(
    frame: pd.DataFrame,
    traces: Mapping[int, Trace],
    plan: Plan,
    metric: str,
    rung: int,
    arms: tuple[str, str],
) -> Pairs:
    """The pairs of `metric` at `rung`; `arms` are (control, candidate), `traces` are by receipt sequence."""
    here = frame[(frame["counted"]) & (~frame["sentinel"].astype(bool)) & (frame["rung"] == rung)]
    sides = [
        {(int(row["block"]), int(row["seed"])): row for row in _records(here, arm)} for arm in arms
    ]
    keys = sorted({*sides[0], *sides[1]})
    kept: list[Pair] = []
    lost: Counter[str] = Counter()
    for key in keys:
        one, other = sides[0].get(key), sides[1].get(key)
        if one is None or other is None:
            lost[f"{arms[0] if one is None else arms[1]}: no receipt for this seed"] += 1
            continue
        pair = _pair(one, other, traces, plan, metric)
        if isinstance(pair, str):
            lost[pair] += 1
        else:
            kept.append(pair)
    return Pairs(
        kept=tuple(kept), planned=len(keys), lost=dict(sorted(lost.items())), metric=metric
    )


def _records(frame: pd.DataFrame, arm: str) -> list[dict[str, Any]]:
    """The rows of one arm as plain dictionaries."""
    return [
        {str(key): value for key, value in row.items()}
        for row in frame[frame["arm"] == arm].to_dict("records")
    ]


def _pair(
    one: dict[str, Any],
    other: dict[str, Any],
    traces: Mapping[int, Trace],
    plan: Plan,
    metric: str,
) -> Pair | str:
    """The pair, or the reason why there is none."""
    failed = [
        f"{side['arm']}: {side['outcome']}" for side in (one, other) if side["outcome"] != "ok"
    ]
    if failed:
        return ", ".join(failed)
    if one["body_digest"] != other["body_digest"]:
        return BODIES_DIFFER
    unlike = {"prefill": "prefill_source", "peak_memory": "memory_source"}.get(metric)
    if unlike and one[unlike] != other[unlike]:
        return f"{metric} from different sources ({one[unlike]}, {other[unlike]})"
    sequences = (int(one["sequence"]), int(other["sequence"]))
    cut = metric == "decode" and one["n_tokens"] != other["n_tokens"]
    found = (
        _common_prefix(traces[sequences[0]], traces[sequences[1]], fewest(plan))
        if cut
        else (_value(one, metric), _value(other, metric))
    )
    if isinstance(found, str):
        return found
    for side, value in zip((one, other), found, strict=True):
        if value is None:
            return f"{side['arm']}: no {metric} could be computed"
        if value <= 0:
            return f"{side['arm']}: {metric} is zero, and a ratio needs more"
    control, candidate = found
    return Pair(
        block=int(one["block"]), control=float(control or 0), candidate=float(candidate or 0), cut=cut,
        receipts=sequences,
    )  # fmt: skip


def _value(row: dict[str, Any], metric: str) -> float | None:
    """A metric of a row, with pandas' NaN as None."""
    value = row[metric]
    return float(value) if isinstance(value, int | float) and not math.isnan(value) else None


def _common_prefix(one: Trace, other: Trace, least: int) -> tuple[float | None, float | None] | str:
    """Both decode rates over the first n tokens, n being the smaller length; or why there is no such comparison."""
    lengths = (one.completion_tokens, other.completion_tokens)
    if lengths[0] is None or lengths[1] is None:
        return "lengths differ and one is unknown"
    n = min(lengths[0], lengths[1])
    if n < least:
        return f"common length below {least} tokens"
    rates = decode_over(one, n), decode_over(other, n)
    if None in rates:
        return "lengths differ and the longer cannot be cut (no token count per event)"
    return rates
