"""Findings: everything that a report may say about one campaign, computed from its folder alone.

`analyse` reads receipts and returns a Findings; render sees nothing else. Floats keep nine significant digits, so that
the file is the same on every machine that computes it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

from battery.analyse import bars as barring
from battery.analyse import doubts as doubting
from battery.analyse import drift as drifting
from battery.analyse import facts, gating, speed, stopping
from battery.analyse import quality as grading
from battery.analyse.admitted import admitted
from battery.analyse.bars import BarResult
from battery.analyse.blocks import left_beside, with_journal
from battery.analyse.conditions import Beside, Case, Doubt
from battery.analyse.drift import Drift
from battery.analyse.facts import (
    ArmFacts,
    Difference,
    Outcomes,
    SwitchFacts,
    WindowFacts,
)
from battery.analyse.fits import Fit, fits
from battery.analyse.gating import Disturbance, GateFacts, Phase
from battery.analyse.lengths import Lengths, lengths
from battery.analyse.mechanism import Mechanism, mechanisms
from battery.analyse.quality import Quality
from battery.analyse.rows import MEASURES, rows
from battery.analyse.speed import Comparison, Ladder, Level
from battery.analyse.stats import FEWEST_BLOCKS, Verdict
from battery.analyse.stopping import Stopped
from battery.analyse.within import Within
from battery.analyse.within import fields as within_fields
from battery.analyse.workloads import ByWorkload, by_workload, fields
from battery.ledger import journal, strict
from battery.ledger.claims import Bar
from battery.ledger.journal import Events
from battery.ledger.loading import Loaded, load, resting
from battery.ledger.plan import Plan
from battery.ledger.receipt import Receipt
from battery.ledger.store import Campaign, Earlier, Header, Screen, pretty, replace

SCHEMA = 1
_DIGITS = 9
NOTHING_BESIDE = Beside()


class Measure(msgspec.Struct, frozen=True, kw_only=True):
    """A metric's words: title, unit, direction, formula."""

    name: str
    title: str
    unit: str
    higher_is_better: bool
    formula: str


class Findings(msgspec.Struct, frozen=True, kw_only=True):
    """One campaign, analysed."""

    schema: int = SCHEMA
    campaign: str
    status: Literal["complete", "incomplete"]
    pilot: bool
    """Too few blocks are planned for any verdict."""
    seal: str | None
    plan: Plan
    plan_digest: str
    control: str
    candidates: tuple[str, ...]
    order: tuple[tuple[str, ...], ...]
    coin: str
    screen: Screen
    """Whether the arms are one arm's knock-outs or isolations: every verdict is then exploratory."""
    seed: int
    seeds: dict[int, tuple[int, ...]]
    """Per block, the seeds that were measured."""
    journal: dict[str, int]
    """How often each event stands in the journal; an attempt is abandoned once."""
    blocks_complete: int
    stopped: Stopped
    """The stopping rule, its looks, and where it ended the campaign."""
    receipts: int
    created: str
    first_started: str | None
    last_ended: str | None
    machine: dict[str, Any]
    battery: dict[str, Any]
    baseline: dict[str, Any]
    earlier: Earlier | None
    """Campaigns that were started here before; None where that was not kept."""
    measures: tuple[Measure, ...]
    arms: tuple[ArmFacts, ...]
    differences: tuple[Difference, ...]
    outcomes: tuple[Outcomes, ...]
    fits: tuple[Fit, ...]
    levels: tuple[Level, ...]
    comparisons: tuple[Comparison, ...]
    ladders: tuple[Ladder, ...]
    mechanisms: tuple[Mechanism, ...]
    lengths: tuple[Lengths, ...]
    drift: Drift
    windows: tuple[WindowFacts, ...]
    switches: tuple[SwitchFacts, ...]
    gates: GateFacts
    disturbances: tuple[Disturbance, ...]
    phases: tuple[Phase, ...]
    doubts: tuple[Doubt, ...]
    bars: tuple[BarResult, ...] = ()
    """The bars that the plan declares, and what became of each."""
    quality: Quality | msgspec.UnsetType = msgspec.UNSET
    """Not written where no arm was asked, so that findings of speed alone have the bytes that they had."""
    workloads: tuple[ByWorkload, ...] | msgspec.UnsetType = msgspec.UNSET
    """Each kind of text by itself, where the plan measures several; everything else is over their equal shares."""
    within: Within | msgspec.UnsetType = msgspec.UNSET
    """What happened inside the pooled cells; not there where nothing of it is known."""

    @property
    def by_workload(self) -> tuple[ByWorkload, ...]:
        """Each kind of text by itself; empty where there is one only."""
        return self.workloads if isinstance(self.workloads, tuple) else ()

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

    def outcome(self, arm: str, rung: int) -> Outcomes:
        """How the cells of an arm at a rung ended."""
        return next(x for x in self.outcomes if (x.arm, x.rung) == (arm, rung))

    def measure(self, name: str) -> Measure:
        """The words of a metric."""
        return next(x for x in self.measures if x.name == name)

    def held_against(
        self, bars: Sequence[Bar], sealed: bool = False, declared: bool = False
    ) -> tuple[BarResult, ...]:
        """What became of these bars: `declared` in the plan and `sealed` with it, or named afterwards."""
        voids = [d.what for d in self.doubts if d.severity == "void" and d.arm is None]
        waits = "" if self.stopped.ended_at else self.stopped.why
        measured = barring.Measured(
            plan=self.plan, control=self.control, candidates=self.candidates, comparisons=self.comparisons,
            hindrance=f"invalid: {voids[0]}" if voids else waits, quality=self.graded,
        )  # fmt: skip
        return barring.results(bars, measured, sealed, declared)

    @property
    def graded(self) -> Quality | None:
        """What quality receipts tell; None where there are none."""
        return self.quality if isinstance(self.quality, Quality) else None

    @property
    def asked(self) -> int:
        """Blocks that the campaign asks for: the plan's, or those at which its stopping rule ended it."""
        return self.stopped.ended_at or self.plan.blocks

    @property
    def primary(self) -> tuple[Comparison, ...]:
        """The endpoint that was declared before measuring, once per candidate."""
        return tuple(x for x in self.comparisons if x.primary)


def analyse(folder: Path) -> Findings:
    """The findings of the campaign in `folder`, finished or not; ReceiptError only where there is no campaign at all.

    Every byte of every receipt is read; `indexed.analyse` is quicker the second time. A receipt that cannot be read is
    left out and named; receipts that may not be pooled leave every verdict invalid.
    """
    campaign = Campaign(folder)
    header = campaign.header()
    return analysed(campaign, header, load(campaign))


def analysed(campaign: Campaign, header: Header, loaded: Loaded) -> Findings:
    """The same, of receipts that have been read already."""
    with resting():
        seen = admitted(loaded, header)
        sealed = campaign.sealed()
        return found(
            seen.receipts,
            header,
            seen.complaints,
            seen.pool,
            sealed.seal if sealed else None,
            sealed is not None and loaded.chain.seal == sealed.seal,
            campaign.journal(),
            left_beside(campaign),
            grading.quality(campaign.folder, header),
        )


def found(
    receipts: list[Receipt],
    header: Header,
    unreadable: Sequence[str] = (),
    pool: str = "",
    seal: str | None = None,
    intact: bool = True,
    events: Events = (),
    beside: Beside = NOTHING_BESIDE,
    quality: Quality | msgspec.UnsetType = msgspec.UNSET,
) -> Findings:
    """The findings of receipts in memory: what `analyse` finds, but for the folder.

    `unreadable` are complaints about receipts left out, `pool` why some could not be pooled, `intact` whether the files
    are those that were sealed. `events` are those of the journal: looks that it notes are what happened; without them
    they are derived. `beside` explains numbers that no receipt has here; `quality` is what quality receipts told.
    """
    beside = with_journal(beside, events)
    whole = _everything(receipts, header, list(unreadable), pool, seal, events, beside)
    whole = msgspec.structs.replace(whole, quality=quality)
    sealed = seal is not None and not pool and intact
    bars = whole.held_against(header.plan.bars, sealed, declared=True)
    whole = msgspec.structs.replace(whole, bars=bars)
    return msgspec.convert(_rounded(msgspec.to_builtins(whole)), Findings, strict=False)


def _everything(
    receipts: list[Receipt], header: Header, unreadable: list[str], pool: str, seal: str | None,
    events: Events, beside: Beside,
) -> Findings:  # fmt: skip
    """Everything, before rounding."""
    frame = rows(receipts, header)
    counted = {int(n) for n in frame[frame["counted"].astype(bool)]["sequence"]}
    traces = {receipt.sequence: receipt.trace for receipt in receipts}
    complete = int(frame[frame["counted"].astype(bool)]["block"].nunique())
    stopped = stopping.stopped(frame, traces, header, journal.noted_looks(events))
    ended = stopping.as_ended(header, stopped.ended_at or header.plan.blocks)
    comparisons = speed.compare(frame, traces, ended, complete)
    drift = drifting.drift(frame, comparisons, header, receipts)
    differs = facts.differences(receipts, header)
    switches, gates = facts.switches(receipts), gating.gates(receipts, header)
    disturbed = gating.disturbances(receipts, counted)
    case = Case(
        frame=frame, receipts=receipts, header=header, stopped=stopped, comparisons=comparisons, drift=drift,
        differences=differs, lengths=lengths(frame, header), switches=switches, gates=gates, disturbances=disturbed,
        unreadable=unreadable, pool=pool, beside=beside,
    )  # fmt: skip
    phases = gating.phases(case.pooled, header)
    doubted = doubting.doubts(msgspec.structs.replace(case, phases=phases))
    comparisons = tuple(_voided(one, doubted) for one in comparisons)
    kinds = tuple(_voided_kind(one, doubted) for one in by_workload(frame, traces, ended, complete))
    levels, latest = speed.levels(frame, header), facts.latest(receipts, header, counted)
    besides = facts.oom_besides(receipts, latest)
    return Findings(
        **_fixed(header), **fields(kinds), **within_fields(case.pooled, header),
        status="incomplete" if stopped.ended_at is None else "complete",
        seal=seal, seeds=_seeds(receipts),
        journal=journal.tally(events), blocks_complete=complete, stopped=stopped, receipts=len(receipts),
        first_started=min((receipt.started for receipt in receipts), default=None),
        last_ended=max((receipt.ended for receipt in receipts), default=None),
        arms=facts.arms(receipts, header),
        differences=differs,
        outcomes=facts.outcomes(latest, ended, besides), fits=fits(latest, ended, besides),
        levels=levels, comparisons=comparisons,
        ladders=tuple(
            msgspec.structs.replace(one, standing=_standing(one, doubted, ended, complete))
            for one in speed.ladders(comparisons, header)
        ),
        mechanisms=mechanisms(comparisons, levels, header), lengths=case.lengths,
        drift=drift,
        windows=facts.windows(receipts, counted),
        switches=switches, gates=gates, disturbances=disturbed, phases=phases, doubts=doubted,
    )  # fmt: skip


def _fixed(header: Header) -> dict[str, Any]:
    """What was fixed before the first window, and the words of every metric."""
    return {
        "pilot": header.plan.blocks < FEWEST_BLOCKS,
        "candidates": tuple(arm.name for arm in header.arms[1:]),
        "measures": tuple(
            Measure(name=m.name, title=m.title, unit=m.unit, higher_is_better=m.higher_is_better, formula=m.formula)
            for m in MEASURES.values()
        ),
        **{
            name: getattr(header, name)
            for name in (
                "campaign", "plan", "plan_digest", "control", "order", "coin", "seed", "created", "machine", "battery",
                "baseline", "earlier", "screen",
            )
        },
    }  # fmt: skip


def _voids(candidate: str, doubted: tuple[Doubt, ...]) -> list[str]:
    """What voids the verdicts about a candidate."""
    return [d.what for d in doubted if d.severity == "void" and d.arm in (None, candidate)]


def _voided(one: Comparison, doubted: tuple[Doubt, ...]) -> Comparison:
    """The comparison with its verdict taken away where a doubt voids it; pilots and missing arms stay."""
    why = _voids(one.candidate, doubted)
    if not why or one.verdict.word in ("pilot", "not comparable"):
        return one
    return msgspec.structs.replace(one, verdict=Verdict(word="invalid", why=why[0]))


def _voided_kind(one: ByWorkload, doubted: tuple[Doubt, ...]) -> ByWorkload:
    """The same of one kind of text."""
    own = tuple(_voided(each, doubted) for each in one.comparisons)
    return msgspec.structs.replace(one, comparisons=own)


def _standing(one: Ladder, doubted: tuple[Doubt, ...], header: Header, complete: int) -> str:
    """Why an interval over the ladder is no result; nothing where it is one."""
    why, planned = _voids(one.candidate, doubted), header.plan.blocks
    if why:
        return f"invalid: {why[0]}"
    if complete < planned:
        return f"unfinished: {complete} of {planned} planned blocks"
    if planned < FEWEST_BLOCKS:
        return "pilot"
    if one.estimate is not None and one.estimate.blocks < FEWEST_BLOCKS:
        return f"pilot: {_counted(one.estimate.blocks)} every rung"
    return "exploratory: one interval of many, not corrected" if header.screen else ""


def _counted(blocks: int) -> str:
    """So many blocks, and what they do with what follows."""
    return "1 block has" if blocks == 1 else f"{blocks} blocks have"


def _seeds(receipts: list[Receipt]) -> dict[int, tuple[int, ...]]:
    """Seeds per block, sentinels left out."""
    found: dict[int, set[int]] = {}
    for receipt in receipts:
        if not receipt.cell.sentinel:
            found.setdefault(receipt.cell.block, set()).add(receipt.cell.seed)
    return {block: tuple(sorted(seeds)) for block, seeds in sorted(found.items())}


def _rounded(value: Any) -> Any:
    """The same document with floats at nine significant digits, and what is no number as null."""
    if isinstance(value, float):
        return float(f"{value:.{_DIGITS}g}") if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _rounded(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        # numbers of receipts, by far the most of a document, are integers and nothing else
        return value if set(map(type, value)) == {int} else [_rounded(inner) for inner in value]
    return value


def write(findings: Findings, path: Path) -> Path:
    """Keep findings as JSON; they may be computed again at any time, so an older file is replaced."""
    path.parent.mkdir(parents=True, exist_ok=True)
    replace(path, pretty(findings))
    return path


def read(path: Path) -> Findings:
    """Findings as kept by `write`; ReceiptError when they are corrupt."""
    return strict.read_json(path, Findings)
