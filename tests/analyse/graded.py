"""Quality receipts with known verdicts, written beside a synthetic campaign's receipts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_args

import msgspec
from synthetic import World

from battery.analyse.quality import Change, Quality, quality
from battery.ledger import saved, strict
from battery.ledger.answers import Answer, Dataset, Graded, Grader, Scores, Status, SuiteName
from battery.ledger.asked import Asked, Session
from battery.ledger.store import Campaign, pretty

SIZES = {"humaneval": 164, "humaneval+": 164, "mbpp": 427, "mbpp+": 378}
CAP = 512
SMALL = World(ladder=(128,), blocks=2, seeds=1)
"""A campaign to which quality can be added."""
LETTERS: dict[str, Status] = {
    "p": "passed", "f": "failed", "c": "cut_off", "e": "empty", "x": "request_error", "t": "timeout",
    "s": "syntax_error",
}  # fmt: skip
assert set(LETTERS.values()) <= set(get_args(Status))


def task(suite: str, place: int) -> str:
    """A task's id as the suites write it."""
    return f"HumanEval/{place}" if suite.startswith("humaneval") else f"Mbpp/{place + 2}"


def line(passed: int = 0, cut: int = 0, of: int = 164) -> str:
    """Verdicts as letters: passes first, then cut-off ones at the end, the others failed."""
    return "p" * passed + "f" * (of - passed - cut) + "c" * cut


def scores(
    folder: Path, arm: str, suite: SuiteName, told: str | Sequence[str], **changes: Any
) -> Scores:
    """The receipt of an arm whose answers ended as the letters say; a string of them per sample for more than one."""
    header = Campaign(folder).header()
    samples = [told] if isinstance(told, str) else list(told)
    tasks = tuple(task(suite, place) for place in range(len(samples[0])))
    graded = tuple(
        Graded(
            task=tasks[place], sample=sample, passed=letter == "p", status=LETTERS[letter], truncated=letter == "c",
            base=letter == "p" or None if suite.endswith("+") else None,
            completion_tokens=None if letter == "x" else CAP if letter == "c" else 100 + place % 50,
        )
        for sample, letters in enumerate(samples)
        for place, letter in enumerate(letters)
    )  # fmt: skip
    values: dict[str, Any] = {
        "campaign": header.campaign,
        "arm": next(one for one in header.arms if one.name == arm),
        "arm_digest": header.arm_digests[arm],
        "dataset": Dataset(
            suite=suite, source=f"{suite}.jsonl", digest=strict.digest(suite), known=f"{suite} data",
            tasks=len(tasks),
        ),
        "samples": len(samples),
        "tasks": tasks,
        "sampler": {"temperature": 0.7, "top_p": 0.95, "max_tokens": CAP},
        "concurrency": 1,
        "prompt_style": "fenced 1",
        "answers_digest": "0" * 64,
        "engagement": {"verdict": "engaged"},
        "grader": Grader(
            name="battery", version="1", limits={"wall_s": 3.0, "memory_mb": 1024}, fences=("process group", "rlimits"),
            missing={"network namespace": "not permitted here"}, self_test={"canonical": 164, "planted": 20},
        ),
        "graded": graded,
        "ended": "2026-01-02T04:00:00Z",
    }  # fmt: skip
    return Scores(**{**values, **changes})


def keep(folder: Path, one: Scores, answers: bool = True) -> Path:
    """Write a receipt, with answers and a record of what was asked that fit it; its path."""
    suite = one.dataset.suite
    path = folder / "quality" / f"{one.arm.name}.{suite}.json"
    path.parent.mkdir(exist_ok=True)
    if answers:
        lines = b"".join(
            msgspec.json.encode(_answer(suite, graded)) + b"\n" for graded in one.graded
        )
        path.with_suffix(".jsonl").write_bytes(lines)
        one = msgspec.structs.replace(one, answers_digest=strict.digest(lines))
        record = saved.asked_path(folder, one.arm.name, suite)
        record.parent.mkdir(exist_ok=True)
        record.write_bytes(pretty(_asked(folder, one)))
    path.write_bytes(pretty(one))
    return path


def _asked(folder: Path, one: Scores) -> Asked:
    """The record that such scores were completed from."""
    session = Session(
        started="2026-01-02T03:00:00Z", ended=one.ended, concurrency=one.concurrency, answers=len(one.graded),
        engagement=one.engagement,
    )  # fmt: skip
    plan_digest = Campaign(folder).header().plan_digest
    return Asked(
        campaign=one.campaign, arm=one.arm, arm_digest=one.arm_digest, plan_digest=plan_digest,
        dataset=one.dataset, samples=one.samples, tasks=one.tasks, sampler=one.sampler, prompt_style=one.prompt_style,
        sessions=(session,),
    )  # fmt: skip


def _answer(suite: SuiteName, graded: Graded) -> Answer:
    """An answer of which that verdict could be."""
    lost = graded.status == "request_error"
    return Answer(
        suite=suite, task=graded.task, sample=graded.sample, seed=graded.sample, request_digest="0" * 64,
        finish_reason=None if lost else "length" if graded.truncated else "stop",
        completion_tokens=graded.completion_tokens, error="503" if lost else None, started="2026-01-02T03:30:00Z",
    )  # fmt: skip


def graded(
    folder: Path, arm: str, suite: SuiteName, told: str | Sequence[str], **changes: Any
) -> Path:
    """Make a receipt and write it."""
    return keep(folder, scores(folder, arm, suite, told, **changes))


def found(folder: Path) -> Quality:
    """What the analysis makes of a folder's quality receipts."""
    told = quality(folder, Campaign(folder).header())
    assert isinstance(told, Quality)
    return told


def only(folder: Path, suite: str = "humaneval") -> Change:
    """The change on one suite."""
    return next(one for one in found(folder).changes if one.suite == suite)
