"""Tables of what was measured and how: settings, differences between arms, switches, proofs, doubts."""

from __future__ import annotations

from collections.abc import Sequence

from battery.analyse.findings import Findings
from battery.analyse.speed import MAIN
from battery.ledger.claims import rule
from battery.ledger.plan import Plan
from battery.render import replaying, sources, words
from battery.render.marks import cited
from battery.render.tables import corrections
from battery.render.words import table

MOST_SEEDS = 500
"""Seeds of a campaign that a report lists one by one."""


def method(findings: Findings) -> str:
    """The settings, one per row."""
    plan, sampler = findings.plan, findings.plan.sampler
    most = f"{'at most ' if findings.stopped.planned else ''}{plan.blocks}"
    top_k = sampler.top_k or "not cut"
    rows: list[tuple[str, str]] = [
        ("plan", f"{plan.name}, digest {findings.plan_digest[:16]}"),
        *replaying.method(findings),
        ("contexts", ", ".join(f"{rung:,}" for rung in plan.ladder) + f" tokens; {_mix(plan)}"),
        ("blocks", f"{findings.blocks_complete} complete of {most}; every block has one fresh process per arm"),
        ("stopping rule", rule(plan, len(findings.arms))),
        ("order", " · ".join("-".join(block) for block in findings.order)),
        ("coin", findings.coin),
        ("seeds", f"campaign {findings.seed}; {plan.seeds} {_fresh(findings)}, common to its arms ({_of(findings)})"),
        ("sentinel", "one prompt in every window, for drift and determinism only" if plan.sentinel else "none"),
        ("sampler asked", f"temperature {sampler.temperature:g}, top-p {sampler.top_p:g}, top-k {top_k}"),
        ("output", f"{sampler.min_tokens} to {sampler.max_tokens} tokens"),
        ("primary endpoint", f"{findings.measure(plan.primary.metric).title} at {plan.anchor:,} tokens of context"),
        ("margins", _margins(findings)),
        ("intervals", f"{words.confidence(findings)}, t over blocks"),
        ("tests", f"t over blocks; {corrections(findings)}"),
        ("run", words.counts(findings.journal)),
        ("receipts", f"{findings.receipts}, {findings.first_started or '—'} to {findings.last_ended or '—'}"),
    ]  # fmt: skip
    for arm in findings.arms:
        name = arm.arm.name
        why = arm.arm.why or "no reason given"
        rows.append((f"arm {name}", f"{arm.arm.backend}, digest {arm.digest[:16]}; {why}"))
        rows.append((f"model of {name}", _pairs(arm.model) or arm.arm.model))
        rows.append((f"builds of {name}", _pairs(arm.versions) or "not told"))
    rows.append(("machine", _pairs(findings.machine) or "not told"))
    rows.append(("battery", _pairs(findings.battery) or "not told"))
    rows.append(("baseline", _pairs(findings.baseline) or "not taken"))
    return table(["setting", "value"], rows)


def _of(findings: Findings) -> str:
    """The seeds of every block; beyond MOST_SEEDS of them, those in a row by the first, the last and their number."""
    told = []
    for block, seeds in findings.seeds.items():
        row = seeds == tuple(range(seeds[0], seeds[0] + len(seeds))) if seeds else False
        short = row and sum(map(len, findings.seeds.values())) > MOST_SEEDS
        listed = f"{seeds[0]} to {seeds[-1]}, {len(seeds)}" if short else ", ".join(map(str, seeds))
        told.append(f"{block}: {listed}")
    return "; ".join(told)


def _mix(plan: Plan) -> str:
    """The kind of text, or all kinds that share the seeds."""
    if len(plan.mix) == 1:
        return f"workload {plan.mix[0]}"
    return f"workloads {', '.join(plan.mix)}, each {plan.seeds // len(plan.mix)} of the seeds of a block"


def _fresh(findings: Findings) -> str:
    """Whether every block has prompts of its own."""
    source = findings.plan.replayed
    return "new per block" if source is None or source.block is None else "in every block the same"


def _margins(findings: Findings) -> str:
    """The practical margin of every metric that the ladder's tables show."""
    margins = findings.plan.margins
    return ", ".join(
        f"{findings.measure(name).title} {100 * margins.of(name):g} %" for name in MAIN
    )


def _pairs(found: dict[str, object]) -> str:
    """A table of facts on one line."""
    return "; ".join(f"{path} {value}" for path, value in words.flat(found))


def differences(findings: Findings) -> str:
    """What differs between each candidate and the control, and whether the arm files say so."""
    rows = [
        (one.candidate, f"`{one.what}`", one.control_has, one.candidate_has, "yes" if one.declared else "**no**")
        for one in findings.differences
    ]  # fmt: skip
    if not rows:
        return "Nothing: the arms are the same but for their names."
    return table(["arm", "what", f"{findings.control} has", "arm has", "declared"], rows)


def switches(findings: Findings) -> str:
    """Every switch that is asked for or did anything, then those that were off throughout."""
    quiet = [one for one in findings.switches if not one.asked and set(one.verdicts) == {"off"}]
    rows = [
        (
            one.arm, f"`{one.name}`", "yes" if one.asked else "no", words.counts(one.states),
            words.counts(one.verdicts), one.coverage or "not told", one.exactness or "not told",
            f"`{one.kill}`" if one.kill else "not told", one.reason or "",
        )
        for one in findings.switches
        if one not in quiet
    ]  # fmt: skip
    head = [
        "arm", "switch", "asked", "state (receipts)", "verdict (receipts)", "coverage", "exactness", "off with",
        "reason",
    ]  # fmt: skip
    parts = [table(head, rows) if rows else "No arm asks for a switch that an engine told of."]
    for arm in findings.arms:
        names = [f"`{one.name}`" for one in quiet if one.arm == arm.arm.name]
        if names:
            parts.append(f"Off in every timed request of {arm.arm.name}: {', '.join(names)}.")
        known = {one.name for one in findings.switches if one.arm == arm.arm.name}
        unseen = [f"`{name}`" for name in arm.arm.asked if name not in known]
        if unseen:
            parts.append(
                f"Asked for by {arm.arm.name}, never told of after a request: {', '.join(unseen)}."
            )
    return "\n\n".join(parts)


def proofs(findings: Findings) -> str:
    """Per arm: how many timed requests were cold, sampled as asked, engaged, and where memory was read.

    Cells that were never sent prove nothing and are not counted.
    """
    rows = [
        (
            one.arm.name, words.counts(one.cold), words.counts(one.honoured), words.counts(one.engagement),
            words.counts(one.memory),
        )
        for one in findings.arms
    ]  # fmt: skip
    head = ["arm", "cold prefill", "sampler", "switches", "memory source"]
    return table(head, rows)


def doubts(findings: Findings) -> str:
    """Validity findings, gravest first, with evidence and remedy."""
    rows = [
        (
            one.severity,
            one.what,
            cited(_receipts(one.evidence), sources.listed(one.what, one.evidence)),
            one.remedy,
        )
        for one in findings.doubts
    ]
    if not rows:
        return "None."
    return table(["severity", "finding", "receipts", "remedy"], rows)


def _receipts(numbers: Sequence[int], most: int = 6) -> str:
    """Receipt sequences, shortened."""
    told = ", ".join(str(number) for number in numbers[:most])
    return f"{told} and {len(numbers) - most} more" if len(numbers) > most else told or "—"
