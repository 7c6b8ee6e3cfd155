"""Two campaigns side by side: what differs in how they were measured, both estimates, and whether they agree.

The estimates are compared as a ratio of ratios, other/one, on their logarithms: the difference of two means over blocks
with unequal spreads (Welch, Biometrika 1947; degrees of freedom by Satterthwaite, 1946). It is *differ* where the p of
no difference is below α, *agree* where two one-sided tests show it inside the margin, else *undecided*: a difference
that was not found is no agreement. P-values are Holm's within a candidate's metric, the declared endpoint apart.

Whether the two may be one ratio is another question, answered by the rules of `combine` and of `likeness.questions`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import msgspec
import scipy

from battery.analyse import combine as combining
from battery.analyse import likeness, speed, stats
from battery.analyse.combine import Combination
from battery.analyse.findings import Findings
from battery.analyse.speed import Comparison
from battery.analyse.stats import Estimate
from battery.ledger.arm import difference
from battery.ledger.errors import InputError

Agreement = Literal["agree", "differ", "undecided", "not compared"]


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that is not the same in both campaigns; None where a campaign does not say."""

    part: str
    field: str
    one: Any
    other: Any


class Apart(msgspec.Struct, frozen=True, kw_only=True):
    """How far two estimates are from each other: the ratio other/one with its interval."""

    ratio: float
    low: float
    high: float
    df: float
    p: float
    tost_p: float
    """Of a ratio outside the margin."""


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One candidate against the control, one metric, one context, in both campaigns."""

    candidate: str
    metric: str
    rung: int
    primary: bool
    """Whether both campaigns declared it as their endpoint."""
    margin: float
    one: Estimate | None
    other: Estimate | None
    verdicts: tuple[str, str]
    apart: Apart | None = None
    p_corrected: float | None = None
    agreement: Agreement = "not compared"
    why: str = ""
    """Why they were not compared."""


class Contrast(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that `diff` tells."""

    names: tuple[str, str]
    seals: tuple[str | None, str | None]
    control: str
    alpha: float
    settings: tuple[Setting, ...]
    rows: tuple[Row, ...]
    notes: tuple[str, ...]
    refused: tuple[str, ...]
    """Why the two may not be one ratio; empty where they may."""
    pooled: Combination | None
    """Both as one, where they may be."""


def contrast(names: tuple[str, str], one: Findings, other: Findings) -> Contrast:
    """Both campaigns side by side; InputError where they have no arm in common."""
    shared = {arm.arm.name for arm in one.arms} & {arm.arm.name for arm in other.arms}
    if not shared:
        raise InputError(
            f"{names[0]} and {names[1]} have no arm in common"
            f" ({', '.join(arm.arm.name for arm in one.arms)}; {', '.join(arm.arm.name for arm in other.arms)});"
            " name two campaigns of the same arms"
        )
    alpha = min(one.plan.stopping.alpha, other.plan.stopping.alpha)
    refused = _refused(names, one, other)
    pooled = combining.combine(dict(zip(names, (one, other), strict=True))) if not refused else None
    if pooled is not None and not any(row.pooled for row in pooled.comparisons):
        every = [f"{name}: {why}" for row in pooled.comparisons for name, why in row.left_out]
        refused, pooled = list(dict.fromkeys(every)) or ["no comparison is in both"], None
    notes = []
    if combining.repeats(other, names[0], one):
        notes.append(
            "both asked the same prompts: what a prompt does to both is counted as noise of each, so the intervals"
            " between them are too wide rather than too narrow"
        )
    return Contrast(
        names=names, seals=(one.seal, other.seal), control=one.control, alpha=alpha,
        settings=tuple(_settings(one, other)), rows=_rows(one, other, alpha), notes=tuple(notes),
        refused=tuple(refused), pooled=pooled,
    )  # fmt: skip


def _refused(names: tuple[str, str], one: Findings, other: Findings) -> list[str]:
    """Why the two may not be one ratio."""
    found = [
        f"{name}: {why}"
        for name, each in zip(names, (one, other), strict=True)
        if (why := combining.unfit(each, one))
    ]
    if why := combining.repeats(other, names[0], one):
        found.append(f"{names[1]}: {why}")
    return [*found, *likeness.questions(one, other)]


def _settings(one: Findings, other: Findings) -> Iterator[Setting]:
    """What differs in plan, arms, models, engines, machine and battery, part by part."""
    here, there = (msgspec.to_builtins(each.plan) for each in (one, other))
    yield from _unlike("plan", here, there, leave=("why",))
    for name in ("control", "candidates", "screen", "seed", "status", "blocks_complete"):
        yield from _unlike("campaign", {name: getattr(one, name)}, {name: getattr(other, name)})
    for arm in one.arms:
        twin = next((two for two in other.arms if two.arm.name == arm.arm.name), None)
        if twin is None:
            continue
        name = arm.arm.name
        for path, mine, theirs in difference(arm.arm, twin.arm):
            yield Setting(part=f"arm {name}", field=path, one=mine, other=theirs)
        yield from _unlike(f"model of {name}", arm.model, twin.model)
        yield from _unlike(f"builds of {name}", arm.versions, twin.versions)
    yield from _unlike("machine", one.machine, other.machine)
    yield from _unlike("battery", one.battery, other.battery)


def _unlike(
    part: str, one: Mapping[str, Any], other: Mapping[str, Any], leave: Sequence[str] = ()
) -> Iterator[Setting]:
    """Every path at which two nested tables are not the same."""
    left, right = dict(_flat(one)), dict(_flat(other))
    for path in dict.fromkeys([*left, *right]):
        if path not in leave and left.get(path) != right.get(path):
            yield Setting(part=part, field=path, one=left.get(path), other=right.get(path))


def _flat(table: Mapping[str, Any], at: str = "") -> Iterator[tuple[str, Any]]:
    """A nested table as dotted paths with their values."""
    for key, value in table.items():
        path = f"{at}.{key}" if at else str(key)
        if isinstance(value, Mapping):
            yield from _flat(value, path)
        else:
            yield path, list(value) if isinstance(value, tuple) else value


def _rows(one: Findings, other: Findings, alpha: float) -> tuple[Row, ...]:
    """Every comparison that both campaigns have, judged; none where their controls differ."""
    if one.control != other.control:
        return ()
    made = [
        _row(mine, theirs, _source(one, mine), _source(other, theirs), alpha)
        for mine in one.comparisons
        if mine.metric in speed.COMPARED
        and (theirs := other.comparison(mine.candidate, mine.metric, mine.rung)) is not None
    ]
    families: dict[tuple[str, ...], list[int]] = {}
    for place, row in enumerate(made):
        families.setdefault(
            ("primary",) if row.primary else (row.candidate, row.metric), []
        ).append(place)
    for places in families.values():
        own = [made[place].apart for place in places]
        ps = stats.holm([each.p if each else None for each in own])
        tosts = stats.holm([each.tost_p if each else None for each in own])
        for place, p, tost in zip(places, ps, tosts, strict=True):
            if p is not None and tost is not None:
                word: Agreement = "differ" if p < alpha else "agree" if tost < alpha else "undecided"  # fmt: skip
                made[place] = msgspec.structs.replace(made[place], p_corrected=p, agreement=word)
    return tuple(made)


def _source(found: Findings, one: Comparison) -> str:
    """Where the control's figure was read."""
    level = found.level(one.control, one.metric, one.rung)
    return level.source if level else ""


def _row(one: Comparison, other: Comparison, here: str, there: str, alpha: float) -> Row:
    """One comparison of both campaigns, before correction."""
    margin = min(one.margin, other.margin)
    left, right = _mean(one), _mean(other)
    why, apart = "", None
    if here != there:
        why = f"read from {here or 'nowhere'} and from {there or 'nowhere'}"
    elif isinstance(left, str) or isinstance(right, str):
        why = left if isinstance(left, str) else str(right)
    else:
        apart = _apart(left, right, margin, alpha)
    return Row(
        candidate=one.candidate, metric=one.metric, rung=one.rung, primary=one.primary and other.primary,
        margin=margin, one=one.estimate, other=other.estimate,
        verdicts=(_word(one), _word(other)), apart=apart, why=why,
    )  # fmt: skip


def _word(one: Comparison) -> str:
    """A verdict with its qualifier."""
    return f"{one.verdict.word} {one.verdict.qualifier}".strip()


class _Mean(NamedTuple):
    """A mean log ratio, its variance and the blocks behind it."""

    log: float
    variance: float
    blocks: int


def _mean(one: Comparison) -> _Mean | str:
    """What a campaign's estimate weighs, or why it cannot be weighed."""
    found = one.estimate
    if found is None or one.verdict.word in ("invalid", "not comparable"):
        return f"{one.verdict.word}: {one.verdict.why}"
    if not found.sd:
        return "its noise is not known: one block, or all blocks alike"
    return _Mean(math.log(found.ratio), found.sd**2 / found.blocks, found.blocks)


def _apart(one: _Mean, other: _Mean, margin: float, alpha: float) -> Apart:
    """Welch's interval and tests of the difference of two means of unequal variance."""
    log, variance = other.log - one.log, one.variance + other.variance
    df = variance**2 / sum(each.variance**2 / (each.blocks - 1) for each in (one, other))
    se, bound = math.sqrt(variance), math.log1p(margin)
    reach = float(scipy.stats.t.ppf(1 - alpha / 2, df)) * se
    return Apart(
        ratio=math.exp(log), low=math.exp(log - reach), high=math.exp(log + reach), df=df,
        p=float(2 * scipy.stats.t.sf(abs(log) / se, df)), tost_p=float(scipy.stats.t.sf((bound - abs(log)) / se, df)),
    )  # fmt: skip
