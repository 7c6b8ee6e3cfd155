"""Tables about the gate: what was applied and what could not be, what befell the machine, how it was in the cells."""

from __future__ import annotations

from battery.analyse.facts import distinct
from battery.analyse.findings import Findings
from battery.analyse.gating import GateFacts, base
from battery.render import sources, words
from battery.render.marks import cited
from battery.render.words import table

_MEANS: dict[str, tuple[str, float, int]] = {
    "busy": ("processors busy, %", 100, 3),
    "foreign": ("of it by others, %", 100, 3),
    "steal": ("steal, %", 100, 3),
    "temp_c": ("hottest, °C", 1, 3),
    "freq_mhz": ("processor, MHz", 1, 4),
    "gpu_temp_c": ("GPU, °C", 1, 3),
    "gpu_clock_mhz": ("GPU, MHz", 1, 4),
    "gpu_power_w": ("GPU, W", 1, 4),
}
"""Title, factor and digits of each mean over samples."""


def gates(findings: Findings) -> str:
    """What was gated and what could not be, then the waits and readings."""
    gate = findings.gates
    rows = [
        (f"`{limit}`", "not limited" if value is None else value, _applied(gate, limit))
        for limit, value in gate.limits.items()
    ]
    waits: list[tuple[str, object]] = [
        ("cells", gate.cells), ("refused", gate.refused), ("waited for longer than a second", gate.waited),
        ("longest wait", words.seconds(gate.longest_s)), ("all waits", words.seconds(gate.waited_s)),
        *((name, f"{words.figure(low, 3)} to {words.figure(high, 3)}") for name, (low, high) in gate.ranges.items()),
    ]  # fmt: skip
    parts = [
        table(["limit", "value", "applied"], rows),
        "Its waits, and the range of each reading when it opened:",
        table(["gate", "value"], waits),
    ]
    return "\n\n".join(parts)


def _applied(gate: GateFacts, limit: str) -> str:
    """Whether a limit was applied: by which sensors, in how many cells where not in all; and by which it was not."""
    held = {name: n for name, n in (gate.applied or {}).items() if base(name) == limit}
    not_held = {name: why for name, why in gate.ungated.items() if base(name) == limit}
    parts = []
    if held:
        sensors = distinct([sensor for name in held if (sensor := _sensor(name))])
        fewest = min(held.values())
        parts.append(
            "gated"
            + (f" ({', '.join(sensors)})" if sensors else "")
            + (f" in {fewest} cells" if fewest < gate.cells else "")
        )
    elif not not_held:
        # receipts from before this was kept name only what could not be applied
        parts.append("gated" if gate.applied is None else "not told")
    for name, why in not_held.items():
        sensor = _sensor(name)
        lead = "not gated" if held or sensor else ""
        parts.append(": ".join(part for part in (lead, sensor, why) if part))
    return "; ".join(parts)


def _sensor(name: str) -> str:
    """The sensor in a limit's name, `max_temp_c (gpu)`; nothing where the limit has only one."""
    return name.partition(" (")[2].removesuffix(")").replace("), ", ", ")


def disturbances(findings: Findings) -> str:
    """Attempts at blocks in which the machine was disturbed, and what became of them; empty where there were none."""
    rows = [
        (
            one.block, one.attempt, "; ".join(one.why),
            cited(", ".join(map(str, one.receipts)), sources.listed("; ".join(one.why), one.receipts)),
            "stands: reruns used up" if one.counted else "given up, not pooled",
        )
        for one in findings.disturbances
    ]  # fmt: skip
    return table(["block", "attempt", "what happened", "receipts", "then"], rows) if rows else ""


def phases(findings: Findings) -> str:
    """Means over the samples inside the pooled cells, per arm and phase; empty where nothing was sampled."""
    names = [name for name in _MEANS if any(name in one.means for one in findings.phases)]
    caps = any(one.power_cap is not None for one in findings.phases)
    rows = []
    for one in findings.phases:
        means = [
            words.figure(value * _MEANS[name][1] if value is not None else None, _MEANS[name][2])
            for name in names
            for value in [one.means.get(name)]
        ]
        cap = [words.figure(None if one.power_cap is None else 100 * one.power_cap, 3)]
        rows.append([one.arm, one.phase, one.samples, *means, *(cap if caps else [])])
    titles = [*(_MEANS[name][0] for name in names), *(["GPU power cap, %"] if caps else [])]
    return table(["arm", "phase", "samples", *titles], rows) if rows else ""
