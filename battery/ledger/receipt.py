"""A receipt: everything that is known about one cell, frozen.

Raw values only; statistics come later, from receipts alone.

Schema history: 1 (0.1.0) the first; a field that came later has a default, and stands as that in older receipts.
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
OUTCOMES: tuple[str, ...] = Outcome.__args__  # type: ignore[attr-defined]

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
    how: Literal["true peak", "sampled"]
    reason: str | None = None
    """Why there is no value."""


class Memory(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Peak memory per source, and the one used."""

    peak: int | None
    """Bytes, from `source`."""
    source: str | None
    lower_bound: bool = False
    """True where the allocation that failed never landed: the peak is more than this."""
    sources: dict[str, PeakSource] = {}
    cap: int | None = None
    major_faults: int | None = None
    swapped_bytes: int | None = None


class Reading(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One look at the machine. Null means: could not be read, and `missing` says why."""

    at_s: float
    """Seconds after the cell's send; negative before it."""
    temp_c: float | None = None
    busy: float | None = None
    """Share of all cores in use, 0 to 1."""
    steal: float | None = None
    available_bytes: int | None = None
    freq_mhz: float | None = None
    rss_bytes: int | None = None
    """Of the server's process group."""
    gpu_temp_c: float | None = None
    gpu_power_w: float | None = None
    gpu_clock_mhz: float | None = None
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
    machine: dict[str, Any] = {}
    versions: dict[str, Any] = {}
    """battery's own under `battery`, the engine's as it told them under `engine`."""
    model: dict[str, Any] = {}
    """As the engine told it: name, digest, format, context."""
    started: str
    """UTC, for people; no arithmetic uses it."""
    ended: str
