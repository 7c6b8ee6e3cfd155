"""The order in which a campaign runs, fixed before it starts.

Pure: arms, plan, a coin and a seed in; windows and cells out. Two arms run A C, C A, A C, … which cancels linear drift
and carry-over over an even number of blocks; more arms follow the rows of a Williams square, in which every arm
stands equally often in every place and behind every other arm.
"""

from __future__ import annotations

from collections.abc import Sequence

from battery.ledger.cell import Cell, Window
from battery.ledger.plan import Plan, Workload


def orders(arms: Sequence[str], blocks: int, coin: int) -> tuple[tuple[str, ...], ...]:
    """Per block, the arms in the order they run; `coin` (0 … len(arms)-1) says which arm opens."""
    turned = [*arms[coin:], *arms[:coin]]
    rows = williams(len(turned))
    return tuple(tuple(turned[i] for i in rows[block % len(rows)]) for block in range(blocks))


def williams(n: int) -> list[list[int]]:
    """Rows of a Williams design for `n` treatments: n rows for even n, 2n for odd n.

    The first row is 0, n-1, 1, n-2, …; the others add 1, 2, … to it (mod n). Odd n needs the mirror images as well to
    be balanced for carry-over. Two treatments give the familiar A B, B A.
    """
    first = [i // 2 if i % 2 == 0 else n - (i + 1) // 2 for i in range(n)]
    rows = [[(value + shift) % n for value in first] for shift in range(n)]
    return rows if n % 2 == 0 else rows + [row[::-1] for row in rows]


def unbalanced(arms: int, blocks: int) -> str | None:
    """What `blocks` leave unbalanced for this many arms; None where every row of the order comes equally often."""
    rows = len({tuple(row) for row in williams(arms)})
    if blocks % rows == 0:
        return None
    more = (blocks // rows + 1) * rows
    return f"{blocks} blocks are no multiple of the {rows} orders of {arms} arms: places do not balance; {more} would"


def windows(order: Sequence[Sequence[str]]) -> list[list[Window]]:
    """The windows of each block, numbered through the campaign from 1."""
    made: list[list[Window]] = []
    number = 0
    for block, arms in enumerate(order, start=1):
        row = []
        for position, arm in enumerate(arms):
            number += 1
            row.append(Window(block=block, position=position, number=number, arm=arm))
        made.append(row)
    return made


def seed_of(campaign_seed: int, block: int, place: int) -> int:
    """The seed at `place` (from 1) of a block: readable, new in every block, the same for all arms in it."""
    return campaign_seed * 10_000 + block * 100 + place


def workload_of(plan: Plan, seed: int) -> Workload:
    """The kind of text that a seed of `seed_of` draws from: told by its place, the same in every block."""
    return plan.workload_of(seed % 100)


def _places(plan: Plan, block: int) -> list[int]:
    """The places of a block's seeds in the order they run.

    With several workloads each opens in turn from block to block: what a request leaves in a server (an adaptive
    draft's measure of the text) reaches each of them alike.
    """
    turn = (block - 1) % len(plan.mix)
    places = list(range(1, plan.seeds + 1))
    return places[turn:] + places[:turn]


def _texts_of(plan: Plan, block: int) -> int:
    """The block whose prompts a block has: its own, but in a replay of one block's texts that one."""
    fixed = plan.replayed.block if plan.replayed else None
    return block if fixed is None else fixed


def cells(window: Window, plan: Plan, campaign_seed: int) -> list[Cell]:
    """The cells of one window in order: the sentinel, then the ladder ascending, all seeds of a rung together."""
    made: list[Cell] = []
    if plan.sentinel:
        made.append(
            Cell(window, len(made), plan.ladder[0], seed_of(campaign_seed, 0, 0), sentinel=True)
        )
    for rung in plan.ladder:
        for place in _places(plan, window.block):
            seed = seed_of(campaign_seed, _texts_of(plan, window.block), place)
            made.append(Cell(window, len(made), rung, seed))
    return made


def prompts_needed(plan: Plan, campaign_seed: int) -> list[tuple[int, int]]:
    """Every (rung, seed) of a campaign, sentinel first."""
    needed = [(plan.ladder[0], seed_of(campaign_seed, 0, 0))] if plan.sentinel else []
    blocks = dict.fromkeys(_texts_of(plan, block) for block in range(1, plan.blocks + 1))
    for block in blocks:
        for rung in plan.ladder:
            needed += [
                (rung, seed_of(campaign_seed, block, place)) for place in range(1, plan.seeds + 1)
            ]
    return needed


def expected_cells(plan: Plan, arms: int) -> int:
    """How many receipts a complete campaign has."""
    return plan.blocks * arms * (len(plan.ladder) * plan.seeds + int(plan.sentinel))
