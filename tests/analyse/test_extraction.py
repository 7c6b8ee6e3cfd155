"""Two extractions held against each other: what is counted, and what may not be compared, each with its reason."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from beside import beside
from graded import found, graded

from battery.ledger import sanitised
from battery.ledger.answers import Grader
from battery.ledger.store import pretty

OURS, THEIRS = "pppfffccx", "psufpecCx"


def test_what_differs_is_counted_in_each_direction(folder: Path) -> None:
    graded(folder, "A", "humaneval", OURS)
    beside(folder, "A", "humaneval", THEIRS)
    (one,) = found(folder).extractions
    assert (one.ours.count, one.theirs.count, one.ours.of, one.answers) == (3, 2, 9, 9)
    (lost,), (gained,), (open_,) = one.ours_only, one.theirs_only, one.unjudged
    assert (lost.task, lost.theirs, lost.form) == ("HumanEval/1", "syntax_error", "broken")
    assert (gained.task, gained.ours, gained.theirs) == ("HumanEval/4", "failed", "passed")
    assert (open_.task, open_.ours, open_.why) == ("HumanEval/2", "passed", "no answer in 60 s")
    assert (one.cut_off, one.cut_off_passing) == (2, 1)
    assert one.their_name == "EvalPlus 0.3.1 sanitize" and one.our_name == "battery 1"


def test_several_answers_a_task_are_told_apart(folder: Path) -> None:
    graded(folder, "A", "mbpp", ["pf", "fp"])
    beside(folder, "A", "mbpp", "pppp")
    (one,) = found(folder).extractions
    assert [(x.task, x.sample) for x in one.theirs_only] == [("Mbpp/3", 0), ("Mbpp/2", 1)]


def test_nothing_is_written_where_nobody_compared(folder: Path) -> None:
    graded(folder, "A", "humaneval", OURS)
    assert found(folder).extractions == () and b"extraction" not in pretty(found(folder))


UNFIT: dict[str, tuple[dict[str, Any], str]] = {
    "schema": ({"schema": 2}, "its schema is 2"),
    "campaign": ({"campaign": "other"}, "of another campaign"),
    "arm": ({"arm_digest": "f" * 64}, "of another arm"),
    "data": ({"dataset_digest": "f" * 64}, "of another data file"),
    "answers": ({"answers_digest": "f" * 64}, "of another file of answers"),
    "grader": ({"grader": Grader(name="battery", version="2")}, "of another grader"),
    "name": ({"arm": "C"}, "its name says another"),
    "rows": ({"rows": ()}, "not on the answers of the receipt"),
}


@pytest.mark.parametrize("name", sorted(UNFIT))
def test_what_is_of_something_else_is_left_out(folder: Path, name: str) -> None:
    changes, why = UNFIT[name]
    graded(folder, "A", "humaneval", OURS)
    beside(folder, "A", "humaneval", THEIRS, **changes)
    quality = found(folder)
    assert quality.extractions == () and len(quality.rows) == 1
    assert [one.file for one in quality.left_out] == ["evalplus/A.humaneval.json"]
    assert why in quality.left_out[0].why


TURNED: dict[str, tuple[int, dict[str, Any], str]] = {
    "passed": (3, {"passed": True}, "sample 0 of HumanEval/3: it is passed and not"),
    "status": (3, {"passed": True, "status": "passed"}, "its status is passed, and its code came to failed"),
    "cut off": (3, {"truncated": True}, "cut off is True, our verdict says False"),
    "uncut": (6, {"truncated": False}, "cut off is False, our verdict says True"),
    "never came": (3, {"status": "request_error"}, "its status is request_error, our verdict says failed"),
    "silent": (2, {"passed": False}, "it is passed and not"),
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(TURNED))
def test_a_verdict_that_was_turned_is_seen(folder: Path, name: str) -> None:
    place, changes, why = TURNED[name]
    graded(folder, "A", "humaneval", OURS)
    path = beside(folder, "A", "humaneval", THEIRS)
    kept = sanitised.read(path)
    rows = list(kept.rows)
    rows[place] = msgspec.structs.replace(rows[place], **changes)
    path.write_bytes(pretty(msgspec.structs.replace(kept, rows=tuple(rows))))
    assert found(folder).extractions == () and why in found(folder).left_out[0].why


def test_one_without_our_verdicts_or_without_sense_is_named(folder: Path) -> None:
    path = graded(folder, "A", "humaneval", OURS)
    lone = beside(folder, "A", "humaneval", THEIRS)
    path.unlink()
    assert "no quality receipt A.humaneval.json that can be used" in found(folder).left_out[0].why
    lone.write_bytes(b"{")
    assert "evalplus/A.humaneval.json: cannot be read" in found(folder).left_out[0].why
