"""The engine's benchmark from known figures: pairing, intervals, refusals, the page, and the committed report."""

from __future__ import annotations

import copy
import json
import math
from pathlib import Path
from typing import Any

import pytest

from battery.analyse.stats import paired
from benchmarks.engine import __main__ as bench
from benchmarks.engine import ratios, report
from benchmarks.engine.arms import ALL, FUSED, MLX_LM, PLAIN, ROWS, Arm
from benchmarks.engine.rounds import Sample

ROOT = Path(__file__).parents[2]
RUNGS, BLOCKS = (64, 1024), (1, 2, 3)
SPEEDS = {PLAIN: 10.0, FUSED: 11.0, ALL: 12.0, MLX_LM: 8.0, "llama.cpp, 2 threads": 60.0}
WOBBLE = {1: 1.0, 2: 1.02, 3: 0.98}
"""What a block does to mlx_lm alone."""


def sample(arm: str, rung: int, block: int, speed: float, **more: Any) -> Sample:
    """32 tokens at a speed, the prompt at ten times it."""
    told = {"same": 33, "of": 33, "passes": 32, **more}
    return Sample(
        arm=arm, rung=rung, block=block, place=1, prefill_s=(rung - 1) / (10 * speed), first_s=0.1, tokens=32,
        seconds=32 / speed, cpu_s=64 / speed, slices=[speed] * 4, **told,
    )  # fmt: skip


def canned() -> list[Sample]:
    """A machine that halves its speed in block 2 and is slower at the long rung, for all arms alike."""
    made = []
    for arm, speed in SPEEDS.items():
        for rung in RUNGS:
            for block in BLOCKS:
                now = speed * (0.5 if block == 2 else 1.0) * (0.8 if rung == 1024 else 1.0)
                made.append(sample(arm, rung, block, now * (WOBBLE[block] if arm == MLX_LM else 1)))
    return made


def document(samples: list[Sample]) -> dict[str, Any]:
    """What a run writes, with canned samples."""
    facts = {"version": "1", "blas": "libmkl_rt.so.3", "blas_threads": 1, "mlx": "0", "format": "float32",
             "parameters": 135_000_000, "weight_bytes": 500_000_000, "chunk": 128}  # fmt: skip
    ran = {"state": "engaged", "reason": None, "runs": 96}
    declined = {"state": "declined", "reason": "no vision parts", "runs": 0}
    switches: dict[str, dict[str, Any]] = {
        FUSED: {"fused_qkv": ran}, ALL: {"fused_qkv": ran, "text_only": declined}
    }  # fmt: skip
    listed = [
        {
            **bench.msgspec.to_builtins(
                Arm(name=name, engine="switchboard", switches=tuple(switches.get(name, {})))
            ),
            "facts": {**facts, "switches": switches.get(name, {})},
        }
        for name in SPEEDS
    ]
    route = [
        Arm(name="quantized, as shipped", engine="mlx_lm", format="quantized", blas=False),
        Arm(name="float32, BLAS, 1 thread", engine="mlx_lm"),
    ]
    reference = {**facts, "blas": "libblas (reference)", "format": "quantized"}
    times = [
        sample(arm.name, 16, block, speed)
        for arm, speed in zip(route, (5.0, 15.0), strict=True)
        for block in BLOCKS
    ]
    return {
        "command": "make bench-engine", "minutes": 10.0,
        "machine": {"cpu": "a processor", "cores_logical": 2, "os": "Linux"},
        "model": {"name": "m", "digest": "d", "parameters": 135_000_000, "mlx": "0.32.4"},
        "arms": listed, "absent": {"text_only": "no vision"}, "rungs": list(RUNGS), "blocks": 3, "planned": 3,
        "stopped": None, "slice": 8, "tokens": 33, "seed": 5, "others": 0.012,
        "samples": bench.msgspec.to_builtins(samples),
        "routes": {
            "arms": [
                {**bench.msgspec.to_builtins(arm), "facts": found}
                for arm, found in zip(route, (reference, facts), strict=True)
            ],
            "absent": {}, "rung": 16, "blocks": 3, "planned": 3, "stopped": None,
            "samples": bench.msgspec.to_builtins(times),
        },
        "bandwidth": {"read_one": 15e9, "read_all": 20e9, "copy_all": 18e9, "cores": 2, "bytes": 1 << 28, "passes": 3},
    }  # fmt: skip


def test_a_ratio_is_formed_within_blocks_so_that_a_slow_block_touches_nothing() -> None:
    logs = ratios.differences(canned(), PLAIN, MLX_LM, "decode", RUNGS)
    wanted = [math.log(10 / (8 * WOBBLE[block])) for block in BLOCKS]
    assert logs == pytest.approx(wanted)
    assert ratios.differences(canned(), FUSED, PLAIN, "prefill", RUNGS) == pytest.approx(
        [math.log(1.1)] * 3
    )


def test_a_block_that_lacks_one_half_of_a_pair_is_left_out() -> None:
    samples = [one for one in canned() if (one.arm, one.rung, one.block) != (MLX_LM, 1024, 2)]
    assert len(ratios.differences(samples, PLAIN, MLX_LM, "decode", RUNGS)) == 2
    assert len(ratios.differences(samples, PLAIN, MLX_LM, "decode", [64])) == 3


def test_the_interval_is_that_of_the_block_ratios() -> None:
    found = ratios.ratio(canned(), PLAIN, MLX_LM, "decode", RUNGS)
    wanted = paired([math.log(10 / (8 * WOBBLE[block])) for block in BLOCKS])
    assert found is not None and wanted is not None and found.blocks == 3
    assert (found.ratio, found.low, found.high) == pytest.approx(
        (wanted.ratio, wanted.low, wanted.high)
    )
    assert wanted.low is not None and wanted.low < 1.25 < (wanted.high or 0)


def test_the_headline_is_that_of_the_canned_figures() -> None:
    told = ratios.headline(document(canned()))
    parity = ratios.ratio(canned(), PLAIN, MLX_LM, "decode", RUNGS)
    assert parity is not None and parity.low is not None
    assert told == {
        "parity_mlx_lm": round(parity.ratio, 4),
        "parity_low": round(parity.low, 4),
        "fused_over_plain": 1.1,
        "llama_cpp_over_ours": 5.0,
        # `all`, the fastest, reads 500 MB in each of its passes; geometric mean over rungs and blocks
        "bandwidth_share": round(12 * 0.5e9 / 20e9 * 0.8**0.5 * 0.5 ** (1 / 3), 4),
    }


def test_without_peers_the_headline_has_nulls_and_says_nothing_else() -> None:
    own = [one for one in canned() if one.arm in (PLAIN, FUSED, ALL)]
    told = document(own)
    told["arms"] = [one for one in told["arms"] if one["name"] in (PLAIN, FUSED, ALL)]
    found = ratios.headline(told)
    assert found["parity_mlx_lm"] is found["parity_low"] is found["llama_cpp_over_ours"] is None
    assert found["fused_over_plain"] == 1.1
    assert "text_only | no vision" in report.page(told)


def test_drafts_do_not_count_as_bytes_read() -> None:
    drafted = [
        sample(ALL, one.rung, one.block, one.tokens / one.seconds, passes=16) if one.arm == ALL else one
        for one in canned()
    ]  # fmt: skip
    told = document(drafted)
    whole = ratios.overall_share(document(canned()), canned(), ALL)
    assert ratios.overall_share(told, drafted, ALL) == pytest.approx(whole / 2)


def test_the_page_says_what_the_figures_say() -> None:
    page = report.page(document(canned()))
    assert "All switches off, over mlx_lm" in page and "1.250 [" in page
    assert (
        "| float32, BLAS, 1 thread | libmkl_rt.so.3 | 2.00 | 15.00 | 3.000 [3.000, 3.000] | — | 150.0 | — |"
        in page
    )
    assert (
        "That is `float32, BLAS, 1 thread`, the fastest of these in decode. Its gain over `quantized, as shipped`"
        in page
    )
    assert "| text_only | — | — | declined | no vision parts |" in page
    assert "| fused_qkv | — | engaged, 96 runs | engaged, 96 runs | — |" in page
    assert "of 2 switches asked for, those that ran: fused_qkv)" in page
    assert (
        "| fused | 64, 1,024 | 1.375 [1.309, 1.445] | 1.100 [1.100, 1.100] | 1.100 [1.100, 1.100] |"
        in page
    )
    assert "This machine reads 15.0 GB/s on one thread and 20.0 on 2" in page
    assert page == report.page(json.loads(bench.text(bench.rounded(document(canned())))))


def test_another_first_token_is_refused_where_the_same_is_computed() -> None:
    samples = [*canned(), sample("fused_qkv", 64, 1, 10.0, same=0)]
    with pytest.raises(ratios.Incomparable, match="fused_qkv and plain chose different first"):
        ratios.refuse(samples, [PLAIN, "fused_qkv"])
    ratios.refuse(samples, [PLAIN])
    ratios.refuse([sample("fused_qkv", 64, 1, 10.0, same=1)], ["fused_qkv"])
    page = report.page(document([*canned(), sample(MLX_LM, 64, 4, 10.0, same=7)]))
    assert "| 6 of 7 | 7 |" in page, "a later difference is told"


def test_a_run_cut_short_does_not_replace_a_whole_one(tmp_path: Path) -> None:
    told = document(canned()) | {"stopped": "interrupted", "planned": 6}
    bench.keep(told, tmp_path)
    assert [one.name for one in sorted((tmp_path / "reports").iterdir())] == [
        "engine.stopped.json",
        "engine.stopped.md",
    ]
    page = (tmp_path / "reports" / "engine.stopped.md").read_text()
    assert "**Stopped early** (interrupted): 3 of 6 blocks" in page


def test_the_committed_page_is_that_of_the_committed_document() -> None:
    kept = ROOT / "reports" / "engine.json"
    told = json.loads(kept.read_text())
    assert report.page(told) == (ROOT / "reports" / "engine.md").read_text()
    assert bench.text(told) == kept.read_text()
    assert copy.deepcopy(told)["command"] == "make bench-engine"


def test_the_page_says_how_the_weights_lie_and_what_that_is_worth() -> None:
    rows = [
        sample(ROWS, rung, block, speed)
        for rung, speed in zip(RUNGS, (8.0, 6.4), strict=True)
        for block in BLOCKS
    ]
    told = document([*canned(), *rows])
    assert "Its weights lie" not in report.page(told)
    for one in told["arms"]:
        one["facts"] |= {
            "layout": "columns in 61 matrices (9 bytes), else rows",
            "huge_pages": 400_000_000,
        }
    page = report.page(told)
    assert "400 MB of memory in large pages" in page
    assert (
        "Its weights lie by columns in 61 matrices (9 bytes), else rows. Over the same engine with all"
        in page
    )
    assert "None of the routes above is that one" in page
    told["routes"]["arms"][1]["facts"]["huge_pages"] = 300_000_000
    assert "None of the routes above is that one" not in report.page(told)
