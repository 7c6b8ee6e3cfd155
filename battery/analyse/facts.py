"""What receipts say outright, counted and laid side by side: outcomes, switches, windows, and what differs.

Nothing is estimated here.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from battery.ledger.arm import Arm, difference
from battery.ledger.receipt import Receipt
from battery.ledger.store import Header, block_attempts


class ArmFacts(msgspec.Struct, frozen=True, kw_only=True):
    """One arm as it was resolved and as its server told of itself."""

    arm: Arm
    digest: str
    versions: dict[str, Any]
    model: dict[str, Any]
    command: tuple[str, ...]
    engagement: dict[str, int]
    """Receipts whose request was sent, per engagement verdict."""
    cold: dict[str, int]
    """Receipts to whose request a token came, per cold value."""
    honoured: dict[str, int]
    """The same per sampler value."""
    memory: dict[str, int]
    """The same per memory source, with how it knows."""


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """One thing in which a candidate is not the control."""

    candidate: str
    what: str
    control_has: str
    candidate_has: str
    declared: bool
    """Whether the arm files say so, or it follows from what they say."""


class Outcomes(msgspec.Struct, frozen=True, kw_only=True):
    """How the cells of one arm at one rung ended."""

    arm: str
    rung: int
    planned: int
    ok: int
    ended: dict[str, int]
    """Everything but ok, per word."""
    reasons: tuple[str, ...] = ()
    phases: tuple[str, ...] = ()
    tokens: int | None = None
    """Most tokens that came before a failure."""
    peak_over: int | None = None
    """Highest peak seen before an allocation failed: a lower bound, bytes. A peak that only crossed the plan's cap is
    known, and none."""
    cap: int | None = None
    receipts: tuple[int, ...] = ()
    """Of the cells that did not end ok."""
    oom_besides: tuple[int, ...] = ()
    """Receipts of cells that ran out of memory in an attempt that was measured again: an outcome all the same."""


class SwitchFacts(msgspec.Struct, frozen=True, kw_only=True):
    """One switch of one arm over all receipts whose request was sent and that tell of it."""

    arm: str
    name: str
    asked: bool
    states: dict[str, int]
    verdicts: dict[str, int]
    exactness: str | None
    coverage: str | None
    kill: str | None
    reason: str | None


class WindowFacts(msgspec.Struct, frozen=True, kw_only=True):
    """One window in the order of the run."""

    number: int
    block: int
    position: int
    attempt: int
    arm: str
    counted: bool
    cells: int
    ok: int
    ended: dict[str, int]
    temp_c: float | None
    """Before its first cell."""
    calibration_s: float | None
    waited_s: float


_NEVER = ("the window had failed before", "not tried: the window had failed before")
"""Reasons by which receipts before the verdict `not tried` told that a cell was never tried."""


def tried(receipt: Receipt) -> bool:
    """Whether the gate was asked for this cell; it is not where its window had failed before."""
    gate = receipt.gate
    return gate.verdict != "not tried" and not (
        len(gate.reasons) == 1 and gate.reasons[0] in _NEVER
    )


def sent(receipt: Receipt) -> bool:
    """Whether a request was timed, or at least sent: only then does the receipt prove anything about one."""
    return bool(receipt.trace.events) or (receipt.gate.verdict == "open" and tried(receipt))


def arms(receipts: Sequence[Receipt], header: Header) -> tuple[ArmFacts, ...]:
    """Every arm of the header with what its receipts tell."""
    found = []
    for arm in header.arms:
        own = [receipt for receipt in receipts if receipt.cell.arm == arm.name]
        timed = [receipt for receipt in own if receipt.trace.events]
        found.append(
            ArmFacts(
                arm=arm,
                digest=header.arm_digests[arm.name],
                versions=_last(receipt.versions for receipt in own),
                model=_last(receipt.model for receipt in own),
                command=_last_command(own),
                engagement=tally(receipt.engagement.verdict for receipt in own if sent(receipt)),
                cold=tally(receipt.cold.value for receipt in timed),
                honoured=tally(receipt.request.honoured for receipt in timed),
                memory=tally(_memory(receipt) for receipt in timed),
            )
        )
    return tuple(found)


def _last(tables: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """The last table that says anything."""
    said = [table for table in tables if table]
    return said[-1] if said else {}


def _last_command(receipts: Sequence[Receipt]) -> tuple[str, ...]:
    """The resolved command line of the last receipt that has one."""
    said = [receipt.command for receipt in receipts if receipt.command]
    return said[-1] if said else ()


def tally(words: Iterable[str]) -> dict[str, int]:
    """How often each word comes, sorted by word."""
    return dict(sorted(Counter(words).items()))


def _memory(receipt: Receipt) -> str:
    """The memory source that was used, and how it knows."""
    used = receipt.memory.source
    if used is None:
        return "none"
    how = receipt.memory.sources.get(used)
    if how is None:
        return used
    return f"{used} ({how.how}{', with file cache' if how.includes_file_cache else ''})"


def differences(receipts: Sequence[Receipt], header: Header) -> tuple[Difference, ...]:
    """What differs between each candidate and the control: first what the arm files say, then what the servers said."""
    control, found = header.arms[0], []
    told = {arm.name: _told(receipts, arm.name) for arm in header.arms}
    for candidate in header.arms[1:]:
        said = difference(control, candidate)
        paths = {path for path, _, _ in said}
        for path, left, right in said:
            found.append(_difference(candidate.name, path, left, right, True))
        one, other = told[control.name], told[candidate.name]
        for path in sorted({*one, *other}) if one and other else ():
            # A variable that is not there is a fact; a figure that one engine does not tell is none.
            absent: set[str] = {"absent"} if path.startswith("environment.") else set()
            left, right = one.get(path, absent), other.get(path, absent)
            if left and right and left != right:
                found.append(_difference(candidate.name, path, left, right, _follows(path, paths)))
    return tuple(found)


def _follows(path: str, declared: set[str]) -> bool:
    """Whether something that a server told follows from what the arm files declare, by its paths."""
    room, _, rest = path.partition(".")
    if room == "environment":
        return f"env.{rest}" in declared
    said = {one.split(".")[0] for one in declared}
    if room == "model":
        return bool(said & {"model", "backend", "command", "flags"})
    return path.startswith("versions.engine") and bool(said & {"backend", "command", "env"})


def _told(receipts: Sequence[Receipt], arm: str) -> dict[str, set[str]]:
    """Every path into model, versions, machine and environment, with the values that this arm's receipts have there."""
    found: dict[str, set[str]] = defaultdict(set)
    seen: set[tuple[str, int]] = set()
    for receipt in receipts:
        if receipt.cell.arm != arm:
            continue
        for room in ("model", "versions", "machine", "environment"):
            table = getattr(receipt, room)
            if (room, id(table)) in seen:
                continue  # thousands of receipts share one table
            seen.add((room, id(table)))
            for path, value in flat(table, room):
                found[path].add(text(value))
    return dict(found)


def flat(value: object, at: str) -> list[tuple[str, object]]:
    """Nested tables as dotted paths."""
    if isinstance(value, dict):
        return [pair for key, inner in value.items() for pair in flat(inner, f"{at}.{key}")]
    return [(at, value)]


def text(value: object) -> str:
    """A value in JSON, as a reader would write it."""
    if value is None:
        return "absent"
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _difference(
    candidate: str, what: str, left: object, right: object, declared: bool
) -> Difference:
    """A difference, with both sides in words."""
    sides = [
        " / ".join(sorted(side)) if isinstance(side, set) else text(side) for side in (left, right)
    ]
    return Difference(
        candidate=candidate, what=what, control_has=sides[0], candidate_has=sides[1], declared=declared,
    )  # fmt: skip


def latest(receipts: Sequence[Receipt], header: Header, counted: set[int]) -> list[Receipt]:
    """Per block the counted attempt, or else the last one: what a reader would call the result so far."""
    kept: list[Receipt] = []
    for _, attempts in sorted(block_attempts(receipts, header).items()):
        whole = [cells for cells in attempts.values() if cells[0].sequence in counted]
        kept += whole[-1] if whole else attempts[max(attempts)]
    return sorted(kept, key=lambda receipt: receipt.sequence)


def oom_besides(receipts: Sequence[Receipt], kept: Sequence[Receipt]) -> list[Receipt]:
    """Receipts out of memory beside those of the attempts in `kept`, in order; inherited ones were never tried.

    Running out of memory is an outcome whatever happened to its block: that another cell was disturbed, so that all
    of them were measured again, gives no memory back.
    """
    own = {receipt.sequence for receipt in kept}
    return [
        receipt
        for receipt in receipts
        if receipt.outcome == "oom"
        and receipt.sequence not in own
        and "inherited_from" not in receipt.evidence
    ]


def outcomes(
    receipts: Sequence[Receipt], header: Header, besides: Sequence[Receipt] = ()
) -> tuple[Outcomes, ...]:
    """How cells ended, arm by arm along the ladder; sentinels left out. `besides` are those of `oom_besides`."""
    planned = header.plan.blocks * header.plan.seeds
    own, other = by_cell(receipts), by_cell(besides)
    found = []
    for arm in header.arms:
        for rung in header.plan.ladder:
            here, again = own.get((arm.name, rung), []), other.get((arm.name, rung), [])
            failed = [receipt for receipt in here if receipt.outcome != "ok"]
            told = sorted([*failed, *again], key=lambda receipt: receipt.sequence)
            bounds = [
                r.memory.peak
                for r in told
                if r.outcome == "oom" and r.memory.lower_bound and r.memory.peak is not None
            ]
            caps = [r.memory.cap for r in told if r.memory.cap is not None]
            tried = [r.trace for r in told if r.trace.events]
            found.append(
                Outcomes(
                    arm=arm.name, rung=rung, planned=planned,
                    ok=len(here) - len(failed),
                    ended=tally(receipt.outcome for receipt in failed),
                    reasons=distinct(_reason(receipt) for receipt in told),
                    phases=distinct(phase(receipt) for receipt in told),
                    tokens=max((t.completion_tokens or len(t.events) for t in tried), default=None),
                    peak_over=max(bounds, default=None),
                    cap=max(caps, default=None),
                    receipts=tuple(receipt.sequence for receipt in failed),
                    oom_besides=tuple(receipt.sequence for receipt in again),
                )
            )  # fmt: skip
    return tuple(found)


def by_cell(receipts: Iterable[Receipt]) -> dict[tuple[str, int], list[Receipt]]:
    """Receipts by arm and rung, sentinels left out."""
    found: dict[tuple[str, int], list[Receipt]] = defaultdict(list)
    for receipt in receipts:
        if not receipt.cell.sentinel:
            found[receipt.cell.arm, receipt.cell.rung].append(receipt)
    return found


def _reason(receipt: Receipt) -> str:
    """Why a cell failed; an inherited reason without the number of the receipt that it comes from."""
    return re.sub(r"inherited from receipt \d+", "inherited", receipt.reason or "no reason given")


def phase(receipt: Receipt) -> str:
    """Where a cell failed: as the receipt says under evidence.phase, else from whether any token had come."""
    said = receipt.evidence.get("phase")
    if isinstance(said, str):
        return said
    if "inherited_from" in receipt.evidence or not tried(receipt):
        return "not tried"
    if receipt.outcome == "refused":
        return "gate"
    return "decode" if receipt.trace.events else "before the first token"


def distinct(words: Iterable[str], most: int = 3) -> tuple[str, ...]:
    """Different words in order of appearance; beyond `most` only their number."""
    found = list(dict.fromkeys(words))
    return tuple(found[:most]) + ((f"and {len(found) - most} more",) if len(found) > most else ())


def switches(receipts: Sequence[Receipt]) -> tuple[SwitchFacts, ...]:
    """Every switch that an engine told of after a request, with how often it was in which state."""
    seen: dict[tuple[str, str], list[Any]] = defaultdict(list)
    for receipt in filter(sent, receipts):
        for switch in receipt.engagement.switches:
            seen[receipt.cell.arm, switch.name].append(switch)
    return tuple(
        SwitchFacts(
            arm=arm, name=name,
            asked=all(switch.asked for switch in here),
            states=tally(switch.state or "cannot say" for switch in here),
            verdicts=tally(switch.verdict for switch in here),
            exactness=here[-1].exactness,
            coverage=text(here[-1].coverage) if here[-1].coverage is not None else None,
            kill=here[-1].kill,
            reason=next((switch.reason for switch in here if switch.reason), None),
        )
        for (arm, name), here in sorted(seen.items())
    )  # fmt: skip


def windows(receipts: Sequence[Receipt], counted: set[int]) -> tuple[WindowFacts, ...]:
    """Every window that left a receipt, abandoned ones too, in the order of the run."""
    grouped: dict[tuple[int, int], list[Receipt]] = defaultdict(list)
    for receipt in receipts:
        grouped[receipt.attempt, receipt.cell.window.number].append(receipt)
    found = []
    for here in sorted(grouped.values(), key=lambda cells: cells[0].sequence):
        first, window = here[0], here[0].cell.window
        reading = first.gate.reading
        found.append(
            WindowFacts(
                number=window.number, block=window.block, position=window.position, attempt=first.attempt,
                arm=window.arm, counted=first.sequence in counted, cells=len(here),
                ok=sum(receipt.outcome == "ok" for receipt in here),
                ended=tally(receipt.outcome for receipt in here if receipt.outcome != "ok"),
                temp_c=reading.temp_c if reading else None,
                calibration_s=reading.calibration_s if reading else None,
                waited_s=sum(receipt.gate.waited_s for receipt in here),
            )
        )  # fmt: skip
    return tuple(found)
