"""Section 1.6: the two factors of a speculative decode rate, and which of them moved."""

from __future__ import annotations

from battery.analyse.findings import Findings
from battery.analyse.mechanism import Mechanism
from battery.analyse.speed import FACTORS
from battery.render import sources, tradeoff, words
from battery.render.chart import embedded
from battery.render.marks import cited
from battery.render.words import table


def section(findings: Findings) -> str:
    """Both tables and the sentences; empty where no server counts steps."""
    found = factors(findings)
    if not found:
        return ""
    parts = [
        "### 1.6 Speculation",
        "Decode rate = tokens per step / seconds per step. The first depends on the text that the seed led to, the"
        " second is the speed of the code.",
        *_pictures(findings),
        found,
    ]
    if findings.mechanisms:
        parts += [
            "Which of the two moved, by their own verdicts. The remainder is decode's ratio / (tokens per step's /"
            " seconds per step's): what lies between the client's clock and the server's.",
            ratios(findings),
            "\n".join(f"- {sentence(one)}" for one in findings.mechanisms),
        ]
    return "\n\n".join(parts)


def _pictures(findings: Findings) -> list[str]:
    """The chart of both factors, where section 1.6.1 has none by kind of text."""
    if findings.by_workload:
        return []
    return [embedded(findings, one) for one in tradeoff.charts(findings).values()]


def factors(findings: Findings) -> str:
    """Every arm's own factors by context; empty where no server counts them."""
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
                    *(
                        cited(
                            words.level(one, words.requests(findings)), sources.level(findings, one)
                        )
                        for one in found
                    ),
                ]
            )
    if not rows:
        return ""
    titles = [
        f"{findings.measure(m).title} ({words.unit(findings, m)})" for m in (*known, "decode")
    ]
    return table(["arm", "context", *titles], rows)


def ratios(findings: Findings) -> str:
    """Every candidate's ratios to the control, with what they do not explain."""
    rows = [
        (
            one.candidate, f"{one.rung:,}",
            *(
                cited(words.interval(told), sources.mechanism(findings, one, metric))
                for metric, told in (
                    ("decode", one.decode), ("tokens_per_step", one.tokens_per_step),
                    ("seconds_per_step", one.seconds_per_step),
                )
            ),
            words.change(one.remainder, True), one.moved,
        )
        for one in findings.mechanisms
    ]  # fmt: skip
    level = words.confidence(findings)
    columns = [f"{name} [{level}]" for name in ("decode", "tokens per step", "seconds per step")]
    head = ["arm", "context", *columns, "remainder", "moved"]
    return table(head, rows)


def sentence(one: Mechanism) -> str:
    """Which factor moved, and what that means for a step."""
    at = f"{one.candidate} at {one.rung:,}"
    gain, cost = words.interval(one.tokens_per_step), words.interval(one.seconds_per_step)
    gains = "more" if one.tokens_per_step and one.tokens_per_step.ratio > 1 else "less"
    costs = "more" if one.seconds_per_step and one.seconds_per_step.ratio > 1 else "less"
    if one.moved == "both":
        return (
            f"{at}: tokens per step moved ({gain}), seconds per step too ({cost}): {gains} is gained per step and"
            f" each step costs {costs}."
        )
    if one.moved == "tokens per step":
        return (
            f"{at}: tokens per step moved ({gain}), seconds per step stayed within the margin ({cost}): {gains} is"
            " gained per step, at the same cost."
        )
    if one.moved == "seconds per step":
        return (
            f"{at}: seconds per step moved ({cost}), tokens per step stayed within the margin ({gain}): each step"
            f" costs {costs}, and gains the same."
        )
    if one.moved == "neither":
        return f"{at}: neither moved beyond the margin (tokens per step {gain}, seconds per step {cost})."
    return f"{at}: which of the two moved cannot be told: {one.why}."
