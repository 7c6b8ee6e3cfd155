"""Campaigns of the same arms on several machines or in several sessions: one ratio per candidate, metric and rung.

Every campaign is analysed by itself first; what it may not say alone it may not add either, and is left out with its
reason.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import msgspec
import scipy

from battery.analyse import likeness, pooling, speed, stats
from battery.analyse.findings import Findings
from battery.analyse.pooling import Pooled
from battery.analyse.speed import Comparison
from battery.analyse.stats import Estimate, Verdict


class Study(msgspec.Struct, frozen=True, kw_only=True):
    """One campaign's part in a comparison."""

    campaign: str
    ratio: float
    low: float
    high: float
    blocks: int
    se: float
    """Of its mean log ratio: sd/√K."""


class Combined(msgspec.Struct, frozen=True, kw_only=True):
    """One candidate against the control over campaigns, one metric, one rung."""

    candidate: str
    metric: str
    rung: int
    primary: bool
    """Whether every campaign that adds to it declared it as its endpoint."""
    margin: float
    studies: tuple[Study, ...]
    left_out: tuple[tuple[str, str], ...]
    """Campaign and why it adds nothing."""
    pooled: Pooled | None
    p_corrected: float | None = None
    correction: str = ""
    """What the p-values went through, and over how many; nothing where it is one test."""
    tost_p: float | None = None
    tost_p_corrected: float | None = None
    verdict: Verdict = Verdict(word="undecided")


class Campaigned(msgspec.Struct, frozen=True, kw_only=True):
    """One of the campaigns that were named."""

    campaign: str
    created: str
    plan: str
    machine: str
    seal: str | None


class Combination(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that `combine` tells."""

    control: str
    candidates: tuple[str, ...]
    alpha: float
    campaigns: tuple[Campaigned, ...]
    left_out: tuple[tuple[str, str], ...]
    """Campaigns that add nothing at all, and why."""
    warnings: tuple[str, ...]
    comparisons: tuple[Combined, ...]

    @property
    def primary(self) -> tuple[Combined, ...]:
        """The declared endpoint, once per candidate."""
        return tuple(one for one in self.comparisons if one.primary)


def combine(named: Mapping[str, Findings]) -> Combination:
    """The campaigns by their names, combined; the control and the candidates are those of the first.

    Holm corrects as in one campaign: over the rungs of a candidate's metric, the primary endpoint over the candidates.
    """
    first = next(iter(named.values()))
    left: list[tuple[str, str]] = []
    usable: dict[str, Findings] = {}
    for name, one in named.items():
        why = unfit(one, first) or next(
            (twin for other, two in usable.items() if (twin := repeats(one, other, two))), ""
        )
        if why:
            left.append((name, why))
        else:
            usable[name] = one
    alpha = min((one.plan.stopping.alpha for one in usable.values()), default=stats.ALPHA)
    made = [
        _combined(usable, candidate, metric, rung, alpha)
        for candidate in first.candidates
        for metric in speed.COMPARED
        for rung in sorted({rung for one in usable.values() for rung in one.plan.ladder})
        if sum(one.comparison(candidate, metric, rung) is not None for one in usable.values()) > 1
    ]
    return Combination(
        control=first.control, candidates=first.candidates, alpha=alpha,
        campaigns=tuple(
            Campaigned(
                campaign=name, created=one.created, plan=one.plan.name, machine=_machine(one), seal=one.seal
            )
            for name, one in named.items()
        ),
        left_out=tuple(left),
        warnings=(*_replays(list(usable.values())), *likeness.independence(usable), *likeness.differences(usable)),
        comparisons=_judged(made, alpha),
    )  # fmt: skip


def _replays(usable: Sequence[Findings]) -> tuple[str, ...]:
    """That the answer is one on given texts, where it is."""
    sources = [one.plan.replayed.campaign for one in usable if one.plan.replayed]
    if not sources:
        return ()
    return (
        f"all are replays (of {', '.join(sources)}): speed along recorded texts, not of texts that the arms chose",
    )


def unfit(one: Findings, first: Findings) -> str:
    """Why a campaign adds nothing at all."""
    if one.control != first.control:
        return f"its control is {one.control}, not {first.control}"
    if (one.plan.replayed is None) != (first.plan.replayed is None):
        replayed, free = (one, first) if one.plan.replayed else (first, one)
        return f"{replayed.campaign} is a replay, {free.campaign} is not: speed along given texts is another question"
    if one.plan.replayed and one.plan.replayed.block is not None:
        return "a replay of one block's texts: its interval is of the machine alone, and stands for these texts only"
    if one.screen:
        return f"a screen ({one.screen}): its many questions are exploratory, and more of them prove none"
    if one.pilot:
        return f"a pilot of {one.plan.blocks} blocks"
    if one.status != "complete":
        return f"not finished: {one.blocks_complete} of {one.plan.blocks} blocks"
    return ""


def repeats(one: Findings, other: str, two: Findings) -> str:
    """Why a campaign is no new evidence beside another: the same prompts again; a copy is the plainest kind."""
    mine, theirs = (
        {seed for block in each.seeds.values() for seed in block} for each in (one, two)
    )
    if mine & theirs and one.plan.mix == two.plan.mix:
        return (
            f"the prompts of {other} again (campaign seed {one.seed}): repeats are no new evidence"
        )
    return ""


def _combined(
    usable: Mapping[str, Findings], candidate: str, metric: str, rung: int, alpha: float
) -> Combined:
    """One comparison over the campaigns, before correction and verdict."""
    studies: list[Study] = []
    left: list[tuple[str, str]] = []
    known: list[Comparison] = []
    sources: list[str] = []
    for name, one in usable.items():
        found = one.comparison(candidate, metric, rung)
        level = one.level(one.control, metric, rung)
        sources.append(level.source if level else "")
        if why := _no_part(found):
            left.append((name, why))
        elif sources[-1] != sources[0]:
            left.append((name, f"{metric} read from {sources[-1]}, not from {sources[0]}"))
        elif found is not None and found.estimate is not None:
            known.append(found)
            studies.append(_study(name, found.estimate, alpha))
    pooled = None
    if len(studies) > 1:
        pooled = pooling.pool(
            [math.log(study.ratio) for study in studies], [study.se**2 for study in studies],
            [study.blocks for study in studies], alpha,
        )  # fmt: skip
    margin = min((found.margin for found in known), default=0.0)
    return Combined(
        candidate=candidate, metric=metric, rung=rung, margin=margin, studies=tuple(studies), left_out=tuple(left),
        primary=bool(known) and all(found.primary for found in known), pooled=pooled,
        tost_p=pooling.equivalence(pooled, margin) if pooled else None,
    )  # fmt: skip


def _no_part(found: Comparison | None) -> str:
    """Why a campaign adds nothing to one comparison."""
    if found is None:
        return "has no such comparison"
    if found.estimate is None or found.verdict.word in ("invalid", "not comparable", "pilot"):
        return f"{found.verdict.word}: {found.verdict.why}"
    if found.attrition:
        return f"{found.planned - found.pairs} of {found.planned} pairs are missing"
    if not found.estimate.sd or found.estimate.low is None:
        return "every block gave the same ratio: its noise is not known"
    return ""


def _study(name: str, found: Estimate, alpha: float) -> Study:
    """A campaign's own estimate, its interval at the level of the combination: its own rule may have set another."""
    se = (found.sd or 0.0) / math.sqrt(found.blocks)
    reach = float(scipy.stats.t.ppf(1 - alpha / 2, found.blocks - 1)) * se
    return Study(
        campaign=name, ratio=found.ratio, low=found.ratio * math.exp(-reach), high=found.ratio * math.exp(reach),
        blocks=found.blocks, se=se,
    )  # fmt: skip


def _judged(made: Sequence[Combined], alpha: float) -> tuple[Combined, ...]:
    """All comparisons with p-values corrected and verdicts given."""
    families = [
        ([at for at, one in enumerate(made) if (one.candidate, one.metric) == key and not one.primary], "contexts")
        for key in dict.fromkeys((one.candidate, one.metric) for one in made)
    ]  # fmt: skip
    families.append(([at for at, one in enumerate(made) if one.primary], "candidates"))
    told = list(made)
    for family, over in families:
        ps = stats.holm([one.p if (one := made[place].pooled) else None for place in family])
        tosts = stats.holm([made[place].tost_p for place in family])
        aways = stats.holm(
            [stats.beyond(_estimate(made[place]), made[place].margin, alpha) for place in family]
        )
        tested = sum(p is not None for p in ps)
        correction = f"Holm over {tested} {over}" if tested > 1 else ""
        for place, p, tost, away in zip(family, ps, tosts, aways, strict=True):
            corrected = msgspec.structs.replace(
                made[place], p_corrected=p, tost_p_corrected=tost, correction=correction,
            )  # fmt: skip
            told[place] = msgspec.structs.replace(
                corrected, verdict=_verdict(corrected, away, alpha)
            )
    return tuple(told)


def _estimate(one: Combined) -> Estimate | None:
    """The pooled ratio as an estimate whose units are the campaigns."""
    found = one.pooled
    return (
        None
        if found is None
        else Estimate(
            blocks=found.campaigns, ratio=found.ratio, low=found.low, high=found.high, p=found.p
        )
    )


def _verdict(one: Combined, away: float | None, alpha: float) -> Verdict:
    """The verdict by the interval and the margin; `undecided` below two campaigns."""
    estimate = _estimate(one)
    if estimate is None:
        return Verdict(
            word="not comparable",
            why=f"{len(one.studies)} of the two campaigns that it takes can be used",
        )
    words = speed.words(one.metric)
    return stats.judge(
        estimate, one.p_corrected, one.tost_p_corrected, one.margin, words, alpha, fewest=2,
        correction=one.correction, beyond_p=away,
    )  # fmt: skip


def _machine(one: Findings) -> str:
    """A campaign's machine in words."""
    cores = one.machine.get("cores_logical")
    parts = [one.machine.get("cpu"), cores and f"{cores} cores", one.machine.get("gpu")]
    return ", ".join(str(part) for part in parts if part) or "unknown"
