"""What a campaign cost in time, per launch and per seed, and what another plan would cost by that.

Receipts keep wall-clock seconds, enough for planning; nothing that is judged rests on them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec
import numpy as np

from battery.ledger.plan import Plan
from battery.ledger.receipt import Receipt
from battery.ledger.store import Header


class ArmCosts(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds that one arm took, as means; what the campaign did not show is missing."""

    launch_s: float | None
    """From the end of the window before to this window's first cell: stopping, starting, warming up."""
    sentinel_s: float | None
    first_s: dict[int, float]
    """Per rung, its first seed in a window, with whatever warms the rung up."""
    more_s: dict[int, float]
    """Per rung, each further seed."""


class Costs(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds per arm, and those that come once."""

    arms: dict[str, ArmCosts]
    setup_s: float | None
    """Before the first block, and what that block took longer than the others."""
    tokens: int
    """Longest answer that was asked for."""
    sentinel_rung: int


class Duration(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds, or why nobody can say."""

    seconds: float | None
    why: str = ""


def costs(
    receipts: Sequence[Receipt], header: Header, journal: Sequence[Mapping[str, Any]]
) -> Costs:
    """The costs of a campaign; a stretch in which it was stopped, disturbed or set back is left out.

    The first block stands for itself where there are others: caches, downloads and compilers make it longer.
    """
    ordered = sorted(receipts, key=lambda receipt: receipt.sequence)
    stops = [
        datetime.fromisoformat(event["at"])
        for event in journal
        if event.get("event") not in ("started", "finished") and event.get("at")
    ]
    steady = [r for r in ordered if r.cell.block > 1] or ordered
    told: dict[str, _Told] = defaultdict(_Told)
    before: dict[int, Receipt] = {r.sequence + 1: r for r in ordered}
    for receipt in steady:
        told[receipt.cell.arm].hear(receipt, before.get(receipt.sequence), stops)
    arms = {arm: heard.costs() for arm, heard in sorted(told.items())}
    plan = header.plan
    made = Costs(
        arms=arms, setup_s=None, tokens=plan.sampler.max_tokens, sentinel_rung=plan.ladder[0],
    )  # fmt: skip
    return msgspec.structs.replace(made, setup_s=_setup(ordered, header, made, stops))


class _Told:
    """What the receipts of one arm tell, by kind."""

    def __init__(self) -> None:
        self.launch: list[float] = []
        self.sentinel: list[float] = []
        self.first: dict[int, list[float]] = defaultdict(list)
        self.more: dict[int, list[float]] = defaultdict(list)

    def hear(self, receipt: Receipt, before: Receipt | None, stops: Sequence[datetime]) -> None:
        """Take the seconds of one cell, and of the launch before it where it opens a window."""
        started, ended = _at(receipt.started), _at(receipt.ended)
        cell, opens = receipt.cell, receipt.cell.place == 0
        left = _at(before.ended) if before else None
        if left is not None and any(left <= stop <= ended for stop in stops):
            return
        if opens and left is not None and started >= left:
            self.launch.append((started - left).total_seconds())
        if receipt.outcome != "ok" or receipt.breach or (left is None and not opens):
            return
        start = started if opens or left is None else left
        seconds = (ended - start).total_seconds()
        if seconds < 0:  # the wall clock was set back
            return
        if cell.sentinel:
            self.sentinel.append(seconds)
        elif before is None or opens or (before.cell.rung, before.cell.sentinel) != (cell.rung, False):  # fmt: skip
            self.first[cell.rung].append(seconds)
        else:
            self.more[cell.rung].append(seconds)

    def costs(self) -> ArmCosts:
        """The means."""
        return ArmCosts(
            launch_s=_mean(self.launch),
            sentinel_s=_mean(self.sentinel),
            first_s={rung: float(np.mean(told)) for rung, told in sorted(self.first.items())},
            more_s={rung: float(np.mean(told)) for rung, told in sorted(self.more.items())},
        )


def _at(text: str) -> datetime:
    """A receipt's time."""
    return datetime.fromisoformat(text)


def _mean(told: Sequence[float]) -> float | None:
    """The mean, if anything was told."""
    return float(np.mean(told)) if told else None


def _setup(
    ordered: Sequence[Receipt], header: Header, made: Costs, stops: Sequence[datetime]
) -> float | None:
    """Seconds from the campaign's creation to the end of its first block, less what a block takes."""
    first = [receipt for receipt in ordered if receipt.cell.block == 1 and receipt.attempt == 1]
    block = block_duration(made, header.plan, [arm.name for arm in header.arms]).seconds
    if not first or block is None:
        return None
    start, end = _at(header.created), max(_at(receipt.ended) for receipt in first)
    if end < start or any(start <= stop <= end for stop in stops):
        return None
    return max(0.0, (end - start).total_seconds() - block)


def window_duration(made: Costs, plan: Plan, arm: str) -> Duration:
    """One window of `arm` under `plan`: launch, sentinel, every rung with its first and its further seeds."""
    found = made.arms.get(arm)
    if found is None or found.launch_s is None:
        return Duration(seconds=None, why=f"no launch of arm {arm} was timed")
    if plan.sampler.max_tokens != made.tokens:
        asked = f"{made.tokens:,} tokens there, {plan.sampler.max_tokens:,} in the plan"
        return Duration(seconds=None, why=f"answers are of another length ({asked})")
    unknown = [f"{rung:,}" for rung in plan.ladder if rung not in found.first_s]
    if unknown:
        return Duration(seconds=None, why=f"no cell of {', '.join(unknown)} tokens was timed")
    total = found.launch_s
    if plan.sentinel:
        same = found.sentinel_s is not None and plan.ladder[0] == made.sentinel_rung
        total += (found.sentinel_s or 0.0) if same else found.first_s[plan.ladder[0]]
    for rung in plan.ladder:
        more = found.more_s.get(rung, found.first_s[rung])
        total += found.first_s[rung] + (plan.seeds - 1) * more
    return Duration(seconds=total)


def block_duration(made: Costs, plan: Plan, arms: Sequence[str]) -> Duration:
    """One block: a window of every arm."""
    windows = [window_duration(made, plan, arm) for arm in arms]
    unknown = next((window for window in windows if window.seconds is None), None)
    return unknown or Duration(seconds=sum(window.seconds or 0.0 for window in windows))


def seed_prices(made: Costs, plan: Plan, arms: Sequence[str]) -> tuple[float, float] | None:
    """Seconds of a window before its measured seeds, and of one more seed over the whole ladder, as means over `arms`.

    None where a window's time is not known.
    """
    fixed, each = [], []
    for arm in arms:
        window = window_duration(made, plan, arm).seconds
        if window is None:
            return None
        found = made.arms[arm]
        seed = sum(found.more_s.get(rung, found.first_s[rung]) for rung in plan.ladder)
        fixed.append(max(0.0, window - plan.seeds * seed))
        each.append(seed)
    return float(np.mean(fixed)), float(np.mean(each))
