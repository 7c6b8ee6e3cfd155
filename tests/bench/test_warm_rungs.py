"""An untimed request before the first cell of each rung: what an engine does once per length is not timed. FIELD 42."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from battery.bench.run import Conductor
from battery.ledger.arm import Arm
from battery.ledger.errors import PlanError
from battery.ledger.plan import Plan, check
from battery.ledger.receipt import Receipt
from battery.ledger.store import Campaign
from battery.ledger.trace import ttft

Make = Callable[..., Arm]
COMPILE_S = 0.4


def measured(folder: Path, plan: Plan, arm: Arm) -> list[Receipt]:
    Conductor(plan, [arm], folder / "c", seed=4821, lock=folder / "lock").run()
    return Campaign(folder / "c").receipts()


@pytest.mark.parametrize("tokens", [0, 4])
def test_42_kernels_that_are_compiled_once_per_length(
    tmp_path: Path, fake_arm: Make, small_plan: Plan, tokens: int
) -> None:
    plan = msgspec.structs.replace(
        small_plan, blocks=1, seeds=2, sentinel=False, ladder=(160, 240), warm_up_tokens=tokens
    )
    arm = fake_arm("A", "--compile-ms", str(COMPILE_S * 1e3))
    receipts = measured(tmp_path, plan, arm)
    assert [r.outcome for r in receipts] == ["ok"] * 4
    slow = [(ttft(r.trace) or 0) > COMPILE_S for r in receipts]
    assert slow == ([True, False, True, False] if tokens == 0 else [False] * 4)
    # a prompt of its own: what is timed stays cold
    assert {r.cold.value for r in receipts} == {"cold"}


def test_a_server_that_dies_in_the_warm_up_of_a_rung_is_that_rungs_result(
    tmp_path: Path, fake_arm: Make, small_plan: Plan
) -> None:
    plan = msgspec.structs.replace(
        small_plan, blocks=1, sentinel=False, ladder=(64, 96, 128), warm_up_tokens=4
    )
    first, second, third = measured(tmp_path, plan, fake_arm("A", "--fault", "oom-at:96"))
    assert (first.outcome, second.outcome, third.outcome) == ("ok", "oom", "oom")
    assert (second.reason or "").startswith("in the untimed warm-up: during ")
    assert second.memory.lower_bound and second.gate.verdict == "not tried"
    assert third.evidence == {"inherited_from": second.sequence}
    # the record is of the request that was sent, and of no other
    assert second.request.sampler["max_tokens"] == 4 and second.request.honoured != "changed"
    assert second.request.body_digest != third.request.body_digest


def test_a_plan_without_it_keeps_its_digest(small_plan: Plan) -> None:
    warm = msgspec.structs.replace(small_plan, warm_up_tokens=4)
    assert warm.digest != small_plan.digest
    # as a plan was encoded before there was the key
    same = msgspec.to_builtins(small_plan)
    del same["warm_up_tokens"]
    assert msgspec.convert(same, Plan).digest == small_plan.digest
    with pytest.raises(PlanError, match="warm_up_tokens: must be between 0"):
        check(msgspec.structs.replace(small_plan, warm_up_tokens=99), "here")
