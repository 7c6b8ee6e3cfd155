from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from synthetic import MACHINE, World, build

from battery.analyse.conditions import Doubt
from battery.analyse.findings import analyse
from battery.ledger.receipt import Reading, Receipt


def doubts(
    tmp_path: Path, change: Callable[[Receipt], Receipt], word: str, **world: Any
) -> list[Doubt]:
    found = analyse(build(tmp_path, World(change=change, **world)))
    return [doubt for doubt in found.doubts if word in doubt.what]


def test_nothing_is_doubted_where_nothing_changes(tmp_path: Path) -> None:
    for word in ("not of one build", "dirty", "paging", "hypervisor"):
        assert doubts(tmp_path / word, lambda receipt: receipt, word) == []


def test_another_commit_within_one_arm(tmp_path: Path) -> None:
    def change(receipt: Receipt) -> Receipt:
        commit = ("a" if receipt.cell.block <= 3 else "b") * 40
        engine = {"mlx": "0.32.4", "packages": {"numpy": "2"}}
        return msgspec.structs.replace(
            receipt, versions={"battery": {"commit": commit}, "engine": engine}
        )

    found = doubts(tmp_path, change, "not of one build")
    # Block 4 runs C first: its sentinel is receipt 31, A's is 36, and sentinels are not pooled.
    assert [(one.arm, one.evidence) for one in found] == [(None, (37,)), ("C", (32,))]
    assert all(one.severity == "warning" for one in found)
    assert (
        "from receipt 32 on versions.battery.commit is bbbbbbbbbbbb… (was aaaaaaaaaaaa…)"
        in found[1].what
    )


def test_another_machine_and_environment_within_one_arm(tmp_path: Path) -> None:
    def last(receipt: Receipt) -> Receipt:
        at = (receipt.cell.arm, receipt.cell.block, receipt.cell.rung, receipt.cell.place)
        if at != ("A", 6, 384, 4):
            return receipt
        machine = {**MACHINE, "cores_logical": 4}
        return msgspec.structs.replace(receipt, machine=machine, environment={"OMP": "1"})

    (one,) = doubts(tmp_path, last, "not of one build")
    assert "machine.cores_logical is 4 (was 2)" in one.what
    assert "environment.OMP is 1 (was absent)" in one.what


def test_the_order_of_packages_says_nothing(tmp_path: Path) -> None:
    def change(receipt: Receipt) -> Receipt:
        packages = ["numpy 2", "mlx 0.32"]
        if receipt.cell.block > 3:
            packages.reverse()
        return msgspec.structs.replace(receipt, versions={"engine": {"packages": packages}})

    assert doubts(tmp_path, change, "not of one build") == []


def test_changed_sources_are_told(tmp_path: Path) -> None:
    def change(receipt: Receipt) -> Receipt:
        engine = {"commit": "e" * 40, "dirty": receipt.cell.arm == "C"}
        battery = {"commit": "b" * 40, "dirty": True}
        return msgspec.structs.replace(receipt, versions={"battery": battery, "engine": engine})

    found = doubts(tmp_path, change, "the commit does not say what ran")
    told = [(one.severity, one.what.split(" cells of ")[0], one.arm) for one in found]
    assert told == [
        ("warning", "battery ran from changed sources (dirty) in 48 pooled", None),
        ("warning", "engine ran from changed sources (dirty) in 24 pooled", "C"),
    ]


@pytest.mark.parametrize(
    "swapped, faults, told",
    [(None, None, False), (0, 1000, False), (0, 1001, True), (4096, 0, True)],
)
def test_paging_is_told(
    swapped: int | None, faults: int | None, told: bool, tmp_path: Path
) -> None:
    def change(receipt: Receipt) -> Receipt:
        if receipt.sequence not in (8, 12):
            return receipt
        memory = msgspec.structs.replace(receipt.memory, swapped_bytes=swapped, major_faults=faults)
        return msgspec.structs.replace(receipt, memory=memory)

    found = doubts(tmp_path, change, "paging during the cell")
    assert [one.evidence for one in found] == ([(8, 12)] if told else [])
    assert all(one.severity == "warning" for one in found)


@pytest.mark.parametrize("steals, told", [((0.1, 0.1), False), ((0.0, 0.3), True), ((), False)])
def test_stolen_time_within_the_cell_is_noted(
    steals: tuple[float, ...], told: bool, tmp_path: Path
) -> None:
    def change(receipt: Receipt) -> Receipt:
        if receipt.sequence != 8:
            return receipt
        samples = tuple(Reading(at_s=0.5 * i, steal=steal) for i, steal in enumerate(steals))
        return msgspec.structs.replace(receipt, samples=(*samples, Reading(at_s=9.0)))

    found = doubts(tmp_path, change, "hypervisor took more than 10 %")
    assert [(one.severity, one.evidence) for one in found] == ([("note", (8,))] if told else [])


@pytest.mark.parametrize("exactness, told", [("exact", True), ("rounding", False), (None, False)])
def test_only_exact_switches_promise_the_same_text(
    exactness: str | None, told: bool, tmp_path: Path
) -> None:
    """Arm C asks for an exact switch and for one that is `exactness`, and its sentinel text is another."""

    def change(receipt: Receipt) -> Receipt:
        if receipt.cell.arm != "C" or receipt.text is None:
            return receipt
        first = receipt.engagement.switches[0]
        second = msgspec.structs.replace(first, name="prompt_lookup", exactness=exactness)
        engagement = msgspec.structs.replace(receipt.engagement, switches=(first, second))
        text = msgspec.structs.replace(receipt.text, digest="f" * 64)
        return msgspec.structs.replace(receipt, engagement=engagement, text=text)

    found = doubts(tmp_path, change, "claim only exact switches")
    assert [one.arm for one in found] == (["C"] if told else [])
