"""The soak's own checks find what they are there for: planted leaks, a cell too few, a process that stays."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))

import soak  # noqa: E402 it lies beside the packages, not in them
import soak_engine  # noqa: E402
from fake_faults import Faults  # noqa: E402

from battery.ledger.store import Campaign  # noqa: E402


@pytest.fixture
def watch(tmp_path: Path) -> Iterator[soak.Watch]:
    (tmp_path / "samples").touch()
    one = soak.Watch(tmp_path / "samples", None)
    yield one
    for kept in one._kept:
        if isinstance(kept, subprocess.Popen):
            kept.kill()
            kept.wait()
        else:
            kept.close()


def windows(watch: soak.Watch, count: int = 24) -> list[soak.Sample]:
    """Looks at this very process, a leak before each where one is planted."""
    taken = []
    for number in range(1, count + 1):
        watch.leak()
        taken.append(soak.look(psutil.Process(), number))
    return taken


def test_a_process_that_does_not_grow_is_well(watch: soak.Watch) -> None:
    assert soak.growth(windows(watch)) == []


@pytest.mark.parametrize(
    ("plant", "grew"), [("fd", "fds"), ("process", "children"), ("memory", "rss")]
)
def test_a_planted_leak_is_found(watch: soak.Watch, plant: str, grew: str) -> None:
    watch._plant = plant
    count = 24 if plant != "memory" else 24 + psutil.Process().memory_info().rss // (10 << 20)
    assert any(word.startswith(f"{grew} grew from") for word in soak.growth(windows(watch, count)))


def test_too_few_windows_are_no_proof(watch: soak.Watch) -> None:
    (word,) = soak.growth(windows(watch, 12))
    assert "growth cannot be told" in word


def test_a_process_that_stays_is_found(tmp_path: Path) -> None:
    env = {**os.environ, "BATTERY_LOCK": str(tmp_path / "lock")}
    with subprocess.Popen([sys.executable, "-c", "input()"], env=env, stdin=subprocess.PIPE) as one:
        assert soak.left_behind(tmp_path, 0.2) == [f"processes [{one.pid}] were left behind"]
        one.kill()
    assert soak.left_behind(tmp_path, 5) == []


def test_a_short_soak_with_its_stops_holds_and_a_missing_cell_is_found(tmp_path: Path) -> None:
    """Ten cells, two stops; growth needs more windows, and says so."""
    options = argparse.Namespace(seed=3, cells=10, plant=None)
    one = soak.Soak(tmp_path, options)
    one.run()
    facts = one.facts(1.0)
    (word,) = facts["problems"]
    assert "growth cannot be told" in word
    assert facts["cells"] == facts["cells_with_one_pooled_receipt"] == 10
    assert sum(facts["stops"].values()) == 2

    Campaign(tmp_path / "soak").paths()[-1].unlink()
    one.problems.clear()
    found = " ".join(one.facts(1.0)["problems"])
    assert "0 pooled receipts for 10 cells" in found and "the seal is not" in found


def test_a_battery_that_never_began_is_found(tmp_path: Path) -> None:
    one = soak.Soak(tmp_path, argparse.Namespace(seed=3, cells=10, plant=None))
    assert "no cell was pooled" in one.facts(0.0)["problems"]


def test_every_fault_that_chance_may_pick_is_one() -> None:
    drawn = [soak_engine.faults(7, "A", launch) for launch in range(300)]
    assert drawn == [soak_engine.faults(7, "A", launch) for launch in range(300)]
    words = [word for options in drawn for word in options]
    Faults([word for word in words if not word.startswith("--") and not word.isdigit()])
    known = {name.split(":")[0] for name in (*soak_engine.LASTING, *soak_engine.OF_REQUEST)}
    assert known <= {word.split(":")[0] for word in words}
    assert 60 < sum(not options for options in drawn) < 180
