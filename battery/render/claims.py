"""What the plan claimed in advance, and what became of it: stopping rule, looks, bars; what was started before."""

from __future__ import annotations

from battery.analyse.findings import Findings
from battery.analyse.stopping import Look
from battery.ledger.claims import rule
from battery.render import words
from battery.render.words import table


def ended(findings: Findings) -> list[str]:
    """Where a rule with looks ended the campaign or where it stands, as notes for the head; none where it is fixed."""
    stopped = findings.stopped
    if not stopped.planned:
        return []
    told = (
        f"**Stopping rule**, declared before measuring: {rule(findings.plan, len(findings.arms))}."
    )
    if stopped.ended_at is None:
        return [f"{told} Not ended yet: {stopped.why}."]
    early = "early, " if stopped.early else ""
    return [
        f"{told} Ended {early}after {stopped.ended_at} of at most {findings.plan.blocks} blocks: {stopped.why}."
    ]


def looks(findings: Findings) -> list[str]:
    """A heading and the looks so far, one row per candidate; nothing where the rule has none."""
    stopped = findings.stopped
    if not stopped.planned:
        return []
    wanted = (
        "decided"
        if stopped.half_width is None
        else f"no wider than ±{100 * stopped.half_width:g} %"
    )
    rows = [
        (
            look.block, one.candidate, words.interval(one.estimate),
            "—" if one.half_width is None else f"{100 * one.half_width:.2f} %", one.word,
            "yes" if one.enough else "no", _campaign(look),
        )
        for look in stopped.looks
        for one in look.seen
    ]  # fmt: skip
    ratio = f"primary endpoint [{words.confidence(findings)}]"
    head = ["blocks", "arm", ratio, "half width", "verdict", wanted, "campaign"]
    how = (
        "Each look saw the blocks before it and nothing else. The figures are by the receipts as they are now; a block"
        " that was measured again after a look gave that look others."
    )
    return ["### Looks", how, table(head, rows) if rows else "There were none yet."]


def _campaign(look: Look) -> str:
    """What became of the campaign at a look, and what would now where that is something else."""
    if not look.differs:
        return "ended" if look.ends else "went on"
    return "ended (now it would go on)" if look.ends else "went on (now it would end)"


def earlier(findings: Findings) -> list[str]:
    """A heading, and the campaigns of two or more of these arms that were started here before, with how each ended."""
    head, kept = "### Started here before", findings.earlier
    if kept is None:
        return [head, f"{_these(findings)}: not kept when this campaign was started."]
    these, others = _these(findings), f"All other campaigns: {kept.others}."
    if not kept.same_arms:
        return [head, f"{these}: none. {others}"]
    rows = [
        (one.campaign, one.at, ",".join(one.arms), f"{one.plan}, digest {one.plan_digest[:16]}", one.ended)
        for one in kept.same_arms
    ]  # fmt: skip
    return [
        head,
        f"{these}: {len(rows)}. {others}",
        table(["campaign", "started", "arms", "plan", "ended"], rows),
    ]


def _these(findings: Findings) -> str:
    """What counts as a campaign of these arms: the same things run, whatever their names."""
    return (
        "Campaigns with at least two of these arms, whatever their names"
        if findings.candidates
        else "Campaigns with this arm, whatever its name"
    )


def bars(findings: Findings) -> str:
    """The plan's bars with what became of each; a sentence where it declares none."""
    if not findings.bars:
        return "The plan declares none."
    rows = [
        (one.what, one.candidate or "—", f"**{one.outcome}**", one.why, "yes" if one.sealed else "**no**")
        for one in findings.bars
    ]  # fmt: skip
    return table(["bar", "arm", "outcome", "why", "sealed"], rows)


def bars_met(findings: Findings) -> list[str]:
    """How many bars are met, as a line for the head; none where the plan declares none."""
    met = sum(one.outcome == "met" for one in findings.bars)
    return [f"- Bars: {met} of {len(findings.bars)} met (section 5)."] if findings.bars else []
