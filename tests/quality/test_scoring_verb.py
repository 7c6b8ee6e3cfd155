"""`battery score` as a script sees it: cases, a campaign's answers, and what it refuses."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from calls import Said

from battery.ledger import saved
from battery.ledger.answers import Answer
from battery.ledger.arm import Arm
from battery.ledger.asked import Asked
from battery.ledger.store import pretty
from battery.quality.tasks import Loaded

ALLOW = "--allow-code-execution"
CASES = {
    "right": ("```python\ndef add(x, y):\n    return x + y\n```", "stop", True, "passed"),
    "wrong": ("```python\ndef add(x, y):\n    return x * y\n```", "stop", False, "failed"),
    "cut": ("```python\ndef add(x, y):\n    return x + y\n```\nThis", "length", False, "cut_off"),
    "silent": ("", "stop", False, "empty"),
}


@pytest.fixture
def cases(tmp_path: Path) -> Path:
    lines = [
        {
            "id": name, "task_id": "custom", "completion": completion, "entry_point": "add", "finish_reason": reason,
            "prompt": "def add(x, y):\n", "expected": {},
            "test": "def check(candidate):\n    assert candidate(2, 3) == 5\n",
        }
        for name, (completion, reason, _, _) in CASES.items()
    ]  # fmt: skip
    path = tmp_path / "cases.jsonl"
    path.write_text("\n".join(map(json.dumps, lines)) + "\n")
    return path


def test_cases_are_graded_one_line_each_in_their_order(
    say: Callable[..., Said], tmp_path: Path, cases: Path
) -> None:
    said = say(tmp_path, "score", "--cases", str(cases), ALLOW, "--json")
    assert said.returncode == 0
    assert [json.loads(line) for line in said.stdout.splitlines()] == [
        {"id": name, "passed": passed, "truncated": reason == "length", "status": status}
        for name, (_, reason, passed, status) in CASES.items()
    ]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ((), "--allow-code-execution"),
        ((ALLOW, "camp"), "--cases"),
        ((ALLOW, "--data", "nowhere.json"), "no such file"),
    ],
)
def test_what_cannot_be_graded_is_refused(
    say: Callable[..., Said], tmp_path: Path, cases: Path, words: tuple[str, ...], told: str
) -> None:
    said = say(tmp_path, "score", "--cases", str(cases), *words)
    assert said.returncode == 2 and told in said.stderr


def test_a_file_that_holds_no_cases_is_refused(say: Callable[..., Said], tmp_path: Path) -> None:
    path = tmp_path / "none.jsonl"
    path.write_text('{"id": "x"}\n')
    said = say(tmp_path, "score", "--cases", str(path), ALLOW)
    assert said.returncode == 2 and "none.jsonl:1" in said.stderr


def campaign(root: Path, few: Loaded, answered: int) -> Path:
    """A campaign in which an arm answered the first so many of six tasks rightly, the last of them cut off."""
    folder = root / "receipts" / "camp"
    arm = Arm(name="A", backend="command", model="tiny", command=["true"])
    asked = Asked(
        campaign="camp", arm=arm, arm_digest=arm.digest, plan_digest="0" * 64, dataset=few.dataset, samples=1,
        tasks=tuple(task.id for task in few.tasks), sampler={"temperature": 0.0}, prompt_style="plain 1",
    )  # fmt: skip
    path = saved.asked_path(folder, "A", "humaneval")
    path.parent.mkdir(parents=True)
    path.write_bytes(pretty(asked))
    with contextlib.closing(
        saved.AnswersFile(saved.answers_path(folder, "A", "humaneval"))
    ) as file:
        for number, task in enumerate(few.tasks[:answered], start=1):
            file.append(
                Answer(
                    suite="humaneval", task=task.id, sample=0, seed=0, request_digest="", started="now",
                    content=f"```python\n{task.solution}```", completion_tokens=number,
                    finish_reason="length" if number == answered else "stop",
                )
            )  # fmt: skip
    rows = [
        {
            "task_id": task.id, "prompt": task.prompt, "entry_point": task.entry_point,
            "canonical_solution": task.canonical, "test": task.test,
        }
        for task in few.tasks
    ]  # fmt: skip
    (root / "six.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return folder


def test_a_campaign_is_scored_from_its_saved_answers(
    say: Callable[..., Said], tmp_path: Path, few: Loaded
) -> None:
    folder = campaign(tmp_path, few, 6)
    words = ("score", "camp", "--data", str(tmp_path / "six.jsonl"), ALLOW, "--json")
    said = say(tmp_path, *words)
    assert said.returncode == 0, said.stderr
    told = json.loads(said.stdout)
    assert (told["passed"], told["truncated"], told["answers"]) == (5, 1, 6)
    scores = saved.read_scores(folder, "A", "humaneval")
    assert scores and scores.grader.self_test["canonical_passed"] == 6 and scores.grader.fences
    assert [row.passed for row in scores.graded] == [True] * 5 + [False]
    assert say(tmp_path, *words).returncode == 0
    again = saved.read_scores(folder, "A", "humaneval")
    assert again and [row.status for row in again.graded] == [row.status for row in scores.graded]


def test_a_missing_answer_is_a_request_error_and_never_left_out(
    say: Callable[..., Said], tmp_path: Path, few: Loaded
) -> None:
    folder = campaign(tmp_path, few, 4)
    said = say(tmp_path, "score", "camp", "--data", str(tmp_path / "six.jsonl"), ALLOW, "--json")
    assert said.returncode == 4 and json.loads(said.stdout)["errors"] == 2
    scores = saved.read_scores(folder, "A", "humaneval")
    assert scores and [row.status for row in scores.graded[4:]] == ["request_error"] * 2


def test_answers_to_other_data_are_not_graded(
    say: Callable[..., Said], tmp_path: Path, few: Loaded
) -> None:
    campaign(tmp_path, few, 6)
    data = tmp_path / "six.jsonl"
    data.write_text(data.read_text().replace("x and 3", "x plus 3"))
    said = say(tmp_path, "score", "camp", "--data", str(data), ALLOW)
    assert said.returncode == 7 and "another file" in said.stderr
