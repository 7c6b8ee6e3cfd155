"""Doubts about what happened while cells ran: disturbances, cells without samples, GPUs that ran at another clock."""

from __future__ import annotations

from battery.analyse.conditions import Case, Doubt, touches
from battery.analyse.gating import Phase

CLOCKS_DIFFER = 0.01
"""A difference of GPU clocks between arms from which on it is told beside the ratio."""
CAPS_DIFFER = 0.10
"""The same for the share of samples under a software power cap."""


def during(case: Case) -> list[Doubt]:
    """All of them."""
    return [*_stands(case), *_again(case), *_unsampled(case), *_clocks(case)]


def _stands(case: Case) -> list[Doubt]:
    """Blocks that count although the machine was disturbed in them."""
    return [
        Doubt(
            severity="warning",
            what=f"block {one.block} stands although the machine was disturbed in it ({'; '.join(one.why)}): its"
            f" reruns ({case.header.plan.limits.reruns}) were used up",
            evidence=one.receipts,
            remedy="find what disturbs the machine, or run it where that does not happen",
        )
        for one in case.disturbances
        if one.counted
    ]  # fmt: skip


def _again(case: Case) -> list[Doubt]:
    """Attempts that were given up because the machine was disturbed in them."""
    left = [one for one in case.disturbances if not one.counted]
    if not left:
        return []
    told = "; ".join(
        f"block {one.block}, attempt {one.attempt}: {', '.join(one.why)}" for one in left[:3]
    )
    more = f"; and {len(left) - 3} more" if len(left) > 3 else ""
    return [
        Doubt(
            severity="note",
            what=f"the machine was disturbed in {len(left)} attempts at blocks, which were given up and are not"
            f" pooled ({told}{more})",
            evidence=tuple(number for one in left for number in one.receipts),
            remedy="none needed: sensors that know no arm decided, and both arms were measured again",
        )
    ]  # fmt: skip


def _unsampled(case: Case) -> list[Doubt]:
    """Pooled cells in which nothing was read while they ran."""
    here = [receipt for receipt in case.pooled if receipt.no_samples]
    if not here:
        return []
    return [
        Doubt(
            severity="warning",
            what=f"{len(here)} pooled cells have no samples, so that no disturbance in them can be told:"
            f" {here[0].no_samples}",
            evidence=tuple(receipt.sequence for receipt in here),
            remedy="look for what ended the sampling process",
        )
    ]  # fmt: skip


def _clocks(case: Case) -> list[Doubt]:
    """GPU clocks and power caps of the candidates against the control's."""
    found: list[Doubt] = []
    known = {(one.arm, one.phase): one for one in case.phases}
    for (arm, phase), one in known.items():
        control = known.get((case.header.control, phase))
        if control is None or arm == case.header.control:
            continue
        for told in (_clock(one, control), _cap(one, control)):
            if told:
                found.append(
                    Doubt(
                        severity="warning", what=f"arm {arm}, {phase}: {told}",
                        remedy="read the ratio as including it; fix the clocks (nvidia-smi -lgc) to leave it out",
                        arm=touches(case, arm),
                    )
                )  # fmt: skip
    return found


def _clock(one: Phase, control: Phase) -> str:
    """What to say of two clocks."""
    here, there = one.means.get("gpu_clock_mhz"), control.means.get("gpu_clock_mhz")
    if not here or not there or abs(here / there - 1) <= CLOCKS_DIFFER:
        return ""
    return f"its GPU ran at {here:,.0f} MHz, the control's at {there:,.0f} MHz ({100 * (here / there - 1):+.1f} %)"


def _cap(one: Phase, control: Phase) -> str:
    """What to say of two power caps."""
    if one.power_cap is None or control.power_cap is None:
        return ""
    if abs(one.power_cap - control.power_cap) <= CAPS_DIFFER:
        return ""
    return (
        f"its GPU was under a power cap in {100 * one.power_cap:.0f} % of the samples, the control's in"
        f" {100 * control.power_cap:.0f} %"
    )
