"""What adaptive drafts cost at worst on free prose: from the receipts of a committed campaign, by battery's analysis.

The campaign is `adaptive` (plan and arms of the repository: A plain, P the same with `prompt_lookup` and
`adaptive_depth`). The slowdown at a rung is 1 - r, r the ratio of P's decode rate to A's as the analysis estimates it;
the worst is the largest over the rungs, negative where P is faster at all of them. Beside it stands the end of its
interval: 1 - the interval's lower end. Null, with the reason, where there is no such campaign, where it is not
finished, and where something voids it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from battery.analyse.findings import Findings, analyse
from battery.ledger.errors import BatteryError

CAMPAIGN = "adaptive"
CANDIDATE, METRIC = "P", "decode"
KEY = "adaptive_worst_slowdown"


def told(root: Path) -> dict[str, Any]:
    """What goes into the document: the worst slowdown, its rungs, and why it is null where it is."""
    folder = root / "receipts" / CAMPAIGN
    if not folder.is_dir():
        return _unknown("no campaign of `adaptive_depth` on free prose is committed")
    try:
        found = analyse(folder)
    except BatteryError as error:
        return _unknown(f"receipts/{CAMPAIGN} cannot be read: {error}")
    return of(found)


def of(found: Findings) -> dict[str, Any]:
    """The same of findings."""
    if found.status != "complete":
        return _unknown(f"the campaign {found.campaign} is not finished: {found.stopped.why}")
    compared = [found.comparison(CANDIDATE, METRIC, rung) for rung in found.plan.ladder]
    rungs = []
    for rung, one in zip(found.plan.ladder, compared, strict=True):
        if one is None:
            return _unknown(f"the campaign {found.campaign} has no arm {CANDIDATE}")
        if one.verdict.word in ("invalid", "not comparable") or one.estimate is None:
            why = one.verdict.why or "there is no estimate"
            return _unknown(f"the campaign {found.campaign} at {rung} tokens: {why}")
        low, high = one.estimate.low, one.estimate.high
        rungs.append(
            {
                "rung": rung,
                "slowdown": 1 - one.estimate.ratio,
                "at_least": None if high is None else 1 - high,
                "at_most": None if low is None else 1 - low,
                "blocks": one.estimate.blocks,
                "verdict": one.verdict.word,
            }
        )
    worst = max(rungs, key=lambda row: float(str(row["slowdown"])))
    adaptive = {"campaign": found.campaign, "seal": found.seal, "rungs": rungs}
    return {KEY: worst["slowdown"], "adaptive": adaptive, "reasons": {}}


def _unknown(why: str) -> dict[str, Any]:
    return {KEY: None, "adaptive": None, "reasons": {KEY: f"not measured: {why}"}}


def sentence(document: dict[str, Any]) -> str:
    """The last sentence of the page."""
    slow, adaptive = document[KEY], document["adaptive"]
    about = "Worst slowdown of `adaptive_depth` on free prose"
    if slow is None:
        return f"{about}: {document['reasons'][KEY]}."
    row = max(adaptive["rungs"], key=lambda one: float(one["slowdown"]))
    interval = (
        "no interval"
        if row["at_most"] is None
        else f"[{row['at_least']:+.2%}, {row['at_most']:+.2%}]"
    )
    return (
        f"{about}: {slow:+.2%} {interval} at {row['rung']} tokens, {row['blocks']} blocks"
        f" (campaign `{adaptive['campaign']}`; below 0 it is faster)."
    )
