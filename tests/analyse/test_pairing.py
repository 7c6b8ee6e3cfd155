"""Pairing by sorted-out sides against what it was before: row by row through the whole table, for every metric."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path

import msgspec
import numpy as np
import pandas as pd
import pytest
from scipy.stats import permutation_test
from synthetic import World, build, trace

from battery.analyse import pairs, rows, stats
from battery.analyse.speed import COMPARED
from battery.ledger.loading import load
from battery.ledger.receipt import Receipt
from battery.ledger.store import Campaign


def odd(receipt: Receipt) -> Receipt:
    """Whatever keeps two requests from being compared, at one receipt or another."""
    number, replace = receipt.sequence, msgspec.structs.replace
    if number % 11 == 0:
        return replace(receipt, outcome="short", trace=trace(40, tokens=12))
    if number % 13 == 0:
        return replace(
            receipt, trace=trace(41, tokens=40)
        )  # another length: timed over the common tokens
    if number % 17 == 0:
        return replace(receipt, request=replace(receipt.request, body_digest="other"))
    if number % 19 == 0:
        return replace(receipt, memory=replace(receipt.memory, source="rss"))
    if number % 23 == 0:
        return replace(receipt, trace=replace(receipt.trace, timings={"prompt_s": 0.5}))
    if number % 29 == 0:
        return replace(receipt, trace=replace(receipt.trace, completion_tokens=None))
    if number % 31 == 0:
        return replace(receipt, memory=replace(receipt.memory, peak=None))
    return receipt


def slowly(frame: pd.DataFrame, campaign: Campaign, metric: str, rung: int) -> pairs.Pairs:
    """The pairs of A and C, every one looked at closely."""
    plan = campaign.header().plan
    traces = {receipt.sequence: receipt.trace for receipt in campaign.receipts()}
    here = frame[frame["counted"] & ~frame["sentinel"] & (frame["rung"] == rung)]
    told = here.to_dict("records")
    sides = [{(r["block"], r["seed"]): r for r in told if r["arm"] == arm} for arm in ("A", "C")]
    kept, lost = [], Counter[str]()
    for key in sorted({*sides[0], *sides[1]}):
        one, other = sides[0][key], sides[1][key]
        pair = pairs._pair(one, other, traces, plan, metric)
        if isinstance(pair, str):
            lost[pair] += 1
        else:
            kept.append(pair)
    return pairs.Pairs(
        kept=tuple(kept), planned=len(sides[0]), lost=dict(sorted(lost.items())), metric=metric
    )


def test_pairs_are_those_of_the_rows_one_by_one(tmp_path: Path) -> None:
    campaign = Campaign(build(tmp_path, World(blocks=8, seeds=4, change=odd, speculates=("C",))))
    header, loaded = campaign.header(), load(campaign)
    frame = rows.rows(loaded.receipts, header)
    traces = {receipt.sequence: receipt.trace for receipt in loaded.receipts}
    sides, why = pairs.Sides(frame), set()
    for metric in COMPARED:
        for rung in header.plan.ladder:
            found = pairs.match(sides, traces, header.plan, metric, rung, ("A", "C"))
            assert found == slowly(frame, campaign, metric, rung), (metric, rung)
            why |= set(found.lost) | ({"cut"} if any(pair.cut for pair in found.kept) else set())
    assert len(why) > 8 and "cut" in why  # every way of losing a pair was met


def test_blocks_are_gathered_from_pairs_in_any_order() -> None:
    kept = [
        pairs.Pair(block=block, control=1.0, candidate=1.0 + block / 10, cut=False, receipts=(1, 2))
        for block in (3, 1, 3, 2)
    ]
    found = pairs.Pairs(kept=tuple(kept), planned=4, lost={}, metric="decode")
    assert list(found.by_block()) == [1, 2, 3] == list(found.by_block_medians())
    assert found.by_block()[3] == pytest.approx(math.log(1.3))


@pytest.mark.parametrize("blocks", [2, 3, 6, 13, 14, 15, 16, 40])
def test_the_sign_flip_p_is_scipys_to_the_last_bit(blocks: int) -> None:
    for seed in range(3):
        d = np.random.default_rng(seed).normal(0.005 * seed, 0.01, blocks)
        for values in (d, np.round(d, 2), np.zeros(blocks)):
            told = permutation_test(
                (values,), np.mean, permutation_type="samples", vectorized=True,
                n_resamples=2**14 if blocks <= 14 else 9999, rng=np.random.default_rng(1),
            ).pvalue  # fmt: skip
            assert stats.sign_flip(values) == float(told)


def test_a_column_of_the_table_holds_what_it_is_called(tmp_path: Path) -> None:
    campaign = Campaign(build(tmp_path, World(blocks=1, seeds=1, speculates=("C",))))
    receipts = campaign.receipts()
    frame = rows.rows(receipts, campaign.header())
    for place, receipt in enumerate(receipts):
        row, cell = frame.iloc[place], receipt.cell
        for name in ("block", "place", "arm", "rung", "seed", "sentinel"):
            assert row[name] == getattr(cell, name)
        for name in ("campaign", "sequence", "attempt", "outcome"):
            assert row[name] == getattr(receipt, name)
        assert (row["window"], row["position"]) == (cell.window.number, cell.window.position)
        assert receipt.text and row["text_digest"] == receipt.text.digest
        assert row["body_digest"] == receipt.request.body_digest
        for name, value in rows.values(receipt).items():
            assert row[name] == value or (value is None and pd.isna(row[name])), name
