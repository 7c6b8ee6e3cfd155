"""The engine's benchmark: pairing, intervals, refusals from known figures; pipes; a small run of real engines."""

from __future__ import annotations

import copy
import json
import math
import sys
from pathlib import Path
from typing import Any

import pytest

from battery.analyse.stats import paired
from benchmarks.engine import __main__ as bench
from benchmarks.engine import arms, bandwidth, prompts, ratios, report, rounds, weights
from benchmarks.engine.arms import ALL, FUSED, MLX_LM, PLAIN, SHIPPED, Arm
from benchmarks.engine.pipes import Failed, Remote
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
             "parameters": 135_000_000, "weight_bytes": 500_000_000}  # fmt: skip
    listed = [
        {**bench.msgspec.to_builtins(Arm(name=name, engine="switchboard")), "facts": facts}
        for name in SPEEDS
    ]
    route = [
        Arm(name="quantized, as shipped", engine="mlx_lm"),
        Arm(name="float32, BLAS, 1 thread", engine="mlx_lm"),
    ]
    times = [
        sample(arm.name, 16, block, speed)
        for arm, speed in zip(route, (5.0, 15.0), strict=True)
        for block in BLOCKS
    ]
    return {
        "command": "make bench-engine", "minutes": 10.0,
        "machine": {"cpu": "a processor", "cores_logical": 2, "os": "Linux"},
        "model": {"name": "m", "digest": "d", "parameters": 135_000_000, "mlx": "0.32.4"},
        "arms": listed, "absent": {SHIPPED: "no wheel"}, "rungs": list(RUNGS), "blocks": 3, "slice": 8, "tokens": 33,
        "seed": 5, "others": 0.012, "samples": bench.msgspec.to_builtins(samples),
        "routes": {
            "arms": [{**bench.msgspec.to_builtins(arm), "facts": facts} for arm in route], "absent": {}, "rung": 16,
            "blocks": 3, "samples": bench.msgspec.to_builtins(times),
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
    assert "mlx_lm as shipped | no wheel" in report.page(told)


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
        "| float32, BLAS, 1 thread | libmkl_rt.so.3 | 15.00 | 150.0 | 3.000 [3.000, 3.000] |"
        in page
    )
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


class Scripted:
    """An engine that writes a known text and keeps what it was asked."""

    def __init__(self, name: str, log: list[tuple[str, str]], first: int) -> None:
        self.name, self.log, self.next = name, log, first
        self.prompts: list[list[int]] = []

    def ask(self, do: str, **more: Any) -> dict[str, Any]:
        self.log.append((do, self.name))
        if do == "end":
            return {}
        count = 1 if do == "begin" else more["least"]
        if do == "begin":
            self.prompts.append(more["prompt"])
        tokens = list(range(self.next, self.next + count))
        self.next += count
        return {
            "tokens": tokens,
            "prefill_s": 1.0,
            "first_s": 1.1,
            "passes": count,
            "seconds": 0.5,
            "cpu_s": 0.25,
        }


def test_a_block_reads_in_turn_and_decodes_there_and_back() -> None:
    log: list[tuple[str, str]] = []
    taken = [
        Arm(name=name, engine="mlx_lm", slices=2 if name == "c" else 4)
        for name in ("plain", "b", "c")
    ]
    taken.append(Arm(name="short", engine="mlx_lm", upto=8))
    engines = {arm.name: Scripted(arm.name, log, 5 if arm.name == "b" else 0) for arm in taken}
    texts = {(block, 16): [block] * 16 for block in (1, 2)}
    samples = rounds.measure(taken, engines, texts, 3, lambda _: None)
    assert {one.arm for one in samples} == {"plain", "b", "c"}, "short is not asked at 16"
    first = [name for do, name in log[: len(log) // 2] if do == "begin"]
    slices = [name for do, name in log[: len(log) // 2] if do == "go"]
    assert slices[:3] == first and slices[3:6] == first[::-1]
    assert slices[6:8] == [one for one in first if one != "c"]
    assert [name for do, name in log[len(log) // 2 :] if do == "begin"] != first
    assert all(engines[name].prompts == [[1] * 16, [2] * 16] for name in first)
    (one,) = [one for one in samples if one.arm == "b" and one.block == 1]
    assert (one.tokens, one.seconds, one.same, one.of) == (12, 2.0, 0, 13)


def test_prompts_have_their_length_and_come_again() -> None:
    def encode(text: str) -> list[int]:
        return list(text.encode())

    made = prompts.passages(encode, [16, 64], 2, 5)
    assert {key: len(tokens) for key, tokens in made.items()} == {
        (1, 16): 16,
        (2, 16): 16,
        (1, 64): 64,
        (2, 64): 64,
    }
    assert (
        made == prompts.passages(encode, [16, 64], 2, 5) != prompts.passages(encode, [16, 64], 2, 6)
    )
    with pytest.raises(ValueError, match="of 16 tokens"):
        prompts.passages(lambda text: [1], [16], 1, 5)


ECHO = """
from benchmarks.engine import pipes
class Echo:
    def __init__(self): print("a library talks")
    def facts(self): return {"version": "1"}
    def go(self, least): print("and talks"); return {"tokens": [1] * least}
    def begin(self, prompt, count): raise ValueError("no such prompt")
    def end(self): raise SystemExit(3)
pipes.serve(Echo)
"""


def test_a_talking_library_an_error_and_a_death_are_told_apart() -> None:
    engine = Remote([sys.executable, "-c", ECHO], {"PYTHONPATH": str(ROOT)})
    try:
        assert engine.facts == {"version": "1"}
        assert engine.ask("go", least=2) == {"tokens": [1, 1]}
        with pytest.raises(Failed, match="ValueError: no such prompt"):
            engine.ask("begin", prompt=[], count=1)
        with pytest.raises(Failed, match="exit status 3"):
            engine.ask("end")
    finally:
        engine.close()
    with pytest.raises(Failed, match="exit status 7"):
        Remote([sys.executable, "-c", "raise SystemExit(7)"], {})


def test_every_arm_is_named_once_and_a_peer_without_blas_is_told_so() -> None:
    made = arms.standard(1, 2)
    names = [arm.name for arm in made]
    assert names[0] == PLAIN and len(set(names)) == len(names)
    assert {
        FUSED,
        ALL,
        MLX_LM,
        SHIPPED,
        "fused_qkv",
        "llama.cpp, 1 thread",
        "llama.cpp, 2 threads",
    } <= set(names)
    by = {arm.name: arm for arm in made}
    assert set(by[FUSED].switches) < set(by[ALL].switches)
    seen = arms.environment(by[MLX_LM], {"OMP_NUM_THREADS": "9", "HOME": "/h", "LD_PRELOAD": "x"})
    assert (
        "OMP_NUM_THREADS" not in seen
        and "LD_PRELOAD" not in seen
        and "SWITCHBOARD_BLAS" not in seen
    )
    assert arms.environment(by[SHIPPED], {})["SWITCHBOARD_BLAS"] == "0"
    found = [arm.name for arm in rounds.at(made, [64, 256, 1024], 1024)]
    assert (
        SHIPPED not in found
        and "fused_qkv" not in found
        and {PLAIN, FUSED, ALL, MLX_LM} <= set(found)
    )
    assert "fused_qkv" in [arm.name for arm in rounds.at(made, [64, 256, 1024], 256)]
    assert len(arms.routes(2)) == 9 and arms.routes(2)[0].name == "quantized, as shipped"


def test_reading_memory_is_measured() -> None:
    found = bandwidth.measure(passes=1, size=1 << 20)
    assert found["cores"] >= 1 and all(
        found[key] > 1e8 for key in ("read_one", "read_all", "copy_all")
    )


def test_the_committed_page_is_that_of_the_committed_document() -> None:
    kept = ROOT / "reports" / "engine.json"
    if not kept.exists():
        pytest.skip("not measured yet: make bench-engine")
    told = json.loads(kept.read_text())
    assert report.page(told) == (ROOT / "reports" / "engine.md").read_text()
    assert bench.text(told) == kept.read_text()
    assert copy.deepcopy(told)["command"] == "make bench-engine"


def test_a_small_run_of_the_real_engines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(weights, "HOME", tmp_path / "peers")
    words = ["--quick", "--model", "synthetic:tiny-llama", "--rungs", "16", "--out", str(tmp_path)]
    chosen = ["--arms", MLX_LM, "--arms", FUSED, "--arms", "llama.cpp, 1 thread"]
    assert bench.main([*words, *chosen]) == 0
    out = capsys.readouterr()
    told = json.loads(out.out.splitlines()[-1])
    assert told["llama_cpp_over_ours"] is None and "reads GGUF files" in out.err
    assert told["parity_mlx_lm"] > 0 and told["parity_low"] > 0 and told["fused_over_plain"] > 0
    kept = json.loads((tmp_path / "reports" / "engine.json").read_text())
    assert {one["arm"] for one in kept["samples"]} == {PLAIN, FUSED, MLX_LM}
    assert all(one["same"] == one["of"] for one in kept["samples"]), (
        "random weights, fp32: the same tokens"
    )
    assert (tmp_path / "reports" / "engine.md").read_text() == report.page(kept)
    assert bench.main(["--derive", "--out", str(tmp_path)]) == 0
