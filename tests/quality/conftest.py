"""Tasks small enough to be read, and an arm whose server answers them from a script."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from scripts import script_of

from battery.ledger.arm import Arm
from battery.quality.tasks import Loaded, Task, read


@pytest.fixture
def few() -> Loaded:
    """Six tasks in the form of HumanEval's file."""
    rows = [
        {
            "task_id": f"HumanEval/{n}",
            "prompt": f'def plus_{n}(x):\n    """x and {n}. ```"""\n',
            "entry_point": f"plus_{n}",
            "canonical_solution": f"    return x + {n}\n",
            "test": f"def check(candidate):\n    assert candidate(2) == {n + 2}\n",
        }
        for n in range(6)
    ]
    return read("humaneval", "\n".join(map(json.dumps, rows)).encode(), "six.jsonl")


@pytest.fixture
def scripted(tmp_path: Path, fake_arm: Callable[..., Arm]) -> Callable[..., Arm]:
    """An arm that answers from a script: `scripted("A", {task: {"content": …}}, "--answer-ms", "20")`."""

    def make(name: str, rules: dict[Task, dict[str, Any]], *options: str, **more: Any) -> Arm:
        path = script_of(rules, tmp_path)
        return fake_arm(name, "--answers", str(path), *options, **more)

    return make
