"""What every arm of imported files measured, before any comparison: geometric mean and range, what is behind it."""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

from battery.analyse.foreign.rows import Row
from battery.analyse.rows import MEASURES


class Level(msgspec.Struct, frozen=True, kw_only=True):
    """One arm's values of a metric at a context."""

    metric: str
    context: int | None
    arm: str
    value: float
    """Geometric mean of the rows: single requests or, where a tool repeats itself, means of its repetitions."""
    low: float | None
    """The smallest single value that is told; None where the files keep means only."""
    high: float | None
    rounds: int | None
    """None: the file does not tell rounds."""
    seeds: int | None
    """Prompts that are told apart; None: none are."""
    behind: int
    """Requests or repetitions behind the value, repeats of the same prompt included."""


def levels(rows: Sequence[Row], control: str) -> tuple[Level, ...]:
    """Metrics in their order, contexts ascending, the control first and then the other arms by name."""
    groups: dict[tuple[str, int | None, str], list[Row]] = {}
    for row in rows:
        groups.setdefault((row.metric, row.context, row.arm), []).append(row)
    order = list(MEASURES)
    keys = sorted(
        groups,
        key=lambda key: (order.index(key[0]), -1 if key[1] is None else key[1], key[2] != control, key[2]),
    )  # fmt: skip
    return tuple(_level(*key, groups[key]) for key in keys)


def _level(metric: str, context: int | None, arm: str, rows: Sequence[Row]) -> Level:
    """One arm's level."""
    lows = [row.value if row.n == 1 else row.low for row in rows]
    highs = [row.value if row.n == 1 else row.high for row in rows]
    kept = [one for one in (*lows, *highs) if one is not None]
    whole = len(kept) == 2 * len(rows)
    rounds, seeds = {row.round for row in rows}, {row.seed for row in rows}
    return Level(
        metric=metric, context=context, arm=arm,
        value=math.exp(math.fsum(math.log(row.value) for row in rows) / len(rows)),
        low=min(kept) if whole else None, high=max(kept) if whole else None,
        rounds=None if None in rounds else len(rounds), seeds=None if None in seeds else len(seeds),
        behind=sum(row.n for row in rows),
    )  # fmt: skip
