"""Scripts for the fake engine: which answer it gives to which task."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from battery.ledger.strict import digest
from battery.quality.tasks import Task
from battery.quality.wording import question


def script_of(rules: Mapping[Task, dict[str, Any]], folder: Path) -> Path:
    """The script in a file of its own; see fake_answers."""
    script = {question(task): rule for task, rule in rules.items()}
    path = folder / f"answers-{digest(script)[:12]}.json"
    path.write_text(json.dumps(script))
    return path


def right(task: Task) -> dict[str, Any]:
    """The canonical answer, as a chat model gives it."""
    return {"content": f"Here it is.\n\n```python\n{task.solution}\n```\n"}
