"""Tables of how the campaign went: outcomes along the ladder, windows in order, ratios block by block."""

from __future__ import annotations

from battery.analyse.facts import Outcomes
from battery.analyse.findings import Findings
from battery.analyse.speed import Comparison
from battery.render import sources, words
from battery.render.marks import cited
from battery.render.words import table


def long_contexts(findings: Findings) -> str:
    """Every arm and rung where a cell did not end ok: outcome, phase, tokens that came, peak, cap, reason."""
    rows = []
    for one in findings.outcomes:
        total = one.ok + sum(one.ended.values())
        if not one.ended and not one.oom_besides and total:
            continue
        rows.append(
            (
                one.arm, f"{one.rung:,}",
                cited(f"{one.ok} of {total} (planned {one.planned})", sources.outcomes(one)), _otherwise(one),
                ", ".join(one.phases),
                "—" if one.tokens is None else one.tokens,
                f"> {words.gigabytes(one.peak_over)}" if one.peak_over else "—",
                words.gigabytes(one.cap), "; ".join(one.reasons),
            )
        )  # fmt: skip
    if not rows:
        return "Every cell of the attempts that count ended `ok` (sentinels apart)."
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


def _otherwise(one: Outcomes) -> str:
    """How the cells that did not end ok ended, and how many ran out of memory in attempts that do not count."""
    total, again = one.ok + sum(one.ended.values()), len(one.oom_besides)
    told = [words.counts(one.ended)] if one.ended else [] if total else ["not reached"]
    if again:
        told.append(
            f"oom {again} in {'an attempt that was' if again == 1 else 'attempts that were'} measured again"
        )
    return ", ".join(told)


def lengths(findings: Findings) -> str:
    """Tokens of the answers against the control's; empty where every pair is equally long."""
    here = [one for one in findings.lengths if one.unequal]
    rows = [
        (
            one.candidate, f"{one.rung:,}", words.figure(one.control_tokens, 4), words.figure(one.candidate_tokens, 4),
            words.interval(one.estimate), f"{one.unequal} of {one.pairs}", words.pvalue(one.p_corrected),
            "differ" if one.differs else "not shown to differ",
        )
        for one in here
    ]  # fmt: skip
    if not rows:
        return ""
    head = [
        "arm", "context", f"tokens of {findings.control}", "tokens of the arm",
        f"ratio [{words.confidence(findings)}]", "unequal pairs", "p corrected", "lengths",
    ]  # fmt: skip
    how = (
        "Lengths of the answers on the same prompts, those that ended early among them. Decode of an unequal pair is"
        " timed over the tokens that both produced."
    )
    return f"{how}\n\n{table(head, rows)}"


def fits(findings: Findings) -> str:
    """Per context at which any cell ran out of memory: how often each arm fitted, by cells and by launches."""
    short = {
        one.rung for one in findings.fits if one.fit < one.tried or one.launches_fit < one.launches
    }
    if not short:
        return "Every cell that was tried to its end fitted into memory (sentinels apart)."
    level = words.confidence(findings)
    rows = [
        (
            one.arm, f"{one.rung:,}", f"{one.fit} of {one.tried}", one.inherited or "—", words.counts(one.other),
            f"{one.launches_fit} of {one.launches}",
            "—" if one.low is None or one.high is None else f"{100 * one.low:.0f}–{100 * one.high:.0f}",
            words.pvalue(one.barnard_p), one.claim + (f": {one.why}" if one.why else ""),
        )
        for one in findings.fits
        if one.rung in short
    ]  # fmt: skip
    head = [
        "arm", "context", "cells that fit", "not tried", "ended otherwise", "launches that fit",
        f"share of launches, % [{level}]", "p against the control", "claim",
    ]  # fmt: skip
    how = (
        "Which contexts fit. A launch fits where all its cells did; the interval is Wilson's and p Barnard's, both"
        " on launches, since the cells of one launch are not independent. A context fits if every cell did, in two"
        " launches or more. Cells that were not tried inherited the end of their window and count nowhere. A launch of"
        " an attempt that was measured again counts where it ran out of memory."
    )
    return f"{how}\n\n{table(head, rows)}"


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
            cited(
                words.amount(known.get(one.number), metric) if one.counted else "not pooled",
                sources.window(findings, one),
            ),
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
        [
            block, "-".join(findings.order[block - 1]),
            *(_ratio(findings, *each, block) for each in zip(columns, known, strict=True)),
        ]
        for block in sorted({block for ratios in known for block in ratios})
    ]  # fmt: skip
    head = ["block", "order", *(f"{one.candidate} / {one.control}" for one in columns)]
    return table(head, rows)


def _ratio(findings: Findings, one: Comparison, ratios: dict[int, float], block: int) -> str:
    """The ratio of one block."""
    told = words.change(ratios.get(block), fine=True)
    return cited(told, sources.block(findings, one, block, told))
