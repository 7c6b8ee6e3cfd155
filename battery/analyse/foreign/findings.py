"""Foreign findings: every candidate of an imported file against its control, with what weakens each comparison.

The verdict is `stats.judge`'s on the wider of the interval by seed and the interval by round. Six blocks are not asked
for, since whoever published the data cannot be asked for more; how few units there are is the first warning instead.
Two are: one file of an arm, whatever runs it holds, decides nothing. Its requests share a launch, so the interval over
them leaves out what launches vary; of two equal arms on a busy machine it found one 35 % [17, 50] quicker.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from battery.analyse import stats
from battery.analyse.foreign import caveats
from battery.analyse.foreign.case import Case
from battery.analyse.foreign.estimates import Contrast, estimate, match
from battery.analyse.foreign.lengths import Lengths, lengths
from battery.analyse.foreign.levels import Level, levels
from battery.analyse.foreign.rows import Row, Sheet, Source, Unmeasured
from battery.analyse.rows import MEASURES
from battery.analyse.speed import words
from battery.analyse.stats import Word
from battery.ledger.errors import InputError
from battery.ledger.plan import Margins
from battery.ledger.strict import nearest

_ONE_LAUNCH = (
    "one launch of an arm: what differs between two launches of one arm is in no interval; files of further launches"
    " would be rounds"
)
FEWEST_UNITS = 2
"""An interval needs two units; more is not asked of published data, only told."""


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """One candidate against the control, one metric, one context: ratio = candidate / control."""

    metric: str
    context: int | None
    """Tokens; None where the files do not say."""
    control: str
    candidate: str
    ratio: float | None
    low: float | None
    high: float | None
    verdict: Word
    qualifier: str
    """Such as `within 2 %`."""
    why: str
    """Why the verdict is no stronger."""
    method: str
    """What the interval was computed over, and why that."""
    warnings: tuple[str, ...]
    unit: str
    """Of the differences: the metric's own."""
    margin: float
    """Share within which a difference does not matter."""
    pairs: int
    lost: int
    """Values without a partner in the other arm."""
    independent_units: int | None
    """Seeds or rounds behind ratio, low and high."""
    naive: Contrast | None
    """Every pair taken for independent: for contrast where it is not so, never for a verdict."""
    by_seed: Contrast | None
    by_round: Contrast | None
    p: float | None
    p_corrected: float | None
    """After Holm across the contexts of this metric and candidate."""
    tost_p: float | None
    tost_p_corrected: float | None
    best_of_ratio: float | None
    """Best single value against best single value: what a headline would say."""
    lengths: Lengths | None
    """Generated tokens of both arms; None where none are told."""


class ForeignFindings(msgspec.Struct, frozen=True, kw_only=True):
    """Imported files, analysed."""

    kind: Literal["foreign"] = "foreign"
    sources: tuple[Source, ...]
    columns: tuple[str, ...]
    """Of a CSV; empty for other files."""
    control: str
    candidates: tuple[str, ...]
    claim: float | None
    """The ratio that somebody claims, as given by the reader."""
    notes: tuple[str, ...]
    comparisons: tuple[Comparison, ...]
    levels: tuple[Level, ...]
    """What every arm measured, before any comparison."""
    unmeasured: tuple[Unmeasured, ...]
    """Metrics that are null, with the reason."""


def analyse(
    sheet: Sheet,
    control: str | None = None,
    margin: float | None = None,
    claim: float | None = None,
) -> ForeignFindings:
    """Findings of a sheet. `control`: None for its first arm; `margin`: a share, None for a plan's; `claim`: a ratio.

    The order of the rows does not matter, but that the first arm is the control. InputError for an unknown control.
    """
    arms = sheet.arms
    if control is not None and control not in arms:
        raise InputError(f"{sheet.named}: no arm '{control}'{nearest(control, arms)}")
    first = control or arms[0]
    candidates = tuple(sorted(arm for arm in arms if arm != first))
    comparisons: list[Comparison] = []
    for candidate in candidates:
        for metric in MEASURES:
            family = [
                Case(
                    metric=MEASURES[metric], context=context, control=first, candidate=candidate,
                    values=values, pairs=pairs, lost=lost, estimates=estimate(pairs), claim=claim,
                    launches=not sheet.columns,
                )
                for context, values in _contexts(sheet.rows, metric, (first, candidate))
                for pairs, lost in (match(*values),)
            ]  # fmt: skip
            comparisons += _family(family, Margins().of(metric) if margin is None else margin)
    return ForeignFindings(
        sources=sheet.sources, columns=sheet.columns, control=first, candidates=candidates, claim=claim,
        notes=caveats.notes(sheet), comparisons=tuple(comparisons), levels=levels(sheet.rows, first),
        unmeasured=sheet.unmeasured,
    )  # fmt: skip


def _contexts(
    rows: Sequence[Row], metric: str, arms: tuple[str, str]
) -> list[tuple[int | None, tuple[list[Row], list[Row]]]]:
    """Both arms' rows of a metric at each context that one of them has, ascending; one that is not told comes first."""
    found: dict[int | None, tuple[list[Row], list[Row]]] = {}
    for row in rows:
        if row.metric == metric and row.arm in arms:
            sides = found.setdefault(row.context, ([], []))
            sides[arms.index(row.arm)].append(row)
    return sorted(found.items(), key=lambda item: -1 if item[0] is None else item[0])


def _family(family: Sequence[Case], margin: float) -> list[Comparison]:
    """The comparisons of one metric and candidate over the contexts, corrected together."""
    ps = [case.estimates.chosen.p if case.estimates.chosen else None for case in family]
    tosts = [stats.equivalence(case.estimates.logs, margin) for case in family]
    corrected, tosts_corrected = stats.holm(ps), stats.holm(tosts)
    aways = stats.holm([stats.beyond(_estimate(case.estimates.chosen), margin) for case in family])
    return [
        _comparison(case, margin, (p, p_corrected), (tost, tost_corrected), away)
        for case, p, p_corrected, tost, tost_corrected, away in zip(
            family, ps, corrected, tosts, tosts_corrected, aways, strict=True
        )
    ]


def _estimate(found: Contrast | None) -> stats.Estimate | None:
    """A contrast as an estimate whose units are its seeds or rounds."""
    return (
        None
        if found is None
        else stats.Estimate(blocks=found.units, ratio=found.ratio, low=found.low, high=found.high)
    )


def _comparison(
    case: Case,
    margin: float,
    p: tuple[float | None, float | None],
    tost_p: tuple[float | None, float | None],
    away: float | None,
) -> Comparison:
    """One comparison; `p` and `tost_p` are as computed and after Holm."""
    found = case.estimates
    shown = found.chosen or found.naive
    word, qualifier, why = _verdict(case, p[1], tost_p[1], away, margin)
    told = lengths(case)
    return Comparison(
        metric=case.metric.name, context=case.context, control=case.control, candidate=case.candidate,
        ratio=shown.ratio if shown else None,
        low=found.chosen.low if found.chosen else None,
        high=found.chosen.high if found.chosen else None,
        verdict=word, qualifier=qualifier, why=why,
        method=caveats.method(case),
        warnings=caveats.warnings(case, told),
        unit=case.metric.unit, margin=margin,
        pairs=len(case.pairs), lost=sum(case.lost),
        independent_units=found.chosen.units if found.chosen else None,
        naive=found.naive, by_seed=found.by_seed, by_round=found.by_round,
        p=p[0], p_corrected=p[1], tost_p=tost_p[0], tost_p_corrected=tost_p[1],
        best_of_ratio=caveats.best_of(case),
        lengths=told,
    )  # fmt: skip


def _verdict(
    case: Case, p: float | None, tost_p: float | None, away: float | None, margin: float
) -> tuple[Word, str, str]:
    """Word, qualifier and why; what forbids a verdict comes first."""
    found = case.estimates.chosen
    if not case.pairs:
        return "not comparable", "", "no seed and round that both arms have"
    if found is None or found.low is None or found.high is None:
        more = "; files of further launches would be rounds" if case.one_launch else ""
        return (
            "not comparable",
            "",
            f"neither two seeds nor two rounds: no interval can be computed{more}",
        )
    if found.low == found.high:
        why = f"all {found.units} units gave the same ratio, as rounded values do: their noise is not known"
        return "undecided", "", why
    if case.share_lost > stats.MOST_LOST:
        lost, planned = sum(case.lost), sum(case.lost) + len(case.pairs)
        why = (
            f"attrition: {lost} of {planned} pairs are missing; what failed may be what was slow (rounds that one"
            " arm was never to run can be left out of the file)"
        )
        return "undecided", "", why
    estimate = _estimate(found)
    assert estimate is not None  # its contrast is there
    told = stats.judge(
        estimate, p, tost_p, margin, words(case.metric.name), fewest=FEWEST_UNITS, beyond_p=away
    )
    if case.one_launch and told.word != "undecided":
        return "undecided", "", _ONE_LAUNCH
    return told.word, told.qualifier, told.why
