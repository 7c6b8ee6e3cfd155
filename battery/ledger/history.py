"""Every campaign that was started here, whatever became of it: an append-only log beside the campaigns' folders.

receipts/campaigns.jsonl has a line when a campaign is started, gone on with, finished, interrupted or failed, also
where it never came to a header. A new campaign takes down in its own header what was started before it, so that a
campaign that was given up, or whose folder was taken away, shows in the report of the next one.

A killed battery writes no last line: then only the folder tells how far it came. A line that a crash cut off is passed
over. Starts on another machine, or in another checkout, are not known here.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from battery.ledger import disk, store
from battery.ledger.arm import Arm
from battery.ledger.errors import BatteryError
from battery.ledger.plan import Plan
from battery.ledger.store import Campaign, Earlier, Header, Started

Event = Literal["started", "resumed", "finished", "interrupted", "failed"]


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the log."""

    at: str
    campaign: str
    event: Event
    plan: str
    plan_digest: str
    arms: dict[str, str]
    """Digest per arm, the control first."""
    kinds: tuple[str, ...] = ()
    """Digests without names, in the same order: a copy of an arm under another name is the same arm."""
    blocks: int
    """At most, by the plan."""
    complete: int | None = None
    """Blocks that were complete at this event; None before there was a header."""


class Life(msgspec.Struct, frozen=True, kw_only=True):
    """One start of a campaign, and the last that the log says of it."""

    first: Entry
    last: Entry
    header: Header | None = None
    """Of its folder, where that is still there."""


def entries(receipts: Path) -> list[Entry]:
    """Every line of the log in `receipts`, oldest first."""
    path, found = receipts / store.CAMPAIGNS, []
    for line in path.read_bytes().splitlines() if path.is_file() else ():
        with contextlib.suppress(msgspec.DecodeError, msgspec.ValidationError):
            found.append(msgspec.json.decode(line, type=Entry))
    return found


def lives(receipts: Path) -> list[Life]:
    """Every start that the log knows; the last one under a name has the folder of that name."""
    found: list[Life] = []
    latest: dict[str, int] = {}
    for entry in entries(receipts):
        place = latest.get(entry.campaign)
        if entry.event == "started" or place is None:
            latest[entry.campaign] = len(found)
            found.append(Life(first=entry, last=entry))
        else:
            found[place] = msgspec.structs.replace(found[place], last=entry)
    for name, place in latest.items():
        found[place] = msgspec.structs.replace(found[place], header=_header(receipts / name))
    return found


def _header(folder: Path) -> Header | None:
    """The header of a campaign's folder, if it is there and can be read."""
    with contextlib.suppress(BatteryError):
        return Campaign(folder).header()
    return None


def earlier(receipts: Path, kinds: Sequence[str]) -> Earlier:
    """What was started here so far: by the log, and by folders that it does not know.

    `kinds` are those of the arms to be measured. A campaign is of these arms if it held two of them, whatever their
    names and whatever else it held.
    """
    known = lives(receipts)
    logged = {life.first.campaign for life in known if life.header is not None}
    unlogged = [
        path.parent
        for path in sorted(receipts.glob(f"*/{store.HEADER}"))
        if path.parent.name not in logged
    ]
    told = [(_started(receipts, life), _kinds(life.first, life.header)) for life in known]
    others = 0
    for folder in unlogged:
        header = _header(folder)
        if header is None:
            others += 1  # its arms are not known
            continue
        started = Started(
            campaign=folder.name, at=header.created, plan=header.plan.name, plan_digest=header.plan_digest,
            arms=tuple(header.arm_digests), ended=_how_far(Campaign(folder), header),
        )  # fmt: skip
        told.append((started, _kinds(None, header)))
    wanted = Counter(kinds)
    same = [
        started
        for started, arms in told
        if (wanted & Counter(arms)).total() >= min(2, wanted.total())
    ]
    return Earlier(
        same_arms=tuple(sorted(same, key=lambda started: (started.at, started.campaign))),
        others=others + len(told) - len(same),
    )


def _kinds(first: Entry | None, header: Header | None) -> tuple[str, ...]:
    """What ran in a campaign, by its line in the log, else by its header; nothing where neither tells."""
    if first is not None and first.kinds:
        return first.kinds
    return tuple(arm.kind for arm in header.arms) if header else ()


def _started(receipts: Path, life: Life) -> Started:
    """A start as a header takes it down."""
    first = life.first
    return Started(
        campaign=first.campaign, at=first.at, plan=first.plan, plan_digest=first.plan_digest, arms=tuple(first.arms),
        ended=_how_far(Campaign(receipts / first.campaign), life.header) if life.header else gone(life),
    )  # fmt: skip


def _how_far(campaign: Campaign, header: Header) -> str:
    """How far a campaign came whose folder is there."""
    if (campaign.folder / store.SEAL).is_file():
        return "finished"
    complete = len(store.complete_blocks(campaign.readable()[0], header))
    return f"{complete} of {header.plan.blocks} blocks"


def gone(life: Life) -> str:
    """How a start ended whose folder is not there, or holds a later campaign."""
    last = life.last
    word = "cut off" if last.event in ("started", "resumed") else last.event
    if last.complete is not None:
        far = "" if last.event == "finished" else f" at {last.complete} of {last.blocks} blocks"
        return f"{word}{far}, and its folder is gone"
    if word == "cut off":
        return "cut off, and its folder is gone"
    return f"{word} before its first window"


@contextlib.contextmanager
def listed(campaign: Campaign, plan: Plan, arms: Sequence[Arm]) -> Iterator[None]:
    """Around the work on a campaign: its line at the start, and one that says how it ended.

    DiskError if the start cannot be written; at the end another error, or the sealed folder, says what matters.
    """

    def entry(event: Event) -> Entry:
        return Entry(
            at=store.utc_now(), campaign=campaign.folder.name, event=event, plan=plan.name, plan_digest=plan.digest,
            arms={arm.name: arm.digest for arm in arms}, kinds=tuple(arm.kind for arm in arms), blocks=plan.blocks,
            complete=_complete(campaign),
        )  # fmt: skip

    def note(event: Event) -> None:
        line = msgspec.json.encode(entry(event)) + b"\n"
        disk.append(campaign.folder.parent / store.CAMPAIGNS, line)

    note("resumed" if campaign.exists else "started")
    try:
        yield
    except (Exception, KeyboardInterrupt) as ended:
        with contextlib.suppress(BatteryError):
            note("interrupted" if isinstance(ended, KeyboardInterrupt) else "failed")
        raise
    with contextlib.suppress(BatteryError):
        note("finished")


def _complete(campaign: Campaign) -> int | None:
    """Complete blocks of a campaign so far; None before it has a header, or where that cannot be read."""
    with contextlib.suppress(BatteryError):
        if campaign.exists:
            return len(store.complete_blocks(campaign.readable()[0], campaign.header()))
    return None
