"""Which measurement of one arm may stand against which of the other, and what was lost on the way.

A pair shares block, rung, seed and request bytes. Nothing is imputed: what cannot be paired is counted with its reason.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import numpy as np
import pandas as pd

from battery.analyse.lengths import fewest
from battery.ledger.plan import Plan
from battery.ledger.trace import Trace, decode_over

BODIES_DIFFER = "request bodies differ"
_NEEDED = (
    "sequence", "arm", "block", "seed", "outcome", "body_digest", "prefill_source", "memory_source", "n_tokens",
)  # fmt: skip

_SOURCES = {"prefill": "prefill_source", "peak_memory": "memory_source"}
"""Metrics that two sources may tell, with the column that names which."""


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
        for block, here in self._blocks():
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
        for block, here in self._blocks():
            logs = [
                float(np.median(np.log(values)))
                for values in ([p.candidate for p in here], [p.control for p in here])
            ]
            found[block] = logs[0] - logs[1]
        return found

    def _blocks(self) -> list[tuple[int, list[Pair]]]:
        """The blocks in order, each with its pairs."""
        found: dict[int, list[Pair]] = defaultdict(list)
        for pair in self.kept:
            found[pair.block].append(pair)
        return sorted(found.items())


class Sides:
    """The counted requests of a table by arm and rung, ready to be paired by every metric.

    Sorted out once: a table of 100,000 rows is looked through for hundreds of combinations of metric, rung and arm.
    """

    def __init__(self, frame: pd.DataFrame) -> None:
        self._frame = frame[frame["counted"].astype(bool) & ~frame["sentinel"].astype(bool)]
        self._known: dict[str, list[Any]] = {}
        self._at: dict[tuple[str, int], dict[tuple[int, int], int]] = defaultdict(dict)
        keys = zip(*map(self._column, ("arm", "rung", "block", "seed")), strict=True)
        for place, (arm, rung, block, seed) in enumerate(keys):
            self._at[arm, rung][block, seed] = place

    def _column(self, name: str) -> list[Any]:
        """A column as a list."""
        if name not in self._known:
            self._known[name] = self._frame[name].tolist()
        return self._known[name]

    def at(self, arm: str, rung: int) -> dict[tuple[int, int], int]:
        """The rows of an arm at a rung, by block and seed."""
        return self._at.get((arm, rung), {})

    def row(self, place: int, metric: str) -> dict[str, Any]:
        """What a pair needs of a row."""
        return {name: self._column(name)[place] for name in (*_NEEDED, metric)}

    def plain(self, metric: str) -> Callable[[int, int], Pair | None]:
        """What pairs two rows that have nothing against it; None for those that must be looked at closely.

        Nearly all are such rows: both ended ok on the same bytes, with a value of one source over equal lengths.
        """
        values, blocks = self._column(metric), self._column("block")
        numbers, outcomes = self._column("sequence"), self._column("outcome")
        unlike = _SOURCES.get(metric) or ("n_tokens" if metric == "decode" else "body_digest")
        bodies, others = self._column("body_digest"), self._column(unlike)

        def pair(one: int, other: int) -> Pair | None:
            if not outcomes[one] == outcomes[other] == "ok":
                return None
            if bodies[one] != bodies[other] or others[one] != others[other]:
                return None
            control, candidate = values[one], values[other]
            if not (isinstance(control, float) and isinstance(candidate, float)):
                return None
            if not (control > 0 and candidate > 0):
                return None
            return Pair(
                block=int(blocks[one]), control=control, candidate=candidate, cut=False,
                receipts=(int(numbers[one]), int(numbers[other])),
            )  # fmt: skip

        return pair


def match(
    sides: Sides,
    traces: Mapping[int, Trace],
    plan: Plan,
    metric: str,
    rung: int,
    arms: tuple[str, str],
) -> Pairs:
    """The pairs of `metric` at `rung`; `arms` are (control, candidate), `traces` are by receipt sequence."""
    left, right = (sides.at(arm, rung) for arm in arms)
    keys, plain = sorted({*left, *right}), sides.plain(metric)
    kept: list[Pair] = []
    lost: Counter[str] = Counter()
    for key in keys:
        one, other = left.get(key), right.get(key)
        if one is None or other is None:
            lost[f"{arms[0] if one is None else arms[1]}: no receipt for this seed"] += 1
            continue
        pair = plain(one, other) or _pair(
            sides.row(one, metric), sides.row(other, metric), traces, plan, metric
        )
        if isinstance(pair, str):
            lost[pair] += 1
        else:
            kept.append(pair)
    return Pairs(
        kept=tuple(kept), planned=len(keys), lost=dict(sorted(lost.items())), metric=metric
    )


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
    unlike = _SOURCES.get(metric)
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
