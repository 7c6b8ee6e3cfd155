"""Multi-token heads are read in every form that they are stored in, or declined with the reason."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import mlx.core as mx
import published
import pytest
from chances import answer, session
from headed import GREEDY, PROMPT, opened, proposer

from switchboard.board import Board
from switchboard.errors import ConfigError, SwitchRefused
from switchboard.load import load
from switchboard.models import resolve
from switchboard.sources import tiny


@pytest.mark.parametrize("family", ["qwen3_5", "qwen3_5_moe"])
def test_published_and_converted_heads_are_the_same_numbers(
    headed: Callable[..., str], family: str
) -> None:
    model, _ = tiny.build(family, "none")
    wanted = published.flat(tiny.heads(model, "none"))
    for raw in (True, False):
        one = opened(headed(family, "none", raw), "native_mtp")
        found = published.flat(proposer(one)._head)
        assert set(found) == set(wanted)
        assert [name for name in wanted if not mx.array_equal(found[name], wanted[name])] == []
        ids = mx.array([PROMPT])
        assert mx.array_equal(one.loaded.model(ids), model(ids))


def test_experts_that_are_stored_one_by_one_are_stacked(
    headed: Callable[..., str], tmp_path: Path
) -> None:
    whole = Path(headed("qwen3_5_moe", "none", True).removeprefix("path:"))
    stored = dict(mx.load(str(whole / "model.safetensors")))  # type: ignore[arg-type]
    heads = {name: one for name, one in stored.items() if name.startswith("mtp.")}
    joint = heads.pop("mtp.layers.0.mlp.experts.gate_up_proj")
    down = heads.pop("mtp.layers.0.mlp.experts.down_proj")
    for expert in range(joint.shape[0]):
        stem, half = f"mtp.layers.0.mlp.experts.{expert}", joint.shape[1] // 2
        heads[f"{stem}.gate_proj.weight"] = joint[expert, :half]
        heads[f"{stem}.up_proj.weight"] = joint[expert, half:]
        heads[f"{stem}.down_proj.weight"] = down[expert]
    mx.save_safetensors(str(tmp_path / "heads.safetensors"), heads)
    apart = f"native_mtp:heads={tmp_path / 'heads.safetensors'},norms=offset"
    one = opened(headed("qwen3_5_moe", "none", True), "native_mtp")
    other = opened(headed("qwen3_5_moe", "none", True), apart)
    wanted, found = (published.flat(proposer(each)._head) for each in (one, other))
    assert set(found) == set(wanted)
    assert [name for name in wanted if not mx.array_equal(found[name], wanted[name])] == []


@pytest.mark.parametrize("family", ["qwen3_5", "qwen3_5_moe"])
def test_packed_heads_stay_as_stored_or_become_plain_with_the_model(
    headed: Callable[..., str], family: str
) -> None:
    name = headed(family, "mixed")
    packed = opened(name, "native_mtp", format="quantized")
    kept = published.quantisation(proposer(packed)._head)
    stored = published.quantisation(tiny.heads(tiny.build(family, "mixed")[0], "mixed"))
    assert kept == stored and {one["bits"] for one in kept.values()} == {4, 8}
    loose = opened(name, "native_mtp", format="float32")
    assert published.quantisation(proposer(loose)._head) == {}
    texts = {answer(one, PROMPT, GREEDY, 20) for one in (packed, opened(name, format="quantized"))}
    assert len(texts) == 1


def test_plain_heads_stay_plain_beside_a_packed_model(
    headed: Callable[..., str], tmp_path: Path
) -> None:
    place = headed("qwen3_5").removeprefix("path:")
    one = opened("synthetic:tiny-qwen3_5-q4", f"native_mtp:heads={place}", format="quantized")
    assert published.quantisation(proposer(one)._head) == {}
    alone = opened("synthetic:tiny-qwen3_5-q4", format="quantized")
    assert answer(one, PROMPT, GREEDY, 20) == answer(alone, PROMPT, GREEDY, 20)


def declined(name: str, text: str = "native_mtp") -> str:
    one = session(text, model=name)
    position = one.board.positions["native_mtp"]
    assert position.state == "declined" and one.proposer is None
    return position.reason or ""


def test_where_there_are_no_heads_it_says_so_or_refuses(
    headed: Callable[..., str], tmp_path: Path
) -> None:
    assert "random: there is no checkpoint" in declined("synthetic:tiny-qwen3_5")
    model, config = tiny.build("qwen3_5", "none")
    published.write(tmp_path, model, config)
    assert "no mtp.* tensors in" in declined(f"path:{tmp_path}")
    with pytest.raises(SwitchRefused, match=r"required and was declined.*no mtp\.\* tensors"):
        opened(f"path:{tmp_path}", "native_mtp")
    heads = headed("qwen3_5").removeprefix("path:")
    assert "no head is known for llama" in declined(
        "synthetic:tiny-llama", f"native_mtp:heads={heads}"
    )
    (tmp_path / "empty").mkdir()
    assert "no *.safetensors in" in declined(
        "synthetic:tiny-qwen3_5", f"native_mtp:heads={tmp_path / 'empty'}"
    )
    assert "no such file" in declined("synthetic:tiny-qwen3_5", "native_mtp:heads=nowhere")
    (tmp_path / "torn.safetensors").write_bytes(b"torn")
    assert "cannot be read" in declined(
        "synthetic:tiny-qwen3_5", f"native_mtp:heads={tmp_path / 'torn.safetensors'}"
    )
    with pytest.raises(ConfigError, match="depth must be 1 to 64"):
        session("native_mtp:depth=0")
    with pytest.raises(ConfigError, match="norms"):
        session("native_mtp:norms=other")


@pytest.mark.model
def test_smollm2_has_none() -> None:
    assert "no multi-token heads: no mtp.* tensors in" in declined("smollm2-135m")


def test_heads_that_do_not_fit_are_named(headed: Callable[..., str], tmp_path: Path) -> None:
    place = Path(headed("qwen3_5").removeprefix("path:"))
    stored = dict(mx.load(str(place / "model.safetensors")))  # type: ignore[arg-type]
    heads = {name: one for name, one in stored.items() if ".mtp." in name}
    fc = "language_model.mtp.fc.weight"
    second = {name.replace(".0.", ".1."): one for name, one in heads.items()}
    cases = {
        "one more of": heads | {"language_model.mtp.embed_tokens.weight": mx.ones((512, 64))},
        "Missing": {name: one for name, one in heads.items() if name != fc},
        "shape": heads | {fc: mx.ones((64, 64))},
        "layers 0, 1": heads | second,
        "not numbers": heads | {fc: heads[fc] * mx.nan},
    }
    words = {"one more of": "embed_tokens", "Missing": "fc.weight"}
    for number, (case, weights) in enumerate(cases.items()):
        path = tmp_path / f"{number}.safetensors"
        mx.save_safetensors(str(path), weights)
        told = declined("synthetic:tiny-qwen3_5", f"native_mtp:norms=whole,heads={path}")
        assert words.get(case, case) in told, (case, told)
        assert "say it: norms=offset" in declined(
            "synthetic:tiny-qwen3_5", f"native_mtp:heads={path}"
        )


def test_a_model_with_heads_loads_plain_without_the_switch(headed: Callable[..., str]) -> None:
    loaded = load(resolve(headed("qwen3_5")), "auto", Board((), {}))
    model, _ = tiny.build("qwen3_5", "none")
    assert mx.array_equal(loaded.model(mx.array([PROMPT])), model(mx.array([PROMPT])))
    assert loaded.parameters == sum(one.size for one in published.flat(model).values())
