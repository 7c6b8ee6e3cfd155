"""A campaign whose arms have answered, right, wrong, endless, not at all or cut off; and a crew in this process."""

from __future__ import annotations

import contextlib
import json
import pickle
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path

from posts import Died

from battery.ledger import saved
from battery.ledger.answers import Answer, Graded
from battery.ledger.arm import Arm
from battery.ledger.asked import Asked
from battery.ledger.store import pretty
from battery.quality.fleet.post import Brief, Post, Ready
from battery.quality.fleet.shards import Came, Shard
from battery.quality.reference import Reference
from battery.quality.tasks import Loaded

ENDLESS = "def {name}(x):\n    while True: pass\n"


def answer(task: str, code: str | None, sample: int = 0, finish: str = "stop") -> Answer:
    content = "" if code is None else f"```python\n{code}```"
    return Answer(
        suite="humaneval", task=task, sample=sample, seed=sample, request_digest="", started="now",
        content=content, completion_tokens=len(content), finish_reason=finish,
    )  # fmt: skip


def mixed(loaded: Loaded, endless: int = 1) -> list[Answer]:
    """Three samples of every task: right, wrong and one of another kind; so many of them endless."""
    found = []
    for number, task in enumerate(loaded.tasks):
        name = task.entry_point
        found.append(answer(task.id, task.solution))
        found.append(answer(task.id, f"def {name}(x):\n    return x - {number + 7}\n", 1))
        odd = [
            answer(task.id, None, 2),
            answer(task.id, task.solution, 2, "length"),
            answer(task.id, f"def {name}(x:\n", 2),
            answer(task.id, task.solution + "\n", 2),
        ]
        found.append(odd[number % len(odd)])
        if number < endless:
            found[-1] = answer(task.id, ENDLESS.format(name=name), 2)
    return found


def campaign(root: Path, loaded: Loaded, arms: Mapping[str, Sequence[Answer]]) -> Path:
    """A campaign in which these arms gave these answers, three to a task; their data beside it, as `six.jsonl`."""
    rows = [
        {
            "task_id": task.id, "prompt": task.prompt, "entry_point": task.entry_point,
            "canonical_solution": task.canonical, "test": task.test,
        }
        for task in loaded.tasks
    ]  # fmt: skip
    (root / "six.jsonl").write_text("\n".join(map(json.dumps, rows)))
    folder = root / "receipts" / "camp"
    for name, answers in arms.items():
        arm = Arm(name=name, backend="command", model="tiny", command=["true"])
        asked = Asked(
            campaign="camp", arm=arm, arm_digest=arm.digest, plan_digest="0" * 64, dataset=loaded.dataset, samples=3,
            tasks=tuple(task.id for task in loaded.tasks), sampler={"temperature": 0.0}, prompt_style="plain 1",
        )  # fmt: skip
        path = saved.asked_path(folder, name, "humaneval")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(pretty(asked))
        place = saved.answers_path(folder, name, "humaneval")
        with contextlib.closing(saved.AnswersFile(place)) as file:
            for one in answers:
                file.append(one)
    return folder


def verdicts(rows: Sequence[Graded]) -> list[tuple[object, ...]]:
    """All of the rows but what a clock says: whose time was up first is one of its words."""
    return [
        (row.task, row.sample, row.passed, row.status, row.truncated, row.base, row.completion_tokens, row.rule,
         row.suspicious, None if row.status == "timeout" else row.detail, row.program_digest)
        for row in rows
    ]  # fmt: skip


class Here:
    """Posts in this process, one a machine, asked one after the other; a crew without a cluster."""

    def __init__(self, machines: int = 2, post: type[Post] = Post) -> None:
        self._machines, self._post = machines, post
        self._flying: deque[tuple[str, Shard]] = deque()
        self.posts: dict[str, Post] = {}
        self.sent: list[tuple[str, Shard]] = []

    def muster(self, brief: Brief) -> dict[str, Ready]:
        labels = [f"machine {number}" for number in range(1, self._machines + 1)]
        sent = pickle.dumps(brief)
        self.posts = {label: self._post(pickle.loads(sent), 1, label) for label in labels}
        return {label: pickle.loads(pickle.dumps(one.test())) for label, one in self.posts.items()}

    def references(self, machine: str) -> dict[str, Reference]:
        return self.posts[machine].references()

    def send(self, machine: str, shard: Shard) -> None:
        self.sent.append((machine, shard))
        self._flying.append((machine, shard))

    def wait(self) -> Came:
        machine, shard = self._flying.popleft()
        try:
            found = self.posts[machine].judge(shard.programs)
        except Died:
            return Came(machine, failed="its worker ended", gone=True)
        return Came(machine, failed=found) if isinstance(found, str) else Came(machine, found)

    def dismiss(self) -> None:
        for one in self.posts.values():
            one.close()
