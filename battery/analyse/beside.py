"""A replay's intervals beside those of the campaign whose texts it follows, at as many blocks.

The two answer different questions. A free campaign asks how fast arms are on what they write, and its interval holds
what texts add: how many drafts they let pass, how they part where an arm rounds otherwise. A replay asks how fast the
arms are along given texts. Where every block follows its own text, prompts still differ from block to block, and what a
text does to both arms alike cancels in the ratio; where all blocks follow one block's texts, only the machine differs.

Equal blocks, because an interval narrows with their number by itself: of each campaign the first k are taken, k being
what the shorter one has. No verdict rests on this.
"""

from __future__ import annotations

import math

import msgspec

from battery.analyse import likeness, stats
from battery.analyse.findings import Findings
from battery.analyse.speed import Comparison
from battery.analyse.stats import Estimate
from battery.ledger.errors import InputError
from battery.ledger.plan import Replay


class Side(msgspec.Struct, frozen=True, kw_only=True):
    """One comparison, free and replayed, over equally many blocks."""

    candidate: str
    metric: str
    rung: int
    primary: bool
    """Whether the replay declared it as its endpoint."""
    blocks: int
    free: Estimate
    replayed: Estimate
    narrower: float | None
    """Width of the free interval over that of the replayed one, in logarithms; None where one has no width."""


class Beside(msgspec.Struct, frozen=True, kw_only=True):
    """Both campaigns, and every comparison that both have."""

    campaign: str
    source: Replay
    control: str
    alpha: float
    same_seal: bool
    """Whether the source's files are those that were replayed."""
    unlike: tuple[str, ...]
    """How arms, engines, models, machine and plan differ between the two, a sentence each: no text explains that."""
    sides: tuple[Side, ...]


def beside(replayed: Findings, free: Findings) -> Beside:
    """The replay's comparisons beside its source's; InputError where these two do not belong together."""
    source = replayed.plan.replayed
    if source is None:
        raise InputError(
            f"{replayed.campaign} is no replay: name a campaign of battery run --replay"
        )
    if free.campaign != source.campaign:
        raise InputError(
            f"{replayed.campaign} follows the texts of {source.campaign}, not of {free.campaign}"
        )
    alpha = min(replayed.plan.stopping.alpha, free.plan.stopping.alpha)
    sides = []
    for one in replayed.comparisons:
        other = free.comparison(one.candidate, one.metric, one.rung)
        if other is not None and other.control == one.control:
            side = _side(one, other, alpha)
            sides += [side] if side else []
    if not sides:
        raise InputError(
            f"{replayed.campaign} and {free.campaign} have no comparison in common: replay the arms of the source, too"
        )
    return Beside(
        campaign=replayed.campaign, source=source, control=replayed.control, alpha=alpha,
        same_seal=free.seal == source.seal, unlike=_unlike(replayed, free), sides=tuple(sides),
    )  # fmt: skip


def _unlike(replayed: Findings, free: Findings) -> tuple[str, ...]:
    """What `combine` says of two campaigns, and whether they ran on one machine."""
    told = likeness.differences({free.campaign: free, replayed.campaign: replayed})
    kinds = [{key: one.machine.get(key) for key in likeness.MACHINE} for one in (free, replayed)]
    elsewhere = [f"{free.campaign} and {replayed.campaign} ran on different machines"]
    return (*told, *(elsewhere if kinds[0] != kinds[1] else ()))


def _side(one: Comparison, other: Comparison, alpha: float) -> Side | None:
    """Both estimates over the first blocks that each has; None where one has none."""
    blocks = min(len(one.by_block), len(other.by_block))
    replayed, free = (
        stats.paired([math.log(ratio) for _, ratio in each.by_block[:blocks]], alpha)
        for each in (one, other)
    )
    if replayed is None or free is None:
        return None
    return Side(
        candidate=one.candidate, metric=one.metric, rung=one.rung, primary=one.primary, blocks=blocks, free=free,
        replayed=replayed, narrower=_narrower(free, replayed),
    )  # fmt: skip


def _narrower(free: Estimate, replayed: Estimate) -> float | None:
    """How many times wider the free interval is than the replayed one."""
    widths = [_width(free), _width(replayed)]
    return widths[0] / widths[1] if all(widths) else None


def _width(one: Estimate) -> float:
    """The width of an interval in logarithms; 0 where it has none."""
    return math.log(one.high / one.low) if one.low and one.high else 0.0
