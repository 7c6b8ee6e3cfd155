"""Reasons to doubt a campaign, each with its evidence and a remedy; `void` ones make every verdict invalid.

Here are those that lie in the record and in the figures; `conditions` has those about the circumstances.
"""

from __future__ import annotations

import numpy as np

from battery.analyse.blocks import balanced, blocks, stands
from battery.analyse.conditions import Case, Doubt, Severity, conditions, sequences, touches
from battery.analyse.during import during
from battery.analyse.numerals import figure, percent
from battery.analyse.pairs import BODIES_DIFFER
from battery.analyse.stats import FEWEST_BLOCKS

_NORMAL_MAD, _FAR = 0.6745, 5.0
"""A normal spread has .6745 of itself as its median deviation; five spreads off is far."""

_ENGAGEMENT: tuple[tuple[str, Severity, str], ...] = (
    ("disengaged", "void", "mend the arm or the engine until its health shows every switch engaged"),
    ("declined", "warning", "read the engine's reason in section 3; the arm is not what its file asks for"),
    ("unobservable", "note", "this backend cannot say what ran; compare with a control that lacks the switch"),
)  # fmt: skip


def doubts(case: Case) -> tuple[Doubt, ...]:
    """All of them, gravest first."""
    rank = {"void": 0, "warning": 1, "note": 2}
    found = [
        *_record(case), *blocks(case), *_engagement(case), *_pairs(case), *_lengths(case), *_steadiness(case),
        *_far_blocks(case), *_texts(case), *_cells(case), *during(case), *conditions(case),
    ]  # fmt: skip
    return tuple(sorted(found, key=lambda doubt: rank[doubt.severity]))


def _record(case: Case) -> list[Doubt]:
    """Receipts that cannot be read or do not belong together."""
    found = [
        Doubt(
            severity="void", what=f"a receipt was left out: {complaint}",
            remedy="restore the file from version control, or, while it is not sealed, run the campaign again: a file"
            " that cannot be read is set aside and its block measured anew",
        )
        for complaint in case.unreadable
    ]  # fmt: skip
    if case.pool:
        found.append(
            Doubt(
                severity="void", what=case.pool,
                remedy="keep receipts of different campaigns, plans, arms or models in folders of their own",
            )
        )  # fmt: skip
    return found


def _engagement(case: Case) -> list[Doubt]:
    """Pooled cells whose switches did not run, were declined, or cannot be seen."""
    found = []
    for arm in case.header.arms:
        own = case.frame[(case.frame["arm"] == arm.name) & case.frame["pooled"].astype(bool)]
        for word, severity, remedy in _ENGAGEMENT:
            rows = own[own["engagement"] == word]
            if len(rows):
                what = f"arm {arm.name}: engagement is '{word}' in {len(rows)} pooled cells"
                found.append(
                    Doubt(
                        severity=severity, what=what, evidence=sequences(rows), remedy=remedy,
                        arm=touches(case, arm.name),
                    )
                )  # fmt: skip
    return found


def _pairs(case: Case) -> list[Doubt]:
    """Pairs that could not be made, or only over a common prefix."""
    found = []
    for one in case.comparisons:
        at = f"{one.candidate} against {one.control}, {one.metric} at {one.rung:,}"
        bodies = one.lost.get(BODIES_DIFFER)
        if bodies and one.metric == "decode":
            found.append(
                Doubt(
                    severity="warning", what=f"{at}: {bodies} pairs had different request bodies and were not compared",
                    remedy="send every arm the same bytes; only the model's name may differ", arm=one.candidate,
                )
            )  # fmt: skip
        if one.unequal_lengths:
            found.append(
                Doubt(
                    severity="warning",
                    what=f"{at}: {one.unequal_lengths} of {one.pairs} pairs stopped at different lengths and were timed"
                    " over the tokens that both produced",
                    evidence=one.receipts,
                    remedy="force equal lengths (min_tokens = max_tokens) where the engine can", arm=one.candidate,
                )
            )  # fmt: skip
        sources = [why for why in one.lost if "different sources" in why]
        if sources:
            found.append(
                Doubt(
                    severity="warning", what=f"{at}: not compared, {sources[0]}",
                    remedy="measure both arms by the same source", arm=one.candidate,
                )
            )  # fmt: skip
    return found


def _lengths(case: Case) -> list[Doubt]:
    """Arms whose answers are longer or shorter than the control's."""
    return [
        Doubt(
            severity="warning",
            what=f"{one.candidate} at {one.rung:,}: its answers have {figure(one.candidate_tokens, 3)} tokens, those of"
            f" {case.header.control} on the same prompts {figure(one.control_tokens, 3)}: they differ in length",
            remedy="an arm that stops at another place answers otherwise; read section 4, and no wall time as speed",
            arm=one.candidate,
        )
        for one in case.lengths
        if one.differs
    ]  # fmt: skip


def _steadiness(case: Case) -> list[Doubt]:
    """What the drift diagnostics show."""
    drift, found = case.drift, []
    if drift.self_test.failed:
        found.append(
            Doubt(
                severity="void",
                what="the arms differ from themselves: neighbouring windows of one arm give"
                f" p = {figure(drift.self_test.p, 2)}",
                remedy="find what changed the machine between windows, and run again",
            )
        )  # fmt: skip
    for order in drift.order:
        if order.flagged and order.ratio is not None:
            found.append(
                Doubt(
                    severity="warning",
                    what=f"arm {order.candidate}: its ratio depends on whether it ran second"
                    f" ({percent(order.ratio - 1, sign=True)})",
                    remedy=_cancels(case, order.candidate),
                    arm=order.candidate,
                )
            )  # fmt: skip
    for one in drift.warm_ups:
        if one.flagged and one.ratio is not None:
            found.append(
                Doubt(
                    severity="warning",
                    what=f"arm {one.arm}: the first seed of a context is unlike the rest in {one.metric}"
                    f" ({percent(one.ratio - 1, sign=True)})",
                    remedy="raise warm_up_tokens in the plan, so that an untimed request meets new shapes first",
                    arm=touches(case, one.arm),
                )
            )  # fmt: skip
    if drift.step.flagged and drift.step.share is not None:
        found.append(
            Doubt(
                severity="note",
                what=f"the level changed for good at about window {drift.step.window}"
                f" ({percent(drift.step.share, sign=True)})",
                remedy="nothing was left out: both arms of a block share it; look at that window's readings",
            )
        )  # fmt: skip
    return found


def _cancels(case: Case, candidate: str) -> str:
    """What to make of an order effect: it cancels only where the blocks behind the estimate hold orders alike."""
    (one,) = [one for one in case.comparisons if one.primary and one.candidate == candidate]
    told, rests = stands(one, case.header), "longer rests between windows would remove it"
    if balanced((block for block, _ in one.by_block), case.header):
        return f"{told}, which cancels it; {rests}"
    return f"{told}, which does not cancel it: read the ratio without it in section 1.5; {rests}"


def _far_blocks(case: Case) -> list[Doubt]:
    """Blocks whose ratio at the primary endpoint stands far from the others; they are told of, never dropped."""
    found = []
    for one in case.comparisons:
        if not one.primary or len(one.by_block) < FEWEST_BLOCKS:
            continue
        numbers = [block for block, _ in one.by_block]
        logs = np.log([ratio for _, ratio in one.by_block])
        off = np.abs(logs - np.median(logs))
        spread = float(np.median(off)) / _NORMAL_MAD
        far = [b for b, x in zip(numbers, off, strict=True) if x > max(_FAR * spread, 1e-9)]
        if far and len(far) < len(numbers) / 3:
            told = ", ".join(
                f"{block} ({100 * (dict(one.by_block)[block] - 1):+.1f} %)" for block in far
            )
            middle = 100 * (float(np.exp(np.median(logs))) - 1)
            found.append(
                Doubt(
                    severity="note", arm=one.candidate,
                    what=f"arm {one.candidate}: block {told} stands far from the median block ({middle:+.1f} %)",
                    remedy="it stays in the estimate; look at its windows' readings in section 1.5 for the cause",
                )
            )  # fmt: skip
    return found


def _texts(case: Case) -> list[Doubt]:
    """Sentinel texts that change within an arm, or between arms that claim the same bytes."""
    found = []
    seen = {sentinel.arm: sentinel for sentinel in case.drift.sentinels}
    for sentinel in seen.values():
        if sentinel.texts > 1:
            found.append(
                Doubt(
                    severity="note",
                    what=f"arm {sentinel.arm}: the sentinel gave {sentinel.texts} texts in {sentinel.windows} windows",
                    remedy="the seed does not fix this engine's output; read the spread as including it",
                    arm=touches(case, sentinel.arm),
                )
            )  # fmt: skip
    control = seen.get(case.header.control)
    for arm in case.header.arms[1:]:
        # The control's switches count too: where one rounds, another text is no fault of the candidate.
        pair = (case.header.control, arm.name)
        claims = [s.exactness for s in case.switches if s.arm in pair and s.asked]
        own = seen.get(arm.name)
        both = control and own and control.digest and own.digest
        if both and claims and set(claims) == {"exact"} and control.digest != own.digest:  # type: ignore[union-attr]
            found.append(
                Doubt(
                    severity="void",
                    what=f"arms {case.header.control} and {arm.name} claim only exact switches, but their sentinel"
                    " texts differ",
                    remedy="find the switch that changes bytes, and name it rounding or lossy", arm=arm.name,
                )
            )  # fmt: skip
    return found


def _cells(case: Case) -> list[Doubt]:
    """Too many cells failed; prompts that were not cold; samplers that were changed."""
    frame, plan, found = case.frame, case.header.plan, []
    again = {n for one in case.disturbances if not one.counted for n in one.receipts}
    frame = frame[~frame["sequence"].isin(again)]
    failed = frame[frame["outcome"] != "ok"]
    if len(frame) and len(failed) / len(frame) > plan.limits.failed_share:
        allowed = f"the plan allows {100 * plan.limits.failed_share:g} %"
        share = f"{len(failed)} of {len(frame)} cells did not end ok ({allowed})"
        found.append(
            Doubt(
                severity="warning", what=share, evidence=sequences(failed),
                remedy="section 1.4 shows each outcome; mend the cause, or take the rung off the ladder",
            )
        )  # fmt: skip
    pooled = frame[frame["pooled"].astype(bool)]
    changed = pooled[pooled["honoured"] == "changed"]
    if len(changed):
        found.append(
            Doubt(
                severity="void", what=f"{len(changed)} pooled cells were sampled otherwise than asked",
                evidence=sequences(changed), remedy="make the engine apply the sampler of the plan",
            )
        )  # fmt: skip
    return found
