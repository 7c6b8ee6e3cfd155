from __future__ import annotations

import msgspec
import pytest

from battery.ledger import derive
from battery.ledger.arm import Arm, difference
from battery.ledger.errors import ArmError

C = Arm(
    name="C",
    backend="switchboard",
    model="m",
    switches={"fused_qkv": True, "prompt_lookup": {"ngram": 3}, "prewarm": False},
    flags={"threads": 2},
    env={"OMP_NUM_THREADS": "1"},
)


def test_each_switch_is_taken_out_in_turn_and_nothing_else() -> None:
    control, *out = derive.knockouts(C)
    assert control is C
    assert [arm.name for arm in out] == ["C-no-fused_qkv", "C-no-prompt_lookup"]
    assert [list(arm.asked) for arm in out] == [["prompt_lookup"], ["fused_qkv"]]
    for arm, name in zip(out, C.asked, strict=True):
        paths = {path for path, _, _ in difference(C, arm)}
        assert paths and all(path.startswith(f"switches.{name}") for path in paths)
    assert len({arm.digest for arm in (C, *out)}) == 3


def test_each_switch_alone_against_none() -> None:
    plain, *alone = derive.isolations(C)
    assert plain.name == "C-plain" and plain.asked == {} and plain.env == C.env
    assert [arm.asked for arm in alone] == [{"fused_qkv": {}}, {"prompt_lookup": {"ngram": 3}}]


def test_some_of_the_switches() -> None:
    assert [a.name for a in derive.knockouts(C, ("prompt_lookup",))] == ["C", "C-no-prompt_lookup"]
    with pytest.raises(ArmError, match="no switch 'fused_qk'; did you mean 'fused_qkv'"):
        derive.knockouts(C, ("fused_qk",))
    with pytest.raises(ArmError, match="no switch 'prewarm'"):
        derive.isolations(C, ("prewarm",))


def test_what_cannot_be_taken_out_is_an_error() -> None:
    with pytest.raises(ArmError, match="asks for no switch, so none can be knocked out"):
        derive.knockouts(Arm(name="A", backend="switchboard", model="m"))
    fixed = Arm(
        name="X", backend="command", model="m", switches={"a": True}, command=["e", "{port}", "--a"]
    )
    with pytest.raises(ArmError, match="fixed command line"):
        derive.isolations(fixed)


def test_a_rule_on_a_switch_goes_with_the_switch() -> None:
    rules = {"switches.fused_qkv.state": "engaged", "kv.bits": 8}
    arm = msgspec.structs.replace(C, engaged=rules)
    _, no_qkv, no_lookup = derive.knockouts(arm)
    assert no_qkv.engaged == {"kv.bits": 8} and no_lookup.engaged == rules
    plain, only_qkv, _ = derive.isolations(arm)
    assert plain.engaged == {"kv.bits": 8} and only_qkv.engaged == rules


def test_the_option_that_makes_the_arms_again() -> None:
    two = ("prompt_lookup", "fused_qkv")
    assert derive.option("", (C, msgspec.structs.replace(C, name="D"))) == "--arms C,D"
    assert derive.option("knockout", derive.knockouts(C)) == "--knockout C:fused_qkv,prompt_lookup"
    assert (
        derive.option("isolate", derive.isolations(C, two)) == "--isolate C:prompt_lookup,fused_qkv"
    )
    odd = msgspec.structs.replace(C, name="C-no-b-plain-only-x")
    assert (
        derive.option("isolate", derive.isolations(odd, two[:1]))
        == f"--isolate {odd.name}:prompt_lookup"
    )
    assert (
        derive.option("knockout", derive.knockouts(odd, two[:1]))
        == f"--knockout {odd.name}:prompt_lookup"
    )
