"""Doubts about blocks: missing, measured twice, out of order, unbalanced; receipts gone; looks that came out otherwise.

Every receipt was given the next number when it was written. A number of which nothing is left is therefore a receipt
that somebody took away, and a block that was complete twice is one whose result somebody could have chosen.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import pairwise

import msgspec

from battery.analyse import facts
from battery.analyse.conditions import Beside, Case, Doubt, sequences
from battery.analyse.rows import out_of_order
from battery.analyse.speed import Comparison
from battery.analyse.stopping import Look
from battery.ledger.claims import rows_of_order
from battery.ledger.journal import Events, number, set_aside
from battery.ledger.store import Campaign, Header, whole_attempts


def blocks(case: Case) -> list[Doubt]:
    """All of them."""
    return [
        *_missing(case), *_looks(case), *_progress(case), *_balance(case), *_damaged(case), *_twice(case),
        *_order(case), *_left(case),
    ]  # fmt: skip


def left_beside(campaign: Campaign) -> Beside:
    """The receipts that a folder has, whatever can be read of them, and those that lie in damaged/."""
    return Beside(
        elsewhere=frozenset(campaign.numbers()),
        aside=tuple((file, "the journal does not tell of it") for file in campaign.damaged()),
    )


def with_journal(beside: Beside, events: Events) -> Beside:
    """The same with what a journal tells of receipts that were set aside."""
    aside = {**dict(beside.aside), **{one.file: one.reason for one in set_aside(events)}}
    return msgspec.structs.replace(beside, aside=tuple(aside.items()))


def _missing(case: Case) -> list[Doubt]:
    """Numbers of which there is no receipt, and nothing says why."""
    aside = {number(file) for file, _ in case.beside.aside}
    known = {receipt.sequence for receipt in case.receipts} | case.beside.elsewhere | aside
    gone = gaps(one for one in known if one is not None)
    if not gone:
        return []
    one = len(gone) == 1 and "–" not in gone[0]
    told = f"receipt {gone[0]} is" if one else f"receipts {', '.join(facts.distinct(gone, 6))} are"
    return [
        Doubt(
            severity="void", what=f"{told} missing, and neither the journal nor damaged/ says why",
            remedy="restore the files from version control; without them nobody knows what was left out",
        )
    ]  # fmt: skip


def gaps(numbers: Iterable[int]) -> list[str]:
    """What is missing between 1 and the highest of `numbers`, as single numbers and ranges."""
    return [
        f"{left + 1}" if right - left == 2 else f"{left + 1}–{right - 1}"
        for left, right in pairwise([0, *sorted(set(numbers))])
        if right - left > 1
    ]


def _looks(case: Case) -> list[Doubt]:
    """Looks that come out otherwise than they were noted."""
    return [_differs(look) for look in case.stopped.looks if look.differs]


def _differs(look: Look) -> Doubt:
    """One look that does: explained where a block before it was measured again after it."""
    did = "ended the campaign" if look.ends else "went on"
    told = f"the look after {look.block} blocks {did}, as the journal notes"
    now = "the campaign would go on" if look.ends else "the campaign would end there"
    if not look.again:
        return Doubt(
            severity="void", what=f"{told}; by its receipts {now}, and no block before it was measured again",
            remedy="restore receipts and journal from version control: a rule that was not kept to is no test",
        )  # fmt: skip
    again = f"{_numbered(look.again)} {'was' if len(look.again) == 1 else 'were'} measured again after it"
    return Doubt(
        severity="warning", what=f"{told}; {again}, and by the receipts that are there now {now}",
        remedy="none: what was noted is binding; read the verdict as one whose look saw other receipts",
    )  # fmt: skip


def _numbered(blocks: Iterable[int]) -> str:
    """Blocks by their numbers."""
    own = [str(block) for block in blocks]
    if len(own) == 1:
        return f"block {own[0]}"
    return f"blocks {', '.join(own[:-1])} and {own[-1]}"


def _progress(case: Case) -> list[Doubt]:
    """Blocks that are missing, or were measured in spite of the stopping rule."""
    frame, plan, ended = case.frame, case.header.plan, case.stopped.ended_at
    complete = len(_complete(case))
    found = []
    if ended is None:
        planned = f"{'at most ' if case.stopped.planned else ''}{plan.blocks} planned blocks"
        found.append(
            Doubt(
                severity="warning", what=f"{complete} of {planned} are complete",
                remedy="run the campaign again: it goes on with the first block that is not complete",
            )
        )  # fmt: skip
    beyond = frame[frame["block"].astype(int) > (ended or plan.blocks)]
    if len(beyond):
        found.append(
            Doubt(
                severity="void", evidence=sequences(beyond),
                what=f"it was measured on after the stopping rule had ended it, at {ended} blocks",
                remedy="start a new campaign, and leave it to its rule: looking until a result is there is no test",
            )
        )  # fmt: skip
    return found


def _complete(case: Case) -> list[int]:
    """The complete blocks."""
    counted = case.frame[case.frame["counted"].astype(bool)]["block"]
    return sorted({int(block) for block in counted})


def balanced(blocks: Iterable[int], header: Header) -> bool:
    """Whether these blocks hold every order of the arms equally often, in whole squares: then drift cancels."""
    held = Counter(header.order[block - 1] for block in blocks)
    alike = len({held[order] for order in header.order}) == 1
    return alike and held.total() % rows_of_order(len(header.arms)) == 0


def stands(one: Comparison, header: Header) -> str:
    """In how many of the blocks behind a comparison the candidate ran after the control, and before it."""
    rows = [header.order[block - 1] for block, _ in one.by_block]
    second = sum(row.index(one.candidate) > row.index(one.control) for row in rows)
    first = len(rows) - second
    return f"of {len(rows)} blocks behind the estimate, it ran after {one.control} in {second} and before it in {first}"


def _balance(case: Case) -> list[Doubt]:
    """Orders that do not cancel: over the complete blocks, or over those behind a primary estimate."""
    header, complete = case.header, _complete(case)
    size = len(header.arms)
    whole = rows_of_order(size)
    again = case.stopped.ended_at is None and header.plan.blocks % whole == 0
    found = []
    if complete and not balanced(complete, header):
        found.append(
            Doubt(
                severity="warning",
                what=f"{len(complete)} blocks do not balance the order of {size} arms: drift and carry-over do not"
                " cancel",
                remedy="run the campaign again: all blocks of the plan balance it"
                if again
                else f"plan a multiple of {whole} blocks",
            )
        )  # fmt: skip
    for one in case.comparisons:
        own = [block for block, _ in one.by_block]
        if one.primary and own and len(own) < len(complete) and not balanced(own, header):
            found.append(
                Doubt(
                    severity="warning", arm=one.candidate,
                    what=f"arm {one.candidate}: {len(own)} of {len(complete)} complete blocks have pairs at the primary"
                    f" endpoint, and do not balance the order: {stands(one, header)}",
                    remedy="drift and carry-over do not cancel in them; section 1.4 shows what lost the other blocks'"
                    " pairs: mend that, and run a new campaign",
                )
            )  # fmt: skip
    return found


def _damaged(case: Case) -> list[Doubt]:
    """Receipts that were set aside while the campaign went on."""
    aside = case.beside.aside
    if not aside:
        return []
    told = facts.distinct(f"{file} ({why})" if why else file for file, why in aside)
    count = "1 receipt was" if len(aside) == 1 else f"{len(aside)} receipts were"
    return [
        Doubt(
            severity="warning",
            what=f"{count} unreadable and set aside, so that the block was measured again: {'; '.join(told)}",
            remedy="see damaged/ for what is left of them; a block's second measurement is another draw",
        )
    ]  # fmt: skip


def _twice(case: Case) -> list[Doubt]:
    """Blocks that were complete more than once."""
    found = []
    for block, whole in whole_attempts(case.receipts, case.header).items():
        later = tuple(receipt.sequence for cells in whole[1:] for receipt in cells)
        if later:
            times = "twice" if len(whole) == 2 else f"{len(whole)} times"
            found.append(
                Doubt(
                    severity="warning", what=f"block {block} was complete {times}; the first counts", evidence=later,
                    remedy="find out who measured a complete block again; battery itself does not",
                )
            )  # fmt: skip
    return found


def _order(case: Case) -> list[Doubt]:
    """Blocks that ran after others of a higher number."""
    late = out_of_order(case.frame)
    if not late:
        return []
    here = case.frame[case.frame["counted"].astype(bool) & case.frame["block"].isin(late)]
    return [
        Doubt(
            severity="warning", evidence=sequences(here),
            what=f"blocks did not run in order: {_numbered(late)} ran after blocks of a higher number",
            remedy="none: every block holds all arms; the diagnostics of section 1.5 follow the order of the run",
        )
    ]  # fmt: skip


def _left(case: Case) -> list[Doubt]:
    """Receipts of attempts that did not come to an end, or were given up."""
    whole = whole_attempts(case.receipts, case.header).values()
    told = {receipt.sequence for attempts in whole for cells in attempts for receipt in cells}
    left = case.frame[~case.frame["sequence"].isin(told)]
    if not len(left):
        return []
    return [
        Doubt(
            severity="note", what=f"{len(left)} receipts of unfinished attempts are kept and not pooled",
            evidence=sequences(left), remedy="none needed; they are listed with the windows",
        )
    ]  # fmt: skip
