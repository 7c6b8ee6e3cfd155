from __future__ import annotations

import math
from pathlib import Path

import msgspec
import pytest
from synthetic import World, build, fails, trace

from battery.analyse import findings as kept
from battery.analyse.findings import Findings, analyse
from battery.analyse.speed import Comparison
from battery.ledger.errors import ReceiptError
from battery.ledger.receipt import Receipt
from battery.ledger.store import Campaign
from battery.ledger.trace import decode_over


def primary(found: Findings) -> Comparison:
    (one,) = found.primary
    return one


def test_planted_five_percent_is_found(tmp_path: Path) -> None:
    found = analyse(build(tmp_path, World(effect={"C": 1.05})))
    one = primary(found)
    assert one.verdict.word == "faster"
    assert one.estimate and one.estimate.low and one.estimate.high
    assert one.estimate.low < 1.05 < one.estimate.high
    assert one.estimate.blocks == 6 and one.pairs == one.planned == 12
    assert found.status == "complete" and not found.pilot and found.seal
    assert len(one.receipts) == 24
    assert not [doubt for doubt in found.doubts if doubt.severity != "note"]


def test_no_difference_is_never_a_claim(tmp_path: Path) -> None:
    quiet = primary(analyse(build(tmp_path / "quiet", World())))
    assert (quiet.verdict.word, quiet.verdict.qualifier) == ("equivalent", "within 2 %")
    noisy = primary(analyse(build(tmp_path / "noisy", World(noise=0.06))))
    assert noisy.verdict.word == "undecided"
    assert noisy.blocks_needed is None or noisy.blocks_needed > 6


def test_few_blocks_are_a_pilot(tmp_path: Path) -> None:
    found = analyse(build(tmp_path, World(blocks=4, effect={"C": 1.5})))
    assert found.pilot
    words = {one.verdict.word for one in found.comparisons}
    assert words == {"pilot"}


def test_direction_of_metrics_where_less_is_better(tmp_path: Path) -> None:
    world = World(ttft_effect={"C": 0.8}, memory_effect={"C": 1.1})
    found = analyse(build(tmp_path, world))
    ttft, memory = found.comparison("C", "ttft", 384), found.comparison("C", "peak_memory", 384)
    prefill = found.comparison("C", "prefill", 384)
    assert ttft and memory and prefill and ttft.estimate and memory.estimate
    assert ttft.estimate.ratio == pytest.approx(0.8, rel=0.02) and ttft.verdict.word == "faster"
    assert prefill.verdict.word == "faster"
    assert memory.estimate.ratio == pytest.approx(1.1) and memory.verdict.word == "larger"


def test_out_of_memory_is_a_result(tmp_path: Path) -> None:
    change = fails("oom", lambda r: r.cell.rung == 384, "[METAL] Insufficient Memory")
    found = analyse(build(tmp_path, World(change=change)))
    one = primary(found)
    assert one.verdict.word == "not comparable" and one.estimate is None
    assert one.lost == {"A: oom, C: oom": 12}
    told = found.outcome("C", 384)
    assert (told.ok, told.ended, told.tokens) == (0, {"oom": 12}, 3)
    assert told.peak_over == 100_800_000_000 and told.cap == 107_374_182_400
    assert told.reasons == ("[METAL] Insufficient Memory",)
    level = found.level("C", "decode", 384)
    assert level and level.value is None and level.why == "oom 12"
    other = found.comparison("C", "decode", 128)
    assert other and other.estimate and other.estimate.blocks == 6


def test_one_failed_pair_is_counted_and_more_forbid_a_verdict(tmp_path: Path) -> None:
    def one_cell(r: Receipt) -> bool:
        return (r.cell.arm, r.cell.rung, r.cell.seed) == ("C", 384, 110_101)

    world = World(effect={"C": 1.05}, change=fails("timeout", one_cell))
    few = primary(analyse(build(tmp_path / "few", world)))
    assert few.lost == {"C: timeout": 1} and few.pairs == 11 and few.verdict.word == "faster"

    def two_blocks(r: Receipt) -> bool:
        return r.cell.arm == "C" and r.cell.rung == 384 and r.cell.block <= 2

    world = World(effect={"C": 1.05}, change=fails("timeout", two_blocks))
    many = primary(analyse(build(tmp_path / "many", world)))
    assert many.verdict.word == "undecided" and many.estimate and many.estimate.blocks == 4
    assert many.verdict.why == "attrition: 4 of 12 pairs are missing: C: timeout (4)"


def test_a_rung_with_attrition_is_not_in_the_interval_over_the_ladder(tmp_path: Path) -> None:
    change = fails("timeout", lambda r: (r.cell.rung, r.cell.block) == (384, 1))
    found = analyse(build(tmp_path, World(change=change)))
    (decode,) = [one for one in found.ladders if one.metric == "decode"]
    assert decode.rungs == (128,) and decode.estimate and decode.estimate.blocks == 6


def test_attrition_in_a_pilot_leaves_it_a_pilot(tmp_path: Path) -> None:
    change = fails("timeout", lambda r: (r.cell.rung, r.cell.block) == (384, 1))
    found = analyse(build(tmp_path, World(blocks=4, change=change)))
    assert {one.verdict.word for one in found.comparisons} == {"pilot"}


def slowing(receipt: Receipt) -> Receipt:
    """Arm C stops after 32 tokens; arm A goes on, but at half the speed after its 32nd."""
    cell = receipt.cell
    if cell.rung != 384 or cell.sentinel:
        return receipt
    if cell.arm == "C":
        return msgspec.structs.replace(receipt, trace=trace(44, tokens=32, prompt=384))
    whole = trace(40, prompt=384)
    events = list(whole.events)
    last = events[31].at_ns
    late = [type(e)(last + 50_000_000 * place, 1) for place, e in enumerate(events[32:], start=1)]
    return msgspec.structs.replace(
        receipt, trace=msgspec.structs.replace(whole, events=tuple(events[:32] + late))
    )


def test_unequal_lengths_are_compared_over_what_both_produced(tmp_path: Path) -> None:
    found = analyse(build(tmp_path, World(change=slowing)))
    one = primary(found)
    # Both rates over the first 32 tokens, by hand: 40 and 44 tok/s. Over all of A's it would be less than 40.
    assert one.estimate and one.estimate.ratio == pytest.approx(1.1, rel=1e-6)
    assert one.unequal_lengths == one.pairs == 12
    assert any("different lengths" in doubt.what for doubt in found.doubts)
    whole = found.level("A", "decode", 384)
    assert whole and whole.value and whole.value < 34


def test_lengths_that_cannot_be_cut_are_lost_with_the_reason(tmp_path: Path) -> None:
    def change(receipt: Receipt) -> Receipt:
        if receipt.cell.arm == "A" or receipt.cell.rung != 384 or receipt.cell.sentinel:
            return receipt
        longer = trace(40, tokens=60, prompt=384, count_source="usage")
        assert decode_over(longer, 48) is None
        return msgspec.structs.replace(receipt, trace=longer)

    one = primary(analyse(build(tmp_path, World(change=change))))
    assert one.pairs == 0 and "cannot be cut" in next(iter(one.lost))


def test_other_bodies_are_never_paired(tmp_path: Path) -> None:
    def change(receipt: Receipt) -> Receipt:
        if receipt.cell.arm == "A" or receipt.cell.block != 2:
            return receipt
        request = msgspec.structs.replace(receipt.request, body_digest="0" * 64)
        return msgspec.structs.replace(receipt, request=request)

    found = analyse(build(tmp_path, World(change=change)))
    one = primary(found)
    assert one.lost == {"request bodies differ": 2}
    assert 2 not in dict(one.by_block)
    assert any("different request bodies" in doubt.what for doubt in found.doubts)


def test_figures_from_different_sources_are_not_compared(tmp_path: Path) -> None:
    def change(receipt: Receipt) -> Receipt:
        if receipt.cell.arm == "A":
            return receipt
        memory = msgspec.structs.replace(receipt.memory, source="engine")
        return msgspec.structs.replace(receipt, memory=memory)

    one = analyse(build(tmp_path, World(change=change))).comparison("C", "peak_memory", 384)
    assert one and one.verdict.word == "not comparable" and "different sources" in one.verdict.why


def test_warm_and_guessed_figures_do_not_exist(tmp_path: Path) -> None:
    def change(receipt: Receipt) -> Receipt:
        cold = msgspec.structs.replace(receipt.cold, value="warm")
        guessed = msgspec.structs.replace(receipt.trace, count_source="estimate")
        return msgspec.structs.replace(receipt, cold=cold, trace=guessed)

    found = analyse(build(tmp_path, World(change=change)))
    for metric in ("prefill", "decode"):
        level = found.level("A", metric, 128)
        assert level and level.value is None and level.why == "not reported"
    ttft = found.level("A", "ttft", 128)
    assert ttft and ttft.value
    assert any("token count is a guess" in doubt.what for doubt in found.doubts)


def test_sentinels_are_not_in_the_estimate(tmp_path: Path) -> None:
    def change(receipt: Receipt) -> Receipt:
        if not receipt.cell.sentinel:
            return receipt
        return msgspec.structs.replace(receipt, trace=trace(4000))

    plain = analyse(build(tmp_path / "plain"))
    odd = analyse(build(tmp_path / "odd", World(change=change)))
    assert plain.comparisons == odd.comparisons
    assert plain.level("A", "decode", 128) == odd.level("A", "decode", 128)


def test_an_unfinished_campaign_is_read_and_gives_no_verdict(tmp_path: Path) -> None:
    def change(receipt: Receipt) -> Receipt | None:
        return receipt if receipt.cell.block <= 6 or receipt.sequence == 61 else None

    found = analyse(build(tmp_path, World(blocks=8, effect={"C": 1.05}, change=change, seal=False)))
    assert found.status == "incomplete" and found.blocks_complete == 6 and found.seal is None
    assert primary(found).verdict.word == "undecided" and "peeking" in primary(found).verdict.why
    assert any("6 of 8 planned blocks" in doubt.what for doubt in found.doubts)
    assert any("unfinished attempts" in doubt.what and doubt.evidence == (61,) for doubt in found.doubts)  # fmt: skip


def test_a_campaign_without_receipts_is_read(tmp_path: Path) -> None:
    found = analyse(build(tmp_path, World(change=lambda receipt: None, seal=False)))
    assert found.receipts == 0 and primary(found).verdict.word == "not comparable"
    with pytest.raises(ReceiptError):
        analyse(tmp_path / "nothing")


def test_a_corrupt_receipt_is_named_left_out_and_voids(tmp_path: Path) -> None:
    folder = build(tmp_path, World(effect={"C": 1.05}, blocks=8))
    victim = Campaign(folder).paths()[7]
    victim.chmod(0o644)
    victim.write_text('{"schema": 1, "campaign"')
    found = analyse(folder)
    assert any(victim.name in doubt.what for doubt in found.doubts)
    assert found.blocks_complete == 7
    assert primary(found).verdict.word == "invalid" and victim.name in primary(found).verdict.why


def test_the_same_cell_twice_is_refused(tmp_path: Path) -> None:
    folder = build(tmp_path, World(effect={"C": 1.05}))
    store = Campaign(folder)
    store.write(msgspec.structs.replace(store.receipts()[3], sequence=900))
    found = analyse(folder)
    assert "the same cell as receipt 4" in primary(found).verdict.why
    assert found.receipts == 60


def test_a_cell_that_the_plan_does_not_have_is_left_out(tmp_path: Path) -> None:
    folder = build(tmp_path, World(effect={"C": 1.05}))
    store = Campaign(folder)
    stranger = store.receipts()[3]
    window = msgspec.structs.replace(stranger.cell.window, block=9)
    cell = msgspec.structs.replace(stranger.cell, window=window)
    store.write(msgspec.structs.replace(stranger, sequence=900, cell=cell))
    found = analyse(folder)
    assert "receipt 900" in primary(found).verdict.why and found.receipts == 60


def test_an_abandoned_attempt_is_shown_and_not_pooled(tmp_path: Path) -> None:
    folder = build(tmp_path)
    store = Campaign(folder)
    before = analyse(folder)
    for number, receipt in enumerate(store.receipts()[:3], start=61):
        again = msgspec.structs.replace(receipt, sequence=number, attempt=2, trace=trace(400))
        store.write(again)
    after = analyse(folder)
    assert after.comparisons == before.comparisons
    assert [window.counted for window in after.windows].count(False) == 1


def test_the_journal_is_counted(tmp_path: Path) -> None:
    folder = build(tmp_path, World(seal=False))
    store = Campaign(folder)
    for event in ("started", "interrupted", "resumed", "finished"):
        store.note(event)
    assert analyse(folder).journal == {"started": 1, "interrupted": 1, "resumed": 1, "finished": 1}
    for attempt in (1, 1, 2):
        store.note("abandoned", block=4, attempt=attempt)
    store.note("abandoned", block=5, attempt=1)
    assert analyse(folder).journal["abandoned"] == 3
    (folder / "journal.jsonl").write_text("{")
    assert analyse(folder).journal == {"unreadable": 1}


def test_what_no_arm_declares_is_flagged(tmp_path: Path) -> None:
    def change(receipt: Receipt) -> Receipt:
        if receipt.cell.arm == "A":
            return receipt
        return msgspec.structs.replace(
            receipt,
            versions={"battery": {"version": "0.1.0"}, "engine": {"mlx": "0.31.0"}},
        )

    found = analyse(build(tmp_path, World(change=change)))
    told = {one.what: one.declared for one in found.differences}
    assert told == {"switches.fused_qkv": True, "versions.engine.mlx": False}
    assert any("versions.engine.mlx" in doubt.what for doubt in found.doubts)


def test_drift_is_told_and_cancels(tmp_path: Path) -> None:
    found = analyse(build(tmp_path, World(drift=-0.01, noise=0.0005, content=0.0)))
    one = primary(found)
    assert one.estimate and one.estimate.ratio == pytest.approx(1, abs=2e-3)
    (order,) = found.drift.order
    assert order.flagged and order.ratio == pytest.approx(math.exp(-0.01), abs=1e-3)
    assert found.drift.trend.per_window == pytest.approx(math.expm1(-0.01), abs=1e-3)
    sentinel = found.drift.sentinels[0]
    # Arm A's windows are 1, 4, 5, 8, 9, 12: eleven steps from first to last.
    assert sentinel.last_first == pytest.approx(math.expm1(-0.11), abs=5e-3)
    assert sentinel.bracket == pytest.approx(math.expm1(0.11), abs=5e-3)
    assert not found.drift.self_test.failed and found.drift.self_test.pairs == 5


def test_arms_that_differ_from_themselves_void_the_verdict(tmp_path: Path) -> None:
    def change(receipt: Receipt) -> Receipt:
        """Neighbours of one arm are windows 2 and 3, 4 and 5, …; the machine goes up, down, down, up between them."""
        number, block = receipt.cell.window.number, receipt.cell.block
        rate = (40 + 0.1 * number) * 1.2 ** (0, 1, 0, -1)[(block - 1) % 4]
        return msgspec.structs.replace(receipt, trace=trace(rate, prompt=receipt.cell.rung))

    found = analyse(build(tmp_path, World(change=change)))
    test = found.drift.self_test
    assert test.failed and test.pairs == 5
    assert primary(found).verdict.word == "invalid"
    assert "differ from themselves" in primary(found).verdict.why


def test_a_block_far_from_the_others_is_told_of_and_kept(tmp_path: Path) -> None:
    def change(receipt: Receipt) -> Receipt:
        if (receipt.cell.arm, receipt.cell.block, receipt.cell.rung) != ("C", 4, 384):
            return receipt
        return msgspec.structs.replace(receipt, trace=trace(25, prompt=384))

    found = analyse(build(tmp_path, World(change=change)))
    assert any("block 4 (" in doubt.what for doubt in found.doubts)
    assert 4 in dict(primary(found).by_block) and primary(found).verdict.word == "undecided"


def test_an_order_that_is_not_balanced_is_told(tmp_path: Path) -> None:
    found = analyse(build(tmp_path, World(arms=("A", "B", "C"), blocks=8)))
    assert any(
        "8 blocks do not balance the order of 3 arms" in doubt.what for doubt in found.doubts
    )


@pytest.mark.parametrize(
    ("arms", "blocks", "whole"), [(2, 7, 2), (3, 9, 6), (4, 6, 4), (5, 5, 10), (6, 9, 6), (2, 6, 0), (4, 8, 0)]
)  # fmt: skip
def test_what_is_unbalanced_is_told_with_its_remedy(
    arms: int, blocks: int, whole: int, tmp_path: Path
) -> None:
    names = tuple("ABCDEF"[:arms])
    found = analyse(build(tmp_path, World(arms=names, ladder=(128,), blocks=blocks, seeds=1)))
    told = [one.remedy for one in found.doubts if "do not balance the order" in one.what]
    assert told == ([f"plan a multiple of {whole} blocks"] if whole else [])
    assert found.order and found.coin.startswith("A opens")


def test_changing_sentinel_text_is_told(tmp_path: Path) -> None:
    def change(receipt: Receipt) -> Receipt:
        if not (receipt.cell.sentinel and receipt.cell.arm == "C" and receipt.text):
            return receipt
        text = msgspec.structs.replace(receipt.text, digest="f" * 64)
        return msgspec.structs.replace(receipt, text=text)

    found = analyse(build(tmp_path, World(arms=("A", "B", "C"), change=change)))
    (doubt,) = [one for one in found.doubts if "claim only exact switches" in one.what]
    assert (doubt.severity, doubt.arm) == ("void", "C")
    words = {one.candidate: one.verdict for one in found.primary}
    assert words["C"].word == "invalid" and "claim only exact" in words["C"].why
    assert words["B"].word == "equivalent"


def test_speculation_has_its_factors(tmp_path: Path) -> None:
    found = analyse(build(tmp_path, World(effect={"C": 1.05}, speculates=("A", "C"))))
    steps = found.comparison("C", "seconds_per_step", 384)
    tokens = found.comparison("C", "tokens_per_step", 384)
    assert (
        steps and tokens and steps.verdict.word == "faster" and tokens.verdict.word == "equivalent"
    )
    alone = analyse(build(tmp_path / "alone", World(speculates=("C",))))
    assert alone.comparison("C", "seconds_per_step", 384) is None
    level = alone.level("C", "acceptance", 128)
    assert level and level.value == pytest.approx(28 / 60)


def test_one_arm_and_many(tmp_path: Path) -> None:
    one = analyse(build(tmp_path / "one", World(arms=("A",), ladder=(128,), blocks=1, seeds=1)))
    assert one.comparisons == () and one.candidates == ()
    many = analyse(build(tmp_path / "many", World(arms=tuple("ABCDEFGH"), blocks=8)))
    assert [c.candidate for c in many.primary] == list("BCDEFGH")


def test_findings_are_kept_and_read_back_to_the_byte(tmp_path: Path) -> None:
    folder = build(tmp_path, World(effect={"C": 1.05}))
    found = analyse(folder)
    path = kept.write(found, tmp_path / "reports" / "x.json")
    assert kept.read(path) == found
    first = path.read_bytes()
    kept.write(analyse(folder), path)
    assert path.read_bytes() == first
    assert b"NaN" not in first and b"Infinity" not in first
