"""In what campaigns are not the same experiment: one and the plan made from it, or several that are combined."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import msgspec

from battery.analyse import stats
from battery.analyse.findings import Findings
from battery.ledger.arm import difference
from battery.ledger.plan import Plan

FEW = 5
"""Below so many campaigns their spread is hardly known, and that is told."""
MACHINE = ("cpu", "cores_logical", "machine", "gpu")
_PATHS = 4


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
    if plan.mix != source.mix:
        found.append(
            f"the workload there is {', '.join(source.mix)}, in the plan {', '.join(plan.mix)}"
        )
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


def independence(usable: Mapping[str, Findings]) -> list[str]:
    """How far the campaigns speak for more than themselves."""
    found = []
    if len(usable) < FEW:
        count = "1 campaign" if len(usable) == 1 else f"{len(usable)} campaigns"
        found.append(
            f"{count}: so few hardly tell how far campaigns differ, and the interval is wide for it"
        )
    machines = {tuple(str(one.machine.get(key)) for key in MACHINE) for one in usable.values()}
    if len(usable) > 1 and len(machines) == 1:
        found.append(
            "all on machines of one description: the interval speaks for sessions on such a machine"
        )
    return found


def differences(usable: Mapping[str, Findings]) -> list[str]:
    """In what the campaigns did not measure the same thing, against the first of them."""
    found: list[str] = []
    if not usable:
        return found
    (name, first), *rest = usable.items()
    for other_name, other in rest:
        between = f"{name} and {other_name}"
        for arm in first.arms:
            twin = next((one for one in other.arms if one.arm.name == arm.arm.name), None)
            if twin is None:
                continue
            if twin.digest != arm.digest:
                paths = [path for path, _, _ in difference(arm.arm, twin.arm)] or ["its digest"]
                more = f" and {len(paths) - _PATHS} more" if len(paths) > _PATHS else ""
                found.append(
                    f"arm {arm.arm.name} differs between {between} in {', '.join(paths[:_PATHS])}{more}"
                )
            if _model(arm.model) != _model(twin.model):
                found.append(f"arm {arm.arm.name} ran on another model in {between}")
            if arm.versions.get("engine") != twin.versions.get("engine"):
                found.append(f"arm {arm.arm.name} ran another build of its engine in {between}")
        unlike = [
            what
            for what in ("workload", "workloads", "sampler", "seeds", "warm_up_tokens", "margins")
            if getattr(first.plan, what) != getattr(other.plan, what)
        ]
        if unlike:
            smaller = "; the smaller margin holds" if "margins" in unlike else ""
            found.append(f"the plans of {between} differ in {', '.join(unlike)}{smaller}")
    return found


def questions(one: Findings, other: Findings) -> list[str]:
    """Why two campaigns do not ask one question, so that one ratio out of both would answer none; empty where they do.

    Other machines, sessions, builds and seeds are what a combination is there for; other arms, weights, samplers and
    kinds of text are not.
    """
    found = []
    for arm in one.arms:
        twin = next((two for two in other.arms if two.arm.name == arm.arm.name), None)
        if twin is None:
            continue
        if paths := [path for path, _, _ in difference(arm.arm, twin.arm)]:
            more = f" and {len(paths) - _PATHS} more" if len(paths) > _PATHS else ""
            found.append(f"arm {arm.arm.name} is another one: {', '.join(paths[:_PATHS])}{more}")
        if _model(arm.model) != _model(twin.model):
            found.append(f"arm {arm.arm.name} ran on another model")
    if one.plan.mix != other.plan.mix:
        found.append(f"workload {', '.join(one.plan.mix)}, not {', '.join(other.plan.mix)}")
    here, there = (msgspec.to_builtins(two.plan.sampler) for two in (one, other))
    unlike = [f"{key} {here[key]}, not {there[key]}" for key in here if here[key] != there[key]]
    if unlike:
        found.append(f"another sampler: {', '.join(unlike)}")
    return found


def _model(told: Mapping[str, Any]) -> object:
    """What tells one model from another."""
    return told.get("digest") or told.get("name")
