"""What must hold after a battery was stopped, however and wherever, and after it was started again."""

from __future__ import annotations

import fcntl
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Set
from pathlib import Path

import psutil

from battery.bench import schedule
from battery.ledger import store
from battery.ledger.disk import PART
from battery.ledger.store import Campaign


def until(holds: Callable[[], object], seconds: float = 10.0) -> bool:
    """Whether something comes true in time."""
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def carrying(word: str) -> dict[int, str]:
    """Living processes, ourselves apart, with `word` in their environment, and their command lines."""
    found = {}
    for process in psutil.process_iter(["pid", "cmdline", "status"]):
        if process.pid == os.getpid() or process.info["status"] == psutil.STATUS_ZOMBIE:
            continue
        try:
            if word in process.environ().values():
                found[process.pid] = " ".join(process.info["cmdline"] or [])
        except psutil.Error:
            continue
    return found


def parts(root: Path) -> set[Path]:
    """Files on their way."""
    return set(root.rglob(f"{PART}*"))


def nothing_left(root: Path, lock: Path, killed: Set[Path] = frozenset()) -> None:
    """No file on its way but those that a killed run left, and a lock that can be taken."""
    assert not parts(root) - killed
    if lock.exists():
        with lock.open() as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def complete(folder: Path) -> Counter[str]:
    """Outcomes of a campaign in which every cell of the plan has exactly one pooled receipt, sealed as it stands."""
    campaign = Campaign(folder)
    header, receipts = campaign.header(), campaign.receipts()
    store.check_pool(receipts, header)
    pooled = [one for block in store.complete_blocks(receipts, header).values() for one in block]
    planned = [
        cell
        for row in schedule.windows(header.order)
        for window in row
        for cell in schedule.cells(window, header.plan, header.seed)
    ]
    assert Counter(one.cell for one in pooled) == Counter(planned)
    assert len(planned) == schedule.expected_cells(header.plan, len(header.arms))
    sequences = [one.sequence for one in receipts]
    assert sequences == sorted(set(sequences))
    assert campaign.sealed() == campaign.chain()
    return Counter(one.outcome for one in pooled)


def command(root: Path, *words: str) -> tuple[list[str], dict[str, str]]:
    """A command line of the battery and the environment that keeps its lock apart."""
    environment = {**os.environ, "BATTERY_LOCK": str(root / "battery.lock"), "COLUMNS": "200"}
    return [sys.executable, "-m", "battery", *words], environment


def children() -> list[psutil.Process]:
    """What this process has left running, but for what lives as long as the session of tests does.

    That is engines that tests of switchboard share, and the one process by which Python's multiprocessing tracks.
    """
    found = psutil.Process().children(recursive=True)
    kept = ("switchboard", "multiprocessing.resource_tracker")
    return [one for one in found if not any(word in " ".join(one.cmdline()) for word in kept)]
