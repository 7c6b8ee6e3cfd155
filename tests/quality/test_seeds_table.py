"""A scripted server that answers whole suites in known shares: the pipeline gives back the figures that went in.

The shares are those of published tables of two arms: an arm passed P of n tasks and T of its answers were cut off at
the token limit, none of which counts as passed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import cycle
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from datafiles import suite_of

from battery.analyse.quality import Quality, quality
from battery.ledger import saved
from battery.ledger.answers import SuiteName
from battery.ledger.arm import Arm
from battery.ledger.asked import Quality as Asking
from battery.ledger.plan import Plan
from battery.ledger.store import Header
from battery.quality.reference import Reference, Shelf
from battery.quality.run import Questioner
from battery.quality.score import score_suite
from battery.quality.tasks import Task
from battery.render import quality_tables

Rule = dict[str, Any]


class Share(NamedTuple):
    """How many tasks pass and how many are cut off, and the figures that follow."""

    passed: int
    cut_off: int
    strict: str
    completed: str
    truncation: str


TABLE: list[tuple[SuiteName, Share]] = [
    ("humaneval", Share(159, 5, "0.9695", "1.0000", "3.0 %")),
    ("humaneval", Share(158, 3, "0.9634", "0.9814", "1.8 %")),
    ("mbpp", Share(404, 16, "0.9461", "0.9830", "3.7 %")),
]


def code(task: Task) -> str:
    return task.solution.replace("\r\n", "\n")


def plain(task: Task) -> Rule:
    return {"content": f"```python\n{code(task)}\n```"}


def talkative(task: Task) -> Rule:
    demo = "```python\nprint('an example')\n```"
    return {"content": f"First, the idea.\n\n```python\n{code(task)}\n```\n\nTry it:\n\n{demo}\n"}


def thinking(task: Task) -> Rule:
    draft = f"```python\ndef {task.entry_point}(*given):\n    return None\n```"
    return {"content": f"<think>\nMaybe {draft}?\n</think>\n\n```python\n{code(task)}\n```"}


def apart(task: Task) -> Rule:
    return {"content": f"```\n{code(task)}\n```", "reasoning": f"def {task.entry_point}(x): pass"}


def half(task: Task) -> Rule:
    text = code(task)
    return {"content": f"```python\n{text[: len(text) // 2]}", "finish": "length"}


def whole_and_cut(task: Task) -> Rule:
    return {"content": f"```python\n{code(task)}\n```\nThis works because", "finish": "length"}


def still_thinking(task: Task) -> Rule:
    return {"content": "<think>\nLet me see", "finish": "length"}


def wrong(task: Task) -> Rule:
    return {"content": f"```python\ndef {task.entry_point}(*given, **more):\n    return 'no'\n```"}


def empty(task: Task) -> Rule:
    return {"content": "", "tokens": 0}


def only_thought(task: Task) -> Rule:
    return {"content": "I am done.", "reasoning": f"```python\n{code(task)}\n```"}


RIGHT, CUT, BAD = (
    (plain, talkative, thinking, apart),
    (half, whole_and_cut, still_thinking),
    (wrong, empty, only_thought),
)


def rules(tasks: tuple[Task, ...], share: Share) -> dict[Task, Rule]:
    """An answer for every task, the kinds spread over the suite."""
    rest = len(tasks) - share.passed - share.cut_off
    kinds = ["cut"] * share.cut_off + ["bad"] * rest + ["right"] * share.passed
    makers: dict[str, Iterator[Callable[[Task], Rule]]] = {
        "right": cycle(RIGHT), "cut": cycle(CUT), "bad": cycle(BAD),
    }  # fmt: skip
    # 59 divides neither size: every kind falls all over the suite
    spread = sorted(range(len(tasks)), key=lambda place: place * 59 % len(tasks))
    return {
        tasks[place]: next(makers[kind])(tasks[place])
        for place, kind in zip(spread, kinds, strict=True)
    }


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the grader may keep from one arm to the next."""
    return tmp_path_factory.mktemp("grader")


def known(tasks: Sequence[Task], cache: Path) -> None:
    """Keep times of the canonical solutions, as an earlier run would have: here all of them are answers, and run."""
    shelf = Shelf(cache / "references")
    for task in tasks:
        shelf.put(task, Reference(0.01))


@pytest.mark.parametrize(
    ("suite", "share"),
    TABLE,
    ids=[f"{suite}-{share.passed}-{share.cut_off}" for suite, share in TABLE],
)
def test_known_shares_come_back_exactly(
    suite: SuiteName,
    share: Share,
    tmp_path: Path,
    scripted: Callable[..., Arm],
    small_plan: Plan,
    cache: Path,
) -> None:
    loaded = suite_of(suite)
    known(loaded.tasks, cache)
    arm = scripted("A", rules(loaded.tasks, share))
    counts = Questioner(
        small_plan, [arm], [loaded], tmp_path / "camp", asking=Asking(max_tokens=400, concurrency=2),
        lock=tmp_path / "lock",
    ).run()  # fmt: skip
    assert counts == {"answers": len(loaded.tasks), "errors": 0}
    (scores,) = score_suite(tmp_path / "camp", loaded, ["A"], workers=2, cache=cache)
    assert on_the_page(tmp_path / "camp", small_plan, arm) == [
        share.strict,
        share.completed,
        share.truncation,
    ]
    statuses = [row.status for row in scores.graded]
    assert statuses.count("cut_off") == share.cut_off and statuses.count("passed") == share.passed
    rest = len(loaded.tasks) - share.passed - share.cut_off
    assert (
        statuses.count("failed") == (rest + 2) // 3
        and statuses.count("empty") == rest - (rest + 2) // 3
    )
    assert not list(saved.unlike_asked(tmp_path / "camp", {"A": arm.digest}))


def on_the_page(folder: Path, plan: Plan, arm: Arm) -> list[str]:
    """Strict pass@1, completed-task pass@1 and the share cut off, as a report's table has them."""
    header = Header(
        campaign=folder.name, plan=plan, plan_digest="p", arms=(arm,), arm_digests={arm.name: arm.digest}, order=(),
        coin="", seed=1, created="2030-01-01", machine={}, battery={}, baseline={},
    )  # fmt: skip
    told = quality(folder, header)
    assert isinstance(told, Quality) and not told.left_out
    head, _, row = (line.strip("|").split("|") for line in quality_tables.rows(told).splitlines())
    cells = dict(zip((name.strip() for name in head), row, strict=True))
    names = ("strict pass@1 [95 %]", "completed-task pass@1 [95 %]", "cut off")
    return [re.split(r" [\[(]", cells[name].strip())[0] for name in names]
