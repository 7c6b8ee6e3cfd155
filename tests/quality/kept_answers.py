"""A campaign's folder with saved answers to a suite of HumanEval's form, and its data file."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from battery.ledger import saved
from battery.ledger.answers import Answer
from battery.ledger.arm import Arm
from battery.ledger.asked import Asked
from battery.ledger.store import pretty
from battery.quality.tasks import Loaded, read

DATA = "tasks.jsonl"


def tasks_of(rows: Sequence[dict[str, Any]]) -> Loaded:
    """Tasks from the fields that differ; the test calls `f(2)` and wants 3 where it is not given."""
    whole = [
        {
            "task_id": f"HumanEval/{n}", "prompt": "def f(x):\n", "entry_point": "f",
            "canonical_solution": "    return x + 1\n",
            "test": "def check(candidate):\n    assert candidate(2) == 3\n", **row,
        }
        for n, row in enumerate(rows)
    ]  # fmt: skip
    return read("humaneval", "\n".join(map(json.dumps, whole)).encode(), DATA)


def keep(root: Path, loaded: Loaded, answers: Sequence[dict[str, Any]], arm: str = "A") -> Path:
    """The campaign `camp` under `root`, one answer to each task in their order; its folder."""
    folder, suite = root / "receipts" / "camp", loaded.dataset.suite
    asked = Asked(
        campaign="camp", arm=(made := Arm(name=arm, backend="command", model="tiny", command=["true"])),
        arm_digest=made.digest, plan_digest="0" * 64, dataset=loaded.dataset, samples=1,
        tasks=tuple(task.id for task in loaded.tasks), sampler={"temperature": 0.0}, prompt_style="plain 1",
    )  # fmt: skip
    path = saved.asked_path(folder, arm, suite)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(pretty(asked))
    with contextlib.closing(saved.AnswersFile(saved.answers_path(folder, arm, suite))) as file:
        for task, told in zip(loaded.tasks, answers, strict=True):
            file.append(
                Answer(
                    suite=suite, task=task.id, sample=0, seed=0, request_digest="", started="now",
                    **{"finish_reason": "stop", "completion_tokens": 9, **told},
                )
            )  # fmt: skip
    rows = [
        {
            "task_id": task.id, "prompt": task.prompt, "entry_point": task.entry_point,
            "canonical_solution": task.canonical, "test": task.test,
        }
        for task in loaded.tasks
    ]  # fmt: skip
    (root / DATA).write_text("\n".join(map(json.dumps, rows)))
    return folder
