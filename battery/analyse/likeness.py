"""In what the campaign that a plan is made from is another experiment than the plan."""

from __future__ import annotations

import math

import msgspec

from battery.analyse import stats
from battery.analyse.findings import Findings
from battery.ledger.plan import Plan


def plans(source: Plan, plan: Plan, complete: int) -> list[str]:
    """What makes the source another experiment than the plan, each with what follows; `complete` are its blocks."""
    found = []
    if complete < stats.FEWEST_BLOCKS:
        found.append(
            f"the source has {complete} blocks, a pilot: its spread is itself uncertain, see its upper limit"
        )
    if plan.anchor not in source.ladder:
        nearest = min(source.ladder, key=lambda there: abs(math.log(there / plan.anchor)))
        found.append(
            f"the plan's primary rung, {plan.anchor:,} tokens, was not measured there: the spread is that of"
            f" {nearest:,} tokens"
        )
    if plan.seeds != source.seeds:
        found.append(
            f"{source.seeds} seeds a window there, {plan.seeds} in the plan: the spread is scaled by its two parts"
            " where they can be told apart, else taken as it is"
        )
    if plan.workload != source.workload:
        found.append(f"the workload there is {source.workload}, in the plan {plan.workload}")
    there, here = (msgspec.to_builtins(one.sampler) for one in (source, plan))
    unlike = [
        f"{key} {there[key]} there, {here[key]} in the plan"
        for key in here
        if there[key] != here[key]
    ]
    if unlike:
        found.append(f"the sampler differs: {', '.join(unlike)}")
    if plan.warm_up_tokens != source.warm_up_tokens:
        found.append(
            f"{source.warm_up_tokens} tokens warm up a rung there, {plan.warm_up_tokens} in the plan: launches cost"
            " other seconds"
        )
    return found


def void(found: Findings) -> list[str]:
    """What voids the source's own verdicts, and so its spread."""
    return [
        f"the source's verdicts are void: {doubt.what}"
        for doubt in found.doubts
        if doubt.severity == "void"
    ]
