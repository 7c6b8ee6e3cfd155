"""Many models and switches: each is told of once, declines only where it may, and leaves nothing behind."""

from __future__ import annotations

import json
import os
import re
from dataclasses import replace

import faults
import mlx.core as mx
import pytest
from emulated import compiler
from typer.testing import CliRunner

from switchboard import blas
from switchboard.bisect.calls import know
from switchboard.bisect.compare import compare
from switchboard.bisect.kept import Kept
from switchboard.bisect.matrix import (
    Model,
    Share,
    climb_all,
    climb_side_by_side,
    shares,
    summary,
    tiny,
)
from switchboard.bisect.outcome import RUNGS, Climb
from switchboard.bisect.rungs import Plan, blocks, inputs, walk
from switchboard.bisect.subject import open_plain, put_on
from switchboard.cli import app
from switchboard.config import Asked
from switchboard.errors import ModelError
from switchboard.registry import known
from switchboard.sources.tiny import FAMILIES, QUANTISATIONS

HYBRIDS = {"qwen3_5", "qwen3_5_moe"}
ROUTED_ONLY = {"qwen3_moe"}
DENSE = set(FAMILIES) - {"qwen3_moe", "qwen3_5_moe", "qwen3_vl_moe"}
OPTIONS = {"quantized_kv": {"group": "32"}}
"""The heads of the tiny models are narrower than its usual group."""
NO_STEP_BACK = [
    (HYBRIDS, r"ArraysCache cannot give tokens back that it read one by one"),
    ({"gemma3"}, r"RotatingKVCache cannot give tokens back that it read one by one"),
]
NO_DRAFT = [(set(FAMILIES), r"no draft switch is on, so there is nothing to accept")]
MAY_DECLINE: dict[str, list[tuple[set[str], str]]] = {
    "fused_qkv": [],
    "shared_rotary": [],
    "in_place_kv": [],
    "fused_gate_up": [(ROUTED_ONLY, r"4 layers hold them for routed experts")],
    "fused_experts": [(DENSE, r"no layer routes its input to experts with gate_proj, up_proj")],
    "masked_prefill": [],
    "compiled_step": [
        (HYBRIDS, r"layer 0 has a ArraysCache, which is no buffer of fixed rows"),
        ({"gemma3"}, r"layer 0 has a RotatingKVCache, which is no buffer of fixed rows"),
        (set(FAMILIES) if compiler() is None else set(), r"fuses nothing on this CPU"),
    ],
    "fast_norm": [(set(FAMILIES) - {"gemma3"}, r"norms .* already is one mx\.fast\.rms_norm")],
    "prompt_lookup": [],
    "draft_model": NO_STEP_BACK,
    "adaptive_depth": [(set(FAMILIES), r"no draft switch is on, so there is no depth to choose")],
    "native_mtp": [(set(FAMILIES), r"weights are random: there is no checkpoint with mtp")],
    **dict.fromkeys(("block_verify", "cascade", "typical"), NO_DRAFT),
    "prompt_cache": [],
    "prewarm": [(set(FAMILIES), r"it stands on prompt_cache, which is off")],
    "quantized_kv": [
        ({"qwen2"}, r"layer 0 has heads of 16 numbers, .* leave quantized_kv off"),
    ],
    "fused_epilogue": [(set(FAMILIES), r"no GPU kernel on this device")],
    "text_only": [(set(FAMILIES), r"it decides what is read of a checkpoint")],
}
"""Which switch declines in which families, in every quantisation, and with which words; everywhere else it climbs."""


def must_decline(switch: str, family: str) -> str | None:
    return next((words for families, words in MAY_DECLINE[switch] if family in families), None)


def wrong(found: Climb, family: str) -> str | None:
    """What is wrong with one climb of the matrix, or None."""
    words = must_decline(found.switch, family)
    if found.failed:
        return f"{found.switch}: {[one for one in found.outcomes if one.verdict == 'failed']}"
    if words is None and found.declined is not None:
        return f"{found.switch} declined where it has to climb: {found.declined}"
    if words is not None and not re.search(words, found.declined or "it climbed"):
        return f"{found.switch}: {found.declined or 'climbed'}, not /{words}/"
    return None


def test_the_table_of_declines_names_every_switch() -> None:
    assert set(MAY_DECLINE) == set(known())


@pytest.mark.families
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("quantisation", QUANTISATIONS)
def test_every_switch_climbs_or_declines_as_the_table_says(family: str, quantisation: str) -> None:
    asked = [Asked(name, OPTIONS.get(name, {})) for name in known()]
    climbs = climb_all(tiny([family], [quantisation]), asked, Plan(1, 4, (1, 4)), lambda one: None)
    assert [told for one in climbs if (told := wrong(one, family))] == []
    assert summary(climbs)["rungs"] > 20


def test_a_decline_that_is_not_in_the_table_is_seen() -> None:
    (found,) = climb_all(
        tiny(["llama"], ["none"]), [Asked("fused_experts")], Plan(1, 4), lambda one: None
    )
    assert wrong(found, "llama") is None
    assert "has to climb" in str(wrong(found, "qwen3_moe"))
    assert "not /" in str(wrong(replace(found, declined="not enough memory"), "llama"))
    assert "climbed" in str(wrong(replace(found, declined=None), "llama"))


@pytest.mark.parametrize("name", ["llama-mixed", "gemma3-none", "qwen3_5_moe-q4-g32"])
def test_after_a_switch_the_model_is_the_plain_one_again(name: str) -> None:
    format = "auto" if name.endswith("none") else "quantized"
    plain = open_plain(f"synthetic:tiny-{name}", format)
    kept, before, noted = Kept(plain.model), know(plain.model), inputs(plain)
    old = blocks(plain, noted.large) | walk(plain)
    on = 0
    for switch in known():
        on += put_on(plain, Asked(switch)).off is None
        kept.put_back()
        now = know(plain.model)
        assert list(now.modules) == list(before.modules), switch
        assert all(now.same(path, *held) for path, held in before.modules.items()), switch
        seen = blocks(plain, noted.large) | walk(plain)
        assert compare(old, seen, exact=True).difference is None, switch
    assert on >= 3


def test_planted_changes_of_every_kind_are_put_back() -> None:
    plain = open_plain("synthetic:tiny-llama-none", "auto")
    kept, before, noted = Kept(plain.model), know(plain.model), inputs(plain)
    old = walk(plain)
    for fault in (faults.without_a_block, faults.late_everywhere, faults.stretched_positions):
        fault(plain)
        assert compare(old, walk(plain), exact=True).difference or fault is faults.without_a_block
        kept.put_back()
    layers = plain.model.model.layers
    layers[0], layers[1] = layers[1], layers[0]
    kept.put_back()
    layers = plain.model.model.layers
    layers[2].mlp.up_proj.weight = mx.zeros_like(layers[2].mlp.up_proj.weight)
    kept.put_back()
    now = know(plain.model)
    assert all(now.same(path, *held) for path, held in before.modules.items())
    assert compare(old, walk(plain), exact=True).difference is None
    assert inputs(plain).parts[0].path == noted.parts[0].path


def fallen(*_: object) -> None:
    os._exit(9)


def test_processes_side_by_side_find_what_one_finds() -> None:
    models = tiny(["llama", "qwen2"], ["none"])
    asked, told = [Asked("fused_qkv"), Asked("fused_experts")], list[Climb]()
    alone = climb_all(models, asked, Plan(1, 4, (1, 4)), lambda one: None)
    found = climb_side_by_side(models, asked, Plan(1, 4, (1, 4)), told.append, processes=2)

    def timeless(climbs: list[Climb]) -> list[Climb]:
        return [
            replace(one, outcomes=[replace(held, seconds=0.0) for held in one.outcomes])
            for one in climbs
        ]

    assert timeless(found) == timeless(alone)
    assert sorted(told, key=found.index) == found and len(found) == 4


def test_an_error_of_one_process_is_the_error_of_all() -> None:
    models = [Model("synthetic:tiny-llama-none"), Model("synthetic:tiny-lama")]
    with pytest.raises(Exception, match="did you mean 'tiny-llama'"):
        climb_side_by_side(models, [Asked("fused_qkv")], Plan(1, 2, (1, 2)), lambda one: None, 2)


def test_a_process_that_dies_is_one_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("switchboard.bisect.matrix._one", fallen)
    with pytest.raises(ModelError, match="--processes 1"):
        climb_side_by_side(tiny(["llama", "qwen2"], ["none"]), [], Plan(), lambda one: None, 2)


def test_what_was_preloaded_reaches_the_processes_and_no_other_child(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(blas.MARK, "libsome.so")
    monkeypatch.delenv("LD_PRELOAD", raising=False)
    with blas.handed_on():
        assert os.environ["LD_PRELOAD"] == "libsome.so"
    assert "LD_PRELOAD" not in os.environ
    monkeypatch.delenv(blas.MARK)
    with blas.handed_on():
        assert "LD_PRELOAD" not in os.environ


def test_the_command_tells_of_every_model_and_ends_with_one_line_of_numbers() -> None:
    words = ["bisect", "--family", "llama", "--family", "gemma3", "--quantisation", "q4-g32"]
    result = CliRunner().invoke(app, [*words, "--tokens", "4", "--switch", "fused_qkv"])
    assert result.exit_code == 0, result.output
    head, *rows, last = result.output.splitlines()
    assert head.split() == ["model", "switch", *RUNGS]
    assert sorted(row.split()[0] for row in rows) == ["tiny-gemma3-q4-g32", "tiny-llama-q4-g32"]
    assert json.loads(last) == {"switches": 1, "families": 2, "rungs": 14, "failed": 0}


def test_a_model_of_random_weights_has_a_plan_of_its_own() -> None:
    plan = Plan(prompts=3, tokens=9, of_random=(1, 5))
    real = plan.of(Model("smollm2-135m").random)
    small = plan.of(Model("synthetic:tiny-llama").random)
    assert (real.prompts, real.tokens, len(real.battery())) == (3, 9, 6)
    assert (small.prompts, small.tokens, len(small.battery())) == (1, 5, 2)


def test_of_a_real_model_two_processes_take_half_of_the_switches_each() -> None:
    real, small = Model("smollm2-135m"), Model("synthetic:tiny-llama")
    assert shares([real, small], 5, 2) == [
        Share(real, (0, 2, 4)), Share(real, (1, 3)), Share(small, (0, 1, 2, 3, 4)),
    ]  # fmt: skip
    assert shares([real], 5, 1) == [Share(real, (0, 1, 2, 3, 4))]
    assert shares([real], 2, 8) == [Share(real, (0, 1))]


def test_halves_of_one_model_are_told_in_the_order_of_the_switches(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Model, "random", False)
    asked = [Asked(name) for name in ("shared_rotary", "fused_qkv", "fused_gate_up")]
    found = climb_side_by_side(tiny(["llama"], ["none"]), asked, Plan(1, 2), lambda one: None, 2)
    assert [one.switch for one in found] == [one.name for one in asked]
    assert all(one.failed == [] and one.declined is None for one in found)
