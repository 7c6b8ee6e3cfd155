"""The same campaign by kind of text: what drafts gain on code says nothing of prose.

A plan with several workloads measures all of them in the same windows. Everything else in the findings is over their
equal shares; here each has its own levels, ratios and verdicts, for decode and for the two factors of a speculative
rate. Machine and order are common to the kinds, so what differs between them is the text.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import pandas as pd

from battery.analyse import speed
from battery.analyse.pairs import Sides, match
from battery.analyse.speed import FACTORS, Comparison, Level
from battery.ledger.store import Header
from battery.ledger.trace import Trace

SHOWN = ("decode", *FACTORS)


class ByWorkload(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of text: what every arm did on it, and how each candidate stands to the control there."""

    workload: str
    levels: tuple[Level, ...]
    comparisons: tuple[Comparison, ...]

    def level(self, arm: str, metric: str, rung: int) -> Level | None:
        """One arm's own value, if the metric is known at all."""
        wanted = (arm, metric, rung)
        return next((x for x in self.levels if (x.arm, x.metric, x.rung) == wanted), None)

    def comparison(self, candidate: str, metric: str, rung: int) -> Comparison | None:
        """One candidate against the control."""
        wanted = (candidate, metric, rung)
        return next(
            (x for x in self.comparisons if (x.candidate, x.metric, x.rung) == wanted), None
        )


def by_workload(
    frame: pd.DataFrame, traces: Mapping[int, Trace], header: Header, complete: int
) -> tuple[ByWorkload, ...]:
    """Every workload of the plan in its order; nothing where there is one only.

    Holm runs within a metric over all candidates, contexts and workloads: whoever looks for the text on which an arm
    does well asks as many questions. In a screen it is Benjamini-Hochberg. None of them is the primary endpoint.
    """
    mix = header.plan.mix
    if len(mix) < 2:
        return ()
    frames = {workload: frame[frame["workload"] == workload] for workload in mix}
    made = [
        (workload, one)
        for workload, own in frames.items()
        for one in _compared(own, traces, header)
    ]
    metrics = dict.fromkeys(one.metric for _, one in made)
    way = "Benjamini-Hochberg" if header.screen else "Holm"
    tests = [
        (
            [one for _, one in made if one.metric == metric],
            f"{way} over {{}} comparisons by workload",
        )
        for metric in metrics
    ]
    judged = speed.judged([one for _, one in made], tests, header, complete)
    return tuple(
        ByWorkload(
            workload=workload,
            levels=tuple(level for level in speed.levels(own, header) if level.metric in SHOWN),
            comparisons=tuple(
                one for (of, _), one in zip(made, judged, strict=True) if of == workload
            ),
        )
        for workload, own in frames.items()
    )


def _compared(frame: pd.DataFrame, traces: Mapping[int, Trace], header: Header) -> list[Comparison]:
    """Every candidate, metric and rung on one kind of text, before correction."""
    found, sides = [], Sides(frame)
    for candidate in (arm.name for arm in header.arms[1:]):
        for metric in SHOWN:
            if metric != "decode" and not speed.both_have(frame, metric, header.control, candidate):
                continue
            for rung in header.plan.ladder:
                arms = (header.control, candidate)
                pairs = match(sides, traces, header.plan, metric, rung, arms)
                one = speed.compared(pairs, header, candidate, rung)
                found.append(msgspec.structs.replace(one, primary=False, sensitivity=None))
    return found


def fields(found: tuple[ByWorkload, ...]) -> dict[str, Any]:
    """The field of the findings; not there at all for one workload, so that its findings keep their bytes."""
    return {"workloads": found} if found else {}
