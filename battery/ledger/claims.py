"""What a plan claims in advance: when the campaign ends, and bars that its result must clear.

Both are in the plan's digest, and so in every receipt: a rule that was chosen afterwards shows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import msgspec

if TYPE_CHECKING:
    from battery.ledger.plan import Plan

BarMetric = Literal[
    "decode", "prefill", "ttft", "peak_memory", "tokens_per_step", "seconds_per_step"
]
Rule = Literal["fixed", "looks", "precision"]
Suite = Literal["humaneval", "humaneval+", "mbpp", "mbpp+"]


class Stopping(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """When a campaign ends, declared before its first window.

    `fixed`: after `blocks`. `looks`: after the first of the declared looks at which every candidate's primary endpoint
    is decided, each tested at a smaller alpha so that all together stay at .05. `precision`: as soon as every
    candidate's interval at the primary endpoint is no wider than ± `half_width`, at alpha .04. Both end after `blocks`
    at the latest. Source of the alphas: simulated batteries in which nothing differs (reports/statistics.md).
    """

    rule: Rule = "fixed"
    looks: tuple[int, ...] = ()
    """Blocks after which is looked, ascending; the last is `blocks`."""
    half_width: float | None = None
    """Half of the interval's width to be reached, as a share."""

    @property
    def alpha(self) -> float:
        """Of every test of a campaign under this rule."""
        if self.rule == "precision":
            return 0.04
        looks = len(self.looks) if self.rule == "looks" else 1
        return 0.05 if looks <= 1 else 0.018 if looks <= 4 else 0.05 / looks


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
    within: float | None = None
    """Non-inferiority margin of a suite's pass@1, as a share: 0.05 is 5 points."""
    why: str = ""


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
            stopping.rule != "looks"
            or (bool(looks) and list(looks) == sorted(set(looks)) and looks[-1] == plan.blocks),
            f"stopping.looks: must ascend without repeats and end with the plan's {plan.blocks} blocks",
        ),
        (
            not looks or looks[0] >= 6,
            "stopping.looks: six blocks are the fewest that carry a verdict",
        ),
        (
            stopping.rule != "precision" or (stopping.half_width or 0) > 0,
            "stopping.half_width: must be above 0, as a share (0.02 is ±2 %)",
        ),
        (
            stopping.rule == "fixed" or plan.blocks >= 6,
            "stopping.rule: a campaign of fewer than six blocks is a pilot and has nothing to stop for",
        ),
    ]


def bars(plan: Plan) -> list[tuple[bool, str]]:
    """What must hold of each bar."""
    found = []
    for number, bar in enumerate(plan.bars, start=1):
        speed = [value for value in (bar.at_least, bar.at_most) if value is not None]
        at = f"bars[{number}]"
        found += [
            (
                (bar.suite is None) == (bar.within is None) and bool(speed) == (bar.suite is None),
                f"{at}: give at_least and/or at_most for a speed bar, or suite and within for a quality bar",
            ),
            (bar.rung in (0, *plan.ladder), f"{at}.rung: {bar.rung} is not on the ladder"),
            (
                all(value > -1 for value in speed),
                f"{at}: changes are shares above −1 (0.03 is +3 %)",
            ),
            (
                bar.within is None or 0 < bar.within < 1,
                f"{at}.within: must be between 0 and 1 (0.05 is 5 points)",
            ),
        ]
    return found
