"""The memory report: known changes of bytes, the budget to the byte, and the committed page beside its document."""

from __future__ import annotations

import json
from pathlib import Path

import mlx.core as mx
import pytest

from benchmarks import fusing_memory as fusing

ROOT = Path(__file__).parents[2]
KEPT = ROOT / "reports" / "fusing-memory.json"
LLAMA, MIXTURE = "synthetic:tiny-llama-q4-g32", "synthetic:tiny-qwen3_moe-q4-g32"
JOINED = ("q_proj", "k_proj", "v_proj", "gate_proj", "up_proj")


@pytest.mark.parametrize("format", fusing.FORMATS)
def test_dropping_costs_nothing_and_keeping_costs_the_originals(format: str) -> None:
    model, _ = fusing.fresh(LLAMA, format)
    copies = sum(
        array.nbytes
        for path, module in model.named_modules()
        if path.rpartition(".")[2] in JOINED
        for array in module.parameters().values()
    )
    del model
    dropped, kept = (fusing.measure(LLAMA, format, keep) for keep in (False, True))
    assert dropped.joined == kept.joined == ["fused_qkv", "fused_gate_up"]
    assert dropped.active_after == dropped.active_before
    assert kept.active_after - kept.active_before == copies > 0
    assert kept.peak >= kept.active_after and dropped.peak > dropped.active_before


def test_experts_are_joined_with_the_bytes_they_need_and_declined_with_one_less() -> None:
    limit = mx.set_memory_limit(1 << 40)
    short, enough = (fusing.budget(MIXTURE, "float32", missing) for missing in (1, 0))
    assert mx.set_memory_limit(limit) == 1 << 40, "the limit is as it was"
    assert short and enough and short.needs == enough.needs == short.spare + 1
    assert short.declined and f"needs {short.needs} bytes" in short.declined
    assert short.peak == short.active_after == short.active_before
    assert enough.declined is None and enough.active_after == enough.active_before < enough.peak
    assert fusing.budget(LLAMA, "float32", 1) is None, "no experts, no budget"


def test_the_committed_page_is_that_of_its_document_and_of_models_as_they_are() -> None:
    told = json.loads(KEPT.read_text())
    assert fusing.page(told) == KEPT.with_suffix(".md").read_text()
    rows = {(one["model"], one["format"], one["kept"]): one for one in told["rows"]}
    assert {model for model, _, _ in rows} == set(fusing.MODELS)
    row = fusing.measure(MIXTURE, "float32", True)
    committed = rows[MIXTURE, "float32", True]
    assert row.active_after - row.active_before == (
        committed["active_after"] - committed["active_before"]
    )
    needs = {one["needs"] for one in told["budgets"] if one["model"] == fusing.LARGE}
    assert needs == {fusing.needed(fusing.fresh(fusing.LARGE, one)[0]) for one in fusing.FORMATS}


def test_a_small_run_writes_what_can_be_derived_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert fusing.main([LLAMA, "--out", str(tmp_path)]) == 0
    page = (tmp_path / "reports" / "fusing-memory.md").read_text()
    assert page in capsys.readouterr().out and "| tiny-llama-q4-g32 | float32 | kept |" in page
    (tmp_path / "reports" / "fusing-memory.md").unlink()
    assert fusing.main(["--derive", "--out", str(tmp_path)]) == 0
    assert (tmp_path / "reports" / "fusing-memory.md").read_text() == page
