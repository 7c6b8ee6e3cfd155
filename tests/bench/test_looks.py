"""Campaigns that a stopping rule ends: on the fake engine, through kills, and once more when nothing is left to do."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from battery.analyse.findings import analyse
from battery.analyse.stopping import enough
from battery.bench import schedule
from battery.bench.run import Conductor
from battery.ledger import store
from battery.ledger.arm import Arm
from battery.ledger.claims import Stopping, rows_of_order
from battery.ledger.errors import PlanError
from battery.ledger.plan import Plan
from battery.ledger.store import Campaign

Make = Callable[..., Arm]
Enough = Callable[[Path, int], str | None]
LOOKS = Stopping(rule="looks", looks=(6, 8))


class Killed(BaseException):
    """An end that nothing hears of."""


def ruled(plan: Plan, stopping: Stopping) -> Plan:
    changes = {"ladder": (64,), "blocks": 8, "sentinel": False, "stopping": stopping}
    return msgspec.structs.replace(plan, **changes)


def conduct(folder: Path, plan: Plan, arms: list[Arm], look: Enough | None = enough) -> None:
    lock = folder.parent / "battery.lock"
    Conductor(plan, arms, folder, None, 4821, lock=lock, enough=look).run()


def test_the_campaign_ends_at_the_look_whatever_befalls_it_there(
    tmp_path: Path, fake_arm: Make, small_plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, plan = tmp_path / "c", ruled(small_plan, LOOKS)
    arms = [fake_arm("A", "--itl-ms", "1"), fake_arm("C", "--itl-ms", "12")]
    campaign = Campaign(folder)

    def kill(*_: object) -> str | None:
        raise Killed

    with pytest.raises(Killed):  # between the block and the look
        conduct(folder, plan, arms, kill)
    assert len(campaign.paths()) == 12
    assert "look" not in [event["event"] for event in campaign.journal()]
    with monkeypatch.context() as patch, pytest.raises(Killed):  # between the look and the seal
        patch.setattr(Campaign, "seal", kill)
        conduct(folder, plan, arms)
    for _ in range(2):  # to the end, and once more
        conduct(folder, plan, arms)
        assert len(campaign.paths()) == 12, "nothing is measured after the look that ended it"
    (look,) = [event for event in campaign.journal() if event["event"] == "look"]
    assert (look["block"], look["ends"]) == (6, True) and "C slower" in look["why"]
    assert campaign.sealed() == campaign.chain() and store.ended_by_rule(campaign) == 6
    found = analyse(folder)
    assert found.stopped.why == look["why"] and found.status == "complete"
    assert found.primary[0].verdict.word == "slower" and not found.pilot


def test_a_look_that_says_to_go_on_is_noted_and_the_last_block_ends_it(
    tmp_path: Path, fake_arm: Make, small_plan: Plan
) -> None:
    asked: list[int] = []

    def never(folder: Path, block: int) -> str | None:
        asked.append(block)
        assert (
            len(store.complete_blocks(Campaign(folder).receipts(), Campaign(folder).header()))
            == block
        )
        return None

    folder = tmp_path / "c"
    conduct(folder, ruled(small_plan, LOOKS), [fake_arm("A")], never)
    assert asked == [6, 8] and len(Campaign(folder).paths()) == 8
    looks = [event for event in Campaign(folder).journal() if event["event"] == "look"]
    assert [(event["block"], event["ends"]) for event in looks] == [(6, False), (8, False)]
    assert store.ended_by_rule(Campaign(folder)) is None and Campaign(folder).sealed() is not None


def test_a_look_is_taken_once_even_where_a_block_before_it_is_measured_again(
    tmp_path: Path, fake_arm: Make, small_plan: Plan
) -> None:
    folder, plan = tmp_path / "c", ruled(small_plan, LOOKS)
    arms = [fake_arm("A", "--itl-ms", "1"), fake_arm("C", "--itl-ms", "12")]
    campaign, asked = Campaign(folder), list[int]()

    def goes_on(_: Path, block: int) -> str | None:
        asked.append(block)
        if block == 8:
            raise Killed
        return None

    with pytest.raises(Killed):
        conduct(folder, plan, arms, goes_on)
    (torn,) = [path for path in campaign.paths() if "-b3-C-" in path.name]
    torn.chmod(0o600)
    torn.write_bytes(b"")

    def ends(_: Path, block: int) -> str | None:
        asked.append(block)
        return f"it would end after {block}"

    conduct(folder, plan, arms, ends)
    assert asked == [6, 8, 8], "what was noted after 6 is binding"
    looks = [event for event in campaign.journal() if event["event"] == "look"]
    assert [(event["block"], event["ends"], event["after"]) for event in looks] == [
        (6, False, 12), (8, True, 18),
    ]  # fmt: skip
    found = analyse(folder)
    six, eight = found.stopped.looks
    assert (six.ends, six.derived, six.again) == (False, True, (3,)) and not eight.differs
    assert found.stopped.ended_at == store.ended_by_rule(campaign) == 8
    assert not [doubt for doubt in found.doubts if doubt.severity == "void"]
    warned = [doubt.what for doubt in found.doubts if doubt.severity == "warning"]
    assert any("block 3 was measured again after it" in what for what in warned)
    assert any("1 receipt was unreadable and set aside" in what for what in warned)
    assert any("blocks did not run in order: block 3" in what for what in warned)


def test_a_rule_that_looks_needs_somebody_who_does(
    tmp_path: Path, fake_arm: Make, small_plan: Plan
) -> None:
    with pytest.raises(PlanError, match="needs somebody who looks"):
        conduct(tmp_path / "c", ruled(small_plan, LOOKS), [fake_arm("A")], None)


@pytest.mark.parametrize("arms", range(1, 8))
def test_both_wings_know_after_how_many_blocks_the_order_balances(arms: int) -> None:
    rows = rows_of_order(arms)
    assert [blocks for blocks in range(1, 2 * rows + 1) if not schedule.unbalanced(arms, blocks)] == [
        rows, 2 * rows,
    ]  # fmt: skip
