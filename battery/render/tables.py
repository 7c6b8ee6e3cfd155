"""One function per Markdown table. Every number comes from Findings; nothing is computed here but units."""

from __future__ import annotations

from collections.abc import Sequence

from battery.analyse.findings import Findings
from battery.analyse.sensitivity import Sensitivity
from battery.analyse.speed import Comparison
from battery.analyse.stats import FEWEST_BLOCKS, MOST_BLOCKS
from battery.render import quality, sources, words
from battery.render.marks import cited
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
    source = sources.comparison(findings, one)
    if one.estimate is None or one.verdict.word in ("not comparable", "invalid"):
        return f"{what} {cited(f'{mark}{one.verdict.word}{mark}', source)}: {one.verdict.why}."
    blocks = f"{one.estimate.blocks} blocks" if one.estimate.blocks != 1 else "1 block"
    basis = (
        f"{words.interval(one.estimate)} ({words.confidence(findings)} interval;"
        f" {_headline_p(findings, one)}{blocks}, {one.pairs} pairs of requests; margin {100 * one.margin:g} %)"
    )
    if one.verdict.word == "pilot":
        return f"{what} {cited(basis, source)}. Pilot: no verdict below {FEWEST_BLOCKS} blocks."
    tail = f": {one.verdict.why}" if one.verdict.why else ""
    told = f"{mark}{one.verdict.word}{mark} {one.verdict.qualifier}".strip()
    told = quality.beside(findings, one, told, mark)
    screened = "; exploratory, one of the questions of a screen" if one.exploratory else ""
    return f"{what} {basis}: {cited(told, source)}{tail}{screened}."


def _headline_p(findings: Findings, one: Comparison) -> str:
    """The p that the verdict rests on, and its correction; nothing where there is no verdict yet."""
    if one.p_corrected is None or findings.pilot or findings.status != "complete":
        return ""
    told = words.pvalue(one.p_corrected)
    after = f" after {one.correction}" if one.correction else ""
    return f"p {told}{after}; "


def corrections(findings: Findings) -> str:
    """How p-values are corrected, as a clause."""
    if findings.screen:
        return (
            "exploratory: Benjamini-Hochberg within a metric over all candidates and contexts, with no uncorrected"
            " endpoint"
        )
    tests = len(findings.primary)
    first = (
        f"the primary endpoint's across its {tests} candidates"
        if tests > 1
        else "the primary endpoint is one test and stays uncorrected"
    )
    return f"Holm within a metric across contexts; {first}"


def by_context(findings: Findings, metric: str) -> str:
    """One metric along the ladder: every arm, and every candidate's ratio to the control with its verdict."""
    unit, level = words.unit(findings, metric), words.confidence(findings)
    head = ["context"]
    for arm in findings.arms:
        part = ", control" if arm.arm.name == findings.control and findings.candidates else ""
        head.append(f"{arm.arm.name}{part} ({unit})")
    for candidate in findings.candidates:
        head += [f"{candidate} / {findings.control} [{level}]", "pairs", "verdict"]
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
            source = sources.comparison(findings, one)
            row += [
                cited(words.interval(one.estimate), source),
                f"{one.pairs} of {one.planned}",
                cited(words.verdict(one), source),
            ]
        rows.append(row)
    return table(head, rows)


def _level_or_outcome(findings: Findings, arm: str, metric: str, rung: int) -> str:
    """The value, and beside it whatever did not end ok, as k of n."""
    told, own = findings.outcome(arm, rung), findings.level(arm, metric, rung)
    total = told.ok + sum(told.ended.values())
    failed = ", ".join(f"{word} {count} of {total}" for word, count in told.ended.items())
    source = sources.level(findings, own)
    if own is None or own.value is None:
        return cited(failed or words.level(own), source)
    value = cited(words.level(own, words.requests(findings)), source)
    return f"{value}; {cited(failed, sources.outcomes(told))}" if failed else value


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
            one.candidate, findings.measure(one.metric).title,
            cited(words.interval(one.estimate), sources.ladder(findings, one)),
            one.estimate.blocks if one.estimate else 0,
            ", ".join(f"{rung:,}" for rung in one.rungs) or one.why, one.standing or "stands",
        )
        for one in findings.ladders
    ]  # fmt: skip
    ratio = f"ratio over rungs [{words.confidence(findings)}]"
    return table(["arm", "metric", ratio, "blocks", "rungs", "standing"], rows)


def statistics(findings: Findings) -> str:
    """The tests behind every verdict."""
    rows = []
    for one in findings.comparisons:
        estimate = one.estimate
        rows.append(
            (
                one.candidate, findings.measure(one.metric).title,
                cited(f"{one.rung:,}" + (" (primary)" if one.primary else ""), sources.comparison(findings, one)),
                estimate.blocks if estimate else 0,
                words.figure(100 * estimate.sd, 3) if estimate and estimate.sd is not None else "—",
                words.pvalue(estimate.p if estimate else None), words.pvalue(one.p_corrected),
                words.pvalue(one.tost_p_corrected), words.pvalue(one.beyond_p_corrected), one.correction or "none",
                words.percent(one.detectable) if one.detectable is not None else "—",
                one.blocks_needed or (f"> {MOST_BLOCKS}" if one.detectable else "—"),
            )
        )  # fmt: skip
    head = [
        "arm", "metric", "context", "blocks", "sd of blocks, %", "p", "p corrected", "equivalence p corrected",
        "margin p corrected", "correction", "found at 80 %", "blocks for the margin",
    ]  # fmt: skip
    return table(head, rows)


def sensitivities(findings: Findings) -> str:
    """Every main estimate by other methods; no verdict uses them."""
    rows = []
    for one in findings.comparisons:
        other, estimate = one.sensitivity or Sensitivity(), one.estimate
        if estimate is None:
            continue
        rows.append(
            (
                one.candidate, findings.measure(one.metric).title, f"{one.rung:,}",
                cited(words.interval(estimate), sources.comparison(findings, one)),
                words.pvalue(estimate.p), words.pvalue(estimate.sign_flip_p), words.pvalue(other.wilcoxon_p),
                f"{words.change(other.bca_low)} to {words.change(other.bca_high)}" if other.bca_low else "—",
                words.change(other.median_ratio), words.pvalue(other.median_p),
            )
        )  # fmt: skip
    level = words.confidence(findings)
    head = [
        "arm", "metric", "context", f"ratio [{level}]", "p", "sign-flip p", "Wilcoxon p",
        f"bootstrap BCa [{level}]", "by medians", "p by medians",
    ]  # fmt: skip
    return table(head, rows) if rows else ""
