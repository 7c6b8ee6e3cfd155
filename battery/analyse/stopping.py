"""Where a campaign's own rule ended it: as its journal notes, and derived again from its receipts.

A look after K blocks sees the first K blocks and nothing else, at the rule's level, so that it comes out the same while
the campaign runs and years later. Looks happen in order, each as soon as its blocks are complete; none is skipped.

A look that was noted is binding: by it the campaign went on or ended, and no receipt that came later changes that. A
block that was measured again afterwards (its receipts were damaged) may let the look come out otherwise now; then
both are told. Where the journal notes nothing, what is derived is what happened.

Under `looks` the campaign ends at the first look at which every candidate's primary endpoint is decided: a direction or
equivalence. A candidate that cannot be compared (its cells fail) is not decided: no failure ends a campaign sooner, and
its k of n is counted to the last block. Under `precision` it ends at the first look at which every candidate's
interval is narrow enough; without an interval it is not. What voids a verdict (section 5 of a report) ends nothing:
the rule knows the numbers of the primary endpoint only.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

import msgspec
import pandas as pd

from battery.analyse import speed
from battery.analyse.rows import out_of_order, rows
from battery.analyse.speed import Comparison
from battery.analyse.stats import Estimate
from battery.ledger.claims import Rule, looks
from battery.ledger.journal import NotedLook, noted_looks
from battery.ledger.store import Campaign, Header
from battery.ledger.trace import Trace

DECIDED = frozenset({"faster", "slower", "smaller", "larger", "higher", "lower", "equivalent"})
"""Verdicts after which no further block is needed."""


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """One candidate's primary endpoint at a look."""

    candidate: str
    word: str
    """The verdict at the rule's level."""
    estimate: Estimate | None
    half_width: float | None
    """Half of the interval's width, as a share: √(high / low) − 1."""
    enough: bool
    """Whether the rule asks for no more of this candidate."""


class Look(msgspec.Struct, frozen=True, kw_only=True):
    """What a look saw after `block` blocks, and whether the campaign ends there."""

    block: int
    ends: bool
    """As noted when it was taken; as derived where nothing was noted."""
    derived: bool
    """Whether the campaign would end there by the receipts as they are now."""
    noted: bool | None = None
    """What the journal says; None where it tells of none, and at the plan's last block, which ends it anyhow."""
    again: tuple[int, ...] = ()
    """Blocks before it that were measured again after it."""
    seen: tuple[Seen, ...]

    @property
    def differs(self) -> bool:
        """Whether the receipts as they are now give another decision than the one that was noted."""
        return self.noted is not None and self.noted != self.derived


class Stopped(msgspec.Struct, frozen=True, kw_only=True):
    """The rule of a campaign, every look so far, and where it ended."""

    rule: Rule
    alpha: float
    """Level of every test and interval of this campaign."""
    half_width: float | None
    """What `precision` asks for, as a share."""
    planned: tuple[int, ...]
    """Blocks after which the rule looks; none where it is fixed."""
    looks: tuple[Look, ...]
    ended_at: int | None
    """Blocks after which the rule ended the campaign; None while it goes on."""
    why: str
    """What ended it, or what it waits for."""

    @property
    def early(self) -> bool:
        """Whether it ended before the last block of the plan."""
        return bool(self.looks) and self.looks[-1].ends and self.ended_at != self.planned[-1]


def stopped(
    frame: pd.DataFrame,
    traces: Mapping[int, Trace],
    header: Header,
    noted: Mapping[int, NotedLook] = MappingProxyType({}),
) -> Stopped:
    """Where the rule of `header`'s plan ended the campaign of these rows; `noted` are the looks in its journal."""
    plan, rule = header.plan, header.plan.stopping
    whole = set(frame[frame["counted"].astype(bool)]["block"])
    done = next((b - 1 for b in range(1, plan.blocks + 1) if b not in whole), plan.blocks)
    planned, seen = looks(plan, len(header.arms)), list[Look]()
    for block in planned:
        if block > done or (seen and seen[-1].ends):
            break
        seen.append(_look(frame, traces, header, block, noted.get(block)))
    ended = (
        seen[-1].block if seen and seen[-1].ends else plan.blocks if done == plan.blocks else None
    )
    return Stopped(
        rule=rule.rule, alpha=rule.alpha, half_width=rule.half_width, planned=planned, looks=tuple(seen),
        ended_at=ended, why=_why(header, planned, seen, done),
    )  # fmt: skip


def _look(
    frame: pd.DataFrame, traces: Mapping[int, Trace], header: Header, block: int, noted: NotedLook | None
) -> Look:  # fmt: skip
    """The look after `block` blocks; at the plan's last block there is nothing to go on to, whatever was noted."""
    early = frame[frame["block"].astype(int) <= block]
    found = speed.primary(early, traces, as_ended(header, block), block)
    width = header.plan.stopping.half_width
    seen = tuple(_seen(one, width) for one in found)
    derived = bool(seen) and all(one.enough for one in seen)
    if noted is None or block == header.plan.blocks:
        return Look(block=block, ends=derived, derived=derived, seen=seen)
    return Look(
        block=block, ends=noted.ends, derived=derived, noted=noted.ends, again=_again(frame, noted), seen=seen,
    )  # fmt: skip


def _again(frame: pd.DataFrame, look: NotedLook) -> tuple[int, ...]:
    """Blocks before a look that were measured again after it; without a number in the journal, those out of order."""
    if look.after is None:
        return tuple(block for block in out_of_order(frame) if block <= look.block)
    own = frame[frame["counted"].astype(bool) & (frame["block"].astype(int) <= look.block)]
    return tuple(sorted({int(b) for b in own[own["sequence"].astype(int) > look.after]["block"]}))


def _seen(one: Comparison, wanted: float | None) -> Seen:
    """One candidate; `wanted` is the half width to be reached, None where it must be decided."""
    low, high = (one.estimate.low, one.estimate.high) if one.estimate else (None, None)
    half = None if low is None or high is None else math.sqrt(high / low) - 1
    comparable = one.verdict.word in {*DECIDED, "undecided"} and not one.attrition
    narrow = wanted is not None and half is not None and half <= wanted and comparable
    return Seen(
        candidate=one.candidate, word=one.verdict.word, estimate=one.estimate, half_width=half,
        enough=one.verdict.word in DECIDED if wanted is None else narrow,
    )  # fmt: skip


def _why(header: Header, planned: Sequence[int], seen: Sequence[Look], done: int) -> str:
    """What ended the campaign, or what it waits for."""
    plan = header.plan
    if seen and seen[-1].ends:
        by = ", as noted then (it would go on now)" if seen[-1].differs else ""
        return f"the look after {seen[-1].block} blocks{by}: {told(seen[-1])}"
    if done == plan.blocks:
        last = f", the last look: {told(seen[-1])}" if seen else ""
        return f"all {plan.blocks} blocks of the plan are complete{last}"
    following = next((block for block in planned if block > done), None)
    what = (
        f"the next look is after {following}" if following else "there are no looks before the end"
    )
    return f"{done} of {'at most ' if planned else ''}{plan.blocks} blocks are complete; {what}"


def told(look: Look) -> str:
    """What a look saw, candidate by candidate: verdict, and half of the interval's width."""
    return ", ".join(
        f"{one.candidate} {one.word}"
        + (f" (±{100 * one.half_width:.2g} %)" if one.half_width is not None else "")
        for one in look.seen
    )


def as_ended(header: Header, blocks: int) -> Header:
    """The header as if the plan had asked for no more than these blocks: what was planned is what the rule let be."""
    return msgspec.structs.replace(header, plan=msgspec.structs.replace(header.plan, blocks=blocks))


def enough(folder: Path, block: int) -> str | None:
    """Why the campaign in `folder` ends by its rule after `block` blocks at the latest, or None where it goes on."""
    campaign = Campaign(folder)
    header, (receipts, _) = campaign.header(), campaign.readable()
    early = [receipt for receipt in receipts if receipt.cell.block <= block]
    noted = noted_looks(campaign.journal())
    found = stopped(rows(early, header), {r.sequence: r.trace for r in early}, header, noted)
    return found.why if found.ended_at is not None else None
