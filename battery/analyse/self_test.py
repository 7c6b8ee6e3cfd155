"""The method where nothing differs: neighbouring windows of one arm, as if they were two arms."""

from __future__ import annotations

import itertools

import msgspec

from battery.analyse import stats
from battery.analyse.series import Means
from battery.ledger.store import Header

SELF_TEST_ALPHA = 0.001
"""At which the arms-against-themselves test voids the verdicts. A few pairs see little: the test finds what follows the
pattern of the order, and neither drift nor noise, which the order cancels. So it must hardly ever void a calm campaign.
"""
_FEWEST_PAIRS = 4
TURNS = (1, -1, -1, 1)
"""Signs of neighbouring same-arm pairs. A steady drift cancels over them, and so does carry-over, which speeds one
arm's pairs up and slows the other's down. Two pairs in succession share a block, and with it the luck of that block's
prompts; their signs are as often alike as not, so that it does not add up. Signs that merely alternate let it: they
void eleven honest batteries in a thousand instead of one (reports/statistics.md, section 6).
"""


class SelfTest(msgspec.Struct, frozen=True, kw_only=True):
    """Adjacent windows of one arm, later minus earlier, signed in turn: the method where nothing differs."""

    pairs: int
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    p: float | None = None
    failed: bool = False
    why: str = ""


def self_test(means: Means, header: Header) -> SelfTest:
    """Same-arm neighbours in time with nothing between, later minus earlier, with the signs of `TURNS`."""
    neighbours = [
        later.value - earlier.value
        for earlier, later in itertools.pairwise(means)
        if later.place == earlier.place + 1 and later.after and later.arm == earlier.arm
    ]
    if len(neighbours) < _FEWEST_PAIRS:
        return SelfTest(pairs=len(neighbours), why=_why(header))
    found = stats.paired(
        [TURNS[place % 4] * d for place, d in enumerate(neighbours)],
        header.plan.stopping.alpha,
        flip=False,
    )
    if found is None or found.p is None:
        return SelfTest(pairs=len(neighbours), why="no interval can be computed")
    return SelfTest(
        pairs=len(neighbours), ratio=found.ratio, low=found.low, high=found.high, p=found.p,
        failed=found.p < SELF_TEST_ALPHA and found.sd != 0.0,
    )  # fmt: skip


def _why(header: Header) -> str:
    """Why there are too few pairs: the order has none, or too few of its windows were measured."""
    run = [arm for block in header.order for arm in block]
    if sum(one == other for one, other in itertools.pairwise(run)) < _FEWEST_PAIRS:
        return (
            f"the order of {len(header.arms)} arms over {len(header.order)} blocks puts an arm next to itself too"
            f" seldom ({_FEWEST_PAIRS} pairs are needed)"
        )
    return f"needs {_FEWEST_PAIRS} pairs of neighbouring windows of one arm"
