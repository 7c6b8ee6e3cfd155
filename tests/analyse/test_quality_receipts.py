"""Which quality receipts are used, and which two may be compared: planted faults, each named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from graded import found, graded, keep, line, only, scores

from battery.ledger.answers import Grader

UNLIKE: dict[str, tuple[dict[str, Any], str]] = {
    "grader": ({"grader": Grader(name="other", version="2")}, "other graders: battery 1 and other 2"),
    "cap": ({"sampler": {"temperature": 0.7, "top_p": 0.95, "max_tokens": 9}}, "other sampler: max_tokens 512 and 9"),
    "temperature": ({"sampler": {"temperature": 0.0, "top_p": 0.95, "max_tokens": 512}}, "other sampler: temperature"),
    "wording": ({"prompt_style": "plain"}, "other wording"),
    "switches": ({"engagement": {"verdict": "disengaged"}}, "switches of C were not engaged"),
    "declined": ({"engagement": {"verdict": "declined"}}, "a switch of C declined"),
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(UNLIKE))
def test_what_was_measured_otherwise_is_not_compared(folder: Path, name: str) -> None:
    changes, why = UNLIKE[name]
    graded(folder, "A", "humaneval", line(150))
    graded(folder, "C", "humaneval", line(150), **changes)
    one = only(folder)
    assert one.paired is None and why in one.refused and one.verdict.word == "undecided"
    assert len(found(folder).rows) == 2 and found(folder).deciding("C") is None


def test_other_tasks_are_not_compared(folder: Path) -> None:
    graded(folder, "A", "humaneval", line(150))
    one = scores(folder, "C", "humaneval", line(150))
    other = msgspec.structs.replace(one.dataset, digest="f" * 64)
    keep(folder, msgspec.structs.replace(one, dataset=other))
    assert "other tasks: sha256" in only(folder).refused
    graded(folder, "C", "humaneval", line(90, of=100))
    assert "64 were asked of one arm only" in only(folder).refused
    graded(folder, "C", "humaneval", [line(150)] * 2)
    assert "other numbers of answers" in only(folder).refused


def test_an_arm_that_was_not_asked_is_named(folder: Path) -> None:
    graded(folder, "C", "mbpp", line(5, of=9))
    assert only(folder, "mbpp").refused == "A was not asked mbpp"


def test_requests_without_an_answer_leave_it_open(folder: Path) -> None:
    graded(folder, "A", "humaneval", line(159))
    graded(folder, "C", "humaneval", "p" * 158 + "fff" + "xxx")
    one = only(folder)
    assert one.verdict.word == "undecided" and "3 request(s) to C had no answer" in one.verdict.why
    row = found(folder).row("C", "humaneval")
    assert row and (row.errors, row.strict.count, row.upper.count) == (3, 158, 161)


def _change_graded(one: Any, place: int, **changes: Any) -> Any:
    rows = list(one.graded)
    rows[place] = msgspec.structs.replace(rows[place], **changes)
    return msgspec.structs.replace(one, graded=tuple(rows))


FAULTS: dict[str, tuple[Any, str]] = {
    "another campaign": (lambda one: msgspec.structs.replace(one, campaign="other"), "it is of campaign other"),
    "another arm": (lambda one: msgspec.structs.replace(one, arm_digest="0" * 64), "not the one whose speed"),
    "another schema": (lambda one: msgspec.structs.replace(one, schema=9), "its schema is 9"),
    "a verdict is missing": (lambda one: msgspec.structs.replace(one, graded=one.graded[1:]), "unfinished: 1 of 164"),
    "two verdicts": (lambda one: _change_graded(one, 0, task="HumanEval/1"), "two verdicts"),
    "a strange task": (lambda one: _change_graded(one, 0, task="HumanEval/999"), "was not to be asked"),
    "passed and failed": (lambda one: _change_graded(one, 0, passed=False), "passed and not"),
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(FAULTS))
def test_a_receipt_that_may_not_be_used_is_left_out_and_named(folder: Path, name: str) -> None:
    spoil, why = FAULTS[name]
    keep(folder, spoil(scores(folder, "A", "humaneval", line(150))))
    told = found(folder)
    assert not told.rows and [one.file for one in told.left_out] == ["A.humaneval.json"]
    assert why in told.left_out[0].why


def test_answers_that_were_changed_after_grading_void_their_receipt(folder: Path) -> None:
    path = graded(folder, "A", "humaneval", line(150)).with_suffix(".jsonl")
    assert len(found(folder).rows) == 1
    path.write_bytes(path.read_bytes() + b"\n")
    assert "not what was graded" in found(folder).left_out[0].why
    (folder / "quality" / "A.humaneval.json").write_text("{")
    assert "cannot be read" in found(folder).left_out[0].why
    (folder / "quality" / "A.humaneval.json").rename(folder / "quality" / "B.mbpp.json")
    assert len(found(folder).left_out) == 1
