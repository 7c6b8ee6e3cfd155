"""The noise floor of a machine: a real campaign of an arm against itself, from its committed findings."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from battery.analyse import findings as analysis
from battery.analyse.speed import MAIN, Comparison

CAMPAIGN = "aa-cpu"
"""Two arms that differ in their name alone, measured as any others."""


def noise_floor(reports: Path, campaign: str = CAMPAIGN) -> dict[str, Any]:
    """Each metric and rung of the campaign: ratio, interval, half-width; or why there is none."""
    path = reports / f"{campaign}.json"
    if not path.is_file():
        why = f"reports/{campaign}.json is not there: no campaign of an arm against itself is committed"
        return {"campaign": campaign, "why": why, "rows": []}
    found = analysis.read(path)
    rows = [_row(one) for one in found.comparisons if one.metric in MAIN and one.estimate]
    return {
        "campaign": campaign, "why": "", "seal": found.seal, "blocks": found.blocks_complete,
        "arms": [found.control, *found.candidates], "machine": found.machine.get("cpu"), "rows": rows,
    }  # fmt: skip


def _row(one: Comparison) -> dict[str, Any]:
    """One comparison of the arm with itself."""
    estimate = one.estimate
    assert estimate is not None
    low, high = estimate.low, estimate.high
    known = low is not None and high is not None
    return {
        "metric": one.metric, "rung": one.rung, "primary": one.primary, "ratio": estimate.ratio, "low": low,
        "high": high, "half_width": math.sqrt(high / low) - 1 if known else None,  # type: ignore[operator]
        "holds_one": low <= 1 <= high if known else None,  # type: ignore[operator]
        "verdict": one.verdict.word,
    }  # fmt: skip
