"""What weakens a comparison of imported values, in sentences: few units, reused seeds, losses, headlines."""

from __future__ import annotations

from collections import Counter

from battery.analyse.foreign.case import Case
from battery.analyse.foreign.estimates import BASES, Contrast, Estimates
from battery.analyse.foreign.lengths import BEFORE_THE_FIRST, Lengths, unequal
from battery.analyse.foreign.rows import Sheet
from battery.analyse.foreign.wording import change, difference, interval
from battery.analyse.numerals import figure
from battery.analyse.stats import FEWEST_BLOCKS
from battery.ledger.trace import Metric


def notes(sheet: Sheet) -> tuple[str, ...]:
    """What no such file can show, what was taken on trust, and what its format says of itself."""
    unseen = (
        "whether prefill was cold, whether the switches were engaged, nor how memory was read and whether the machine"
        " was quiet"
    )
    if sheet.order:
        found = [sheet.order, f"the files cannot show {unseen}"]
    else:
        found = [
            f"the file cannot show in which order the arms ran (drift may stand in a difference), {unseen}"
        ]
    if sheet.columns:
        found.append(
            "values are taken to be in each metric's own unit, and rows with the same seed to come from the same prompt"
        )
    else:
        found.append(
            "every file is taken for one launch of its arm; files that were written while one server stayed up share a"
            " launch, as do the runs of one file, and the interval by round is then too narrow"
        )
    found.append(
        "a verdict rests on the wider of the interval by seed and the interval by round; Holm runs over the contexts of"
        " a metric and candidate"
    )
    rows = [row for row in sheet.rows if row.metric not in BEFORE_THE_FIRST]
    unknown = sum(row.tokens is None for row in rows)
    if unknown:
        found.append(
            f"generated tokens are not told for {unknown} of {len(rows)} values: their lengths cannot be compared"
        )
    return (*found, *sheet.notes)


def method(case: Case) -> str:
    """What the interval rests on."""
    found = case.estimates
    if found.basis is None:
        return "none: an interval needs two seeds or two rounds"
    other = BASES[1 - BASES.index(found.basis)]
    rest = found.by_seed if other == "seed" else found.by_round
    units = found.chosen.units if found.chosen else 0
    told = f"by {found.basis}: t interval on the mean log ratios of {units} {found.basis}s"
    if rest is None:
        return f"{told} ({other}s are not told)"
    if rest.low is None:
        return f"{told} (there is one {other} only)"
    return f"{told}, the wider of by seed and by round"


def warnings(case: Case, told: Lengths | None) -> tuple[str, ...]:
    """Every weakness of the comparison, the number of independent units first."""
    found = [
        _units(case), _repeats(case), *_seeds(case), *_one_basis(case), *unequal(case, told), *_lost(case),
        *_numbers(case),
        _headline(case), _claim(case),
    ]  # fmt: skip
    return tuple(line for line in found if line)


def _units(case: Case) -> str:
    """How much independent evidence there is."""
    found = case.estimates.chosen
    if found is None:
        return "no independent units: no interval, no verdict"
    few = (
        f"; a campaign of battery's own needs {FEWEST_BLOCKS} for a verdict"
        if found.units < FEWEST_BLOCKS
        else ""
    )
    return f"{found.units} independent units ({case.estimates.basis}s) behind {len(case.pairs)} pairs{few}"


def _repeats(case: Case) -> str:
    """That the repetitions of a launch stand behind its one value."""
    told = []
    for name, rows in zip((case.control, case.candidate), case.values, strict=True):
        counts = [row.n for row in rows if row.n > 1 and row.seed is None]
        if counts:
            lows = [row.low for row in rows if row.low is not None]
            highs = [row.high for row in rows if row.high is not None]
            ends = f" from {figure(min(lows))} to {figure(max(highs))}" if lows and highs else ""
            told.append(f"{name} {sum(counts)} in {len(counts)} launches{ends}")
    if not told:
        return ""
    return (
        f"repetitions or requests of one launch are no independent evidence, and one mean is taken of them"
        f" ({'; '.join(told)})"
    )


def _seeds(case: Case) -> list[str]:
    """Whether seeds return, or whether that cannot be told."""
    if any(pair.control.seed is None for pair in case.pairs):
        return ["seeds are not told for every pair: whether prompts return in every round cannot be seen, and if they"
                " do the interval is too narrow"]  # fmt: skip
    seeds = case.labels("seed")
    times = Counter(pair.control.seed for pair in case.pairs)
    again = [seed for seed in seeds if times[seed] > 1]
    if not again:
        return []
    rounds, naive, clustered = case.labels("round"), case.estimates.naive, case.estimates.by_seed
    if all(count == len(rounds) for count in times.values()):
        how = (
            f"the same {len(seeds)} seeds return in every round"
            if len(seeds) > 1
            else "one seed returns in every round"
        )
    else:
        how = f"{len(again)} of {len(seeds)} seeds return in other rounds"
    told = [
        f"{name} {difference(one, case.metric)}"
        for name, one in (("naive pairing", naive), ("clustered by seed", clustered))
        if one
    ]
    return [
        f"{how}: {len(case.pairs)} pairs hold {len(seeds)} prompts, and a repeat is no new evidence;"
        f" {', '.join(told)}; the naive interval {interval(naive)} is shown for contrast only"
        f"{_contradiction(case.estimates)}"
    ]


def _contradiction(found: Estimates) -> str:
    """That the naive interval finds what the verdict's does not."""
    if _excludes_one(found.naive) and found.chosen and not _excludes_one(found.chosen):
        return ": it excludes no difference, the interval of the verdict does not"
    return ""


def _excludes_one(one: Contrast | None) -> bool:
    """Whether an interval lies on one side of 1."""
    if one is None or one.low is None or one.high is None:
        return False
    return one.low > 1 or one.high < 1


def _one_basis(case: Case) -> list[str]:
    """That only one of the two intervals could be computed, or that rounds are unknown."""
    found = case.estimates
    if found.basis is None:
        return []
    other = BASES[1 - BASES.index(found.basis)]
    rest = found.by_seed if other == "seed" else found.by_round
    if rest is None:
        return [
            f"no interval by {other}: {other}s are not told for every pair; the one by {found.basis} stands alone"
        ]
    if rest.low is None:
        what = "prompt" if other == "seed" else "launch"
        return [
            f"no interval by {other}: there is one {other} only, so the result speaks for this one {what}"
        ]
    return []


def _lost(case: Case) -> list[str]:
    """Values that have no partner."""
    if not sum(case.lost):
        return []
    planned = sum(case.lost) + len(case.pairs)
    return [
        f"lost pairs: {sum(case.lost)} of {planned} stand in one arm only ({case.control} {case.lost[0]},"
        f" {case.candidate} {case.lost[1]}) and were left out"
    ]


def _numbers(case: Case) -> list[str]:
    """Arms that were measured differently often."""
    one, other = (len(side) for side in case.values)
    if one == other:
        return []
    return [
        f"different n: {case.control} {one} values, {case.candidate} {other}; the arm with more of them has the better"
        " best by luck alone"
    ]


def best_of(case: Case) -> float | None:
    """Best single value of the candidate / best single value of the control; None where one has none."""
    control, candidate = ([row.value for row in side] for side in case.values)
    if not control or not candidate:
        return None
    best = max if case.metric.higher_is_better else min
    return best(candidate) / best(control)


def _headline(case: Case) -> str:
    """What a headline of single values would say, and where it stands."""
    ratio = best_of(case)
    if ratio is None:
        return ""
    word = _best_word(case.metric)
    return f"best of: {word} against {word} says {change(ratio)}{_standing(case, ratio)}; an extreme is no estimate"


def _best_word(metric: Metric) -> str:
    """The best of a metric, as an adjective."""
    if metric.unit in ("tok/s", "1/s", "s"):
        return "fastest"
    return "highest" if metric.higher_is_better else "smallest"


def _claim(case: Case) -> str:
    """The claim of the reader, held against the naive interval and the verdict's."""
    if case.claim is None:
        return ""
    chosen = case.estimates.chosen
    undecided = (
        "; an interval that holds 1 supports no claim"
        if chosen and not _excludes_one(chosen)
        else ""
    )
    return f"claim: {change(case.claim)}{_standing(case, case.claim)}{undecided}"


def _standing(case: Case, ratio: float) -> str:
    """Whether a ratio is inside the naive interval and inside the verdict's."""
    found, parts = case.estimates, []
    named = [("the naive interval", found.naive)]
    if found.basis:
        named.append((f"the interval by {found.basis}", found.chosen))
    for name, one in named:
        if one is not None and one.low is not None and one.high is not None:
            where = "inside" if one.low <= ratio <= one.high else "outside"
            parts.append(f"{where} {name} {interval(one)}")
    return f", {', '.join(parts)}" if parts else ", and there is no interval to hold it against"
