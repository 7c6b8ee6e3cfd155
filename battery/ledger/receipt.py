"""A receipt: everything that is known about one cell, frozen.

Raw values only; statistics come later, from receipts alone.

Schema history: 1 (0.1.0) the first. A field that came later has a default that says "not kept then", and stands as
that in older receipts: `breach`, `no_samples`, `applied`, `Text.ids`, and what Reading and Gpu tell beyond
temperature, load and clock.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from battery.ledger.arm import Arm
from battery.ledger.cell import Cell
from battery.ledger.trace import Trace

SCHEMA = 1

Outcome = Literal[
    "ok", "short", "oom", "error", "timeout", "warm", "disengaged", "incoherent", "refused", "lost",
]  # fmt: skip
MOST_IDS = 4096
"""Token ids that a receipt keeps of one answer: about 25 kB."""
OUTCOMES: tuple[str, ...] = Outcome.__args__  # type: ignore[attr-defined]

How = Literal["true peak", "sampled"]

Engaged = Literal["engaged", "disengaged", "declined", "unobservable"]


class Request(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What was asked. `body_digest` covers the body but for the model's name, so that arms can be compared."""

    body_digest: str
    prompt_digest: str
    prompt_tokens: int
    """As sized with the model's own tokenizer before the window opened."""
    workload: str
    sampler: dict[str, Any]
    honoured: Literal["honoured", "changed", "unknown"] = "unknown"
    """Whether the sampler that the server says it applied is the one asked for."""
    doubt: str | None = None
    """What an untimed repeat in this window showed against the server's word on the seed; None: nothing."""


class Text(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What was generated, by digest over reasoning plus content, and its ends for a reader."""

    digest: str
    characters: int
    ids_digest: str | None = None
    """Over the token ids, where the server sends them."""
    ids: tuple[int, ...] | None = None
    """The token ids themselves, by which another campaign can follow this text; None: not sent, more than MOST_IDS, or
    not kept then."""
    head: str = ""
    tail: str = ""


class Cold(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Whether the prefill was cold, and why we think so."""

    value: Literal["cold", "warm", "unverified"]
    evidence: str
    doubt: str | None = None
    """What untimed repeats in this window showed against the server's word on its cache; None: nothing."""


class SwitchSeen(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One switch as the engine's health told it."""

    name: str
    asked: bool
    state: str | None
    """The engine's word after the request: off, armed, engaged, declined; None when it cannot say."""
    verdict: Engaged | Literal["off"]
    before: str | None = None
    reason: str | None = None
    exactness: str | None = None
    coverage: dict[str, Any] | None = None
    counters: dict[str, Any] | None = None
    kill: str | None = None


class Engagement(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Whether every switch that the arm asks for ran, and no other did."""

    verdict: Engaged
    reason: str = ""
    switches: tuple[SwitchSeen, ...] = ()
    rules: dict[str, Any] = {}
    """Each rule's path with what it must be and what was found."""


class PeakSource(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One way of knowing the peak memory of the server."""

    bytes: int | None
    how: How
    reason: str | None = None
    """Why there is no value."""
    includes_file_cache: bool | None = None
    """Whether pages of files (mapped weights) are in it."""
    note: str | None = None
    """What the reader of the value must know: an upper bound, what it holds besides, when it was read."""


class Memory(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Peak memory per source, and the one used."""

    peak: int | None
    """Bytes, from `source`."""
    source: str | None
    lower_bound: bool = False
    """True where the allocation that failed never landed: the peak is more than this."""
    sources: dict[str, PeakSource] = {}
    cap: int | None = None
    """Bytes that the server may use: the plan's limit, else the engine's own."""
    cap_kind: str | None = None
    """What enforces it (`cgroup v2`, `RLIMIT_AS`, `engine`), and why nothing better."""
    major_faults: int | None = None
    swapped_bytes: int | None = None


class Gpu(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """One look at one GPU. What is not there could not be read, and `missing` says why."""

    index: int
    temp_c: float | None = None
    power_w: float | None = None
    clock_mhz: float | None = None
    """Of the streaming multiprocessors."""
    max_clock_mhz: float | None = None
    utilisation: float | None = None
    """Share of the last interval in which any kernel ran, 0 to 1."""
    event_bits: int | None = None
    """Why the clock is not higher, as NVML's mask, and in words."""
    events: tuple[str, ...] = ()
    foreign: int | None = None
    """Processes outside the server's tree that hold a compute context."""
    foreign_utilisation: float | None = None
    missing: dict[str, str] = {}


class Reading(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """One look at the machine. What is null or not there could not be read, and `missing` says why.

    Only what was read is written: a cell of two hours has 14,400 of these.
    """

    at_s: float
    """Seconds after the cell's send; negative before it."""
    temp_c: float | None = None
    """Of the hottest of `temps`."""
    temps: dict[str, float] = {}
    """°C per sensor."""
    fans: dict[str, float] = {}
    """Turns a minute."""
    busy: float | None = None
    """Share of all cores in use since the look before, 0 to 1."""
    foreign: float | None = None
    """The part of it that neither the server nor battery used."""
    steal: float | None = None
    pressure: dict[str, float] = {}
    """Share of the time since the look before in which some task waited for `cpu`, `memory` or `io`."""
    counters: dict[str, int] = {}
    """What only rises while the machine is up: throttle counts, pages swapped in, waiting times, GPU slowdowns."""
    rose: dict[str, int] = {}
    """By how much counters rose over the last `rose_over_s` (the gate's reading only)."""
    rose_over_s: float | None = None
    thermal_pressure: str | None = None
    """macOS: nominal, moderate, heavy, trapping, sleeping."""
    speed_limit: int | None = None
    """macOS on Intel: percent of its speed that the processor is held to."""
    low_power: bool | None = None
    available_bytes: int | None = None
    freq_mhz: float | None = None
    """Mean over the cores."""
    base_mhz: float | None = None
    """The clock that the maker promises under load."""
    calibration_mhz: float | None = None
    """Highest clock of any core right after the fixed work."""
    rss_bytes: int | None = None
    """Of the server's process group."""
    gpu_temp_c: float | None = None
    gpu_power_w: float | None = None
    gpu_clock_mhz: float | None = None
    gpus: tuple[Gpu, ...] = ()
    """Each device; the three figures above are the hottest, the sum and the slowest of them."""
    calibration_s: float | None = None
    on_ac: bool | None = None
    missing: dict[str, str] = {}


class Clearance(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The readings that opened the gate, or the reasons why it stayed shut."""

    verdict: Literal["open", "refused", "not tried"]
    """`not tried`: the window had failed before this cell, and nobody asked the gate."""
    waited_s: float
    reading: Reading | None = None
    reasons: tuple[str, ...] = ()
    ungated: dict[str, str] = {}
    """Limits of the plan that could not be applied here, each with its reason."""
    applied: tuple[str, ...] | None = None
    """Limits that a reading was held against; null in receipts from before this was kept."""


class Receipt(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One cell of one campaign: coordinates, what was asked, what came, and under which conditions."""

    schema: int = SCHEMA
    campaign: str
    sequence: int
    attempt: int
    """Which try of its block this is; only a block with all its cells in one attempt is pooled."""
    cell: Cell
    outcome: Outcome
    reason: str | None = None
    evidence: dict[str, Any] = {}
    arm: Arm
    arm_digest: str
    plan_digest: str
    command: tuple[str, ...] = ()
    environment: dict[str, str] = {}
    """What the arm sets, and what was inherited of the variables that steer engines and their libraries."""
    request: Request
    trace: Trace = Trace()
    text: Text | None = None
    cold: Cold
    engagement: Engagement
    memory: Memory
    gate: Clearance
    samples: tuple[Reading, ...] = ()
    """While the cell ran: the first before the request, the last behind its end."""
    no_samples: str | None = None
    """Why there are none."""
    breach: tuple[str, ...] = ()
    """What befell the machine in this cell, by sensors that know no arm: its block is measured again."""
    machine: dict[str, Any] = {}
    versions: dict[str, Any] = {}
    """battery's own under `battery`, the engine's as it told them under `engine`."""
    model: dict[str, Any] = {}
    """As the engine told it: name, digest, format, context."""
    started: str
    """UTC, for people and for planning; nothing that is judged rests on it."""
    ended: str
