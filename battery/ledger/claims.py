"""What a plan claims in advance: when the campaign ends, and bars that its result must clear.

Both are in the plan's digest, and so in every receipt: a rule that was chosen afterwards shows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

import msgspec

if TYPE_CHECKING:
    from battery.ledger.plan import Plan

BarMetric = Literal[
    "decode", "prefill", "ttft", "peak_memory", "tokens_per_step", "seconds_per_step"
]
FEWEST_BLOCKS = 6
"""Below six blocks there is no verdict: three blocks of one sign happen in a quarter of all null batteries."""

Rule = Literal["fixed", "looks", "precision"]
POOL = "pool"
"""The name of all suites of a campaign taken together."""
Suite = Literal["humaneval", "humaneval+", "mbpp", "mbpp+", "pool"]
QUALITY_MARGINS: dict[str, float] = {
    "humaneval": 0.05, "humaneval+": 0.05, "mbpp": 0.03, "mbpp+": 0.03,
}  # fmt: skip
"""Non-inferiority margins of pass@1 where the plan has no bar, as shares; a pool's is the smallest of its suites'.

164 tasks of which 4 % change show 5 points nine times of ten, and 3 points six times; 591 tasks show 3 points.
"""


class Stopping(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """When a campaign ends, declared before its first window.

    `fixed`: after `blocks`. `looks`: after the first of the declared looks at which every candidate's primary endpoint
    is decided, each tested at a smaller level so that all together stay at .05. `precision`: at the first look (block
    counts from six on that balance the order, and the last) at which every candidate's interval at the primary endpoint
    is no wider than ± `half_width` and at most a tenth of its pairs are missing, at alpha .03. Both end after `blocks`
    at the latest. Source of the alphas: simulated batteries in which nothing differs (reports/statistics.md).
    """

    rule: Rule = "fixed"
    looks: tuple[int, ...] = ()
    """Blocks after which is looked, ascending; the last is `blocks`."""
    half_width: float | None = None
    """Half of the interval's width to be reached, as a share."""
    level: float | None = None
    """Of every test of a campaign.

    Written down when a plan whose rule looks (`looks`, `precision`) is read, so that it is sealed with it; a plan may
    declare a smaller one, `fixed` too.
    """

    @property
    def alpha(self) -> float:
        """Of every test of a campaign under this rule."""
        return self.most if self.level is None else self.level

    @property
    def most(self) -> float:
        """The largest level that keeps the rule's false alarms at .05.

        Looks share it by Bonferroni; up to four that lie close together (the last at most twice the first) overlap so
        much that .018 each will do.
        """
        if self.rule == "precision":
            return 0.03
        looks = len(self.looks) if self.rule == "looks" else 1
        close = looks <= 4 and bool(self.looks) and self.looks[-1] <= 2 * self.looks[0]
        return 0.05 if looks <= 1 else 0.018 if close and looks > 2 else 0.05 / looks


class Bar(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One thing that must hold, declared before measuring: of a speed ratio's interval, or of a quality suite.

    A speed bar holds if the interval's lower end is at least `at_least`, or its upper end at most `at_most` (changes as
    shares: 0.03 is +3 %). A quality bar holds if the candidate is not worse than the control by more than `within`.
    """

    candidate: str = ""
    """Arm; empty: every candidate."""
    metric: BarMetric = "decode"
    rung: int = 0
    """A rung of the ladder; 0: the primary endpoint's."""
    at_least: float | None = None
    at_most: float | None = None
    suite: Suite | None = None
    """`pool`: all suites that both arms were asked."""
    within: float | None = None
    """Non-inferiority margin of a suite's pass@1, as a share: 0.05 is 5 points."""
    why: str = ""


def rows_of_order(arms: int) -> int:
    """Blocks after which the order of this many arms balances: the rows of its Williams square."""
    return arms if arms < 2 or arms % 2 == 0 else 2 * arms


def looks(plan: Plan, arms: int) -> tuple[int, ...]:
    """Blocks after which the plan's rule looks whether the campaign ends there, ascending; none where it is fixed.

    Under `precision` these are all that carry a verdict and balance the order of `arms` arms, and the plan's last.
    """
    if plan.stopping.rule != "precision":
        return plan.stopping.looks
    step = rows_of_order(arms)
    balanced = range(step, plan.blocks, step)
    return (*(block for block in balanced if block >= FEWEST_BLOCKS), plan.blocks)


def rule(plan: Plan, arms: int) -> str:
    """The plan's stopping rule in words: when it looks, what ends the campaign, and the level of every test."""
    stopping, at = plan.stopping, looks(plan, arms)
    level = f"tests at {stopping.alpha:.4g}".replace("0.", ".")
    after = (
        f"looks after {', '.join(map(str, at[:-1]))}{' and ' if at[1:] else ''}{at[-1]} blocks"
        if at
        else ""
    )
    if stopping.rule == "looks":
        return f"{after}; ends at the first at which every candidate's primary endpoint is decided; {level}"
    if stopping.rule == "precision":
        narrow = f"is no wider than ±{100 * (stopping.half_width or 0):g} %"
        return f"{after}; ends at the first at which every candidate's primary interval {narrow}; {level}"
    return f"fixed: ends after {plan.blocks} blocks, without looks before; {level}"


def stops(plan: Plan) -> list[tuple[bool, str]]:
    """What must hold of the stopping rule."""
    stopping = plan.stopping
    looks = stopping.looks
    if stopping.rule != "looks" and looks:
        return [(False, 'stopping.looks: only with rule = "looks"')]
    if stopping.rule != "precision" and stopping.half_width is not None:
        return [(False, 'stopping.half_width: only with rule = "precision"')]
    return [
        (
            stopping.level is None or 0 < stopping.level <= stopping.most,
            f"stopping.level: must be above 0 and at most {stopping.most:.4g} under this rule; leave it out for that",
        ),
        (
            stopping.rule != "looks"
            or (bool(looks) and list(looks) == sorted(set(looks)) and looks[-1] == plan.blocks),
            f"stopping.looks: must ascend without repeats and end with the plan's {plan.blocks} blocks",
        ),
        (
            not looks or looks[0] >= FEWEST_BLOCKS,
            "stopping.looks: six blocks are the fewest that carry a verdict",
        ),
        (
            stopping.rule != "precision" or (stopping.half_width or 0) > 0,
            "stopping.half_width: must be above 0, as a share (0.02 is ±2 %)",
        ),
        (
            stopping.rule == "fixed" or plan.blocks >= FEWEST_BLOCKS,
            "stopping.rule: a campaign of fewer than six blocks is a pilot and has nothing to stop for",
        ),
    ]


def wording(bar: Bar, side: str, bound: float, rung: int, arms: tuple[str, str]) -> str:
    """One side of a bar in words; `arms` are control and candidate, `side` is `at least`, `at most` or `within`."""
    control, candidate = arms[0], arms[1] or "the candidate"
    if bar.suite is not None:
        where = "all suites pooled" if bar.suite == POOL else bar.suite
        return f"{where}: {candidate} not worse than {control} by more than {100 * bound:g} points"
    end = "lower" if side == "at least" else "upper"
    percent = f"{100 * bound:+.4g} %".replace("-", "−")
    return f"{bar.metric} at {rung:,}: {candidate} over {control} {side} {percent} (interval's {end} end)"


def quality_margin(plan: Plan, candidate: str, suite: str, suites: Sequence[str]) -> float:
    """The margin that a candidate's quality is held against: that of the plan's bar on the suite, else the usual one.

    `suites` are those behind a pool. Of several bars the smallest counts.
    """
    declared = [
        bar.within
        for bar in plan.bars
        if bar.suite == suite and bar.within is not None and bar.candidate in ("", candidate)
    ]
    return min(declared or [QUALITY_MARGINS[name] for name in suites])


def asked(plan: Plan, arms: Sequence[str]) -> list[str]:
    """The bars of a plan in words, one for each side and candidate; `arms` begin with the control."""
    return [
        wording(bar, side, bound, bar.rung or plan.anchor, (arms[0], candidate))
        for bar in plan.bars
        for candidate in ((bar.candidate,) if bar.candidate else arms[1:])
        for side, bound in (("at least", bar.at_least), ("at most", bar.at_most), ("within", bar.within))
        if bound is not None
    ]  # fmt: skip


def unknown_arm(plan: Plan, arms: Sequence[str]) -> str | None:
    """What is wrong with the bars for these arms, the control first; None where every bar names a candidate."""
    for number, bar in enumerate(plan.bars, start=1):
        if not arms[1:]:
            return f"bars[{number}]: a bar needs a candidate, and {arms[0]} is the only arm"
        if bar.candidate and bar.candidate not in arms[1:]:
            return f"bars[{number}].candidate: {bar.candidate} is no candidate here; those are {', '.join(arms[1:])}"
    return None


def possible(bar: Bar) -> bool:
    """Whether a bar asks for something that could be or not be."""
    return not any(complaint for holds, complaint in _bar(bar, "") if not holds)


def bars(plan: Plan) -> list[tuple[bool, str]]:
    """What must hold of each bar."""
    found = []
    for number, bar in enumerate(plan.bars, start=1):
        at = f"bars[{number}]"
        found += _bar(bar, at)
        found.append((bar.rung in (0, *plan.ladder), f"{at}.rung: {bar.rung} is not on the ladder"))
    return found


def _bar(bar: Bar, at: str) -> list[tuple[bool, str]]:
    """What must hold of a bar whatever its plan."""
    speed = [value for value in (bar.at_least, bar.at_most) if value is not None]
    return [
        (
            (bar.suite is None) == (bar.within is None) and bool(speed) == (bar.suite is None),
            f"{at}: give at_least and/or at_most for a speed bar, or suite and within for a quality bar",
        ),
        (
            all(value > -1 for value in speed),
            f"{at}: changes are shares above −1 (0.03 is +3 %)",
        ),
        (
            bar.within is None or 0 < bar.within < 1,
            f"{at}.within: must be between 0 and 1 (0.05 is 5 points)",
        ),
    ]
