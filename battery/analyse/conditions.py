"""Doubts about conditions: what differed, changed, went wrong or could not be told while the receipts were made.

What a doubt is, and what doubts are drawn from, stands here too: `doubts` adds those that lie in the record and in the
figures.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from functools import cached_property
from itertools import pairwise
from typing import Literal

import msgspec
import numpy as np
import pandas as pd

from battery.analyse import facts
from battery.analyse.drift import Drift
from battery.analyse.facts import Difference, SwitchFacts
from battery.analyse.gating import Disturbance, GateFacts, Phase
from battery.analyse.lengths import Lengths
from battery.analyse.numerals import figure, percent
from battery.analyse.speed import Comparison
from battery.analyse.stopping import Stopped
from battery.ledger.receipt import Receipt
from battery.ledger.store import Header

MOST_FAULTS = 1000
"""Major page faults in one cell, beyond which the disk had a part in the time: a few come with any first touch."""
_GIGA = 1e9
_ROOMS = ("versions", "machine", "environment")
"""Fields of a receipt that tell what made it."""

Severity = Literal["void", "warning", "note"]


class Doubt(msgspec.Struct, frozen=True, kw_only=True):
    """One finding about validity."""

    severity: Severity
    what: str
    evidence: tuple[int, ...] = ()
    """Sequences of the receipts that show it."""
    remedy: str
    arm: str | None = None
    """The candidate whose verdicts it touches; None: all."""


class Beside(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of receipts that are not among those analysed."""

    elsewhere: frozenset[int] = frozenset()
    """Numbers of those whose files are there, readable or not."""
    aside: tuple[tuple[str, str], ...] = ()
    """File and reason of those that were set aside while the campaign went on."""


class Case(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """Everything that doubts are drawn from."""

    frame: pd.DataFrame
    receipts: Sequence[Receipt]
    header: Header
    stopped: Stopped
    comparisons: tuple[Comparison, ...]
    drift: Drift
    lengths: tuple[Lengths, ...]
    differences: tuple[Difference, ...]
    switches: tuple[SwitchFacts, ...]
    gates: GateFacts
    disturbances: tuple[Disturbance, ...] = ()
    phases: tuple[Phase, ...] = ()
    unreadable: Sequence[str]
    pool: str
    """Why the receipts may not be pooled, or nothing."""
    beside: Beside = Beside()

    @cached_property
    def pooled(self) -> list[Receipt]:
        """The receipts that enter an estimate, in the order of the run."""
        kept = set(sequences(self.frame[self.frame["pooled"].astype(bool)]))
        found = [receipt for receipt in self.receipts if receipt.sequence in kept]
        return sorted(found, key=lambda receipt: receipt.sequence)


def sequences(frame: pd.DataFrame) -> tuple[int, ...]:
    """The receipts of these rows."""
    return tuple(int(number) for number in frame["sequence"])


def touches(case: Case, arm: str) -> str | None:
    """Whose verdicts a doubt about `arm` touches: all, where it is the control."""
    return None if arm == case.header.control else arm


def conditions(case: Case) -> list[Doubt]:
    """All doubts about conditions."""
    return [
        *_replayed(case),
        *_unlike(case),
        *_changes(case),
        *_dirty(case),
        *_paging(case),
        *_stolen(case),
        *_unbelieved(case),
        *_unknowns(case),
    ]


def _replayed(case: Case) -> list[Doubt]:
    """What a replay cannot show."""
    source = case.header.plan.replayed
    if source is None:
        return []
    return [
        Doubt(
            severity="note",
            what=f"every arm followed texts of {source.campaign}: lengths, acceptance and tokens per step are those of"
            " these texts, whatever an arm would have written; where it draws its guesses, or its law lets more pass"
            " than the text's own token, not as many of them stand here as on a text that it leads",
            remedy=f"{source.campaign} has what the arms write by themselves; battery beside sets both side by side",
        )
    ]


def _whose(case: Case, receipts: Sequence[Receipt]) -> str | None:
    """Whose verdicts a doubt about these receipts touches: one candidate's, or all."""
    names = {receipt.cell.arm for receipt in receipts}
    return touches(case, names.pop()) if len(names) == 1 else None


def _numbers(receipts: Sequence[Receipt]) -> tuple[int, ...]:
    """The sequences of receipts."""
    return tuple(receipt.sequence for receipt in receipts)


def _unlike(case: Case) -> list[Doubt]:
    """Differences between the arms that no arm file declares."""
    return [
        Doubt(
            severity="warning",
            what=f"arms {case.header.control} and {one.candidate} also differ in {one.what}, which neither declares:"
            f" {one.control_has} against {one.candidate_has}",
            remedy="make it the same, or write it into the arm files so that the claim includes it",
            arm=one.candidate,
        )
        for one in case.differences
        if not one.declared
    ]  # fmt: skip


def _changes(case: Case) -> list[Doubt]:
    """Arms whose pooled receipts come from more than one build, commit, machine or environment."""
    found = []
    for arm in case.header.arms:
        steps = _steps([receipt for receipt in case.pooled if receipt.cell.arm == arm.name])
        if steps:
            told = [
                f"from receipt {number} on {', '.join(facts.distinct(changed))}"
                for number, changed in steps.items()
            ]
            found.append(
                Doubt(
                    severity="warning",
                    what=f"arm {arm.name}: its pooled receipts are not of one build, machine and environment:"
                    f" {'; '.join(facts.distinct(told))}",
                    evidence=tuple(steps),
                    remedy="run a campaign from one commit on one machine; these blocks mix two things under one name",
                    arm=touches(case, arm.name),
                )
            )  # fmt: skip
    return found


def _steps(receipts: Sequence[Receipt]) -> dict[int, list[str]]:
    """Per receipt at which anything changed against the receipt before it, what changed."""
    found: dict[int, list[str]] = {}
    # thousands of receipts share what made them, and often the very tables
    known: dict[tuple[int, ...], dict[str, str]] = {}
    made = []
    for receipt in receipts:
        same = tuple(id(getattr(receipt, room)) for room in _ROOMS)
        if same not in known:
            known[same] = _made(receipt)
        made.append(known[same])
    for receipt, (before, now) in zip(receipts[1:], pairwise(made), strict=True):
        if before is now:
            continue
        for path in sorted({*before, *now}):
            left, right = before.get(path, "absent"), now.get(path, "absent")
            if left != right:
                told = f"{path} is {_short(right)} (was {_short(left)})"
                found.setdefault(receipt.sequence, []).append(told)
    return found


def _made(receipt: Receipt) -> dict[str, str]:
    """Every path into what made a receipt, with its value; the order of a list of packages says nothing."""
    found = {}
    for room in _ROOMS:
        for path, value in facts.flat(getattr(receipt, room), room):
            if isinstance(value, list) and path.endswith("packages"):
                value = sorted(facts.text(one) for one in value)
            found[path] = facts.text(value)
    return found


def _short(value: str) -> str:
    """A value for a sentence; a commit by its first digits."""
    return value if len(value) <= 24 else f"{value[:12]}…"


def _dirty(case: Case) -> list[Doubt]:
    """Builds whose commit does not say what ran."""
    found: dict[str, list[Receipt]] = defaultdict(list)
    known: dict[int, list[str]] = {}
    for receipt in case.pooled:
        if id(receipt.versions) not in known:
            known[id(receipt.versions)] = [
                path.split(".")[1]
                for path, value in facts.flat(receipt.versions, "versions")
                if value is True and path.endswith(".dirty")
            ]
        for who in known[id(receipt.versions)]:
            found[who].append(receipt)
    doubts = []
    for who, here in sorted(found.items()):
        arms = ", ".join(sorted({receipt.cell.arm for receipt in here}))
        doubts.append(
            Doubt(
                severity="warning",
                what=f"{who} ran from changed sources (dirty) in {len(here)} pooled cells of {arms}: the commit does"
                " not say what ran",
                evidence=_numbers(here), remedy="commit, and run a new campaign", arm=_whose(case, here),
            )
        )  # fmt: skip
    return doubts


def _paging(case: Case) -> list[Doubt]:
    """Cells in which the server waited for the disk instead of computing."""
    here = [
        receipt
        for receipt in case.pooled
        if (receipt.memory.swapped_bytes or 0) > 0
        or (receipt.memory.major_faults or 0) > MOST_FAULTS
    ]
    if not here:
        return []
    swapped = max(receipt.memory.swapped_bytes or 0 for receipt in here)
    faults = max(receipt.memory.major_faults or 0 for receipt in here)
    return [
        Doubt(
            severity="warning",
            what=f"paging during the cell in {len(here)} pooled cells: up to {figure(swapped / _GIGA, 3)} GB of a"
            f" server swapped out, up to {faults:,} major faults",
            evidence=_numbers(here), remedy="free memory, or take the rung off the ladder", arm=_whose(case, here),
        )
    ]  # fmt: skip


def _stolen(case: Case) -> list[Doubt]:
    """Cells during which the hypervisor took more than the gate would have let pass."""
    limit = case.header.plan.gate.max_steal
    if limit is None:
        return []
    means = {}
    for receipt in case.pooled:
        shares = [sample.steal for sample in receipt.samples if sample.steal is not None]
        if shares and float(np.mean(shares)) > limit:
            means[receipt.sequence] = float(np.mean(shares))
    if not means:
        return []
    here = [receipt for receipt in case.pooled if receipt.sequence in means]
    return [
        Doubt(
            severity="note",
            what=f"in {len(means)} pooled cells the hypervisor took more than {100 * limit:g} % of the time on average"
            f" (up to {percent(max(means.values()))}), which the gate would have refused beforehand",
            evidence=tuple(means), remedy="they stay in the estimate; a quieter host would narrow it",
            arm=_whose(case, here),
        )
    ]  # fmt: skip


def _unbelieved(case: Case) -> list[Doubt]:
    """Servers whose word on their cache or on the seed an untimed repeat disproved."""
    found = []
    for arm in case.header.arms:
        own = [receipt for receipt in case.pooled if receipt.cell.arm == arm.name]
        for what, doubts, remedy in (
            ("cold by its word only", {r.sequence: r.cold.doubt for r in own if r.cold.doubt},
             "turn its prefix cache off, or let usage tell what it spared; fresh servers and new prompts remain"),
            ("the seed was not honoured", {r.sequence: r.request.doubt for r in own if r.request.doubt},
             "the arms may have drawn other texts for the same seed; use an engine that keeps to it"),
        ):  # fmt: skip
            if doubts:
                told = f"arm {arm.name}: {what} in {len(doubts)} of {len(own)} cells: {next(iter(doubts.values()))}"
                found.append(
                    Doubt(
                        severity="warning", what=told, evidence=tuple(doubts), remedy=remedy,
                        arm=touches(case, arm.name),
                    )
                )  # fmt: skip
    return found


def _unknowns(case: Case) -> list[Doubt]:
    """What nobody could tell: cold prefill, sampler, limits without a sensor, guessed token counts."""
    pooled = case.frame[case.frame["pooled"].astype(bool)]
    disproved = {
        "cold": {receipt.sequence for receipt in case.pooled if receipt.cold.doubt},
        "honoured": {receipt.sequence for receipt in case.pooled if receipt.request.doubt},
    }
    found = []
    for column, word, what, remedy in (
        ("cold", "unverified", "the server does not say whether the prefill was cold",
         "fresh servers and prompts without a common prefix support it; cached tokens in usage would prove it"),
        ("honoured", "unknown", "the server does not say which sampler it applied", "use an engine that echoes it"),
        ("count_source", "estimate", "the token count is a guess, so there is no rate",
         "ask for usage in the stream (stream_options.include_usage)"),
    ):  # fmt: skip
        for arm in case.header.arms:
            rows = pooled[(pooled["arm"] == arm.name) & (pooled[column] == word)]
            rows = rows[~rows["sequence"].isin(disproved.get(column, set()))]
            if len(rows):
                told = f"arm {arm.name}: {what} ({len(rows)} of {int((pooled['arm'] == arm.name).sum())} cells)"
                found.append(
                    Doubt(
                        severity="note", what=told, evidence=sequences(rows), remedy=remedy,
                        arm=touches(case, arm.name),
                    )
                )  # fmt: skip
    for limit, why in case.gates.ungated.items():
        if "sets no limit" not in why:
            found.append(
                Doubt(
                    severity="note", what=f"not gated: {limit}: {why}",
                    remedy="interleaving still guards the ratio; the absolute numbers are of this machine at that hour",
                )
            )  # fmt: skip
    return found
