"""A replay makes every arm follow recorded texts, and nothing else passes for one: the fake engine over real HTTP."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from battery.bench.progress import Progress
from battery.bench.run import Conductor
from battery.interruption import Interrupted
from battery.ledger import strict
from battery.ledger.arm import Arm
from battery.ledger.errors import PlanError, ReceiptError
from battery.ledger.plan import Plan, Sampler
from battery.ledger.receipt import Receipt
from battery.ledger.store import PROMPTS, Campaign, check_pool
from battery.ledger.trajectories import Trajectories, recorded

Make = Callable[..., Arm]
LOOKUP = {"prompt_lookup": True}


def conduct(
    folder: Path, plan: Plan, *arms: Arm, texts: Trajectories | None = None,
    progress: Progress | None = None,
) -> tuple[Counter[str], list[Receipt]]:  # fmt: skip
    lock = folder.parent / "battery.lock"
    made = Conductor(plan, arms, folder, progress, 4821, lock=lock, recorded=texts)
    return made.run(), Campaign(folder).receipts()


def free(root: Path, plan: Plan, *arms: Arm) -> Trajectories:
    """A finished free campaign, and what it recorded."""
    counts, _ = conduct(root / "free", plan, *arms)
    assert set(counts) == {"ok"}
    return recorded(Campaign(root / "free"))


def again(texts: Trajectories, **changes: object) -> Plan:
    """The source's plan as a replay of it."""
    plan = msgspec.structs.replace(texts.plan(), replay=texts.replay)
    return msgspec.structs.replace(plan, **changes)


def test_every_arm_follows_what_the_control_wrote_for_the_same_prompt(
    tmp_path: Path, fake_arm: Make, small_plan: Plan
) -> None:
    # the free candidate writes other texts than the control
    wild = fake_arm("C", "--fault", "ignores-seed", "--after", "5", switches=LOOKUP)
    texts = free(tmp_path, small_plan, fake_arm("A"), wild)
    source = Campaign(tmp_path / "free").receipts()
    wrote = {(r.cell.arm, r.cell.rung, r.cell.seed): r.text.ids for r in source if r.text}
    keys = {key[1:] for key in wrote}
    assert any(wrote["A", *key] != wrote["C", *key] for key in keys)
    counts, receipts = conduct(
        tmp_path / "replayed", again(texts), fake_arm("A"), wild, texts=texts
    )
    assert counts == {"ok": 12}
    for r in receipts:
        ids = wrote["A", r.cell.rung, r.cell.seed]
        assert r.text is not None and ids is not None
        assert r.text.ids == ids and r.text.ids_digest == strict.digest(list(ids))
        assert r.request.sampler["forced_tokens"] == len(ids) == r.request.sampler["max_tokens"]
        assert r.request.honoured == "honoured"
        assert r.trace.sampler and r.trace.sampler["forced_tokens"] == 12
    header = Campaign(tmp_path / "replayed").header()
    told = header.plan.replayed
    assert told is not None and (told.campaign, told.arm) == ("free", "A")
    assert told.seal == Campaign(tmp_path / "free").chain().seal
    assert header.plan_digest == header.plan.digest != texts.header.plan_digest
    assert header.seed == texts.header.seed
    bodies = {r.request.body_digest for r in receipts}
    assert len(bodies) == 5, "two rungs in two blocks, and the sentinel: the same for both arms"
    assert not bodies & {r.request.body_digest for r in source}


def test_an_engine_that_does_not_follow_is_an_error(
    tmp_path: Path, fake_arm: Make, small_plan: Plan
) -> None:
    plan = msgspec.structs.replace(small_plan, ladder=(64,), blocks=1, sentinel=False)
    texts = free(tmp_path, plan, fake_arm("A"))
    wanted = {
        "ignores-forced": "the switch was silently off",
        "forced-silent": "the switch was silently off",
        "forced-other:4": "token 4 of its answer is",
        "forced-short:9": "8 came of 12",
        "no-ids": "sends no token ids to show it",
        "no-timings": "the switch was silently off",
    }
    liars = [fake_arm(fault.split(":")[0], "--fault", fault) for fault in wanted]
    counts, receipts = conduct(
        tmp_path / "replayed", again(texts), fake_arm("A"), *liars, texts=texts
    )
    assert counts == {"ok": 1, "error": len(liars)}
    for fault, words in wanted.items():
        (bad,) = [r for r in receipts if r.cell.arm == fault.split(":")[0]]
        assert bad.outcome == "error" and words in (bad.reason or "")


def test_an_engine_that_forces_though_nobody_asked_is_an_error(
    tmp_path: Path, fake_arm: Make, small_plan: Plan
) -> None:
    plan = msgspec.structs.replace(small_plan, ladder=(64,), blocks=1, sentinel=False)
    counts, receipts = conduct(tmp_path / "c", plan, fake_arm("A", "--fault", "forced-anyway"))
    assert counts == {"error": 1}
    assert "forced_tokens: not asked for, applied 12" in (receipts[0].reason or "")


def test_all_blocks_of_a_replay_can_follow_one_blocks_texts(
    tmp_path: Path, fake_arm: Make, small_plan: Plan
) -> None:
    free(tmp_path, small_plan, fake_arm("A"))
    texts = recorded(Campaign(tmp_path / "free"), 2)
    counts, receipts = conduct(
        tmp_path / "replayed", again(texts, blocks=3), fake_arm("A"), texts=texts
    )
    assert counts == {"ok": 9}
    timed = [r for r in receipts if not r.cell.sentinel]
    for rung in (64, 96):
        seeds = {(r.cell.block, r.cell.seed) for r in timed if r.cell.rung == rung}
        assert seeds == {(block, 48_210_201) for block in (1, 2, 3)}
        assert len({r.text.ids for r in timed if r.text and r.cell.rung == rung}) == 1
    with pytest.raises(PlanError, match="no complete block 7"):
        recorded(Campaign(tmp_path / "free"), 7)


REFUSED: tuple[tuple[dict[str, object], str], ...] = (
    ({"blocks": 3}, "for seed 48210301 at 64 tokens, seed 48210301 at 96 tokens; it"),
    ({"ladder": (64, 128)}, "at 128 tokens"),
    ({"seeds": 2}, "has 2 blocks, rungs 64, 96, 1 seeds a rung, a sentinel: ask for no more"),
    ({"workload": "code"}, "its workload is code, that of free is prose"),
    ({"sampler": Sampler(max_tokens=20, min_tokens=16)}, "at least 16 tokens"),
)


def test_what_has_no_recorded_continuation_is_refused_before_anything_starts(
    tmp_path: Path, fake_arm: Make, small_plan: Plan
) -> None:
    texts = free(tmp_path, small_plan, fake_arm("A"))
    broken = fake_arm("A", "--fault", "die-at-start")  # it would be seen if it were started
    for changes, words in REFUSED:
        with pytest.raises(PlanError, match=words):
            conduct(tmp_path / "replayed", again(texts, **changes), broken, texts=texts)
    assert not Campaign(tmp_path / "replayed").exists


def test_a_shorter_plan_follows_the_beginning_of_each_text(
    tmp_path: Path, fake_arm: Make, small_plan: Plan
) -> None:
    texts = free(tmp_path, small_plan, fake_arm("A"))
    plan = again(texts, blocks=1, sampler=Sampler(max_tokens=7, min_tokens=7))
    counts, receipts = conduct(tmp_path / "replayed", plan, fake_arm("A"), texts=texts)
    assert counts == {"ok": 3}
    for r in receipts:
        whole = texts.by_prompt()[r.cell.rung, r.cell.seed]
        assert r.text and r.text.ids == whole.ids[:7]


def test_texts_that_cannot_be_followed_are_refused_with_the_reason(
    tmp_path: Path, fake_arm: Make, small_plan: Plan
) -> None:
    plan = msgspec.structs.replace(small_plan, ladder=(64,), blocks=1, sentinel=False)
    conduct(tmp_path / "mute", plan, fake_arm("A", "--fault", "no-ids"))
    with pytest.raises(PlanError, match="left no text to follow: its token ids were not kept"):
        recorded(Campaign(tmp_path / "mute"))
    texts = free(tmp_path, plan, fake_arm("A"))
    conduct(tmp_path / "replayed", again(texts), fake_arm("A"), texts=texts)
    with pytest.raises(PlanError, match="itself a replay of free"):
        recorded(Campaign(tmp_path / "replayed"))
    with pytest.raises(ReceiptError, match="was started as no replay"):
        conduct(tmp_path / "free", again(texts), fake_arm("A"), texts=texts)
    (tmp_path / "free" / "seal.json").unlink()
    with pytest.raises(ReceiptError, match="not sealed"):
        recorded(Campaign(tmp_path / "free"))


def test_a_changed_prompt_has_no_continuation(
    tmp_path: Path, fake_arm: Make, small_plan: Plan
) -> None:
    plan = msgspec.structs.replace(small_plan, ladder=(64,), blocks=1, sentinel=False)
    texts = free(tmp_path, plan, fake_arm("A"))
    other = tuple(msgspec.structs.replace(one, prompt="0" * 64) for one in texts.answers)
    texts = msgspec.structs.replace(texts, answers=other)
    with pytest.raises(PlanError, match="is not the one that free measured"):
        conduct(tmp_path / "replayed", again(texts), fake_arm("A"), texts=texts)
    assert not Campaign(tmp_path / "replayed").exists


def test_free_receipts_and_replayed_ones_are_not_pooled(
    tmp_path: Path, fake_arm: Make, small_plan: Plan
) -> None:
    plan = msgspec.structs.replace(small_plan, ladder=(64,), blocks=1, sentinel=False)
    texts = free(tmp_path, plan, fake_arm("A"))
    _, receipts = conduct(tmp_path / "replayed", again(texts), fake_arm("A"), texts=texts)
    header = Campaign(tmp_path / "replayed").header()
    (stray,) = Campaign(tmp_path / "free").receipts()
    disguised = msgspec.structs.replace(
        stray, campaign="replayed", plan_digest=header.plan_digest, sequence=2, attempt=2
    )
    check_pool(receipts, header)
    with pytest.raises(ReceiptError, match="a replay and this run was free"):
        check_pool([*receipts, disguised], header)
    with pytest.raises(ReceiptError, match="plan digest"):
        check_pool([msgspec.structs.replace(stray, campaign="replayed")], header)


class StopsAfter(Progress):
    """Interrupts a campaign after so many cells."""

    def __init__(self, cells: int) -> None:
        self.left = cells

    def cell(self, receipt: Receipt) -> None:
        self.left -= 1
        if not self.left:
            raise Interrupted


def test_a_replay_goes_on_where_it_stopped(
    tmp_path: Path, fake_arm: Make, small_plan: Plan
) -> None:
    texts = free(tmp_path, small_plan, fake_arm("A"), fake_arm("C", switches=LOOKUP))
    arms, plan = (fake_arm("A"), fake_arm("C", switches=LOOKUP)), again(texts)
    with pytest.raises(Interrupted):
        conduct(tmp_path / "r", plan, *arms, texts=texts, progress=StopsAfter(8))
    kept = Campaign(tmp_path / "r").receipts()
    prompts = tmp_path / "r" / PROMPTS
    whole_file = prompts.read_text()
    altered = json.loads(whole_file)
    altered["prompts"][-1]["continuation"][0] += 1
    prompts.write_text(json.dumps(altered))
    with pytest.raises(ReceiptError, match="is not what free recorded; restore the file"):
        conduct(tmp_path / "r", plan, *arms, texts=texts)
    prompts.write_text(whole_file)
    counts, receipts = conduct(tmp_path / "r", plan, *arms, texts=texts)
    assert counts == {"ok": 12} and receipts[:8] == kept and len(receipts) == 14
    for r in receipts:
        whole = texts.by_prompt()[r.cell.rung, r.cell.seed]
        assert r.text and r.text.ids == whole.ids
