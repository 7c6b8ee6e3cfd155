"""A GPU session's sections keep what they found, and what is missing or wrong shows in the status."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.epilogue_gpu.kernels import dealt, names
from benchmarks.epilogue_gpu.plan import TYPES, plan
from benchmarks.gpu.gather import SECTIONS, epilogue, judged, word, worst
from benchmarks.gpu.sheet import Sheet


def test_a_sheet_is_whole_from_the_start_and_keeps_errors(tmp_path: Path) -> None:
    path = tmp_path / "views.json"
    sheet = Sheet(path, ["a", "b"], device="none")
    assert all(
        "not reached" in one["error"] for one in json.loads(path.read_text())["cases"].values()
    )

    def broken() -> dict[str, Any]:
        raise RuntimeError("no such kernel")

    sheet.take("a", lambda: {"held": 3, "cases": 3})
    sheet.take("b", broken)
    cases = json.loads(path.read_text())["cases"]
    assert cases["a"]["held"] == 3 and cases["b"]["error"] == "RuntimeError: no such kernel"


def test_every_kernel_case_is_dealt_to_one_share() -> None:
    all_of_them = [name for share in range(8) for name in dealt(share, 8)]
    assert len(all_of_them) == len(set(all_of_them)) == 22 * len(TYPES)
    assert set(all_of_them) == set(plan(names()).kernel)


def test_files_of_a_kernel_share_reach_the_verdict(tmp_path: Path) -> None:
    sheet = Sheet(tmp_path / "kernel-0.json", dealt(0, 8), device="x")
    for name in sheet.cases:
        sheet.take(name, lambda: {"differs": None, "form": "first"})
    found = epilogue(tmp_path)["verdict"]
    counts = (found["kernel"]["same"], found["kernel"]["measured"], found["kernel"]["planned"])
    assert counts == (len(dealt(0, 8)), len(dealt(0, 8)), 66)
    assert found["status"] == 2 and len(found["errors"]) == 66 - counts[0] + 24 + 4


@pytest.mark.parametrize(
    ("case", "status", "says"),
    [
        ({"held": 9, "cases": 9, "wrong": {}}, 0, "9 of 9 held"),
        ({"held": 8, "cases": 9, "wrong": {"x": "differs"}}, 1, "8 of 9 held"),
        ({"rungs": {"decode": "failed: step 3"}, "failed": 1}, 1, "FAILED decode"),
        ({"rungs": {"decode": "passed: all"}, "failed": 0}, 0, "every rung passed"),
        ({"declined": "it has norms"}, 0, "declined: it has norms"),
        ({"error": "out of\n time"}, 2, "- out of time"),
        ({"launches": 400, "more_than_plain": -60}, 0, "400 launches (-60)"),
    ],
)
def test_a_case_has_a_status_and_a_word(case: dict[str, Any], status: int, says: str) -> None:
    assert (judged({"views": {"views": {"cases": {"one": case}}}}, "views"), word(case)) == (
        status,
        says,
    )


def test_a_section_without_a_file_is_missing_and_a_failure_outranks_it() -> None:
    assert judged({"views": {}}, "views") == 2
    steady = {"cases": {"one": {"whole steps": {"repeats": True}}}}
    both = {"attention-as-it-is": steady, "attention-without-cudnn": steady}
    assert judged({"attention": both}, "attention") == 0
    assert judged({"attention": {"attention-as-it-is": steady}}, "attention") == 2
    swinging = {"cases": {"one": {"whole steps": {"repeats": False}}}}
    assert judged({"attention": both | {"attention-as-it-is": swinging}}, "attention") == 1
    models = {
        f"bisect-{name}": {"cases": {"the plain model again": {"differ": 0}}}
        for name in SECTIONS["bisect"]
    }
    assert judged({"bisect": models}, "bisect") == 0
    models["bisect-llama"] = {"cases": {"the plain model again": {"differ": 3}}}
    assert judged({"bisect": models}, "bisect") == 1
    assert (worst([0, 2, 1]), worst([0, 2]), worst([0, 0])) == (1, 2, 0)
