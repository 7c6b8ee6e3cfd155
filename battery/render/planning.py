"""What `plan --power` prints: where the spread comes from, the blocks it asks for, their time, and what they detect."""

from __future__ import annotations

import math

from battery.analyse import stats
from battery.analyse.planning import Endpoint, Power, Stretch
from battery.analyse.rows import MEASURES
from battery.analyse.variance import Split


def lines(found: Power) -> list[str]:
    """The whole answer, a line each."""
    source = found.source
    told = [
        f"plan {found.plan}: {MEASURES[found.metric].title} at {found.rung:,} tokens, margin {margin(found.margin)},"
        f" alpha {found.alpha:g}; all figures for four times out of five",
        f"spread and time from {source.campaign} ({source.how}; {source.created}, plan {source.plan},"
        f" {source.blocks} complete blocks)",
    ]
    told += [f"  note: {warning}" for warning in found.warnings]
    for one in found.primary:
        told += _endpoint(one, found)
    told += ["", _time("this plan", found.planned)]
    if found.advised.blocks != found.planned.blocks:
        told.append(_time("recommended", found.advised))
    if found.within is not None:
        told.append(_budget(found.within, found))
    return told


def _endpoint(one: Endpoint, found: Power) -> list[str]:
    """One candidate: its spread, the blocks for the margin, the seeds."""
    head = f"{one.candidate} against {found.control}:"
    if one.sd is None or one.sd_planned is None or one.recommended is None:
        return ["", f"{head} no spread: {one.why}"]
    upper = f" (80 % sure: below {spread(one.sd_upper)})" if one.sd_upper is not None else ""
    told = [
        "",
        f"{head} block differences spread by {spread(one.sd)}{upper}, {one.blocks} blocks",
    ]
    if one.split is not None and one.sd_planned != one.sd:
        told.append(
            f"  with the plan's {found.seeds} seeds a window: {spread(one.sd_planned)}, taken for all that follows"
        )
    told.append(f"  {_blocks(one)}")
    if one.needed_upper != one.needed:
        told.append(
            f"  at the upper limit of the spread {margin(one.margin)} would need {count(one.needed_upper)}"
        )
    if one.needed_holm is not None:
        told.append(
            f"  with {len(found.candidates)} candidates Holm tests one of them at"
            f" {found.alpha / len(found.candidates):.3g}: {count(one.needed_holm)} for that one"
        )
    told.append(
        f"  to be called equivalent within {margin(one.margin)} at a ratio of exactly 1:"
        f" {count(one.needed_equivalence)} blocks"
    )
    return told + _seeds(one, found)


def _blocks(one: Endpoint) -> str:
    """The recommendation, and a plain sentence where it does not reach the margin."""
    advised = one.recommended
    if one.needed is not None and advised is not None and one.needed <= advised:
        exact = ""
        if one.needed < stats.FEWEST_BLOCKS:
            exact = (
                f" ({blocks(one.needed)} would find it; six are the fewest that carry a verdict)"
            )
        elif one.needed < advised:
            exact = f" ({blocks(one.needed)} would find it; {advised} balance the orders)"
        return f"{advised} blocks detect {share(one.detects)}; {margin(one.margin)} needs {advised}{exact}"
    return f"{advised} blocks detect {share(one.detects)}; {margin(one.margin)} would need {count(one.needed)}"


def _seeds(one: Endpoint, found: Power) -> list[str]:
    """Launches against seeds, and what other numbers of seeds would give."""
    if one.split is None:
        return [f"  seeds: {one.best_seeds_why}"]
    told = [f"  of the spread: {_split(one.split)}"]
    known = dict(one.by_seeds)
    now = known.get(found.seeds)
    best = round(one.best_seeds) if one.best_seeds is not None else None
    other = best if best is not None and best != found.seeds else max(known, default=0)
    if now is not None and other in known and other != found.seeds:
        told.append(
            f"  {seeds(other)} a window instead of {found.seeds}: sd {spread(known[other])} instead of {spread(now)}"
        )
    if best is not None:
        told.append(f"  best for the time: {seeds(best)} a window (n* = {one.best_seeds:.1f})")
    else:
        told.append(f"  best number of seeds for the time: not known; {one.best_seeds_why}")
    return told


def _split(split: Split) -> str:
    """The two components."""
    parts = []
    for name, value, why in (
        ("launches", split.launch_sd, split.launch_why),
        ("one seed", split.seed_sd, split.seed_why),
    ):
        parts.append(f"{name} {spread(value)}{f' ({why})' if why else ''}")
    return ", ".join(parts)


def _time(what: str, one: Stretch) -> str:
    """How long a number of blocks takes, and what it detects."""
    when = (
        f"about {clock(one.seconds)}" if one.seconds is not None else f"time not known: {one.why}"
    )
    return f"{what}: {blocks(one.blocks)}, {when}{_detects(one)}"


def _detects(one: Stretch) -> str:
    """The smallest difference per candidate."""
    told = [f"{name} {share(value)}" for name, value in one.detects.items() if value is not None]
    if not told:
        return ""
    few = f" (a pilot: no verdict below {stats.FEWEST_BLOCKS} blocks)"
    return f"; detects {', '.join(told)}{few if one.blocks < stats.FEWEST_BLOCKS else ''}"


def _budget(one: Stretch, found: Power) -> str:
    """What fits into the time given."""
    given = f"in {clock(found.budget_s)}"
    if one.seconds is None:
        return f"{given}: {one.why}"
    if one.blocks == 0:
        return f"{given}: not one block fits; {one.why}"
    told = f"{given}: {blocks(one.blocks)} ({clock(one.seconds)})"
    return f"{told}; {one.why}" if one.why else f"{told}{_detects(one)}"


def share(value: float | None) -> str:
    """A share in percent, two significant digits, never in exponent form."""
    if value is None:
        return "—"
    percent = 100 * value
    if percent <= 0:
        return "0 %"
    return f"{percent:,.{max(0, 1 - math.floor(math.log10(percent)))}f} %"


def margin(value: float) -> str:
    """A declared margin in percent, as it was declared."""
    return f"{100 * value:g} %"


def spread(value: float | None) -> str:
    """A standard deviation of log ratios as a percentage."""
    return "unknown" if value is None else share(value)


def count(value: int | None) -> str:
    """A number of blocks."""
    return "more than can be searched" if value is None else f"{value:,}"


def blocks(number: int) -> str:
    """So many blocks."""
    return "1 block" if number == 1 else f"{number} blocks"


def seeds(number: int) -> str:
    """So many seeds."""
    return "1 seed" if number == 1 else f"{number} seeds"


def clock(value: float | None) -> str:
    """Seconds as hours and minutes."""
    if value is None:
        return "—"
    if value < 90:
        return f"{value:.0f} s"
    minutes = round(value / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"
