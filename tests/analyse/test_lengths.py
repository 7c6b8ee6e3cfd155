from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from scipy.stats import ttest_1samp
from synthetic import World, build, trace

from battery.analyse.findings import Findings, analyse
from battery.analyse.lengths import Lengths, fewest
from battery.ledger.plan import Plan, Sampler
from battery.ledger.receipt import Receipt
from battery.render.report import markdown


def at(found: Findings, rung: int) -> Lengths:
    (one,) = [one for one in found.lengths if one.rung == rung]
    return one


def long(tokens: Callable[[Receipt], int], outcome: str = "ok") -> Callable[[Receipt], Receipt]:
    """C's answers at 384 tokens of context have this many tokens."""

    def change(receipt: Receipt) -> Receipt:
        cell = receipt.cell
        if (cell.arm, cell.rung) != ("C", 384) or cell.sentinel:
            return receipt
        told = trace(40, tokens=tokens(receipt), prompt=384)
        return msgspec.structs.replace(receipt, trace=told, outcome=outcome)

    return change


@pytest.mark.parametrize(
    ("most", "least", "wanted"), [(64, 16, 16), (128, 0, 0), (129, 16, 128), (1024, 512, 512)]
)
def test_the_fewest_common_tokens(most: int, least: int, wanted: int) -> None:
    plan = Plan(ladder=(64,), blocks=1, sampler=Sampler(max_tokens=most, min_tokens=least))
    assert fewest(plan) == wanted


def test_equal_lengths_are_no_finding(tmp_path: Path) -> None:
    found = analyse(build(tmp_path, World()))
    for one in found.lengths:
        assert (one.unequal, one.pairs, one.differs) == (0, 12, False)
        assert one.control_tokens == one.candidate_tokens == 48
        assert one.estimate and one.estimate.ratio == 1.0 and one.p_corrected == 1.0
    assert "Lengths of the answers" not in markdown(found)


def test_an_arm_that_stops_earlier_is_a_finding(tmp_path: Path) -> None:
    def tokens(receipt: Receipt) -> int:
        return 30 + receipt.cell.block % 3

    found = analyse(build(tmp_path, World(change=long(tokens))))
    one = at(found, 384)
    logs = [math.log((30 + block % 3) / 48) for block in range(1, 7)]
    assert one.estimate and one.estimate.ratio == pytest.approx(math.exp(sum(logs) / 6))
    assert one.estimate.p == pytest.approx(float(ttest_1samp(logs, 0).pvalue), rel=1e-5)
    assert one.p_corrected == pytest.approx(2 * one.estimate.p, rel=1e-5)
    assert one.differs and one.unequal == one.pairs == 12 and not at(found, 128).differs
    assert one.candidate_tokens == pytest.approx(48 * math.exp(sum(logs) / 6))
    (doubt,) = [doubt for doubt in found.doubts if "differ in length" in doubt.what]
    assert (doubt.severity, doubt.arm) == ("warning", "C")
    assert "31.0 tokens" in doubt.what
    assert "| C | 384 | 48.00 | 30.99 |" in markdown(found)


def test_lengths_that_only_scatter_are_shown_and_no_difference(tmp_path: Path) -> None:
    found = analyse(build(tmp_path, World(change=long(lambda r: 40 + 16 * (r.cell.block % 2)))))
    one = at(found, 384)
    assert one.unequal == 12 and not one.differs
    assert not [doubt for doubt in found.doubts if "differ in length" in doubt.what]
    assert "not shown to differ" in markdown(found)


def test_answers_too_short_to_be_pooled_still_count_as_lengths(tmp_path: Path) -> None:
    found = analyse(build(tmp_path, World(change=long(lambda _: 8, "short"))))
    one = at(found, 384)
    assert one.candidate_tokens == pytest.approx(8) and one.differs
    (decode,) = found.primary
    assert decode.verdict.word == "not comparable" and decode.lost == {"C: short": 12}


def test_few_blocks_show_no_difference(tmp_path: Path) -> None:
    found = analyse(build(tmp_path, World(blocks=4, change=long(lambda r: 20 + r.cell.block % 2))))
    assert at(found, 384).p_corrected and not at(found, 384).differs


def test_a_guessed_count_is_no_length(tmp_path: Path) -> None:
    def change(receipt: Receipt) -> Receipt:
        guess = msgspec.structs.replace(receipt.trace, count_source="estimate")
        return msgspec.structs.replace(receipt, trace=guess)

    one = at(analyse(build(tmp_path, World(change=change))), 384)
    assert (one.pairs, one.estimate, one.control_tokens, one.differs) == (0, None, None, False)


def test_a_short_common_length_is_dropped_where_much_was_asked(tmp_path: Path) -> None:
    def change(receipt: Receipt) -> Receipt:
        if receipt.cell.sentinel:
            return receipt
        tokens = 200 if receipt.cell.arm == "A" else 127 if receipt.cell.block == 1 else 128
        return msgspec.structs.replace(receipt, trace=trace(40, tokens=tokens, prompt=384))

    sampler = Sampler(max_tokens=256, min_tokens=16)
    (one,) = analyse(build(tmp_path, World(blocks=12, change=change, sampler=sampler))).primary
    assert one.lost == {"common length below 128 tokens": 2}
    assert one.unequal_lengths == one.pairs == 22 and 1 not in dict(one.by_block)
