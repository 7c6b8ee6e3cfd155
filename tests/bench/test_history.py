"""Every start is listed: those that failed, were given up or taken away stand in the next header and report."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from battery.analyse.findings import analyse
from battery.bench.progress import Progress
from battery.bench.run import Conductor
from battery.choices import known_campaigns
from battery.interruption import Interrupted
from battery.ledger import history, store
from battery.ledger.arm import Arm
from battery.ledger.errors import LaunchError, ReceiptError
from battery.ledger.history import Entry
from battery.ledger.plan import Plan
from battery.ledger.store import Campaign, Started
from battery.render.report import markdown

Make = Callable[..., Arm]


class Press(Progress):
    """Presses Ctrl-C at a phase, or after a receipt."""

    def __init__(self, phase: str = "", receipts: int = 0) -> None:
        self.at, self.left = phase, receipts

    def phase(self, cell: object, phase: str, detail: str) -> None:
        if phase == self.at:
            os.kill(os.getpid(), signal.SIGINT)

    def cell(self, receipt: object) -> None:
        self.left -= 1
        if self.left == 0:
            os.kill(os.getpid(), signal.SIGINT)


def test_what_was_started_before_stands_in_header_and_report(
    tmp_path: Path, fake_arm: Make, small_plan: Plan
) -> None:
    receipts = tmp_path / "receipts"
    plan = msgspec.structs.replace(small_plan, ladder=(64,), sentinel=False)
    arms = [fake_arm("A"), fake_arm("C", switches={"prompt_lookup": True})]

    def conduct(name: str, *which: Arm, progress: Progress | None = None) -> None:
        lock = tmp_path / "battery.lock"
        Conductor(plan, which or arms, receipts / name, progress, 4821, lock=lock).run()

    conduct("other", fake_arm("A"))
    with pytest.raises(LaunchError):
        conduct("broken", fake_arm("A"), fake_arm("C", "--fault", "die-at-start"))
    with pytest.raises(Interrupted):
        conduct("early", progress=Press("sizing prompts"))
    with pytest.raises(Interrupted):
        conduct("half", progress=Press(receipts=3))
    conduct("whole")
    with pytest.raises(Interrupted):
        conduct("away", progress=Press(receipts=2))
    shutil.rmtree(receipts / "away")
    assert [(one.campaign, one.event, one.complete) for one in history.entries(receipts)] == [
        ("other", "started", None), ("other", "finished", 2), ("broken", "started", None), ("broken", "failed", None),
        ("early", "started", None), ("early", "interrupted", None), ("half", "started", None),
        ("half", "interrupted", 1), ("whole", "started", None), ("whole", "finished", 2),
        ("away", "started", None), ("away", "interrupted", 1),
    ]  # fmt: skip
    assert known_campaigns(tmp_path) == ["half", "other", "whole"]

    conduct("now")
    kept = Campaign(receipts / "now").header().earlier
    assert kept is not None and kept.others == 2
    assert [(one.campaign, one.ended) for one in kept.same_arms] == [
        ("early", "interrupted before its first window"),
        ("half", "1 of 2 blocks"),
        ("whole", "finished"),
        ("away", "interrupted at 1 of 2 blocks, and its folder is gone"),
    ]
    assert {one.arms for one in kept.same_arms} == {("A", "C")}
    page = markdown(analyse(receipts / "now"))
    assert (
        "Campaigns with at least two of these arms, whatever their names: 4. All other campaigns: 2."
        in page
    )
    assert "| early |" in page and "interrupted before its first window" in page
    first = Campaign(receipts / "other").header().earlier
    assert first is not None and (first.same_arms, first.others) == ((), 0)
    assert "Campaigns with this arm, whatever its name: none." in markdown(
        analyse(receipts / "other")
    )

    conduct("half")
    conduct("half")
    half = [one.event for one in history.entries(receipts) if one.campaign == "half"]
    assert half == ["started", "interrupted", "resumed", "finished"], "a sealed one is not started"
    with pytest.raises(ReceiptError, match="with other arms"):
        conduct("half", fake_arm("A"))
    assert len(history.entries(receipts)) == 16, "nor is one that is refused"
    before = Campaign(receipts / "half").header().earlier
    assert before is not None and "half" not in [one.campaign for one in before.same_arms]


def entry(campaign: str, event: history.Event, **changes: object) -> Entry:
    whole = {
        "at": "2026-01-02T03:04:05Z", "campaign": campaign, "event": event, "plan": "quick", "plan_digest": "d",
        "arms": {"A": "1", "C": "2"}, "kinds": ("a", "c"), "blocks": 6, **changes,
    }  # fmt: skip
    return msgspec.convert(whole, Entry)


def log(folder: Path, *found: Entry, tail: bytes = b"") -> None:
    lines = b"".join(msgspec.json.encode(one) + b"\n" for one in found)
    (folder / store.CAMPAIGNS).write_bytes(lines + tail)


def test_a_name_that_was_used_twice_was_started_twice(tmp_path: Path) -> None:
    log(
        tmp_path, entry("x", "started"), entry("x", "interrupted", complete=2), entry("x", "started"),
        entry("x", "failed"), entry("y", "started"), entry("z", "started", arms={"B": "2", "D": "1"}),
        entry("more", "started", kinds=("b", "c", "a")), entry("one", "started", kinds=("a", "b")),
        entry("z", "finished", complete=6), tail=b'{"at": "20',
    )  # fmt: skip
    found = history.earlier(tmp_path, ["a", "c"])
    assert found.others == 1, "one of the two arms alone is another comparison"
    assert [(one.campaign, one.ended) for one in found.same_arms] == [
        ("more", "cut off, and its folder is gone"),
        ("x", "interrupted at 2 of 6 blocks, and its folder is gone"),
        ("x", "failed before its first window"),
        ("y", "cut off, and its folder is gone"),
        ("z", "finished, and its folder is gone"),
    ]
    assert history.earlier(tmp_path, ["c"]).others == 1, "one arm is measured by itself"
    assert history.earlier(tmp_path, ["a", "a"]).others == 6, (
        "an arm against itself is not that arm against another"
    )
    assert history.earlier(tmp_path / "none", ["a"]) == store.Earlier()


def test_a_copy_under_another_name_is_the_same_arm(fake_arm: Make) -> None:
    one = fake_arm("A")
    twin = msgspec.structs.replace(one, name="A2", why="a copy")
    assert one.kind == twin.kind and one.digest != twin.digest
    assert one.kind != msgspec.structs.replace(one, model="another").kind


def test_a_torn_last_line_does_not_swallow_the_next(
    tmp_path: Path, fake_arm: Make, small_plan: Plan
) -> None:
    log(tmp_path, tail=b'{"at": "20')
    with history.listed(Campaign(tmp_path / "c"), small_plan, [fake_arm("A")]):
        pass
    assert [one.event for one in history.entries(tmp_path)] == ["started", "finished"]


def test_folders_from_before_the_log_are_counted(tmp_path: Path) -> None:
    committed = Path(__file__).parents[2] / "receipts" / "reference-cpu"
    shutil.copytree(committed, tmp_path / "reference-cpu")
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged" / store.HEADER).write_bytes(b"{")
    header = Campaign(committed).header()
    found = history.earlier(tmp_path, [arm.kind for arm in header.arms])
    assert found.same_arms == (
        Started(
            campaign="reference-cpu", at=header.created, plan="reference", plan_digest=header.plan_digest,
            arms=("A", "B", "C"), ended="finished",
        ),
    )  # fmt: skip
    assert found.others == 1
    assert "not kept when this campaign was started" in markdown(analyse(committed))
