"""What a replay's page must say, and what its findings are beside the campaign whose texts it follows."""

from __future__ import annotations

import math
from pathlib import Path

import msgspec
import pytest
from synthetic import World, build

from battery.analyse.beside import beside
from battery.analyse.combine import combine
from battery.analyse.findings import Findings, analyse
from battery.ledger.errors import InputError
from battery.ledger.plan import Replay
from battery.ledger.receipt import Receipt
from battery.render import replaying
from battery.render.charts import draw
from battery.render.lint.check import lint
from battery.render.report import markdown


def forced(receipt: Receipt) -> Receipt:
    """The receipt of a run that followed recorded tokens."""
    sampler = {**receipt.request.sampler, "forced_tokens": 48}
    request = msgspec.structs.replace(receipt.request, sampler=sampler)
    return msgspec.structs.replace(receipt, request=request)


def free(root: Path, **changes: object) -> Findings:
    return analyse(build(root, World(**{"noise": 0.03, **changes}), "free"))


def replay(root: Path, seal: str | None, block: int | None = None, **changes: object) -> Findings:
    source = Replay(campaign="free", seal=seal or "0" * 64, arm="A", block=block, digest="d" * 64)
    values = {"noise": 0.003, "change": forced, "plan": {"replay": source}, **changes}
    return analyse(build(root, World(**values), "again"))


def test_a_replays_page_says_so_at_its_top_and_the_linter_wants_it(tmp_path: Path) -> None:
    source = free(tmp_path)
    found = replay(tmp_path, source.seal)
    page = markdown(found)
    assert lint(page, found) == []
    top = page.split("## 1.")[0]
    assert "what arm A wrote in the campaign `free`" in top and replaying.STANDS_FOR in top
    (limit,) = [one for one in found.doubts if "followed texts of free" in one.what]
    assert limit.severity == "note" and limit.what in page
    assert not [one for one in lint(markdown(source), source) if one.rule == "replay-stated"]
    for old, new, told in (
        ("`free`", "`other`", "does not name free"),
        (" the campaign `free`", "", "does not name free"),
        (", not on texts that the arms would write", "", "no statement on"),
    ):
        broken = top.replace(old, new) + page.removeprefix(top)
        what = [one.what for one in lint(broken, found) if one.rule == "replay-stated"]
        assert len(what) == 1 and told in what[0]
    (note,) = replaying.head(found)
    silent = [one.what for one in lint(page.replace(note, ""), found)]
    assert any("does not say so" in what for what in silent)
    claimed = [one.what for one in lint(note + "\n\n" + markdown(source), source)]
    assert any("it was none" in what for what in claimed)


def test_fixed_texts_are_told_apart_from_each_blocks_own(tmp_path: Path) -> None:
    found = replay(tmp_path, None, block=2)
    page = markdown(found)
    assert "all blocks the texts of its block 2" in page
    assert "2 in every block the same, common to its arms" in page
    assert "--replay free:2\n" in page
    assert lint(page, found) == []


def test_a_replay_is_run_again_under_the_plan_that_it_had(tmp_path: Path) -> None:
    own = replay(tmp_path, None, blocks=6)
    assert "\nbattery run --arms A,C --replay free\n" in markdown(own)
    assert own.plan.replayed is not None
    source = msgspec.structs.replace(own.plan.replayed, plan="test")
    given = replay(tmp_path / "given", None, blocks=6, plan={"replay": source})
    assert "\nbattery run --plan test --arms A,C --replay free\n" in markdown(given)
    assert "\nbattery run --plan test --arms A,C\n" in markdown(free(tmp_path))


def test_both_intervals_stand_side_by_side_over_equally_many_blocks(tmp_path: Path) -> None:
    source = free(tmp_path, blocks=8, effect={"C": 1.2})
    found = replay(tmp_path, source.seal, effect={"C": 1.2})
    sides = beside(found, source).sides
    (decode,) = [one for one in sides if one.primary]
    assert decode.blocks == 6 == decode.free.blocks == decode.replayed.blocks
    own = source.comparison("C", "decode", 384)
    assert own is not None and own.estimate is not None and own.estimate.blocks == 8
    kept = [math.log(ratio) for _, ratio in own.by_block[:6]]
    assert decode.free.ratio == pytest.approx(math.exp(sum(kept) / 6), rel=1e-8)
    for each in (decode.free, decode.replayed):
        assert each.low is not None and each.high is not None
        assert each.low < 1.2 < each.high
    # tenfold noise between the two worlds
    assert decode.narrower is not None and 4 < decode.narrower < 25
    told = replaying.lines(beside(found, source))
    assert told[3].split()[:4] == ["candidate", "metric", "context", "blocks"]
    assert "decode (primary)" in told[4]
    assert not any("is not sealed as it was" in line for line in told)
    assert beside(found, source).unlike == ()
    arms = tuple(
        msgspec.structs.replace(arm, digest="0" * 64) if arm.arm.name == "C" else arm
        for arm in source.arms
    )
    moved = {**source.machine, "cpu": "another one"}
    unlike = msgspec.structs.replace(source, arms=arms, machine=moved)
    told = replaying.lines(beside(found, unlike))
    assert sum(line.startswith("note: arm C ") for line in told) == 1
    assert "note: free and again ran on different machines" in told
    other = replay(tmp_path / "other", "f" * 64, effect={"C": 1.2})
    assert any("is not sealed as it was" in line for line in replaying.lines(beside(other, source)))


def test_campaigns_that_do_not_belong_together_are_refused(tmp_path: Path) -> None:
    source = free(tmp_path)
    found = replay(tmp_path, source.seal)
    with pytest.raises(InputError, match="free is no replay"):
        beside(source, source)
    with pytest.raises(InputError, match="follows the texts of free, not of again"):
        beside(found, found)
    strangers = free(tmp_path / "other", arms=("A", "B"))
    with pytest.raises(InputError, match="no comparison in common"):
        beside(found, strangers)
    for first, second in ((source, found), (found, source)):
        left = combine({"one": first, "two": second}).left_out
        assert left == (
            ("two", "again is a replay, free is not: speed along given texts is another question"),
        )


def test_charts_of_a_replay_say_so_in_their_titles(tmp_path: Path) -> None:
    for found, told in ((free(tmp_path), False), (replay(tmp_path, None), True)):
        for key, (_, data) in draw(found).items():
            assert (b"along given texts" in data) == told, key


def test_a_free_run_among_replayed_ones_voids_every_verdict(tmp_path: Path) -> None:
    found = replay(tmp_path, None, change=lambda one: one if one.sequence == 5 else forced(one))
    assert {one.verdict.word for one in found.comparisons} == {"invalid"}
    assert any("this run was free" in one.what for one in found.doubts if one.severity == "void")
