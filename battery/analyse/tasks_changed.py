"""What changed from one arm to another, task by task: difference, interval, and whether it is non-inferior.

The unit is the task; variants of one task (HumanEval and HumanEval+ pooled) are a cluster. A difference that was not
found is `undecided`: nothing here can say that two arms answer alike.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Literal, NamedTuple

import msgspec
import numpy as np
import scipy

from battery.analyse.numerals import points
from battery.analyse.shares import LEVEL, mean

NON_INFERIOR = 0.90
"""Level of the interval whose lower end must clear the margin: one-sided 95 %."""
ALPHA = (1 - NON_INFERIOR) / 2

Word = Literal["non-inferior", "inferior", "undecided"]
STRICT_ONLY = "under strict only"


class Told(NamedTuple):
    """What one arm made of the tasks of one or more suites, in one order for all arms; arrays are tasks × samples."""

    tasks: tuple[str, ...]
    families: tuple[str, ...]
    """Per task, what its variants have in common."""
    passed: list[np.ndarray]
    """Per task, whether each answer passed and was not cut off."""
    open: list[np.ndarray]
    """Per task, whether each answer was cut off, or never came: whether it would have passed is not known."""


class Scenario(msgspec.Struct, frozen=True, kw_only=True):
    """The difference, if the answers that were cut off counted in this way."""

    name: str
    control_open: Literal["fail", "pass"]
    candidate_open: Literal["fail", "pass"]
    difference: float
    """Candidate minus control, in shares of 1."""
    se: float
    """Of the difference; 0 where every task has the same."""
    low: float
    """The ends of the 90 % interval."""
    high: float


class Both(msgspec.Struct, frozen=True, kw_only=True):
    """The comparison over the tasks that both arms completed: no answer of either was cut off."""

    tasks: int
    control: float
    candidate: float
    difference: float
    low: float
    high: float
    lost: tuple[str, ...]
    gained: tuple[str, ...]


class Judgement(msgspec.Struct, frozen=True, kw_only=True):
    """One word of the closed set, what qualifies it, and why it is no stronger one."""

    word: Word
    qualifier: str = ""
    why: str = ""


class Paired(msgspec.Struct, frozen=True, kw_only=True):
    """Two arms over the same tasks."""

    tasks: int
    clusters: int
    """Tasks, variants of one counted once."""
    samples: int
    control: float
    """Strict pass@1."""
    candidate: float
    low: float
    """The ends of the strict difference's 95 % interval."""
    high: float
    method: str
    scenarios: tuple[Scenario, ...]
    """The strict one first, then the other ways to count what was cut off."""
    mcnemar_p: float | None
    """Two-sided, by the binomial; None with more than one sample, or with variants of one task among the tasks."""
    lost: tuple[str, ...]
    """Tasks that the control passes more often."""
    gained: tuple[str, ...]
    both: Both | None

    @property
    def strict(self) -> Scenario:
        """The difference with what was cut off as failed."""
        return self.scenarios[0]


_SCENARIOS: tuple[tuple[str, Literal["fail", "pass"], Literal["fail", "pass"]], ...] = (
    ("failed in both (strict)", "fail", "fail"),
    ("passed in both", "pass", "pass"),
    ("failed in the arm and passed in the control", "pass", "fail"),
    ("passed in the arm and failed in the control", "fail", "pass"),
)


def family(suite: str, task: str) -> str:
    """What a task of a suite and of its plus variant have in common: the suite's stem and the number in the id."""
    number = re.search(r"(\d+)\D*$", task)
    return f"{suite.removesuffix('+')}/{int(number[1]) if number else task}"


def joined(told: Sequence[Told]) -> Told:
    """The tasks of several suites as those of one."""
    return Told(
        tuple(task for one in told for task in one.tasks),
        tuple(name for one in told for name in one.families),
        [row for one in told for row in one.passed],
        [row for one in told for row in one.open],
    )


def paired(control: Told, candidate: Told) -> Paired:
    """The candidate against the control over the same tasks in the same order.

    d_i is the difference of the task's pass rates, the estimate its mean over tasks. Interval: mean ± t · SE, SE over
    tasks or over clusters of variants; where no task changed, ± the upper Clopper-Pearson end of 0 changes in as many
    tasks.
    """
    families, samples = candidate.families, max(len(row) for row in candidate.passed)
    scenarios = tuple(
        _scenario(name, of_control, of_candidate, control, candidate)
        for name, of_control, of_candidate in _SCENARIOS
    )
    d = _rates(candidate) - _rates(control)
    clusters = len(set(families))
    *_, low, high = interval(d, families, LEVEL)
    single = samples == 1 and clusters == len(families)
    methods = ("t over tasks", "t over tasks, variants clustered (OLS)")
    return Paired(
        tasks=len(families), clusters=clusters, samples=samples,
        control=float(_rates(control).mean()), candidate=float(_rates(candidate).mean()), low=low, high=high,
        method=methods[clusters < len(families)] if d.any() else "Clopper-Pearson: no task changed",
        scenarios=scenarios,
        mcnemar_p=_mcnemar(d) if single else None,
        lost=tuple(task for task, change in zip(candidate.tasks, d, strict=True) if change < 0),
        gained=tuple(task for task, change in zip(candidate.tasks, d, strict=True) if change > 0),
        both=_both(control, candidate),
    )  # fmt: skip


def interval(
    d: np.ndarray, families: Sequence[str], level: float
) -> tuple[float, float, float, float]:
    """Mean, standard error and both ends at `level`, never outside [−1, 1]; no interval narrower than can be known.

    An error of 0 is no certainty: the changes that were seen in 0 of so many clusters, or in all of them, have the
    Clopper-Pearson interval of that count.
    """
    from statsmodels.stats.proportion import proportion_confint

    at, se, df = (round(value, 12) for value in mean(d, families))
    if df < 1:
        return at, 0.0, -1.0, 1.0
    if se == 0:
        reach = float(proportion_confint(0, df + 1, alpha=1 - level, method="beta")[1])
    else:
        reach = float(scipy.stats.t.ppf((1 + level) / 2, df)) * se
    return at, se, round(max(-1.0, at - reach), 12), round(min(1.0, at + reach), 12)


def _rates(told: Told, open_passes: bool = False) -> np.ndarray:
    """Each task's pass rate, answers that were cut off counted as asked."""
    return np.array(
        [
            np.mean(passed | cut if open_passes else passed)
            for passed, cut in zip(told.passed, told.open, strict=True)
        ]
    )


def _scenario(
    name: str, of_control: Literal["fail", "pass"], of_candidate: Literal["fail", "pass"],
    control: Told, candidate: Told,
) -> Scenario:  # fmt: skip
    """The difference with what was cut off counted so."""
    d = _rates(candidate, of_candidate == "pass") - _rates(control, of_control == "pass")
    at, se, low, high = interval(d, candidate.families, NON_INFERIOR)
    return Scenario(
        name=name, control_open=of_control, candidate_open=of_candidate, difference=at, se=se, low=low, high=high,
    )  # fmt: skip


def _mcnemar(d: np.ndarray) -> float:
    """McNemar's p of no change, by the binomial over the tasks that changed; 1 where none did."""
    from statsmodels.stats.contingency_tables import mcnemar

    lost, gained = int((d < 0).sum()), int((d > 0).sum())
    if not lost + gained:
        return 1.0
    return float(mcnemar([[0, lost], [gained, 0]], exact=True).pvalue)


def _both(control: Told, candidate: Told) -> Both | None:
    """The same over tasks of which no answer was cut off in either arm; None where there is no such task."""
    kept = [
        place
        for place, (left, right) in enumerate(zip(control.open, candidate.open, strict=True))
        if not left.any() and not right.any()
    ]
    if not kept:
        return None
    left, right = _rates(control)[kept], _rates(candidate)[kept]
    at, _, low, high = interval(right - left, [candidate.families[i] for i in kept], LEVEL)
    ways = [(candidate.tasks[i], change) for i, change in zip(kept, right - left, strict=True)]
    return Both(
        tasks=len(kept), control=float(left.mean()), candidate=float(right.mean()), difference=at, low=low, high=high,
        lost=tuple(task for task, change in ways if change < 0),
        gained=tuple(task for task, change in ways if change > 0),
    )  # fmt: skip


def margin_p(one: Scenario, pair: Paired, margin: float) -> float:
    """One-sided p of a true difference of −`margin` or worse: t of (difference + margin) over its error, clusters − 1.

    With one answer a task the spread is taken as at least what that null has: where the difference is −m, at least m of
    the tasks change, so the variance of d is at least m(1 − m). The plain t interval forgets this where few tasks
    changed, and called up to 13 of 100 candidates at the margin itself non-inferior (simulated, 164 to 591 tasks), not
    5; with this p it is at most 8.
    """
    if pair.clusters < 2:
        return 1.0
    least = math.sqrt(margin * (1 - margin) / pair.clusters) if pair.samples == 1 else 0.0
    se = max(one.se, least)
    if se == 0:
        return float(one.low <= -margin)
    return float(scipy.stats.t.sf((one.difference + margin) / se, pair.clusters - 1))


def clears(one: Scenario, pair: Paired, margin: float) -> bool:
    """Whether a scenario is non-inferior: its interval's lower end is above −margin, and the margin's p below .05."""
    return one.low > -margin and margin_p(one, pair, margin) < ALPHA


def judge(pair: Paired, margin: float, unanswered: str = "") -> Judgement:
    """The verdict at a margin, as a share; `unanswered` tells of requests that failed, and nothing is decided then.

    Non-inferior: strict clears the margin, and so does every other way to count what was cut off; else it says that it
    holds under strict only. Inferior: the whole 90 % interval is below −margin, with the same qualification. Where the
    control passes no more than the margin, nothing could be inferior, so nothing is non-inferior either.
    """
    bound, strict = f"{100 * margin:g} points", pair.strict
    if unanswered:
        return Judgement(word="undecided", why=unanswered)
    if clears(strict, pair, margin) and pair.control <= margin:
        rate = f"{pair.control:.4f}"
        why = f"the control passes {rate}, no more than the margin: an arm that passes nothing would keep it"
        return Judgement(word="undecided", why=why)
    if clears(strict, pair, margin):
        worst = min(pair.scenarios, key=lambda one: (clears(one, pair, margin), one.low))
        if clears(worst, pair, margin):
            return Judgement(word="non-inferior", qualifier=f"within {bound}")
        why = f"with cut-off answers counted as {worst.name}, the lower end is {points(worst.low)} points"
        return Judgement(word="non-inferior", qualifier=f"within {bound}, {STRICT_ONLY}", why=why)
    if strict.high < -margin:
        best = max(pair.scenarios, key=lambda one: one.high)
        if best.high < -margin:
            return Judgement(word="inferior", qualifier=f"by more than {bound}")
        why = f"with cut-off answers counted as {best.name}, the upper end is {points(best.high)} points"
        return Judgement(word="inferior", qualifier=f"by more than {bound}, {STRICT_ONLY}", why=why)
    return Judgement(word="undecided", why=_open(pair, margin))


def _open(pair: Paired, margin: float) -> str:
    """Why a margin is neither kept nor broken."""
    strict, bound = pair.strict, f"−{100 * margin:g} points"
    if strict.low > -margin:
        p = margin_p(strict, pair, margin)
        return f"the interval is above {bound}, but too few tasks stand behind it (p of the margin {p:.2f})"
    told = f"the 90 % interval reaches from {points(strict.low)} to {points(strict.high)} points, across {bound}"
    return f"{told}; it is below 0 as a whole" if strict.high < 0 else told


class Together(msgspec.Struct, frozen=True, kw_only=True):
    """More than two arms over one suite: Cochran's Q of equal pass rates."""

    suite: str
    arms: tuple[str, ...]
    tasks: int
    q: float | None
    p: float | None
    why: str = ""


def together(suite: str, arms: Sequence[str], told: Sequence[Told]) -> Together:
    """Cochran's Q over the tasks of a suite; without a value where no task tells the arms apart or samples are more."""
    from statsmodels.stats.contingency_tables import cochrans_q

    table = np.array([[bool(row.any()) for row in one.passed] for one in told]).T
    base = Together(suite=suite, arms=tuple(arms), tasks=len(table), q=None, p=None)
    if any(len(row) > 1 for one in told for row in one.passed):
        return msgspec.structs.replace(base, why="it is for one answer a task")
    if not (table != table[:, :1]).any():
        return msgspec.structs.replace(base, why="every task ended alike in all arms")
    found = cochrans_q(table)
    return msgspec.structs.replace(base, q=float(found.statistic), p=float(found.pvalue))
