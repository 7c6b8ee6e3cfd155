"""Tables of how the campaign went: outcomes along the ladder, windows in order, ratios block by block."""

from __future__ import annotations

from battery.analyse.findings import Findings
from battery.render import words
from battery.render.words import table


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
