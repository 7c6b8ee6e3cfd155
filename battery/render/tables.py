"""One function per Markdown table. Every number comes from Findings; nothing is computed here but units."""

from __future__ import annotations

from collections.abc import Sequence

from battery.analyse.findings import Findings
from battery.analyse.speed import FACTORS, MAIN, Comparison
from battery.analyse.stats import FEWEST_BLOCKS, MOST_BLOCKS
from battery.render import words
from battery.render.words import table


def headline(findings: Findings, mark: str = "") -> str:
    """The primary endpoint in one line per candidate: estimate, interval, blocks, margin, verdict (within `mark`s)."""
    if not findings.candidates:
        return f"One arm ({findings.control}): there is nothing to compare; section 1 has its own numbers."
    return "\n".join(_headline(findings, one, mark) for one in findings.primary) or (
        f"The primary endpoint, {findings.plan.primary.metric}, is no metric that arms are compared by."
    )


def _headline(findings: Findings, one: Comparison, mark: str) -> str:
    """One candidate's line."""
    metric = findings.measure(one.metric).title
    what = f"{one.candidate} against {one.control}, {metric} at {one.rung:,} tokens of context:"
    if one.estimate is None or one.verdict.word in ("not comparable", "invalid"):
        return f"{what} {mark}{one.verdict.word}{mark}: {one.verdict.why}."
    blocks = f"{one.estimate.blocks} blocks" if one.estimate.blocks != 1 else "1 block"
    basis = (
        f"{words.interval(one.estimate)} (95 % interval; {_headline_p(findings, one)}{blocks}, {one.pairs} pairs of"
        f" requests; margin {100 * one.margin:g} %)"
    )
    if one.verdict.word == "pilot":
        return f"{what} {basis}. Pilot: no verdict below {FEWEST_BLOCKS} blocks."
    tail = f": {one.verdict.why}" if one.verdict.why else ""
    told = f"{mark}{one.verdict.word}{mark} {one.verdict.qualifier}".strip()
    return f"{what} {basis}: {told}{tail}."


def _headline_p(findings: Findings, one: Comparison) -> str:
    """The p that the verdict rests on, and its correction; nothing where there is no verdict yet."""
    if one.p_corrected is None or findings.pilot or findings.status != "complete":
        return ""
    told = words.pvalue(one.p_corrected)
    tests = len(findings.primary)
    holm = f" after Holm over {tests} candidates" if tests > 1 else ""
    return f"p {told}{holm}; "


def primary_tests(findings: Findings) -> str:
    """How the primary endpoint is corrected: it is one test per candidate."""
    tests = len(findings.primary)
    if tests > 1:
        return f"the primary endpoint's across its {tests} candidates"
    return "the primary endpoint is one test and stays uncorrected"


def by_context(findings: Findings, metric: str) -> str:
    """One metric along the ladder: every arm, and every candidate's ratio to the control with its verdict."""
    unit = words.unit(findings, metric)
    head = ["context"]
    for arm in findings.arms:
        part = ", control" if arm.arm.name == findings.control and findings.candidates else ""
        head.append(f"{arm.arm.name}{part} ({unit})")
    for candidate in findings.candidates:
        head += [f"{candidate} / {findings.control} [95 %]", "pairs", "verdict"]
    rows = []
    for rung in findings.plan.ladder:
        row = [f"{rung:,}"]
        for arm in findings.arms:
            row.append(_level_or_outcome(findings, arm.arm.name, metric, rung))
        for candidate in findings.candidates:
            one = findings.comparison(candidate, metric, rung)
            if one is None:
                row += ["—"] * 3
                continue
            row += [
                words.interval(one.estimate),
                f"{one.pairs} of {one.planned}",
                words.verdict(one),
            ]
        rows.append(row)
    return table(head, rows)


def _level_or_outcome(findings: Findings, arm: str, metric: str, rung: int) -> str:
    """The value, and beside it whatever did not end ok, as k of n."""
    told, own = findings.outcome(arm, rung), findings.level(arm, metric, rung)
    total = told.ok + sum(told.ended.values())
    failed = ", ".join(f"{word} {count} of {total}" for word, count in told.ended.items())
    if own is None or own.value is None:
        return failed or words.level(own)
    value = words.level(own, _requests(findings))
    return f"{value}; {failed}" if failed else value


def _requests(findings: Findings) -> int:
    """How many timed requests every arm has at a rung, however they ended."""
    return findings.blocks_complete * findings.plan.seeds


def whys(findings: Findings, metrics: Sequence[str]) -> str:
    """Why verdicts of these metrics are no stronger, as a list; empty where there is nothing to say."""
    lines: dict[str, list[str]] = {}
    for one in findings.comparisons:
        if one.metric in metrics and one.verdict.why and one.verdict.word != "pilot":
            at = f"{one.candidate} {findings.measure(one.metric).title} at {one.rung:,}"
            lines.setdefault(f"{one.verdict.word}: {one.verdict.why}", []).append(at)
    return "\n".join(f"- {', '.join(where)}: {why}." for why, where in lines.items())


def over_ladder(findings: Findings) -> str:
    """Each candidate over all rungs: geometric mean of the rung ratios per block, then one interval."""
    rows = [
        (
            one.candidate, findings.measure(one.metric).title, words.interval(one.estimate),
            one.estimate.blocks if one.estimate else 0,
            ", ".join(f"{rung:,}" for rung in one.rungs) or one.why, one.standing or "stands",
        )
        for one in findings.ladders
    ]  # fmt: skip
    return table(["arm", "metric", "ratio over rungs [95 %]", "blocks", "rungs", "standing"], rows)


def statistics(findings: Findings) -> str:
    """The tests behind every verdict, with the sensitivity figures that no verdict uses."""
    rows = []
    for one in findings.comparisons:
        estimate = one.estimate
        rows.append(
            (
                one.candidate, findings.measure(one.metric).title,
                f"{one.rung:,}" + (" (primary)" if one.primary else ""),
                estimate.blocks if estimate else 0,
                words.figure(100 * estimate.sd, 3) if estimate and estimate.sd is not None else "—",
                words.pvalue(estimate.p if estimate else None), words.pvalue(one.p_corrected),
                words.pvalue(one.tost_p_corrected), words.pvalue(estimate.sign_flip_p if estimate else None),
                f"{100 * one.detectable:.2g} %" if one.detectable is not None else "—",
                one.blocks_needed or (f"> {MOST_BLOCKS}" if one.detectable else "—"),
            )
        )  # fmt: skip
    head = [
        "arm", "metric", "context", "blocks", "sd of blocks, %", "p", "p (Holm)", "equivalence p (Holm)",
        "sign-flip p", "found at 80 %", "blocks for the margin",
    ]  # fmt: skip
    return table(head, rows)


def long_contexts(findings: Findings) -> str:
    """Every arm and rung where a cell did not end ok: outcome, phase, tokens that came, peak, cap, reason."""
    rows = []
    for one in findings.outcomes:
        total = one.ok + sum(one.ended.values())
        if not one.ended and total:
            continue
        rows.append(
            (
                one.arm, f"{one.rung:,}", f"{one.ok} of {total} (planned {one.planned})",
                words.counts(one.ended) if total else "not reached", ", ".join(one.phases),
                "—" if one.tokens is None else one.tokens,
                f"> {words.gigabytes(one.peak_over)}" if one.peak_over else "—",
                words.gigabytes(one.cap), "; ".join(one.reasons),
            )
        )  # fmt: skip
    if not rows:
        return "Every cell of every arm ended `ok`."
    head = [
        "arm",
        "context",
        "ok",
        "otherwise",
        "phase",
        "tokens that came",
        "peak",
        "cap",
        "reason",
    ]
    return table(head, rows)


def windows(findings: Findings) -> str:
    """The windows in the order they ran, abandoned ones too."""
    metric, rung = findings.plan.primary.metric, findings.plan.anchor
    known = {
        number: value
        for one in findings.levels
        if (one.metric, one.rung) == (metric, rung)
        for number, value in one.windows
    }
    rows = [
        (
            one.arm, one.number, one.block,
            words.amount(known.get(one.number), metric) if one.counted else "not pooled",
            f"{one.ok} of {one.cells}" + (f" ({words.counts(one.ended)})" if one.ended else ""),
            "—" if one.temp_c is None else f"{one.temp_c:.1f}",
            words.figure(one.calibration_s, 3), words.seconds(one.waited_s),
        )
        for one in findings.windows
    ]  # fmt: skip
    value = f"{findings.measure(metric).title} at {rung:,} ({words.unit(findings, metric)})"
    head = [
        "arm",
        "window",
        "block",
        value,
        "cells ok",
        "°C before",
        "calibration, s",
        "gate waited",
    ]
    return table(head, rows)


def blocks(findings: Findings) -> str:
    """The ratio of every block at the primary endpoint: the numbers that the interval is made of."""
    columns = [one for one in findings.primary if one.by_block]
    if not columns:
        return "No block has a pair at the primary endpoint."
    known = [dict(one.by_block) for one in columns]
    rows = [
        [block, "-".join(findings.order[block - 1]), *(words.change(ratios.get(block), fine=True) for ratios in known)]
        for block in sorted({block for ratios in known for block in ratios})
    ]  # fmt: skip
    head = ["block", "order", *(f"{one.candidate} / {one.control}" for one in columns)]
    return table(head, rows)


def speculation(findings: Findings) -> str:
    """The factors of a speculative rate where servers count them; empty where none does."""
    known = [
        m for m in FACTORS if any(x.metric == m and x.value is not None for x in findings.levels)
    ]
    rows = []
    for arm in findings.arms if known else ():
        for rung in findings.plan.ladder:
            found = [findings.level(arm.arm.name, metric, rung) for metric in (*known, "decode")]
            rows.append(
                [
                    arm.arm.name,
                    f"{rung:,}",
                    *(words.level(one, _requests(findings)) for one in found),
                ]
            )
    if not rows:
        return ""
    titles = [
        f"{findings.measure(m).title} ({words.unit(findings, m)})" for m in (*known, "decode")
    ]
    return table(["arm", "context", *titles], rows)


def method(findings: Findings) -> str:
    """The settings, one per row."""
    plan, sampler = findings.plan, findings.plan.sampler
    top_k = sampler.top_k or "not cut"
    per_block = "; ".join(
        f"{block}: {', '.join(map(str, seeds))}" for block, seeds in findings.seeds.items()
    )
    rows: list[tuple[str, str]] = [
        ("plan", f"{plan.name}, digest {findings.plan_digest[:16]}"),
        ("contexts", ", ".join(f"{rung:,}" for rung in plan.ladder) + f" tokens; workload {plan.workload}"),
        ("blocks", f"{findings.blocks_complete} complete of {plan.blocks}; every block has one fresh process per arm"),
        ("order", " · ".join("-".join(block) for block in findings.order)),
        ("coin", findings.coin),
        ("seeds", f"campaign {findings.seed}; {plan.seeds} new per block, common to its arms ({per_block})"),
        ("sentinel", "one prompt in every window, for drift and determinism only" if plan.sentinel else "none"),
        ("sampler asked", f"temperature {sampler.temperature:g}, top-p {sampler.top_p:g}, top-k {top_k}"),
        ("output", f"{sampler.min_tokens} to {sampler.max_tokens} tokens"),
        ("primary endpoint", f"{findings.measure(plan.primary.metric).title} at {plan.anchor:,} tokens of context"),
        ("margins", _margins(findings)),
        ("intervals", "95 %, t over blocks; a verdict needs p below .05"),
        ("tests", f"t over blocks; Holm within a metric across contexts, {primary_tests(findings)}"),
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


def _margins(findings: Findings) -> str:
    """The practical margin of every metric that arms are compared by."""
    plan = findings.plan
    return ", ".join(
        f"{findings.measure(name).title} {100 * plan.margins.of(name):g} %" for name in MAIN
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
        (one.severity, one.what, _receipts(one.evidence), one.remedy) for one in findings.doubts
    ]
    if not rows:
        return "None."
    return table(["severity", "finding", "receipts", "remedy"], rows)


def _receipts(numbers: Sequence[int], most: int = 6) -> str:
    """Receipt sequences, shortened."""
    told = ", ".join(str(number) for number in numbers[:most])
    return f"{told} and {len(numbers) - most} more" if len(numbers) > most else told or "—"
