"""From an earlier campaign to a plan: the blocks its margin needs, the time they take, what a budget can detect."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from battery.analyse import duration, findings, likeness, pairs, power, rows, stats, variance
from battery.analyse.duration import Costs, Duration
from battery.analyse.speed import MAIN
from battery.analyse.variance import Split
from battery.ledger.errors import InputError
from battery.ledger.plan import Plan
from battery.ledger.receipt import Receipt
from battery.ledger.store import Campaign, Header, check_pool

SEEDS_SHOWN = (1, 2, 3, 5, 8, 12)
"""Seeds a window for which the spread is told."""


class Endpoint(msgspec.Struct, frozen=True, kw_only=True):
    """One candidate, metric and rung: its spread in the source, and what that means for the plan."""

    candidate: str
    metric: str
    rung: int
    primary: bool
    source_rung: int
    """Where the spread was measured: another rung where the source lacks the plan's."""
    margin: float
    blocks: int
    """Of the source."""
    sd: float | None = None
    """Of the source's block differences, in logarithms."""
    sd_upper: float | None = None
    """The true spread is below it 80 times of 100."""
    sd_planned: float | None = None
    """The source's spread at the plan's seeds a window."""
    split: Split | None = None
    by_seeds: tuple[tuple[int, float], ...] = ()
    """Seeds a window, and the spread that they would give."""
    best_seeds: float | None = None
    best_seeds_why: str = ""
    needed: int | None = None
    """Blocks that find the margin four times out of five; None above the search."""
    needed_upper: int | None = None
    """The same if the spread is as large as `sd_upper` says."""
    needed_holm: int | None = None
    """The same at alpha / candidates, at which Holm tests the first of several; None with one candidate."""
    needed_equivalence: int | None = None
    """Blocks that find a ratio of exactly 1 equivalent within the margin."""
    recommended: int | None = None
    detects: float | None = None
    """Share that the recommended blocks find."""
    why: str = ""
    """Why there are no figures."""


class Stretch(msgspec.Struct, frozen=True, kw_only=True):
    """A number of blocks: how long it takes, and the smallest share it detects per candidate."""

    blocks: int
    seconds: float | None
    why: str = ""
    detects: dict[str, float | None] = {}


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """The campaign that the figures come from."""

    campaign: str
    created: str
    plan: str
    blocks: int
    how: str
    """Why this one."""


class Power(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that `plan --power` tells."""

    plan: str
    plan_digest: str
    control: str
    candidates: tuple[str, ...]
    metric: str
    rung: int
    margin: float
    alpha: float
    seeds: int
    source: Source
    warnings: tuple[str, ...]
    endpoints: tuple[Endpoint, ...]
    costs: Costs
    block: Duration
    planned: Stretch
    advised: Stretch
    budget_s: float | None = None
    within: Stretch | None = None
    """What fits into the budget; None without one."""

    @property
    def primary(self) -> tuple[Endpoint, ...]:
        """The endpoint that the plan declares, once per candidate."""
        return tuple(one for one in self.endpoints if one.primary)


def plan_from(
    folder: Path, plan: Plan, arms: Sequence[str], how: str,
    told: Sequence[str] = (), margin: float | None = None, budget_s: float | None = None,
) -> Power:  # fmt: skip
    """What `plan` with `arms` (control first) can tell, by the campaign in `folder`.

    `margin` replaces the plan's at its primary endpoint; `told` are warnings of who chose the source. InputError where
    the campaign has fewer than two complete blocks, or one of the arms is missing; ReceiptError where its receipts may
    not be pooled.
    """
    header, receipts, unreadable = _read(folder, arms)
    frame = rows.rows(receipts, header)
    complete = int(frame[frame["counted"].astype(bool)]["block"].nunique())
    if complete < 2:
        raise InputError(
            f"{folder}: {complete} complete blocks; a spread needs two of them: finish it, or name another with --from"
        )
    traces = {receipt.sequence: receipt.trace for receipt in receipts}
    costs = duration.costs(receipts, header, Campaign(folder).journal())
    basis = _Basis(frame, traces, header, plan, tuple(arms), costs, margin)
    endpoints = tuple(basis.endpoints())
    block, alpha = duration.block_duration(costs, plan, arms), plan.stopping.alpha
    main = [one for one in endpoints if one.primary]
    blocks = max((one.recommended or 0 for one in main), default=0)
    advised = blocks or power.recommended(None, len(arms))
    made = Power(
        plan=plan.name, plan_digest=plan.digest, control=arms[0], candidates=tuple(arms[1:]),
        metric=plan.primary.metric, rung=plan.anchor, margin=basis.margin(plan.primary.metric, plan.anchor),
        alpha=alpha, seeds=plan.seeds,
        source=Source(
            campaign=header.campaign, created=header.created, plan=header.plan.name, blocks=complete, how=how
        ),
        warnings=(
            *told, *likeness.plans(header.plan, plan, complete),
            *(f"{folder.name}: {complaint}" for complaint in unreadable[:3]),
            *likeness.void(findings.analyse(folder)),
        ),
        endpoints=endpoints, costs=costs, block=block,
        planned=_stretch(plan.blocks, block, costs, main, alpha),
        advised=_stretch(advised, block, costs, main, alpha),
        budget_s=budget_s,
    )  # fmt: skip
    if budget_s is None:
        return made
    return msgspec.structs.replace(made, within=_within(budget_s, made, main))


def _read(folder: Path, arms: Sequence[str]) -> tuple[Header, list[Receipt], list[str]]:
    """Header, receipts and complaints about unreadable ones of a campaign that has all `arms`."""
    campaign = Campaign(folder)
    header, (receipts, unreadable) = campaign.header(), campaign.readable()
    if len(arms) < 2:
        raise InputError(
            "one arm has nothing to detect: name a control and a candidate (--arms A,C)"
        )
    if missing := [arm for arm in arms if arm not in header.arm_digests]:
        raise InputError(
            f"{folder}: has no arm {', '.join(missing)}; its arms are {', '.join(header.arm_digests)}"
        )
    check_pool(receipts, header)
    return header, receipts, unreadable


class _Basis:
    """One campaign, seen from the plan that it is to inform."""

    def __init__(
        self, frame: Any, traces: Mapping[int, Any], header: Header, plan: Plan, arms: tuple[str, ...],
        costs: Costs, margin: float | None,
    ) -> None:  # fmt: skip
        self._sides, self._traces, self._header = pairs.Sides(frame), traces, header
        self._plan, self._arms, self._costs, self._margin = plan, arms, costs, margin

    def margin(self, metric: str, rung: int) -> float:
        """The margin of an endpoint: the one asked for where it is the primary one."""
        primary = (metric, rung) == (self._plan.primary.metric, self._plan.anchor)
        own = self._plan.margins.of(metric)
        return self._margin if primary and self._margin is not None else own

    def endpoints(self) -> list[Endpoint]:
        """The primary endpoint of every candidate, then every other metric and rung that the source has as well."""
        plan, known = self._plan, self._header.plan.ladder
        main = (plan.primary.metric, plan.anchor)
        rest = [(metric, rung) for metric in MAIN for rung in plan.ladder if rung in known]
        wanted = [main, *(one for one in rest if one != main)]
        return [
            self._endpoint(arm, *one, primary=one == main)
            for one in wanted
            for arm in self._arms[1:]
        ]

    def _endpoint(self, candidate: str, metric: str, rung: int, primary: bool) -> Endpoint:
        """One endpoint's figures, or why there are none."""
        plan, known = self._plan, self._header.plan.ladder
        source = min(known, key=lambda there: abs(math.log(there / rung)))
        found = pairs.match(
            self._sides, self._traces, self._header.plan, metric, source, (self._arms[0], candidate)
        )
        estimate = stats.paired(list(found.by_block().values()))
        bare = Endpoint(
            candidate=candidate, metric=metric, rung=rung, primary=primary, source_rung=source,
            margin=self.margin(metric, rung), blocks=estimate.blocks if estimate else 0,
        )  # fmt: skip
        if estimate is None or estimate.sd is None:
            lost = "; ".join(f"{why} ({count})" for why, count in found.lost.items())
            return msgspec.structs.replace(
                bare, why=lost or "fewer than two blocks have pairs of requests"
            )
        blocks: dict[int, list[float]] = {}
        for pair in found.kept:
            blocks.setdefault(pair.block, []).append(pair.log)
        split = variance.split(list(blocks.values())) if metric != "peak_memory" else None
        planned = split.scaled(estimate.sd, plan.seeds) if split else None
        return self._figures(
            bare, estimate.sd, planned if planned is not None else estimate.sd, split
        )

    def _figures(self, bare: Endpoint, sd: float, planned: float, split: Split | None) -> Endpoint:
        """The endpoint with what follows from its spread, `planned` at the plan's seeds."""
        plan, alpha, arms = self._plan, self._plan.stopping.alpha, len(self._arms)
        upper = power.upper_sd(planned, bare.blocks)
        needed = power.difference_blocks(planned, bare.margin, alpha)
        recommended = power.recommended(needed, arms)
        best, why = None, "the block's highest peak is compared, which is no mean over seeds"
        prices = duration.seed_prices(self._costs, plan, (self._arms[0], bare.candidate))
        if split is not None:
            best, why = (
                variance.best_seeds(split, *prices)
                if prices
                else (None, "the time of a seed is not known")
            )
        shown = sorted({*SEEDS_SHOWN, plan.seeds, *([round(best)] if best else [])})
        scaled = [(seeds, split.scaled(sd, seeds)) for seeds in shown] if split else []
        return msgspec.structs.replace(
            bare,
            sd=sd, sd_upper=power.upper_sd(sd, bare.blocks), sd_planned=planned, split=split,
            by_seeds=tuple((seeds, value) for seeds, value in scaled if value is not None),
            best_seeds=best, best_seeds_why=why,
            needed=needed,
            needed_upper=power.difference_blocks(upper, bare.margin, alpha) if upper is not None else None,
            needed_holm=power.difference_blocks(planned, bare.margin, alpha / (arms - 1)) if arms > 2 else None,
            needed_equivalence=power.equivalence_blocks(planned, bare.margin, alpha),
            recommended=recommended, detects=stats.detectable(planned, recommended, alpha),
        )  # fmt: skip


def _stretch(
    blocks: int, block: Duration, costs: Costs, main: Sequence[Endpoint], alpha: float
) -> Stretch:
    """Time and reach of a number of blocks."""
    known = block.seconds is not None
    return Stretch(
        blocks=blocks,
        seconds=(costs.setup_s or 0.0) + blocks * (block.seconds or 0.0) if known else None,
        why=block.why,
        detects={
            one.candidate: stats.detectable(one.sd_planned, blocks, alpha) for one in main
        },
    )  # fmt: skip


def _within(budget_s: float, made: Power, main: Sequence[Endpoint]) -> Stretch:
    """The blocks that fit into the budget, and what they tell; below six, that no verdict comes of it."""
    if made.block.seconds is None:
        return Stretch(
            blocks=0, seconds=None, why=f"how many blocks fit is not known: {made.block.why}"
        )
    arms = 1 + len(made.candidates)
    blocks = power.fitting(budget_s, made.costs.setup_s or 0.0, made.block.seconds, arms)
    told = _stretch(blocks, made.block, made.costs, main, made.alpha)
    if blocks >= stats.FEWEST_BLOCKS:
        return told
    return msgspec.structs.replace(
        told, why=f"fewer than {stats.FEWEST_BLOCKS} blocks: no verdict would come of it"
    )
