"""Section 1.6.1: each kind of text by itself, and where drafts pay and where they cost, in one sentence."""

from __future__ import annotations

from collections.abc import Sequence

from battery.analyse.findings import Findings
from battery.analyse.speed import Comparison, Level
from battery.analyse.stats import Word
from battery.analyse.workloads import ByWorkload
from battery.render import sources, tradeoff, words
from battery.render.chart import embedded
from battery.render.marks import Source, cited
from battery.render.words import table

OPENING = "Where speculation pays and where it costs"
"""How the sentence begins, wherever it is quoted."""
_ON: dict[Word, str] = {
    "faster": "pays on",
    "slower": "costs on",
    "equivalent": "neither pays nor costs on",
    "undecided": "stays undecided on",
    "pilot": "has no verdict on",
    "not comparable": "cannot be judged on",
    "invalid": "has no valid verdict on",
}
"""What a verdict on decode means for drafts, in the order in which a sentence tells it."""


def head(findings: Findings) -> list[str]:
    """A note for the top of a page whose figures are over several kinds of text; none for one."""
    kinds = findings.by_workload
    if not kinds:
        return []
    return [
        f"**Several workloads:** the figures are over equal shares of {_listed([k.workload for k in kinds])}, but for"
        " section 1.6.1, which has each by itself."
    ]


def section(findings: Findings) -> str:
    """The chart, the table and the sentence; empty for a campaign of one kind of text."""
    if not findings.by_workload:
        return ""
    told = sentence(findings)
    parts = [
        "### 1.6.1 Speculation by workload",
        *(embedded(findings, one) for one in tradeoff.charts(findings).values()),
        *([told] if told else []),
        "Decode on each kind of text: the same windows and the same arms, so that what differs between kinds is the"
        f" text. Ratios with {words.confidence(findings)} t intervals over blocks; verdicts are corrected over all"
        " candidates and kinds. Acceptance, tokens per step and steps/s are the servers' own counts.",
        by_workload(findings),
    ]
    return "\n\n".join(parts)


def by_workload(findings: Findings) -> str:
    """Every kind of text, context and arm: acceptance, both factors of the rate, and decode with its ratio."""
    level, control = words.confidence(findings), findings.control
    rows = [
        _row(findings, kind, arm.arm.name, rung)
        for kind in findings.by_workload
        for rung in findings.plan.ladder
        for arm in findings.arms
    ]
    head = [
        "workload", "context", "arm", "acceptance", "tokens per step", "steps/s",
        f"decode ({words.unit(findings, 'decode')})", f"decode / {control} [{level}]", "pairs", "verdict",
    ]  # fmt: skip
    return table(head, rows)


def _row(findings: Findings, kind: ByWorkload, arm: str, rung: int) -> tuple[str, ...]:
    """One arm on one kind of text."""
    of = words.requests(findings) // len(findings.by_workload)
    one = kind.comparison(arm, "decode", rung)
    source = sources.comparison(findings, one, kind.workload) if one else Source(title="nothing")
    against = (
        (
            cited(words.interval(one.estimate), source),
            f"{one.pairs} of {one.planned}",
            cited(words.verdict(one), source),
        )
        if one
        else ("—",) * 3
    )
    own = {
        name: kind.level(arm, name, rung) for name in ("acceptance", "tokens_per_step", "decode")
    }
    steps = tradeoff.steps_per_second(kind.level(arm, "seconds_per_step", rung))
    told = {
        "acceptance": _proposed(own["acceptance"], of, steps is not None),
        "tokens_per_step": words.level(own["tokens_per_step"], of),
        "decode": words.level(own["decode"], of),
    }
    accepted, gained, decode = (
        cited(text, sources.level(findings, own[name], kind.workload))
        for name, text in told.items()
    )
    per_second = "—" if steps is None else words.figure(steps.value)
    return kind.workload, f"{rung:,}", arm, accepted, gained, per_second, decode, *against


def _proposed(one: Level | None, of: int, counts: bool) -> str:
    """The acceptance rate over the requests with a draft, of all; where a server counts steps and has none, so said."""
    if one is not None and one.value is not None:
        return words.level(one, of)
    return "nothing proposed" if counts else "—"


def sentence(findings: Findings) -> str:
    """Where every arm that drafts pays and where it costs, by the verdicts on decode; empty where no arm drafts.

    At the context of the primary endpoint, against the control, with what else differs between the two: an arm's
    other switches are in the ratio, too.
    """
    rung = findings.plan.anchor
    told = [
        part for candidate in findings.candidates if (part := _candidate(findings, candidate, rung))
    ]
    if not told:
        return ""
    at = f"by decode at {rung:,} tokens of context against {findings.control}"
    return f"{OPENING}, {at}: {'; '.join(told)}."


def _candidate(findings: Findings, candidate: str, rung: int) -> str:
    """One arm's part of the sentence; empty for an arm that never proposed a token."""
    kinds = findings.by_workload
    levels = [kind.level(candidate, "acceptance", rung) for kind in kinds]
    if not any(level and level.value is not None for level in levels):
        return ""
    found: dict[Word, list[str]] = {}
    for kind in kinds:
        one = kind.comparison(candidate, "decode", rung)
        if one is not None:
            found.setdefault(one.verdict.word, []).append(f"{kind.workload}{_figure(one)}")
    parts = [f"{_ON[word]} {_listed(found[word])}" for word in _ON if word in found]
    return f"{candidate} {', '.join(parts)}"


def _figure(one: Comparison) -> str:
    """The ratio and its interval in brackets; nothing where there is none."""
    return f" ({words.interval(one.estimate)})" if one.estimate is not None else ""


def _listed(parts: Sequence[str]) -> str:
    """Parts as a list in words."""
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
