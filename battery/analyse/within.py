"""What happened inside the pooled cells: the gaps between arrivals of text, and the machine's temperature and clocks.

Both describe; no verdict rests on them, since the gaps of one answer are not independent of each other.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from battery.analyse import gating
from battery.ledger.receipt import Receipt
from battery.ledger.store import Header

READINGS = ("temp_c", "freq_mhz", "gpu_temp_c", "gpu_clock_mhz")
"""Temperature of the hottest sensor, processor clock, temperature and clock of the GPU."""
_SHARES = (
    1, 2, 3, 5, 7, 10, 15, 20, 30, 50, 70, 100, 150, 200, 250, 300, 350, 400, 450, 500, 550, 600, 650, 700, 750, 800,
    850, 900, 930, 950, 970, 980, 985, 990, 993, 995, 997, 998, 999,
)  # fmt: skip
"""Per mille at which a distribution is kept, close together at both ends."""


class Gaps(msgspec.Struct, frozen=True, kw_only=True):
    """How long one arm's readers waited between two arrivals of text, at one context; every gap counts once.

    What was read at one instant is one arrival. It may carry several tokens (a draft that was accepted), so that a gap
    is no latency per token but where `tokens` is 1. A gap of a share is the shortest that at least this share of all
    gaps do not exceed: one that was measured.
    """

    arm: str
    rung: int
    requests: int
    gaps: int
    tokens: float | None
    """Per arrival; None where a server does not tell its tokens."""
    median: float
    """Seconds."""
    p99: float | None
    """Seconds; None below a hundred gaps."""
    longest: float
    curve: tuple[tuple[int, float], ...] = ()
    """Share in per mille, and its gap in seconds; only at the context of the primary endpoint."""


class Inside(msgspec.Struct, frozen=True, kw_only=True):
    """The machine while one window's pooled cells ran."""

    window: int
    arm: str
    samples: int
    readings: dict[str, tuple[float, float, float]]
    """Lowest, mean and highest of the samples, for each of READINGS that could be read."""


class Within(msgspec.Struct, frozen=True, kw_only=True):
    """Gaps per arm and context, and windows with a temperature or a clock in the order of the run."""

    gaps: tuple[Gaps, ...] = ()
    inside: tuple[Inside, ...] = ()

    def gaps_of(self, arm: str, rung: int) -> Gaps | None:
        """One arm's gaps at a context."""
        return next((one for one in self.gaps if (one.arm, one.rung) == (arm, rung)), None)


def fields(pooled: Sequence[Receipt], header: Header) -> dict[str, Any]:
    """The field of the findings; not there at all where no answer came in parts and nothing was read."""
    found = Within(gaps=gaps(pooled, header), inside=inside(pooled))
    return {"within": found} if found.gaps or found.inside else {}


def known(found: Within | msgspec.UnsetType) -> Within:
    """The field of the findings as it is read: empty where it is not there."""
    return found if isinstance(found, Within) else Within()


def gaps(pooled: Sequence[Receipt], header: Header) -> tuple[Gaps, ...]:
    """Every arm and context with a gap, contexts in the order of the ladder within each arm."""
    grouped: dict[tuple[str, int], list[Receipt]] = defaultdict(list)
    for receipt in pooled:
        grouped[receipt.cell.arm, receipt.cell.rung].append(receipt)
    found = [
        _gaps(arm.name, rung, grouped[arm.name, rung], rung == header.plan.anchor)
        for arm in header.arms
        for rung in header.plan.ladder
    ]
    return tuple(one for one in found if one is not None)


def _gaps(arm: str, rung: int, receipts: Sequence[Receipt], whole: bool) -> Gaps | None:
    """One arm at one context; None without two arrivals in any answer."""
    waits: list[NDArray[np.int64]] = [np.empty(0, np.int64)]
    arrivals = tokens = 0
    told = True
    for receipt in receipts:
        trace = receipt.trace
        at = np.fromiter((event.at_ns for event in trace.events), np.int64)
        apart = at[1:] - at[:-1]
        waits.append(apart[apart > 0])
        arrivals += len(waits[-1]) + bool(trace.events)
        told = told and trace.comparable
        tokens += trace.completion_tokens or 0
    ordered = np.sort(np.concatenate(waits))
    if not len(ordered):
        return None
    return Gaps(
        arm=arm, rung=rung, requests=len(receipts), gaps=len(ordered), tokens=tokens / arrivals if told else None,
        median=_at(ordered, 500), p99=_at(ordered, 990) if len(ordered) >= 100 else None,
        longest=float(ordered[-1]) / 1e9,
        curve=tuple((share, _at(ordered, share)) for share in _SHARES if _known(len(ordered), share)) if whole else (),
    )  # fmt: skip


def _known(gaps: int, share: int) -> bool:
    """Whether so many gaps can tell a share: one at least lies on either side of it."""
    return min(share, 1000 - share) * gaps >= 1000


def _at(ordered: NDArray[np.int64], share: int) -> float:
    """The gap of a share in per mille, in seconds; in whole numbers, so that no machine rounds it otherwise."""
    return float(ordered[max(0, -(-share * len(ordered) // 1000) - 1)]) / 1e9


def inside(pooled: Sequence[Receipt]) -> tuple[Inside, ...]:
    """Every window whose cells have a temperature or a clock, in the order of the run."""
    seen: dict[tuple[int, str], dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    samples: dict[tuple[int, str], int] = defaultdict(int)
    for receipt in pooled:
        key = receipt.cell.window.number, receipt.cell.arm
        for _, sample, _ in gating.placed(receipt):
            samples[key] += 1
            for name in READINGS:
                value = getattr(sample, name)
                if value is not None:
                    seen[key][name].append(float(value))
    return tuple(
        Inside(
            window=number, arm=arm, samples=samples[number, arm],
            readings={
                name: (min(here), math.fsum(here) / len(here), max(here))
                for name in READINGS
                if (here := seen[number, arm].get(name))
            },
        )
        for number, arm in sorted(seen)
    )  # fmt: skip
