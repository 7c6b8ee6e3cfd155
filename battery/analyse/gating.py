"""What was gated and what could not be, what befell the machine, and how it was inside the cells.

Everything here is said outright by receipts: counted, never estimated.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

import msgspec
import numpy as np

from battery.analyse.facts import tried
from battery.ledger.plan import LATER
from battery.ledger.receipt import Reading, Receipt
from battery.ledger.store import Header
from battery.ledger.trace import METRICS

NO_LIMITS = ("wait_s", "baseline_s")
"""Settings of the gate that are none."""
SHARES = ("busy", "foreign", "steal")
STATES = ("temp_c", "freq_mhz", "gpu_temp_c", "gpu_clock_mhz", "gpu_power_w")


class GateFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What was gated, how long it took, and what could not be gated."""

    limits: dict[str, object]
    """Those that the receipts tell of: a plan may have come before a limit."""
    ungated: dict[str, str]
    """Limit and why it could not be applied, with the number of cells."""
    applied: dict[str, int] | None
    """Limit and the cells in which a reading was held against it; None where receipts do not tell."""
    cells: int
    """For which the gate was asked."""
    refused: int
    waited: int
    """Cells that had to wait for longer than a second."""
    waited_s: float
    longest_s: float
    ranges: dict[str, tuple[float, float]]
    """Lowest and highest of each reading that opened a gate."""


class Disturbance(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt at a block in which the machine was disturbed."""

    block: int
    attempt: int
    counted: bool
    """Whether it stands all the same, since the plan's reruns were used up."""
    why: tuple[str, ...]
    receipts: tuple[int, ...]


class Phase(msgspec.Struct, frozen=True, kw_only=True):
    """How the machine was while one arm read prompts, or while it wrote."""

    arm: str
    phase: str
    """prefill: up to the first token; decode: from there to the last byte."""
    samples: int
    means: dict[str, float]
    power_cap: float | None = None
    """Share of the GPU samples under a software power cap."""


def base(limit: str) -> str:
    """The plan's key of a limit whose name also tells the sensor."""
    return limit.split(" (")[0].split(",")[0]


def gates(receipts: Sequence[Receipt], header: Header) -> GateFacts:
    """The gate over all cells for which it was asked."""
    shut = [receipt.gate for receipt in receipts if tried(receipt)]
    ungated: Counter[tuple[str, str]] = Counter(
        (limit, why) for gate in shut for limit, why in gate.ungated.items()
    )
    applied = Counter(limit for gate in shut for limit in gate.applied or ())
    told = {base(limit) for limit in (*applied, *(limit for limit, _ in ungated))}
    later = {key for table, key in LATER if table == "gate"}
    opened = [gate.reading for gate in shut if gate.verdict == "open" and gate.reading is not None]
    ranges: dict[str, tuple[float, float]] = {}
    for name in (
        "temp_c", "busy", "steal", "available_bytes", "calibration_s", "gpu_temp_c", "calibration_mhz", "gpu_clock_mhz",
    ):  # fmt: skip
        found = [
            float(value) for reading in opened if (value := getattr(reading, name)) is not None
        ]
        if found:
            ranges[name] = (min(found), max(found))
    reasons: dict[str, str] = {}
    for (limit, why), count in sorted(ungated.items()):
        words = f"{why} ({count} cells)"
        reasons[limit] = f"{reasons[limit]}; {words}" if limit in reasons else words
    waits = [gate.waited_s for gate in shut]
    return GateFacts(
        limits={
            limit: value
            for limit, value in msgspec.to_builtins(header.plan.gate).items()
            if limit not in NO_LIMITS and (limit not in later or limit in told)
        },
        ungated=reasons,
        applied=dict(sorted(applied.items())) if any(g.applied is not None for g in shut) else None,
        cells=len(shut),
        refused=sum(gate.verdict == "refused" for gate in shut),
        waited=sum(wait > 1 for wait in waits),
        waited_s=sum(waits),
        longest_s=max(waits, default=0.0),
        ranges=ranges,
    )


def disturbances(receipts: Sequence[Receipt], counted: set[int]) -> tuple[Disturbance, ...]:
    """Every attempt in which a receipt tells of a disturbance, in the order of the run."""
    found: dict[tuple[int, int], list[Receipt]] = defaultdict(list)
    for receipt in receipts:
        if receipt.breach:
            found[receipt.cell.block, receipt.attempt].append(receipt)
    return tuple(
        Disturbance(
            block=block, attempt=attempt,
            counted=here[0].sequence in counted,
            why=tuple(dict.fromkeys(reason for receipt in here for reason in receipt.breach)),
            receipts=tuple(receipt.sequence for receipt in here),
        )
        for (block, attempt), here in sorted(found.items(), key=lambda item: item[1][0].sequence)
    )  # fmt: skip


def phases(pooled: Sequence[Receipt], header: Header) -> tuple[Phase, ...]:
    """Means over the samples of each arm's pooled cells, before and after the first token."""
    values: dict[tuple[str, str], dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    counts: Counter[tuple[str, str]] = Counter()
    caps: dict[tuple[str, str], list[float]] = defaultdict(list)
    for receipt in pooled:
        for phase, sample, shares in placed(receipt):
            key = (receipt.cell.arm, phase)
            counts[key] += 1
            for name in (*(SHARES if shares else ()), *STATES):
                value = getattr(sample, name)
                if value is not None:
                    values[key][name].append(float(value))
            caps[key] += [
                float(bool(gpu.event_bits & 0x4))
                for gpu in sample.gpus
                if gpu.event_bits is not None
            ]
    return tuple(
        Phase(
            arm=arm.name, phase=phase, samples=counts[arm.name, phase],
            means={name: float(np.mean(here)) for name, here in sorted(values[arm.name, phase].items())},
            power_cap=float(np.mean(caps[arm.name, phase])) if caps[arm.name, phase] else None,
        )
        for arm in header.arms
        for phase in ("prefill", "decode")
        if counts[arm.name, phase]
    )  # fmt: skip


def placed(receipt: Receipt) -> Iterator[tuple[str, Reading, bool]]:
    """Each sample with the phase that it saw, and whether its shares are of the cell.

    A share belongs to the time since the sample before, so a sample stands in the phase in which the middle of that
    time lies. The samples around the request (at its begin and behind its end) bound it.
    """
    ttft, end = METRICS["ttft"].of(receipt.trace), receipt.trace.end_ns
    if ttft is None or end is None:
        return
    before = 0.0
    for sample in receipt.samples:
        if sample.at_s <= 0:
            continue  # before the request; its shares are of the time before
        middle = (before + min(sample.at_s, end / 1e9)) / 2
        if before <= end / 1e9:
            yield ("prefill" if middle < ttft else "decode"), sample, sample.at_s > before
        before = sample.at_s
