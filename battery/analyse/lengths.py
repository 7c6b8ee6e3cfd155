"""Whether the arms write answers of the same length: an outcome of its own, and the bar for comparing unequal ones.

An arm that stops earlier looks faster in wall time, and decode over the first tokens only is another question than
decode over all of them. So unequal pairs are timed over what both produced, if that is long enough, and the lengths
themselves are tested.
"""

from __future__ import annotations

import math
from collections import defaultdict

import msgspec
import numpy as np
import pandas as pd

from battery.analyse import stats
from battery.analyse.stats import FEWEST_BLOCKS, Estimate
from battery.ledger.plan import Plan
from battery.ledger.store import Header

FEWEST_TOKENS = 128
"""Common tokens below which an unequal pair is dropped, in plans that ask for more than that."""
_COUNTED = ("ok", "short")
"""Outcomes whose length counts: an answer that ended early is what is looked for here."""


class Lengths(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens of the answers of one candidate against the control's on the same prompts, at one rung."""

    candidate: str
    rung: int
    pairs: int
    unequal: int
    control_tokens: float | None = None
    """Geometric mean."""
    candidate_tokens: float | None = None
    estimate: Estimate | None = None
    """Ratio of the lengths, from block means of their log ratios."""
    p_corrected: float | None = None
    """After the same correction as a metric's verdicts, with no rung apart."""
    differs: bool = False
    """Whether it is a difference, from six blocks on."""


def fewest(plan: Plan) -> int:
    """Common tokens that an unequal pair must have to be compared."""
    most = plan.sampler.max_tokens
    return max(plan.sampler.min_tokens, FEWEST_TOKENS if most > FEWEST_TOKENS else 0)


def lengths(frame: pd.DataFrame, header: Header) -> tuple[Lengths, ...]:
    """Every candidate and rung, over pairs of which both counts are known.

    Holm runs over a candidate's rungs, Benjamini-Hochberg over all in a screen.
    """
    usable = frame[
        frame["counted"].astype(bool) & ~frame["sentinel"].astype(bool) & frame["outcome"].isin(_COUNTED)
        & (frame["count_source"] != "estimate") & (frame["n_tokens"] > 0)
    ][["arm", "rung", "block", "seed", "body_digest", "n_tokens"]]  # fmt: skip
    alpha = header.plan.stopping.alpha
    by_arm = [
        [_lengths(usable, header, arm.name, rung, alpha) for rung in header.plan.ladder]
        for arm in header.arms[1:]
    ]
    tests = [[one for own in by_arm for one in own]] if header.screen else by_arm
    adjust = stats.false_discovery if header.screen else stats.holm
    found = []
    for test in tests:
        ps = adjust([one.estimate.p if one.estimate else None for one in test])
        for one, p in zip(test, ps, strict=True):
            blocks = one.estimate.blocks if one.estimate else 0
            differs = p is not None and p < alpha and blocks >= FEWEST_BLOCKS
            found.append(msgspec.structs.replace(one, p_corrected=p, differs=differs))
    return tuple(found)


def _lengths(
    frame: pd.DataFrame, header: Header, candidate: str, rung: int, alpha: float
) -> Lengths:
    """One candidate at one rung, before correction."""
    sides = []
    for arm in (header.control, candidate):
        here = frame[(frame["rung"] == rung) & (frame["arm"] == arm)]
        keys = zip(*(here[name].tolist() for name in ("block", "seed", "body_digest")), strict=True)
        sides.append(dict(zip(keys, here["n_tokens"].astype(int).tolist(), strict=True)))
    pairs = {key: (n, sides[1][key]) for key, n in sides[0].items() if key in sides[1]}
    logs: dict[int, list[float]] = defaultdict(list)
    for (block, _, _), (one, other) in sorted(pairs.items()):
        logs[block].append(math.log(other) - math.log(one))
    means = [
        math.exp(float(np.mean([math.log(pair[side]) for pair in pairs.values()]))) if pairs else None
        for side in (0, 1)
    ]  # fmt: skip
    return Lengths(
        candidate=candidate, rung=rung, pairs=len(pairs),
        unequal=sum(one != other for one, other in pairs.values()),
        control_tokens=means[0], candidate_tokens=means[1],
        estimate=stats.paired([float(np.mean(here)) for here in logs.values()], alpha, flip=False),
    )  # fmt: skip
