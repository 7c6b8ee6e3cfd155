"""What `combine` prints: the campaigns, what speaks against pooling them, and one ratio per comparison."""

from __future__ import annotations

from battery.analyse.combine import Combination, Combined, Study
from battery.analyse.pooling import Pooled
from battery.analyse.rows import MEASURES
from battery.analyse.stats import Estimate
from battery.render import words


def lines(found: Combination) -> list[str]:
    """The whole answer, a line each."""
    told = [
        f"{', '.join(found.candidates)} against {found.control}, {100 * (1 - found.alpha):.3g} % intervals"
    ]
    for one in found.campaigns:
        told.append(f"  {one.campaign}: {one.created}, plan {one.plan}, {one.machine}")
    told += [f"  left out: {name}, {why}" for name, why in found.left_out]
    told += [f"  note: {warning}" for warning in found.warnings]
    for comparison in (*found.primary, *(one for one in found.comparisons if not one.primary)):
        told += _comparison(comparison, found)
    return told


def _comparison(one: Combined, found: Combination) -> list[str]:
    """One comparison: the verdict, the campaigns behind it, and how far they disagree."""
    title = words.titled(MEASURES[one.metric].title)
    at = f"{title} at {one.rung:,} tokens, {one.candidate} / {found.control}"
    told = ["", f"{at}{' (primary)' if one.primary else ''}: {_verdict(one)}"]
    told += [f"  {_study(study)}" for study in one.studies]
    told += [f"  left out: {name}, {why}" for name, why in one.left_out]
    return told + ([f"  {_disagreement(one.pooled)}"] if one.pooled else [])


def _verdict(one: Combined) -> str:
    """The pooled ratio and the word for it."""
    word = f"{one.verdict.word} {one.verdict.qualifier}".strip()
    why = f": {one.verdict.why}" if one.verdict.why else ""
    if one.pooled is None:
        return f"{word}{why}"
    ratio = ratio_of(one.pooled.ratio, one.pooled.low, one.pooled.high)
    after = f" after {one.correction}" if one.correction else ""
    return f"{ratio}, p {words.pvalue(one.p_corrected)}{after}, margin {100 * one.margin:g} %: {word}{why}"


def _study(one: Study) -> str:
    """One campaign's own estimate."""
    return f"{one.campaign}: {ratio_of(one.ratio, one.low, one.high)}, {one.blocks} blocks"


def _disagreement(one: Pooled) -> str:
    """Between-campaign spread, Q, I², and the fixed effect beside it."""
    fixed = ratio_of(one.fixed_ratio, one.fixed_low, one.fixed_high)
    return (
        f"between campaigns: tau {words.figure(100 * one.tau, 2)} %, I² {100 * one.i2:.0f} %,"
        f" Q {words.figure(one.q, 3)} on {one.campaigns - 1} (p {words.pvalue(one.q_p)}); fixed effect {fixed}"
    )


def ratio_of(ratio: float, low: float, high: float) -> str:
    """A ratio with its interval, as changes in percent."""
    return words.interval(Estimate(blocks=0, ratio=ratio, low=low, high=high))
