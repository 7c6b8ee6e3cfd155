"""A long campaign against an engine that breaks at random, with the battery itself stopped and killed in between.

    python benchmarks/soak.py [--cells 500] [--seed N] [--out reports/soak.json] [--plant fd|process|memory]

A launch that fails ends the battery too, and the same command is given again, as a user would: a process that goes on
has read the receipts so far, which makes it larger and is no leak. At the end every cell of the plan must have exactly
one pooled receipt, every stop must have left no process and no half file, and the battery's process must not have grown
by more than 5 % in memory or descriptors between its tenth window and its last. `--plant` makes it leak on purpose: the
check must find that. The last line is one JSON object; the exit code is 1 if anything was found.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import mmap
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, get_args

import msgspec
import psutil

from battery.bench import schedule
from battery.bench.progress import Progress
from battery.bench.run import Conductor
from battery.ledger import store
from battery.ledger.arm import Arm
from battery.ledger.cell import Window
from battery.ledger.disk import PART
from battery.ledger.errors import LaunchError
from battery.ledger.plan import Gate, Limits, Plan, Sampler
from battery.ledger.receipt import Receipt
from battery.ledger.store import Campaign

ENGINE = Path(__file__).with_name("soak_engine.py")
LADDER = (64, 96, 128, 160)
PER_BLOCK = 2 * (len(LADDER) + 1)
"""Two arms, and the sentinel in each window."""
SETTLED = 10
"""Windows after which a process has imported and allocated what it needs."""
GROWTH = 0.05
PLANTS = ("fd", "process", "memory")


class Sample(msgspec.Struct, frozen=True):
    """One look at the battery's own process, between two windows."""

    pid: int
    window: int
    rss: int
    fds: int
    children: int


class Watch(Progress):
    """Looks at this process before every window, and leaks on purpose where that is asked for."""

    def __init__(self, log: Path, plant: str | None) -> None:
        self._log, self._plant, self._windows = log, plant, 0
        self._kept: list[Any] = []
        log.touch()
        self._self = psutil.Process()

    def window(self, window: Window, attempt: int) -> None:
        self._windows += 1
        self.leak()
        line = msgspec.json.encode(look(self._self, self._windows))
        with self._log.open("ab") as file:
            file.write(line + b"\n")

    def leak(self) -> None:
        """What a defect would do once a window."""
        if self._plant == "fd":
            self._kept.append(self._log.open("rb"))
        elif self._plant == "process":
            self._kept.append(subprocess.Popen(["sleep", "600"]))
        elif self._plant == "memory":
            # not from the heap: what was freed there before would hold it, and nothing would grow
            held = mmap.mmap(-1, 1 << 20)
            held.write(os.urandom(1 << 20))
            self._kept.append(held)


def look(process: psutil.Process, window: int) -> Sample:
    """Resident memory, descriptors and children of a process."""
    children = [one for one in process.children() if one.status() != psutil.STATUS_ZOMBIE]
    return Sample(
        pid=process.pid,
        window=window,
        rss=process.memory_info().rss,
        fds=process.num_fds(),
        children=len(children),
    )


def settled_and_last(samples: Sequence[Sample]) -> tuple[dict[str, float], dict[str, float]] | None:
    """Medians of five samples behind the warm-up and of the last five, of the process that lived longest."""
    longest = Counter(one.pid for one in samples).most_common(1)
    one = [sample for sample in samples if longest and sample.pid == longest[0][0]]
    if len(one) < SETTLED + 10:
        return None
    early, late = one[SETTLED - 1 : SETTLED + 4], one[-5:]
    return _medians(early), _medians(late)


def _medians(samples: Sequence[Sample]) -> dict[str, float]:
    return {
        name: statistics.median(getattr(one, name) for one in samples)
        for name in ("rss", "fds", "children")
    }


def growth(samples: Sequence[Sample]) -> list[str]:
    """What grew by more than its share; a word where too few windows ran in one process to tell."""
    found = settled_and_last(samples)
    if found is None:
        return [
            f"no process ran {SETTLED + 10} windows, so growth cannot be told: ask for more cells"
        ]
    early, late = found
    return [
        f"{name} grew from {early[name]:.0f} to {late[name]:.0f}"
        for name in ("rss", "fds", "children")
        if late[name] > early[name] * (1 + GROWTH)
    ]


def open_gate() -> Gate:
    """No limit that may be left out: here the machine is not what is looked at."""
    off: dict[str, Any] = {"wait_s": 5}
    for one in msgspec.structs.fields(Gate):
        if type(None) in get_args(one.type) or one.type is bool:
            off[one.name] = None if one.type is not bool else False
    return Gate(**off)


def plan_of(cells: int) -> Plan:
    """A plan of that many cells, two arms, five cells a window."""
    return Plan(
        name="soak",
        ladder=LADDER,
        blocks=max(1, -(-cells // PER_BLOCK)),
        sampler=Sampler(max_tokens=12, min_tokens=12),
        gate=open_gate(),
        limits=Limits(launch_s=3, request_s=1.5, stop_s=1, failed_share=1),
    )


def arms_of(work: Path, seed: int) -> list[Arm]:
    """Two arms on the engine that breaks."""
    arms = []
    for name, switches in (("A", {}), ("C", {"prompt_lookup": True})):
        line = ["{python}", str(ENGINE), str(work), str(seed), name, "--port", "{port}"]
        line += [
            "--model",
            "{model}",
            *(word for switch in switches for word in ("--switch", switch)),
        ]
        arms.append(
            Arm(name=name, backend="command", model="tiny", switches=switches, command=line)
        )
    return arms


def work_through(work: Path, seed: int, cells: int, plant: str | None) -> int:
    """Run the campaign in this process to its end, to a stop, or to a launch that fails; the exit code."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    watch = Watch(work / "samples.jsonl", plant)
    try:
        Conductor(plan_of(cells), arms_of(work, seed), work / "soak", watch, seed).run()
    except KeyboardInterrupt:
        return 130
    except LaunchError as failed:
        with (work / "failed").open("a") as file:
            file.write(str(failed).splitlines()[0] + "\n")
        return failed.exit_code
    return 0


def carrying(work: Path) -> list[int]:
    """Living processes that came from this soak, ourselves apart."""
    found = []
    for process in psutil.process_iter(["pid", "status"]):
        try:
            mine = process.environ().get("BATTERY_LOCK") == str(work / "lock")
        except psutil.Error:
            continue
        if mine and process.info["status"] != psutil.STATUS_ZOMBIE:
            found.append(process.pid)
    return found


def left_behind(work: Path, allowed_s: float) -> list[str]:
    """Processes that are still there after a moment."""
    deadline = time.monotonic() + allowed_s
    while (left := carrying(work)) and time.monotonic() < deadline:
        time.sleep(0.05)
    return [f"processes {left} were left behind"] if left else []


def stops(seed: int, cells: int) -> Iterator[tuple[int, tuple[signal.Signals, ...]]]:
    """(receipts after which, signals) of every stop, all in the first half, so that one process runs long at last."""
    chance = random.Random(seed)
    kinds = [(signal.SIGINT,), (signal.SIGKILL,), (signal.SIGINT, signal.SIGINT), (signal.SIGTERM,)]
    count = max(2, cells // 60)
    for at, place in enumerate(sorted(chance.randrange(1, cells // 2) for _ in range(count))):
        yield place, kinds[at % len(kinds)]


class Soak:
    """One soak: the battery in a process of its own, stopped and started until it is done."""

    def __init__(self, work: Path, options: argparse.Namespace) -> None:
        self.work, self.options = work, options
        self.campaign = Campaign(work / "soak")
        self.problems: list[str] = []
        self.stopped: Counter[str] = Counter()
        self.chance = random.Random(options.seed + 1)
        self.environment = {**os.environ, "BATTERY_LOCK": str(work / "lock")}

    def start(self) -> subprocess.Popen[bytes]:
        """The battery's process."""
        line = [
            sys.executable,
            __file__,
            "--worker",
            str(self.work),
            "--seed",
            str(self.options.seed),
        ]
        line += ["--cells", str(self.options.cells)]
        line += ["--plant", self.options.plant] if self.options.plant else []
        with (self.work / "errors").open("ab") as errors:
            return subprocess.Popen(line, env=self.environment, stderr=errors)

    def run(self) -> None:
        """Until the campaign is sealed, or the battery ends in a way that it should not."""
        for place, numbers in stops(self.options.seed, self.options.cells):
            while True:
                running = self.start()
                while len(self.campaign.paths()) < place and running.poll() is None:
                    time.sleep(0.02)
                time.sleep(self.chance.random())
                if running.poll() is None:
                    break
                if not self.again(running):
                    return
            for number in numbers:
                running.send_signal(number)
                time.sleep(0.05)
            self.stopped["+".join(number.name for number in numbers)] += 1
            self.ended(running, numbers[0])
        while self.again(self.start()):
            pass

    def again(self, running: subprocess.Popen[bytes]) -> bool:
        """Wait for a battery that nobody stops; whether it is to be started again, because a launch failed."""
        running.wait()
        self.problems += left_behind(self.work, 0)
        if running.returncode not in (0, LaunchError.exit_code):
            told = (self.work / "errors").read_text().splitlines()[-12:]
            self.problems.append(f"the battery ended with {running.returncode}: {told}")
        return running.returncode == LaunchError.exit_code

    def ended(self, running: subprocess.Popen[bytes], number: signal.Signals) -> None:
        """See that a stop ended it as it should, and left nothing."""
        before = len(self.campaign.paths())
        code = running.wait()
        wanted = {-signal.SIGKILL} if number == signal.SIGKILL else {130, 0}
        if code not in wanted:
            self.problems.append(f"{number.name} after {before} receipts gave exit code {code}")
        self.problems += left_behind(self.work, 10 if number == signal.SIGKILL else 0)
        if number != signal.SIGKILL and list(self.work.rglob(f"{PART}*")):
            self.problems.append(f"{number.name} left a half file")

    def pooled(self) -> list[Receipt]:
        """Receipts that count; a word in `problems` unless they are exactly the plan's cells, each once."""
        header, receipts = self.campaign.header(), self.campaign.receipts()
        store.check_pool(receipts, header)
        found = [one for block in store.complete_blocks(receipts, header).values() for one in block]
        planned = [
            cell
            for row in schedule.windows(header.order)
            for window in row
            for cell in schedule.cells(window, header.plan, header.seed)
        ]
        if Counter(one.cell for one in found) != Counter(planned):
            self.problems.append(
                f"{len(found)} pooled receipts for {len(planned)} cells of the plan"
            )
        if self.campaign.sealed() != self.campaign.chain():
            self.problems.append("the seal is not that of the files")
        return found

    def facts(self, wall_s: float) -> dict[str, Any]:
        """What happened, with everything that is wrong under `problems`."""
        pooled = self.pooled() if self.campaign.exists else []
        if not pooled:
            self.problems.append("no cell was pooled")
        log, counter = self.work / "samples.jsonl", self.work / "launches"
        lines = log.read_bytes().splitlines() if log.exists() else []
        samples = [msgspec.json.decode(line, type=Sample) for line in lines]
        self.problems += growth(samples)
        early, late = settled_and_last(samples) or ({}, {})
        failed = self.work / "failed"
        launches = int(counter.read_text()) if counter.exists() else 0
        return {
            "cells": len(pooled),
            "seed": self.options.seed,
            "cells_with_one_pooled_receipt": len({msgspec.json.encode(one.cell) for one in pooled}),
            "receipts": len(self.campaign.paths()),
            "outcomes": dict(Counter(one.outcome for one in pooled).most_common()),
            "launches": launches,
            "launches_that_failed": len(failed.read_text().splitlines()) if failed.exists() else 0,
            "stops": dict(self.stopped),
            "windows_in_longest_process": max(
                Counter(one.pid for one in samples).values(), default=0
            ),
            "rss_mb": [round(one["rss"] / 1e6, 1) for one in (early, late) if one],
            "descriptors": [one["fds"] for one in (early, late) if one],
            "children": [one["children"] for one in (early, late) if one],
            "wall_s": round(wall_s, 1),
            "problems": self.problems,
            "command": " ".join(["python", "benchmarks/soak.py", *sys.argv[1:]]),
        }


def options_of(words: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--cells", type=int, default=500, help=f"rounded up to blocks of {PER_BLOCK}"
    )
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10_000))
    parser.add_argument("--out", type=Path, help="also write the JSON there")
    parser.add_argument("--plant", choices=PLANTS, help="leak on purpose, to see it found")
    parser.add_argument("--worker", type=Path, help=argparse.SUPPRESS)
    return parser.parse_args(words)


def main() -> int:
    """Soak, print what happened, and say by the exit code whether all held."""
    options = options_of()
    if options.worker:
        return work_through(options.worker, options.seed, options.cells, options.plant)
    print(f"seed {options.seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="battery-soak-") as place:
        soak, began = Soak(Path(place), options), time.monotonic()
        try:
            soak.run()
            facts = soak.facts(time.monotonic() - began)
        finally:
            for pid in carrying(soak.work):  # what was found left behind need not stay
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
    for name, value in facts.items():
        print(f"{name:<32} {value}")
    if options.out:
        options.out.write_text(json.dumps(facts, indent=1) + "\n")
    print(json.dumps(facts))
    return 1 if facts["problems"] else 0


if __name__ == "__main__":
    sys.exit(main())
