from __future__ import annotations

from typing import Any

import pytest

from battery.bench.judge import outcome
from battery.ledger.arm import Arm
from battery.ledger.trace import Trace

ARM = Arm(name="C", backend="command", model="m", switches={"fused": True, "lookup": {"n": 3}})


def health(**states: tuple[str, int]) -> dict[str, Any]:
    return {
        "switches": {
            name: {"state": state, "counters": {"runs": runs}}
            for name, (state, runs) in states.items()
        }
    }


BEFORE = health(fused=("armed", 0), lookup=("armed", 0), other=("off", 0))


def test_all_asked_ran_and_no_other_is_engaged() -> None:
    found = outcome.engagement(
        ARM, BEFORE, health(fused=("engaged", 9), lookup=("engaged", 2), other=("off", 0))
    )
    assert found.verdict == "engaged" and found.reason == ""


@pytest.mark.parametrize(
    ("after", "words"),
    [
        (
            health(fused=("engaged", 9), lookup=("armed", 0), other=("off", 0)),
            "lookup: asked for, but",
        ),
        (
            health(fused=("engaged", 9), lookup=("off", 0), other=("off", 0)),
            "lookup: asked for, but",
        ),
        (
            health(fused=("engaged", 0), lookup=("engaged", 1), other=("off", 0)),
            "counter of runs did not move",
        ),
        (
            health(fused=("engaged", 9), lookup=("engaged", 1), other=("engaged", 4)),
            "other: not asked for",
        ),
        (
            health(fused=("engaged", 9), lookup=("engaged", 1), other=("off", 4)),
            "other: not asked for",
        ),
        (health(fused=("engaged", 9)), "lookup: the server does not know it"),
    ],
)
def test_a_switch_that_lies_is_disengaged(after: dict[str, Any], words: str) -> None:
    found = outcome.engagement(ARM, BEFORE, after)
    assert found.verdict == "disengaged" and words in found.reason


def test_a_declined_switch_carries_its_reason() -> None:
    after = health(fused=("engaged", 9), lookup=("declined", 0))
    after["switches"]["lookup"]["reason"] = "no room"
    found = outcome.engagement(ARM, BEFORE, after)
    assert found.verdict == "declined" and "no room" in found.reason


def test_a_server_without_switches_is_unobservable_not_engaged() -> None:
    plain = Arm(name="A", backend="command", model="m")
    for arm in (ARM, plain):
        assert outcome.engagement(arm, {"status": "ok"}, {"status": "ok"}).verdict == "unobservable"
        for before, after in ((BEFORE, {}), ({}, BEFORE)):
            found = outcome.engagement(arm, before, after)
            assert (found.verdict, found.reason) == ("unobservable", "health did not answer")


def test_rules_of_the_arm_are_paths_with_values() -> None:
    arm = Arm(name="R", backend="command", model="m", engaged={"kv.bits": 8})
    before = {"switches": {}, "kv": {"bits": 8}}
    assert outcome.engagement(arm, before, before).verdict == "engaged"
    broken = outcome.engagement(arm, before, {"switches": {}, "kv": {}})
    assert broken.verdict == "disengaged" and "kv.bits is None, must be 8" in broken.reason


@pytest.mark.parametrize(
    ("trace", "value"),
    [
        (Trace(prompt_tokens=90, cached_tokens=0), "cold"),
        (Trace(prompt_tokens=90, timings={"prompt_tokens": 90}), "cold"),
        (Trace(prompt_tokens=90, cached_tokens=40), "warm"),
        (Trace(prompt_tokens=90, timings={"prompt_tokens": 50}), "warm"),
        (Trace(prompt_tokens=90, cached_tokens=0, timings={"prompt_tokens": 50}), "warm"),
        # 38: llama.cpp's prompt_n counts only what was not cached
        (Trace(prompt_tokens=90, cached_tokens=60, timings={"prompt_tokens": 30}), "warm"),
        (Trace(prompt_tokens=90), "unverified"),
        (Trace(), "unverified"),
    ],
)
def test_cold_has_three_values_from_the_servers_figures(trace: Trace, value: str) -> None:
    assert outcome.cold(trace, "probe").value == value


def test_sampler_honoured_changed_or_unknown() -> None:
    asked = {"temperature": 0.7, "max_tokens": 64}
    assert (
        outcome.honoured(asked, {"temperature": 0.7, "max_tokens": 64, "top_k": 0})[0] == "honoured"
    )
    assert outcome.honoured(asked, {"temperature": 0.7, "max_tokens": 32})[0] == "changed"
    assert outcome.honoured(asked, {"temperature": 0.7})[0] == "unknown"
    # a default of the server's own cuts the distribution, asked for or not
    for default in ({"top_k": 40}, {"min_p": 0.05}):
        assert outcome.honoured(asked, {**asked, **default})[0] == "changed"
    assert outcome.honoured(asked, None)[0] == "unknown"


@pytest.mark.parametrize(
    ("came", "finish", "source", "kept"),
    [
        (64, "length", "usage", "honoured"),
        (40, "stop", "usage", "honoured"),
        (40, "length", "usage", "changed"),  # 11, 33: it stopped for a length that nobody asked for
        (65, "length", "server", "changed"),
        (65, "length", "estimate", "honoured"),  # a guess proves nothing
        (None, "length", "usage", "honoured"),
    ],
)
def test_what_came_is_held_against_max_tokens(
    came: int | None, finish: str, source: Any, kept: str
) -> None:
    seen = Trace(completion_tokens=came, finish_reason=finish, count_source=source)
    assert outcome.honoured({"max_tokens": 64}, {"max_tokens": 64}, seen)[0] == kept


def test_a_doubt_makes_the_word_cold_unverified_and_warm_stays_warm() -> None:
    told = Trace(prompt_tokens=90, cached_tokens=0)
    said = outcome.cold(told, "", "repeats were fast")
    assert (said.value, said.doubt) == ("unverified", "repeats were fast")
    assert "repeats were fast" in said.evidence
    assert outcome.cold(Trace(prompt_tokens=90, cached_tokens=9), "", "fast").value == "warm"


@pytest.mark.parametrize(
    ("answer", "fine"),
    [
        ("The capital of France is Paris.", True),
        ("Paris!!!!!!!!!!!!", False),
        ("Paris Paris Paris Paris Paris Paris", False),
        ("The capital is Lyon.", False),
        ("  ", False),
    ],
)
def test_coherence(answer: str, fine: bool) -> None:
    assert (outcome.incoherent(answer, ("Paris",)) is None) is fine


def test_sense_is_waived_only_where_arm_and_server_both_say_that_the_weights_are_random() -> None:
    random, real = {"model": {"synthetic": True}}, {"model": {"synthetic": False}}
    assert outcome.random_weights("synthetic:wide-kv", random)
    assert not outcome.random_weights("smollm2-135m", random), "the server alone"
    assert not outcome.random_weights("synthetic:wide-kv", real), "the arm alone"
    assert not any(outcome.random_weights("synthetic:x", {"model": m}) for m in (None, "x", {}))
    assert not outcome.random_weights("synthetic:wide-kv", {})
