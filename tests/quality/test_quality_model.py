"""The small real model is asked two tasks through switchboard, with its switches on."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from battery.ledger import saved
from battery.ledger.arm import load_arm
from battery.ledger.asked import Quality
from battery.ledger.plan import Limits, Plan
from battery.quality.run import Questioner
from battery.quality.tasks import Loaded

ROOT = Path(__file__).parents[2]


@pytest.mark.model
def test_a_real_arm_answers_and_its_switches_ran(
    tmp_path: Path, few: Loaded, small_plan: Plan
) -> None:
    arm = load_arm("C", ROOT / "arms")
    plan = msgspec.structs.replace(small_plan, limits=Limits(launch_s=120, request_s=120))
    counts = Questioner(
        plan,
        [arm],
        [few],
        tmp_path / "camp",
        asking=Quality(max_tokens=24),
        limit=2,
        lock=tmp_path / "lock",
    ).run()
    assert counts == {"answers": 2, "errors": 0}
    answers = saved.read_answers(saved.answers_path(tmp_path / "camp", "C", "humaneval"))
    assert [one.task for one in answers] == ["HumanEval/0", "HumanEval/1"]
    for one in answers:
        assert (
            one.content and 0 < (one.completion_tokens or 0) <= 24 and (one.prompt_tokens or 0) > 20
        )
        assert one.truncated == (one.completion_tokens == 24)
        assert (
            one.sampler is not None
            and one.sampler["seed"] == one.seed
            and one.sampler["max_tokens"] == 24
        )
    asked = saved.read_asked(tmp_path / "camp", "C", "humaneval")
    assert asked.engagement["verdict"] == "engaged"
    ran = {one["name"] for one in asked.engagement["after"]["switches"] if one["asked"]}
    assert ran == set(arm.switches)
    assert asked.model["digest"] and asked.versions["engine"]["mlx"]
