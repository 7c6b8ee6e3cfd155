"""Grade the canonical solutions again and again, also while every core is busy with something else: no false fail.

    python -m benchmarks.canonical --data FILE… [--runs 5] [--loaded] [--workers N]

Suites are told by their files. Verdicts are not kept, so every run is a run; expected results are. One line a run, and
the last line is one JSON object with the false fails of each suite; the exit status is 1 where there is one.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from battery.ledger.answers import Answer
from battery.quality import sources
from battery.quality.grade import Grader
from battery.quality.tasks import Task, read, recognise

BUSY = "while True: sum(range(10_000))"


def answer(task: Task, code: str) -> Answer:
    """An answer that is this code."""
    return Answer(
        suite=task.suite, task=task.id, sample=0, seed=0, request_digest="", started="", finish_reason="stop",
        content=f"```python\n{code.strip(chr(10))}\n```\n",
    )  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.canonical", description=__doc__)
    parser.add_argument("--data", type=Path, nargs="+", action="extend", required=True)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--loaded", action="store_true", help="with a busy process on every core")
    parser.add_argument("--workers", type=int)
    parser.add_argument("--cache", type=Path)
    asked = parser.parse_args()
    cores = os.cpu_count() or 1
    busy = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(cores * asked.loaded)]
    failed: dict[str, int] = {}
    try:
        with tempfile.TemporaryDirectory() as spare:
            for path in asked.data:
                source = sources.from_file(path)
                suite = recognise(source.data, source.name)
                tasks = read(suite, source.data, source.name).tasks
                failed[suite] = runs(tasks, asked, asked.cache or Path(spare))
    finally:
        for process in busy:
            process.kill()
            process.wait()
    print(json.dumps({"runs": asked.runs, "loaded": asked.loaded, "false_fails": failed}))
    return 1 if any(failed.values()) else 0


def runs(tasks: tuple[Task, ...], asked: argparse.Namespace, cache: Path) -> int:
    """How many canonical solutions failed, in all runs together."""
    failed = 0
    for number in range(1, asked.runs + 1):
        began = time.perf_counter()
        with Grader(tasks, cache=cache, workers=asked.workers, keep_verdicts=False) as grader:
            rows = grader.grade([answer(task, task.solution) for task in tasks])
        wrong = [f"{row.task} ({row.status}: {row.detail})" for row in rows if not row.passed]
        print(
            f"{tasks[0].suite}, run {number}: {len(rows) - len(wrong)} of {len(rows)} pass in"
            f" {time.perf_counter() - began:.1f} s{'; failed: ' + ', '.join(wrong) if wrong else ''}",
            flush=True,
        )
        failed += len(wrong)
    return failed


if __name__ == "__main__":
    sys.exit(main())
