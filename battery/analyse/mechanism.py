"""Which half of a speculative decode rate moved: tokens gained per step, or seconds that a step takes.

Decode rate = tokens per step / seconds per step. Both factors are the server's own counts with verdicts of their own;
this room lays them side by side and estimates nothing anew.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from battery.analyse.speed import Comparison, Level
from battery.analyse.stats import Estimate
from battery.ledger.store import Header

GAIN, COST = "tokens_per_step", "seconds_per_step"

Moved = Literal["tokens per step", "seconds per step", "both", "neither", "cannot be told"]


class Mechanism(msgspec.Struct, frozen=True, kw_only=True):
    """Why one candidate decodes at another rate than the control at one rung, as far as the servers' counters tell."""

    candidate: str
    rung: int
    decode: Estimate | None = None
    tokens_per_step: Estimate | None = None
    seconds_per_step: Estimate | None = None
    remainder: float | None = None
    """Decode's ratio / (tokens per step's / seconds per step's): 1 where the two explain all of it. The rest lies
    between the client's clock, which decode is measured by, and the server's."""
    moved: Moved
    """Which factor's verdict is a difference beyond the margin; `neither`: both stayed within it by a verdict."""
    why: str = ""
    """Why it cannot be told."""


def mechanisms(
    comparisons: tuple[Comparison, ...], levels: tuple[Level, ...], header: Header
) -> tuple[Mechanism, ...]:
    """Every candidate and rung where the candidate or the control counts steps; nothing where neither does."""
    counting = {(x.arm, x.rung) for x in levels if x.metric == GAIN and x.value is not None}
    known = {(one.candidate, one.metric, one.rung): one for one in comparisons}
    found = []
    for candidate in (arm.name for arm in header.arms[1:]):
        for rung in header.plan.ladder:
            arms = (header.control, candidate)
            silent = [arm for arm in arms if (arm, rung) not in counting]
            if len(silent) < len(arms):
                parts = [known.get((candidate, metric, rung)) for metric in ("decode", GAIN, COST)]
                found.append(_mechanism(candidate, rung, silent, *parts))
    return tuple(found)


def _mechanism(
    candidate: str,
    rung: int,
    silent: list[str],
    decode: Comparison | None,
    gain: Comparison | None,
    cost: Comparison | None,
) -> Mechanism:
    """One candidate at one rung; `silent` are the arms of the two that counted no steps there."""
    estimates = [one.estimate if one else None for one in (decode, gain, cost)]
    moved: Moved = "cannot be told"
    why = ""
    if silent:
        why = f"no step of {' and '.join(silent)} was counted at this context"
    elif gain is None or cost is None:
        why = "one of the two counts is missing"
    else:
        moved, why = _moved(gain, cost)
    rate, gained, spent = (one.ratio if one else None for one in estimates)
    return Mechanism(
        candidate=candidate, rung=rung, decode=estimates[0], tokens_per_step=estimates[1],
        seconds_per_step=estimates[2],
        remainder=rate * spent / gained if rate and gained and spent else None,
        moved=moved, why=why,
    )  # fmt: skip


def _moved(gain: Comparison, cost: Comparison) -> tuple[Moved, str]:
    """Which verdict is a difference that matters, or why that is open."""
    sides = {"tokens per step": _moves(gain), "seconds per step": _moves(cost)}
    open_ = [name for name, moves in sides.items() if moves is None]
    if open_:
        told = {"tokens per step": gain.verdict, "seconds per step": cost.verdict}
        parts = [
            f"{name}: {told[name].word if moves is None else 'moved' if moves else 'did not move'}"
            for name, moves in sides.items()
        ]  # fmt: skip
        return "cannot be told", "; ".join(parts)
    moving = [name for name, moves in sides.items() if moves]
    if len(moving) == len(sides):
        return "both", ""
    if not moving:
        return "neither", ""
    return ("tokens per step" if moving[0] == "tokens per step" else "seconds per step"), ""


def _moves(one: Comparison) -> bool | None:
    """Whether the factor differs beyond its margin; None where its verdict leaves that open."""
    if one.verdict.word == "equivalent" or one.verdict.qualifier.startswith("within"):
        return False
    return True if one.verdict.qualifier.startswith("by at least") else None
