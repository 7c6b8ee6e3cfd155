"""Whether a context fits into memory: cells and launches that did, per arm and rung, held against the control.

Running out of memory is an outcome, never averaged around. The cells of one window share a server process, so the
independent unit is the launch: a launch fits at a rung if every cell of it that was tried there did.

A launch of an attempt that was measured again counts where it ran out of memory. Where it did not it counts nowhere: it
was cut off, and nobody knows whether the rest of it would have fitted.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Literal

import msgspec
import scipy

from battery.analyse.facts import by_cell, tally, tried
from battery.ledger.receipt import Receipt
from battery.ledger.store import Header

FEWEST_LAUNCHES = 2
"""Launches that must fit before a rung is said to: memory differs between processes more than within one."""
_HELD = ("ok", "short", "warm", "incoherent")
"""Outcomes of cells that came to their end, whatever else was wrong with them: memory held."""

Claim = Literal["fits", "does not fit", "fits sometimes", "cannot be told"]


class Fit(msgspec.Struct, frozen=True, kw_only=True):
    """How often one rung fitted, in one arm."""

    arm: str
    rung: int
    fit: int
    tried: int
    """Cells that were really tried and either fitted or ran out of memory."""
    inherited: int
    """Cells that were never tried, because their window had ended before."""
    other: dict[str, int]
    """Cells that were tried and ended in a way that tells nothing about memory."""
    launches_fit: int
    launches: int
    """Launches behind it, and one that ran out of memory before its first cell."""
    low: float | None = None
    high: float | None = None
    """Wilson interval of the share of launches that fit."""
    barnard_p: float | None = None
    """Barnard's exact test of the launches against the control's; None where they do not differ."""
    claim: Claim
    why: str = ""


def fits(
    receipts: Sequence[Receipt], header: Header, besides: Sequence[Receipt] = ()
) -> tuple[Fit, ...]:
    """Every arm and rung; sentinels are left out. `besides` ran out of memory in attempts that were measured again."""
    own = [receipt for receipt in (*receipts, *besides) if not receipt.cell.sentinel]
    broken = {_window(receipt) for receipt in own if _at_load(receipt)}
    cells = by_cell(own)
    alpha = header.plan.stopping.alpha
    known: dict[tuple[str, int], Fit] = {}
    for arm in header.arms:
        for rung in header.plan.ladder:
            one = _fit(arm.name, rung, cells.get((arm.name, rung), []), broken, alpha)
            control = known.get((header.control, rung))
            known[arm.name, rung] = msgspec.structs.replace(one, barnard_p=barnard(control, one))
    return tuple(known.values())


def barnard(control: Fit | None, one: Fit) -> float | None:
    """Barnard's exact two-sided p that one arm's launches fit as often as the control's; None where they do not differ.

    More powerful than Fisher's test on few launches: 3 of 3 against 0 of 3 gives .031 instead of .10.
    """
    if control is None or not control.launches or not one.launches:
        return None
    if control.launches_fit * one.launches == one.launches_fit * control.launches:
        return None
    table = [
        [control.launches_fit, one.launches_fit],
        [control.launches - control.launches_fit, one.launches - one.launches_fit],
    ]
    return float(scipy.stats.barnard_exact(table).pvalue)


def _window(receipt: Receipt) -> tuple[int, int]:
    """The launch that a receipt came from."""
    return receipt.attempt, receipt.cell.window.number


def _at_load(receipt: Receipt) -> bool:
    """Whether the receipt tells of a launch that ran out of memory before any cell was tried."""
    return (
        receipt.outcome == "oom" and not tried(receipt) and "inherited_from" not in receipt.evidence
    )


def _fit(
    arm: str, rung: int, here: Sequence[Receipt], broken: set[tuple[int, int]], alpha: float
) -> Fit:
    """One arm at one rung; `broken` are launches that never came to a cell."""
    from statsmodels.stats.proportion import proportion_confint

    real = [receipt for receipt in here if tried(receipt)]
    held = [receipt for receipt in real if receipt.outcome in _HELD]
    out = [receipt for receipt in real if receipt.outcome == "oom"]
    rest = [r for r in real if r.outcome not in (*_HELD, "oom")]
    launches: dict[tuple[int, int], set[bool | None]] = defaultdict(set)
    for receipt in here:
        if _window(receipt) in broken:
            launches[_window(receipt)].add(False)
    for receipt in real:
        word = True if receipt.outcome in _HELD else False if receipt.outcome == "oom" else None
        launches[_window(receipt)].add(word)
    # out of memory once is enough; a cell that tells nothing leaves its launch open
    told = [
        False not in words for words in launches.values() if False in words or None not in words
    ]
    k, n = sum(told), len(told)
    low, high = proportion_confint(k, n, alpha, method="wilson") if n else (None, None)
    found = Fit(
        arm=arm, rung=rung, fit=len(held), tried=len(held) + len(out), inherited=len(here) - len(real),
        other=tally(receipt.outcome for receipt in rest), launches_fit=k, launches=n,
        low=None if low is None else float(low), high=None if high is None else float(high),
        claim="cannot be told",
    )  # fmt: skip
    claim, why = _claim(found)
    return msgspec.structs.replace(found, claim=claim, why=why)


def _claim(one: Fit) -> tuple[Claim, str]:
    """What may be said, and why no more."""
    if one.launches and not one.launches_fit and not one.fit:
        return "does not fit", ""
    if one.fit < one.tried or one.launches_fit < one.launches:
        return "fits sometimes", ""
    if not one.tried:
        return "cannot be told", "no cell was tried" if not one.other else "no cell came to its end"
    if one.other:
        return "cannot be told", "some cells ended otherwise"
    if one.launches < FEWEST_LAUNCHES:
        return "cannot be told", f"needs {FEWEST_LAUNCHES} launches"
    return "fits", ""
