"""Every rung finds the fault that it is there for, and nothing where there is none."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import faults
import mlx.core as mx
import pytest
from faults import planted
from typer.testing import CliRunner

from switchboard import cache as kv
from switchboard.accept.ruling import Verdict
from switchboard.bisect.calls import Known
from switchboard.bisect.compare import compare
from switchboard.bisect.judge import Judge, flipped
from switchboard.bisect.ladder import climb
from switchboard.bisect.matrix import Model, climb_all, summary
from switchboard.bisect.outcome import RUNGS, Climb
from switchboard.bisect.rungs import Plan, Reference, observe
from switchboard.bisect.subject import Subject, open_plain, put_on
from switchboard.cli import app
from switchboard.config import Asked
from switchboard.errors import ConfigError
from switchboard.registry import known
from switchboard.sampler import Sampler, Sampling

PLAN = Plan(prompts=2, tokens=12)
LLAMA = Model("synthetic:tiny-llama-none")
QKV = Asked("fused_qkv", {"keep_originals": "true"})


@pytest.fixture(scope="module")
def reference() -> Reference:
    return observe(open_plain(LLAMA.name, LLAMA.format), PLAN)


def climbed(reference: Reference, fault: faults.Fault, asked: Asked = QKV) -> Climb:
    return climb(open_plain(LLAMA.name, LLAMA.format), reference, asked, planted(fault))


def told(one: Climb, rung: str) -> str:
    return next(outcome.told for outcome in one.outcomes if outcome.rung == rung)


FAULTS: list[tuple[faults.Fault, str, str]] = [
    (faults.swapped_siblings, "modules", "self_attn.k_proj"),
    (faults.split_off_by_one, "modules", "self_attn.q_proj"),
    (faults.row_of_another, "modules", "1 of"),
    (faults.stale_part, "modules", "self_attn.v_proj ×0.01"),
    (faults.late_everywhere, "modules", "self_attn.rope"),
    (faults.stretched_positions, "blocks", "self_attn of 37 tokens"),
    (faults.row_lost_after_prefill, "prefill", "values after 37 tokens"),
    (faults.stale_values, "decode", "step 1"),
    (faults.late_behind_others, "decode", "step 0"),
    (faults.row_lost_at_growth, "decode", "logits of step 10"),
    (faults.prompt_cut_short, "answers", "token"),
    (
        faults.half_dead,
        "audit",
        "coverage says 4 places, by 12 modules; in one step 9 new modules ran, in 3 places",
    ),
    (faults.uncounted, "audit", "0 runs"),
]


@pytest.mark.parametrize(
    ("fault", "rung", "says"), FAULTS, ids=[fault.__name__ for fault, *_ in FAULTS]
)
def test_a_planted_fault_is_caught_by_its_rung_and_by_none_below(
    fault: faults.Fault, rung: str, says: str, reference: Reference
) -> None:
    found = climbed(reference, fault)
    assert found.failed[:1] == [rung], found.outcomes
    assert says in told(found, rung)


def test_every_rung_has_a_fault_that_only_it_or_those_above_find() -> None:
    assert {rung for _, rung, _ in FAULTS} == set(RUNGS) - {"load"}


def test_without_a_fault_every_rung_passes(reference: Reference) -> None:
    found = climbed(reference, lambda _: None)
    assert [one.verdict for one in found.outcomes] == ["passed"] * len(RUNGS), found.outcomes
    assert found.coverage is not None
    assert (found.coverage["fused"], found.coverage["eligible"]) == (4, 4)
    assert all(one.worst in (0.0, None) for one in found.outcomes)


def test_what_a_rung_raises_is_its_failure(reference: Reference) -> None:
    def broken(subject: Subject) -> None:
        faults.attention(subject).v_proj = None

    found = climbed(reference, broken)
    assert "decode" in found.failed
    assert "TypeError" in told(found, "decode")


def test_faults_of_other_stages_and_formats_are_caught() -> None:
    for name, format, asked, fault, rung in (
        ("qwen3_moe-q4-g32", "quantized", "fused_experts", faults.swapped_experts, "modules"),
        ("qwen2-mixed", "quantized", "fused_qkv", faults.swapped_siblings, "modules"),
        ("qwen3-q8-g64", "quantized", "in_place_kv", faults.grown_without_the_old, "decode"),
    ):
        plain = open_plain(f"synthetic:tiny-{name}", format)
        found = climb(plain, observe(plain, PLAN), Asked(asked), planted(fault))
        assert found.failed[:1] == [rung], (name, found.outcomes)


@pytest.mark.parametrize(
    ("switch", "fault", "says"),
    [
        # In two layers the norms stand in four places: as many as the layers that are claimed.
        ("fast_norm", faults.two_layers_without_fast_norms, "12 new modules ran, in 4 places of 2"),
        ("fast_norm", faults.half_of_each_layers_fast_norms, "by 24 modules; in one step 12 new"),
        ("in_place_kv", faults.half_the_cache_is_plain, "4 layers; 2 entries of the cache"),
    ],
)
def test_the_audit_counts_in_the_unit_that_the_switch_declares(
    switch: str, fault: faults.Fault, says: str
) -> None:
    family = "gemma3" if switch == "fast_norm" else "llama"
    plain = open_plain(f"synthetic:tiny-{family}-none", "auto")
    found = climb(plain, observe(plain, PLAN), Asked(switch), planted(fault))
    assert found.failed == ["audit"], found.outcomes
    assert says in told(found, "audit")


@pytest.mark.parametrize(
    ("fault", "rung", "lost"),
    [
        (faults.without_a_block, "modules", "model.layers.1.mlp"),
        (faults.without_a_norm, "modules", "model.layers.1.input_layernorm"),
    ],
)
def test_what_hangs_nowhere_any_more_is_a_difference(
    fault: faults.Fault, rung: str, lost: str, reference: Reference
) -> None:
    found = climbed(reference, fault)
    assert found.failed[:1] == [rung], found.outcomes
    assert re.match(rf"{re.escape(lost)}.*: missing with the switch on", told(found, rung))


def test_a_block_that_hangs_nowhere_is_a_difference_of_the_second_rung_too(
    reference: Reference,
) -> None:
    found = climbed(reference, faults.without_a_block)
    assert "blocks" in found.failed and "missing with the switch on" in told(found, "blocks")
    assert {"prefill", "decode", "answers"}.isdisjoint(found.failed), "the model works as before"


def test_where_nothing_was_compared_nothing_is_proved(reference: Reference) -> None:
    judge = Judge(open_plain(LLAMA.name, LLAMA.format), reference, Known({}), exact=True)
    for empty in ({}, {"a": mx.zeros((0, 4))}):
        outcome = judge._judged("blocks", compare(empty, empty, exact=True), "nothing at all")
        assert (outcome.verdict, "nothing was compared" in outcome.told) == ("failed", True)


@pytest.fixture
def rounding(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let fused_qkv claim no more than rounding."""
    table = {**known(), "fused_qkv": replace(known()["fused_qkv"], exactness="rounding")}
    monkeypatch.setattr("switchboard.bisect.ladder.known", lambda: table)


@pytest.mark.usefixtures("rounding")
def test_rounding_forgives_the_last_places_and_no_more(reference: Reference) -> None:
    near = climbed(reference, faults.noisy(1e-7))
    assert near.failed == [], near.outcomes
    assert all(0 < (one.worst or 1) < 2e-5 for one in near.outcomes if one.worst is not None)
    far = climbed(reference, faults.noisy(1e-3))
    assert far.failed[:1] == ["modules"]
    assert "allowed" in told(far, "modules")


@pytest.mark.usefixtures("rounding")
@pytest.mark.parametrize(
    ("fault", "rung"), [(fault, rung) for fault, rung, _ in FAULTS if rung != "audit"]
)
def test_rounding_forgives_no_planted_fault(
    fault: faults.Fault, rung: str, reference: Reference
) -> None:
    assert climbed(reference, fault).failed[:1] == [rung]


def test_a_decided_token_may_not_flip_and_a_near_tie_may() -> None:
    old = mx.array([[1.0, 9.0, 2.0, 8.9999]])
    assert flipped(old, old) is None
    assert flipped(old, mx.array([[1.0, 9.0, 2.0, 9.0001]])) is None
    assert "token 2 instead of 1, which led by 7" in str(
        flipped(old, mx.array([[1.0, 9.0, 9.5, 2.0]]))
    )


def test_a_declined_switch_proves_nothing_and_says_why() -> None:
    (found,) = climb_all(
        [Model("synthetic:tiny-llama-none")], [Asked("fused_experts")], PLAN, lambda one: None
    )
    assert found.declined and found.failed == []
    assert summary([found]) == {"switches": 0, "families": 0, "rungs": 0, "failed": 0}


def accept_all(choices: list[int], draft: list[int]) -> Verdict:
    return Verdict(len(draft), choices[len(draft)])


DRAFT = Asked("prompt_lookup", {"adaptive": "false", "least": "1"})


def test_a_draft_climbs_through_the_verify_loop(reference: Reference) -> None:
    found = climb(open_plain(LLAMA.name, LLAMA.format), reference, DRAFT, put_on)
    verdicts = {one.rung: one.verdict for one in found.outcomes}
    assert verdicts == {
        **dict.fromkeys(RUNGS, "passed"),
        "modules": "not applicable",
        "blocks": "not applicable",
    }, found.outcomes
    stood, guessed = map(int, re.match(r"(\d+) of (\d+) guesses", told(found, "decode")).groups())  # type: ignore[union-attr]
    assert 12 <= stood <= guessed - 4


def test_a_pass_of_several_rows_that_is_wrong_is_caught(reference: Reference) -> None:
    found = climbed(reference, faults.sees_ahead, DRAFT)
    assert found.failed[:1] == ["prefill"], found.outcomes
    assert "logits of 2 rows" in told(found, "prefill")


def test_a_law_that_accepts_too_much_is_caught(
    reference: Reference, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("switchboard.sampler.matched", accept_all)
    found = climb(open_plain(LLAMA.name, LLAMA.format), reference, DRAFT, put_on)
    assert found.failed[:1] == ["decode"], found.outcomes
    assert "decided" in told(found, "decode")


@pytest.mark.parametrize("kept", [1, -1])
def test_a_rewind_that_is_off_by_one_is_caught(
    kept: int, reference: Reference, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = kv.rewind
    monkeypatch.setattr(
        kv, "rewind", lambda cache, count: honest(cache, max(0, count - kept) if count else 0)
    )
    found = climb(open_plain(LLAMA.name, LLAMA.format), reference, DRAFT, put_on)
    assert found.failed[:1] == ["decode"], found.outcomes


def test_a_key_of_the_wrong_place_is_caught(
    reference: Reference, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = Sampler.judge
    monkeypatch.setattr(
        Sampler, "judge", lambda self, logits, draft, made: honest(self, logits, draft, made + 1)
    )
    found = climb(open_plain(LLAMA.name, LLAMA.format), reference, DRAFT, put_on)
    assert found.failed[:1] == ["decode"], found.outcomes
    assert "temperature 0.8" in told(found, "decode")


@pytest.mark.parametrize("more", [{"temperature": 0.0}, {"temperature": 0.8}, {"top_k": 9}])
def test_the_chosen_token_has_no_margin_and_every_other_has(more: dict[str, float]) -> None:
    logits = mx.random.normal((1, 64), key=mx.random.key(3))
    sampler = Sampler(Sampling(seed=5, **more), ())  # type: ignore[arg-type]
    for place in range(20):
        chosen = sampler.choose(logits, place).item()
        margins = [sampler.margin(logits, place, token) for token in range(64)]
        assert margins[int(chosen)] == 0
        assert sum(margin > 0 for margin in margins) == 63


def test_bits_are_compared_not_values() -> None:
    one = {"a": mx.array([0.0, float("nan"), 1.0])}
    assert compare(one, {"a": mx.array([0.0, float("nan"), 1.0])}, exact=True).difference is None
    other = compare(one, {"a": mx.array([-0.0, float("nan"), 1.0])}, exact=True)
    assert other.difference is not None and other.difference.what.startswith("1 of 3 differ")


@pytest.mark.parametrize(
    ("on", "says"),
    [
        ({}, "missing"),
        ({"a": mx.zeros((2,))}, "became"),
        ({"a": mx.zeros((3,), mx.float16)}, "became"),
        ({"a": mx.zeros((3,)), "b": mx.zeros((1,))}, "only there"),
        ({"a": mx.array([0.0, float("nan"), 0.0])}, r"first at \[1\], by up to inf"),
    ],
)
def test_what_cannot_be_compared_is_a_difference(on: dict[str, mx.array], says: str) -> None:
    found = compare({"a": mx.zeros((3,))}, on, exact=False)
    assert found.difference is not None
    assert re.search(says, found.difference.told())


def test_rounding_is_bounded_by_the_largest_magnitude() -> None:
    off = {"a": mx.array([1.0, 100.0])}
    near = compare(off, {"a": mx.array([1.003, 100.0])}, exact=False)
    assert near.difference is None and near.worst == pytest.approx(3e-5, rel=1e-3)
    far = compare(off, {"a": mx.array([1.004, 100.0])}, exact=False)
    assert far.difference is not None and "allowed 0.00305" in far.difference.what


def test_the_command_prints_a_table_and_ends_with_one_line_of_numbers() -> None:
    words = ["bisect", "--family", "llama", "--quantisation", "q4-g32", "--tokens", "4"]
    result = CliRunner().invoke(app, [*words, "--switch", "fused_qkv"])
    assert result.exit_code == 0, result.output
    head, *_, last = result.output.splitlines()
    assert head.split() == ["model", "switch", *RUNGS]
    assert json.loads(last) == {"switches": 1, "families": 1, "rungs": 7, "failed": 0}
    assert "audit: passed" in result.output, "one climb is told in full"


def test_the_status_says_that_a_rung_failed_or_that_nothing_was_climbed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    words = ["bisect", "--model", LLAMA.name, "--json", "--switch"]
    nothing = CliRunner().invoke(app, [*words, "fused_experts"])
    assert nothing.exit_code == 3
    monkeypatch.setattr("switchboard.bisect.matrix.put_on", planted(faults.uncounted))
    wrong = CliRunner().invoke(app, [*words, "fused_qkv"])
    assert wrong.exit_code == 1
    document = json.loads(wrong.output)
    assert document["failed"] == 1
    assert document["climbs"][0]["outcomes"][-1]["verdict"] == "failed"


@pytest.mark.parametrize(
    ("flag", "value", "near"),
    [("--family", "lama", "llama"), ("--quantisation", "q4g32", "q4-g32")],
)
def test_an_unknown_family_or_quantisation_names_the_nearest(
    flag: str, value: str, near: str
) -> None:
    result = CliRunner().invoke(app, ["bisect", flag, value])
    assert isinstance(result.exception, ConfigError)
    assert f"did you mean '{near}'" in str(result.exception)
