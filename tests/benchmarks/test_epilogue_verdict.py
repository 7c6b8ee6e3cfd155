"""The epilogue's verdict counts against its plan: what was not measured is an error, what differs a failure."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.epilogue_gpu.plan import DISTINCT, Plan, plan
from benchmarks.epilogue_gpu.verdict import verdict

SMALL = Plan(
    kernel=("float16 a", "float16 b", "float32 a"), text=("m rows after 24",), speed=("m rows at 64",)
)  # fmt: skip


def text(**more: Any) -> dict[str, Any]:
    quiet = {"token": None, "arrays": 9, "differ": 0}
    return {"distinct": 60, "again": dict(quiet), "run": dict(quiet), **more}


def told(**changed: dict[str, Any]) -> dict[str, Any]:
    """Everything planned, measured and the same; a part can be given instead."""
    whole: dict[str, Any] = {
        "kernel": {name: {"differs": None} for name in SMALL.kernel},
        "text": {name: text() for name in SMALL.text},
        "speed": {name: {"ratio": 0.9, "low": 0.8, "high": 1.0} for name in SMALL.speed},
    }
    return {**whole, **changed}


def test_all_measured_and_all_the_same_is_status_0() -> None:
    found = verdict(SMALL, **told())
    assert (found["status"], found["same_text"], found["errors"]) == (0, {"m": True}, [])
    assert found["kernel"]["same_by_type"] == {"float16": 2, "float32": 1}


def test_nothing_measured_is_no_pass_and_names_every_case() -> None:
    found = verdict(SMALL, {}, {}, {})
    assert (found["status"], found["same_text"], len(found["errors"])) == (2, {"m": None}, 5)
    assert found["kernel"] == {"same": 0, "measured": 0, "planned": 3, "same_by_type": {}}


@pytest.mark.parametrize("part", ["kernel", "text", "speed"])
def test_one_case_left_out_is_status_2_with_its_reason(part: str) -> None:
    whole = told()
    name = next(iter(whole[part]))
    whole[part][name] = {"error": "out of time"}
    found = verdict(SMALL, **whole)
    assert (found["status"], found["errors"]) == (2, [f"{name}: out of time"])
    assert found["same_text"] == {"m": None if part == "text" else True}


def test_a_kernel_case_that_differs_fails() -> None:
    whole = told()
    whole["kernel"]["float32 a"] = {"differs": "q at 1"}
    found = verdict(SMALL, **whole)
    assert (found["status"], found["failures"]) == (1, ["kernel float32 a: q at 1"])
    assert found["kernel"]["same_by_type"] == {"float16": 2}


def differing(again: int, run: int) -> dict[str, Any]:
    parts = {"again": again, "run": run}
    counted = {key: {"token": None, "arrays": 176, "differ": n} for key, n in parts.items()}
    return told(text={SMALL.text[0]: text(**counted)})


def test_more_arrays_than_the_chains_own_repeat_fail_and_as_many_do_not() -> None:
    found = verdict(SMALL, **differing(98, 159))
    assert found["status"] == 1 and "159 of 176 arrays differ" in found["failures"][0]
    found = verdict(SMALL, **differing(98, 98))
    assert (found["status"], found["arrays"]["chain_differs_from_itself"]) == (0, 98)


def test_a_loop_of_few_tokens_is_no_same_text() -> None:
    found = verdict(SMALL, **told(text={SMALL.text[0]: text(distinct=DISTINCT - 1)}))
    assert found["same_text"] == {"m": None} and "a loop" in found["same_text_unknown"][0]


def test_another_token_fails_unless_the_chain_has_other_tokens_itself() -> None:
    other = {"token": 7, "arrays": 9, "differ": 0}
    found = verdict(SMALL, **told(text={SMALL.text[0]: text(run=other)}))
    assert (found["status"], found["same_text"]) == (1, {"m": False})
    found = verdict(SMALL, **told(text={SMALL.text[0]: text(run=other, again=other)}))
    assert (found["status"], found["same_text"]) == (0, {"m": None})


def test_a_result_that_nobody_planned_is_an_error() -> None:
    found = verdict(SMALL, **told(speed={**told()["speed"], "m rows at 65": {"error": "x"}}))
    assert found["errors"] == ["speed: m rows at 65 is not in the plan"]


def test_the_real_plan_has_no_name_twice() -> None:
    whole = plan(("a", "b"))
    for names in (whole.kernel, whole.text, whole.speed):
        assert names and len(set(names)) == len(names)
