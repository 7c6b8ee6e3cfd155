"""Blocks that are gone, measured twice, out of order or unbalanced, and looks that came out otherwise than noted."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from synthetic import World, build, fails, trace

from battery.analyse.blocks import balanced, gaps
from battery.analyse.conditions import Doubt
from battery.analyse.findings import Findings, analyse, found
from battery.ledger.claims import Stopping
from battery.ledger.receipt import Receipt
from battery.ledger.store import Campaign, Header, complete_blocks, whole_attempts
from battery.render.report import markdown

LOOKS = Stopping(rule="looks", looks=(6, 8, 10, 12))
Change = Callable[[Receipt], Receipt | None]


def made(root: Path, **world: Any) -> tuple[list[Receipt], Header]:
    campaign = Campaign(build(root, World(**{"seeds": 1, **world})))
    return campaign.receipts(), campaign.header()


def block(receipts: Iterable[Receipt], number: int) -> list[Receipt]:
    return [receipt for receipt in receipts if receipt.cell.block == number]


def again(cells: Iterable[Receipt], after: int, attempt: int = 2) -> list[Receipt]:
    """The same cells, measured once more behind a receipt."""
    return [
        msgspec.structs.replace(receipt, sequence=after + place, attempt=attempt)
        for place, receipt in enumerate(cells, start=1)
    ]


def replaced(receipts: list[Receipt], number: int, cells: Iterable[Receipt]) -> list[Receipt]:
    """A campaign one of whose blocks was measured again after all others, its first receipts gone."""
    last = receipts[-1].sequence
    return [r for r in receipts if r.cell.block != number] + again(cells, last)


def damaged(receipts: Iterable[Receipt]) -> list[dict[str, Any]]:
    return [
        {"event": "damaged", "file": f"{r.sequence:04d}-b{r.cell.block}-A-r128-s1.json", "reason": "torn"}
        for r in receipts
    ]  # fmt: skip


def look(number: int, ends: bool, after: int | None) -> dict[str, Any]:
    return {"event": "look", "block": number, "ends": ends, "why": "planted", "after": after}


def told(findings: Findings, words: str) -> list[Doubt]:
    return [doubt for doubt in findings.doubts if words in doubt.what]


# Blocks that could have been chosen


def test_the_first_whole_attempt_counts_and_the_second_is_told(tmp_path: Path) -> None:
    receipts, header = made(tmp_path)
    better = [
        msgspec.structs.replace(r, trace=trace(400, prompt=r.cell.rung)) for r in block(receipts, 3)
    ]
    both = [*receipts, *again(better, receipts[-1].sequence)]
    assert complete_blocks(both, header)[3] == block(receipts, 3)
    assert [len(whole) for whole in whole_attempts(both, header).values()] == [1, 1, 2, 1, 1, 1]
    before, after = found(receipts, header), found(both, header)
    assert after.comparisons == before.comparisons
    (one,) = told(after, "block 3 was complete twice; the first counts")
    assert one.severity == "warning" and one.evidence == tuple(range(37, 43))
    assert not told(after, "unfinished attempts") and not told(after, "did not run in order")


def test_a_receipt_whose_number_is_gone_voids(tmp_path: Path) -> None:
    receipts, header = made(tmp_path)
    rolled = replaced(receipts, 3, block(receipts, 3))
    one = found(rolled, header)
    (void,) = [doubt for doubt in one.doubts if doubt.severity == "void"]
    assert void.what.startswith("receipts 13–18 are missing, and neither the journal")
    assert one.primary[0].verdict.word == "invalid"
    first = found([r for r in receipts if r.sequence not in (1, 5)], header)
    assert told(first, "receipts 1, 5 are missing")
    assert not told(found(receipts, header), "missing")


def test_what_the_journal_says_was_damaged_warns_and_voids_nothing(tmp_path: Path) -> None:
    receipts, header = made(tmp_path)
    rolled, gone = replaced(receipts, 3, block(receipts, 3)), block(receipts, 3)
    one = found(rolled, header, events=damaged(gone))
    assert not [doubt for doubt in one.doubts if doubt.severity == "void"]
    (warned,) = told(one, "6 receipts were unreadable and set aside")
    assert warned.severity == "warning" and "0013-b3-A-r128-s1.json (torn)" in warned.what
    assert one.journal == {"damaged": 6} and one.primary[0].verdict.word != "invalid"
    rest = found(rolled, header, events=damaged(gone[:-1]))
    assert told(rest, "receipt 18 is missing")


def test_the_folder_explains_what_it_has_and_tells_what_the_journal_does_not(
    tmp_path: Path,
) -> None:
    folder = build(tmp_path, World(seeds=1))
    torn = Campaign(folder).paths()[12]
    (folder / "damaged").mkdir()
    torn.rename(folder / "damaged" / torn.name)
    moved = analyse(folder)
    assert not told(moved, "missing")
    (warned,) = told(moved, "1 receipt was unreadable and set aside")
    assert "the journal does not tell of it" in warned.what
    (folder / "damaged" / torn.name).unlink()
    assert told(analyse(folder), "receipt 13 is missing")
    torn.write_text("{")
    cannot = analyse(folder)
    assert not told(cannot, "is missing") and told(cannot, "a receipt was left out")


def test_gaps() -> None:
    assert gaps([1, 2, 3]) == [] and gaps([]) == []
    assert gaps([2, 3, 5, 10, 10**11]) == ["1", "4", "6–9", "11–99999999999"]


# Looks that were noted


def outlying(receipt: Receipt) -> Receipt:
    """Block 3 with a candidate of half the speed: no look can decide."""
    slow = receipt.cell.block == 3 and receipt.cell.arm == "C"
    return (
        msgspec.structs.replace(receipt, trace=trace(20, prompt=receipt.cell.rung))
        if slow
        else receipt
    )


def upto(last: int, change: Change = lambda receipt: receipt) -> Change:
    return lambda receipt: change(receipt) if receipt.cell.block <= last else None


@pytest.fixture(scope="module")
def worlds(
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[list[Receipt], list[Receipt], Header]:
    """Eight blocks of a clear effect, the same with an outlying block 3, and their header."""
    world = {"blocks": 12, "effect": {"C": 1.02}, "plan": {"stopping": LOOKS}, "seal": False}
    clear, header = made(tmp_path_factory.mktemp("clear"), change=upto(8), **world)
    unclear, _ = made(tmp_path_factory.mktemp("unclear"), change=upto(8, outlying), **world)
    return clear, unclear, header


def test_a_look_that_went_on_is_no_peeking_because_a_block_was_measured_again(
    worlds: tuple[list[Receipt], list[Receipt], Header],
) -> None:
    clear, unclear, header = worlds
    mended = replaced(unclear, 3, block(clear, 3))
    events = [look(6, False, 36), look(8, False, 48), *damaged(block(unclear, 3))]
    one = found(mended, header, events=events)
    assert [(x.block, x.ends, x.noted, x.derived, x.again) for x in one.stopped.looks] == [
        (6, False, False, True, (3,)), (8, False, False, True, (3,)),
    ]  # fmt: skip
    assert one.stopped.ended_at is None and "the next look is after 10" in one.stopped.why
    assert not [doubt for doubt in one.doubts if doubt.severity == "void"]
    warned = told(one, "block 3 was measured again after it")
    assert [doubt.severity for doubt in warned] == ["warning", "warning"]
    assert "the look after 6 blocks went on" in warned[0].what
    assert "went on (now it would end)" in markdown(one)
    # a journal that kept no number: the order of the run tells
    old = found(mended, header, events=[look(6, False, None), *events[1:]])
    assert old.stopped.looks[0].again == (3,)


def test_a_look_that_ended_it_is_told_where_it_would_now_go_on(
    worlds: tuple[list[Receipt], list[Receipt], Header],
) -> None:
    clear, unclear, header = worlds
    six = [receipt for receipt in clear if receipt.cell.block <= 6]
    assert found(six, header, events=[look(6, True, 36)]).stopped.ended_at == 6
    rolled = replaced(six, 3, block(unclear, 3))
    one = found(rolled, header, events=[look(6, True, 36), *damaged(block(six, 3))])
    assert one.stopped.ended_at == 6 and one.status == "complete"
    assert "as noted then (it would go on now): C undecided" in one.stopped.why
    (warned,) = told(one, "the look after 6 blocks ended the campaign, as the journal notes")
    assert warned.severity == "warning" and "block 3 was measured again" in warned.what
    assert "ended (now it would go on)" in markdown(one)


def test_a_noted_look_that_nothing_explains_voids(
    worlds: tuple[list[Receipt], list[Receipt], Header],
) -> None:
    clear, _, header = worlds
    one = found(clear, header, events=[look(6, False, 36), look(8, True, 48)])
    (void,) = [doubt for doubt in one.doubts if doubt.severity == "void"]
    assert "the look after 6 blocks went on" in void.what
    assert "no block before it was measured again" in void.what
    assert one.stopped.ended_at == 8 and one.primary[0].verdict.word == "invalid"


def test_the_first_note_binds_and_without_notes_looks_are_derived(
    worlds: tuple[list[Receipt], list[Receipt], Header],
) -> None:
    clear, unclear, header = worlds
    twice = found(
        unclear, header, events=[look(6, False, 36), look(6, True, 48), {"event": "look"}]
    )
    assert not twice.stopped.looks[0].ends and not told(twice, "as the journal notes")
    derived = found(clear, header)
    assert derived.stopped.ended_at == 6 and told(derived, "measured on after the stopping rule")
    assert (derived.stopped.looks[0].noted, derived.stopped.looks[0].differs) == (None, False)


# Blocks behind an estimate


def lost(*blocks: int, rung: int = 384) -> Change:
    return fails(
        "timeout",
        lambda r: (r.cell.arm, r.cell.rung) == ("C", rung) and r.cell.block in blocks and not r.cell.sentinel,
    )  # fmt: skip


def test_lost_pairs_that_unbalance_the_order_are_told(tmp_path: Path) -> None:
    one = found(*made(tmp_path / "1", blocks=12, change=lost(12)))
    (warned,) = told(one, "do not balance the order")
    assert warned.severity == "warning" and warned.arm == "C"
    assert "11 of 12 complete blocks have pairs" in warned.what
    assert "ran after A in 6 and before it in 5" in warned.what and "section 1.4" in warned.remedy
    # two lost of one order leave an even number that does not balance; one lost of each does
    assert told(found(*made(tmp_path / "2", blocks=22, change=lost(2, 4))), "and before it in 9")
    assert not told(found(*made(tmp_path / "3", blocks=22, change=lost(1, 2))), "balance the order")


def test_an_order_effect_is_said_to_cancel_only_where_it_does(tmp_path: Path) -> None:
    def second(receipt: Receipt) -> Receipt:
        ripple = 0.001 * (receipt.cell.block % 3) + 0.0005 * (receipt.cell.arm == "C") * (
            receipt.cell.block % 4
        )
        rate = 40 * math.exp(0.03 * receipt.cell.window.position + ripple)
        return msgspec.structs.replace(receipt, trace=trace(rate, prompt=receipt.cell.rung))

    whole = found(*made(tmp_path / "1", blocks=12, change=second))
    (one,) = told(whole, "its ratio depends on whether it ran second")
    assert "ran after A in 6 and before it in 6, which cancels it" in one.remedy
    cut = found(*made(tmp_path / "2", blocks=12, change=lambda r: lost(12)(second(r))))
    (one,) = told(cut, "its ratio depends on whether it ran second")
    assert "ran after A in 6 and before it in 5, which does not cancel it" in one.remedy


def test_a_ladder_on_few_common_blocks_is_a_pilot(tmp_path: Path) -> None:
    ladder = (64, 96, 128, 160, 192, 224, 384)

    def change(receipt: Receipt) -> Receipt:
        return lost(1 + ladder.index(receipt.cell.rung), rung=receipt.cell.rung)(receipt)

    one = found(*made(tmp_path, blocks=12, ladder=ladder, effect={"C": 1.05}, change=change))
    decode = one.ladders[0]
    assert decode.estimate is not None and decode.estimate.blocks == 5
    assert decode.standing == "pilot: 5 blocks have every rung"
    assert "| pilot: 5 blocks have every rung |" in markdown(one)


def test_balance_counts_orders_not_blocks(tmp_path: Path) -> None:
    _, header = made(tmp_path, blocks=6)
    assert balanced([1, 2, 3, 4], header) and balanced([2, 3], header) and balanced([], header)
    assert not balanced([1, 3], header) and not balanced([1, 2, 3], header)


# Time


def test_windows_are_neighbours_in_time_and_not_by_number(tmp_path: Path) -> None:
    receipts, header = made(tmp_path, blocks=8)
    late = replaced(receipts, 3, block(receipts, 3))
    one = found(late, header, events=damaged(block(receipts, 3)))
    assert found(receipts, header).drift.self_test.pairs == 7
    # 4 with 5 and 6 with 7 are gone, and 4 with 7 have the damaged ones between; 16 and 5 meet at the end
    assert one.drift.self_test.pairs == 6
    (warned,) = told(
        one, "blocks did not run in order: block 3 ran after blocks of a higher number"
    )
    assert warned.severity == "warning" and warned.evidence == tuple(range(49, 55))
    assert not told(found(receipts, header), "did not run in order")


def test_an_attempt_that_was_given_up_stands_between_windows(tmp_path: Path) -> None:
    receipts, header = made(tmp_path, blocks=8)
    disturbed = msgspec.structs.replace(block(receipts, 3)[0], breach=("throttled",))
    moved = [
        msgspec.structs.replace(r, sequence=r.sequence + 1, attempt=1 + (r.cell.block == 3))
        for r in receipts
        if r.cell.block >= 3
    ]
    run = [r for r in receipts if r.cell.block < 3] + [disturbed, *moved]
    one = found(run, header)
    assert one.drift.self_test.pairs == 6 and one.blocks_complete == 8
    assert told(one, "1 receipts of unfinished attempts") and not told(one, "in order")


def test_a_drift_in_time_is_seen_over_a_block_that_ran_last(tmp_path: Path) -> None:
    receipts, header = made(tmp_path, blocks=8, noise=0.0, content=0.0)
    order = [r for r in receipts if r.cell.block != 2] + block(receipts, 2)
    place = {
        window: n for n, window in enumerate(dict.fromkeys(r.cell.window.number for r in order))
    }
    run = [
        msgspec.structs.replace(
            r, sequence=number, trace=trace(40 * math.exp(-0.01 * place[r.cell.window.number]), prompt=r.cell.rung)
        )
        for number, r in enumerate(order, start=1)
    ]  # fmt: skip
    one = found(run, header).drift.trend
    assert one.per_window == pytest.approx(math.expm1(-0.01), rel=0.05)
    assert one.kendall_p is not None and one.kendall_p < 1e-6
