"""What befell the machine while a cell ran, and what holds it down before one, by sensors that know no arm.

Pure policy. A breach voids the whole block, both arms, so it must not depend on what an arm does: pressure on the
processors and the clocks are recorded and never judged here, since an engine's own threads make the one and its kind
of work the other. Busy is judged by its foreign part, and shares of processor time over at least a second. An arm whose
own heat throttles the machine does so in every rerun: then the block stands, flagged, and nothing was selected.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

from battery.bench.sensors.macos import HEAVY
from battery.bench.sensors.nvidia import FOUL, FOUL_COUNTERS, events
from battery.ledger.plan import Gate
from battery.ledger.receipt import Reading

SWAPPED_PAGES = 256
"""1 MiB in pages of 4 KiB: a daemon that wakes brings in a few; a machine short of memory thousands a second."""
TELLING_S = 1.0
"""Processor time is counted in hundredths of a second: over less than this a share of it says little."""


def held_down(rose: Mapping[str, int], reading: Reading) -> list[str]:
    """Why this machine is slower than it should be: counters that rose, and what its GPUs say now."""
    found = []
    for name, by in sorted(rose.items()):
        if name.startswith("cpu."):
            found.append(f"{name} rose by {by}: the processor was throttled for heat")
        elif name.startswith("gpu") and name.partition(".")[2] in FOUL_COUNTERS:
            found.append(f"{name} rose by {by / 1e6:.4g} ms: the GPU was slowed down")
        elif name == "swap_in_pages" and by > SWAPPED_PAGES:
            found.append(f"{by} pages were swapped in")
    if reading.speed_limit is not None and reading.speed_limit < 100:
        found.append(f"the processor is held to {reading.speed_limit} % of its speed")
    for gpu in reading.gpus:
        if (gpu.event_bits or 0) & FOUL:
            told = ", ".join(events((gpu.event_bits or 0) & FOUL))
            found.append(f"gpu{gpu.index} is under {told}")
    return found


def judge(samples: Sequence[Reading], gate: Gate) -> tuple[str, ...]:
    """Why the block of a cell with these samples must be measured again; nothing where nothing was seen."""
    found: list[str] = []
    if gate.need_steady:
        found += _unsteady(samples)
    if gate.need_ac_power:
        if any(sample.on_ac is False for sample in samples):
            found.append("on battery power")
        if any(sample.low_power for sample in samples):
            found.append("low-power mode")
    if gate.need_own_gpu:
        strangers = {gpu.index for s in samples for gpu in s.gpus if (gpu.foreign or 0) > 0}
        found += [f"a foreign process computed on gpu{index}" for index in sorted(strangers)]
    for name, bar, word in (
        ("foreign", gate.max_busy, "other processes used"),
        ("steal", gate.max_steal, "the hypervisor took"),
    ):
        share = mean(samples, name)
        if share is not None and bar is not None and share > bar:
            found.append(f"{word} {share:.0%} of the processors, above {bar:.0%}")
    return tuple(dict.fromkeys(found))


def _unsteady(samples: Sequence[Reading]) -> list[str]:
    """Throttling, slowdowns, swapping and thermal pressure between the first sample and the last."""
    if not samples:
        return []
    first, last = samples[0].counters, samples[-1].counters
    rose = {name: last[name] - first[name] for name in last if name in first}
    found = held_down({name: by for name, by in rose.items() if by > 0}, samples[-1])
    for sample in samples[:-1]:
        found += held_down({}, sample)
    worst = [sample.thermal_pressure for sample in samples if sample.thermal_pressure in HEAVY]
    return found + [f"thermal pressure was {level}" for level in dict.fromkeys(worst)]


def mean(samples: Sequence[Reading], name: str) -> float | None:
    """Mean of a share over the time that the samples span; None over less than a second, or where it is not told.

    A sample's share belongs to the time since the sample before it, so the first one's does not count.
    """
    parts = [
        (now.at_s - before.at_s, getattr(now, name))
        for before, now in pairwise(samples)
        if getattr(now, name) is not None
    ]
    span = sum(length for length, _ in parts)
    if span < TELLING_S:
        return None
    return float(sum(length * share for length, share in parts) / span)
