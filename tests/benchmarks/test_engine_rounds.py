"""The engine's benchmark at work: orders and turns, prompts, pipes, interruptions, and a small run of real engines."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest
from mlx_lm.generate import generation_stream

from benchmarks.engine import __main__ as bench
from benchmarks.engine import arms, machine, report, rounds, weights, worker
from benchmarks.engine.arms import ALL, FUSED, MLX_LM, PLAIN, ROWS, Arm
from benchmarks.engine.pipes import Failed, Remote
from benchmarks.engine.rounds import Sample

ROOT = Path(__file__).parents[2]


class Scripted:
    """An engine that writes a known text and keeps what it was asked."""

    def __init__(self, name: str, log: list[tuple[str, str]], first: int) -> None:
        self.name, self.log, self.next = name, log, first
        self.prompts: list[list[int]] = []
        self.told = 0

    def again(self) -> None:
        self.log.append(("again", self.name))

    def ask(self, do: str, **more: Any) -> dict[str, Any]:
        self.log.append((do, self.name))
        if do == "facts":
            self.told += 1
            return {"asked": self.told}
        if do == "end":
            return {}
        count = 1 if do == "begin" else more["least"]
        if do == "begin":
            self.prompts.append(more["prompt"])
        tokens = list(range(self.next, self.next + count))
        self.next += count
        return {
            "tokens": tokens,
            "lead": [],
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
    taken.append(Arm(name="short", engine="mlx_lm", lowest=True))
    engines = {arm.name: Scripted(arm.name, log, 5 if arm.name == "b" else 0) for arm in taken}
    texts = {(block, 16): [block] * 16 for block in (1, 2)}
    renewed: list[int] = []
    blocks = rounds.measure(taken[:3], engines, texts, 3, lambda: renewed.append(len(log)))
    samples = [one for block in blocks for one in block]
    assert renewed == [len(log) // 2], "before the second block, and not before the first"
    first = [name for do, name in log[: len(log) // 2] if do == "begin"]
    slices = [name for do, name in log[: len(log) // 2] if do == "go"]
    assert slices[:3] == first and slices[3:6] == first[::-1]
    assert slices[6:8] == [one for one in first if one != "c"]
    assert [name for do, name in log[len(log) // 2 :] if do == "begin"] != first
    assert all(engines[name].prompts == [[1] * 16, [2] * 16] for name in first)
    (one,) = [one for one in samples if one.arm == "b" and one.block == 1]
    assert (one.tokens, one.seconds, one.same, one.of) == (12, 2.0, 0, 13)
    assert rounds.at(taken, [8, 16], 8) == taken and rounds.at(taken, [8, 16], 16) == taken[:3]
    # reads 8 and 16 at 1.1 s for 8, and decodes 4 turns of .5 s at both; `short` at 8 only; `c` has 2 turns
    texts = {(1, rung): [1] * rung for rung in (8, 16)}
    decode = 0.5 * 4 / 3
    expected = 2 * (3.3 + 8 * decode) + (3.3 + 4 * decode) + (1.1 + 4 * decode)
    assert rounds.expected(taken, engines, texts, 3) == pytest.approx(expected)


def test_prompts_have_their_length_and_come_again() -> None:
    def encode(text: str) -> list[int]:
        return list(text.encode())

    made = rounds.passages(encode, [16, 64], 2, 5)
    assert {key: len(tokens) for key, tokens in made.items()} == {
        (1, 16): 16,
        (2, 16): 16,
        (1, 64): 64,
        (2, 64): 64,
    }
    assert (
        made == rounds.passages(encode, [16, 64], 2, 5) != rounds.passages(encode, [16, 64], 2, 6)
    )
    with pytest.raises(ValueError, match="of 16 tokens"):
        rounds.passages(lambda text: [1], [16], 1, 5)


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
        pid = engine.pid
        engine.again()
        assert engine.pid != pid and engine.ask("go", least=1) == {"tokens": [1]}
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
        "fused_qkv",
        "llama.cpp, 1 thread",
        "llama.cpp, 2 threads",
    } <= set(names)
    by = {arm.name: arm for arm in made}
    assert set(by[FUSED].switches) < set(by[ALL].switches)
    assert by[ROWS].layout == "rows" and by[ROWS].switches == by[PLAIN].switches == ()
    seen = arms.environment(by[MLX_LM], {"OMP_NUM_THREADS": "9", "HOME": "/h", "LD_PRELOAD": "x"})
    assert (
        "OMP_NUM_THREADS" not in seen
        and "LD_PRELOAD" not in seen
        and "SWITCHBOARD_BLAS" not in seen
    )
    found = [arm.name for arm in rounds.at(made, [64, 256], 256)]
    assert "fused_qkv" not in found and {PLAIN, FUSED, ALL, MLX_LM} <= set(found)
    ways = arms.routes(2)
    assert ways[0].name == "quantized, as shipped" and len({one.name for one in ways}) == 8
    shipped = arms.environment(ways[0], {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"})
    assert shipped["SWITCHBOARD_BLAS"] == shipped["SWITCHBOARD_HUGE_PAGES"] == "0"
    assert "GLIBC_TUNABLES" not in shipped
    (large,) = [one for one in ways if one.pages]
    assert large.name == "float32, BLAS, 1 thread, large pages"
    assert "SWITCHBOARD_HUGE_PAGES" not in arms.environment(large, {})
    assert {one.threads for one in ways if one.format != "float32"} == {1}


def test_reading_memory_is_measured() -> None:
    found = machine.bandwidth(passes=1, size=1 << 20)
    assert found["cores"] >= 1 and all(
        0 < found[key] < 1e13 for key in ("read_one", "read_all", "copy_all")
    )


def cut_short(monkeypatch: pytest.MonkeyPatch, error: BaseException, whole: int) -> dict[str, Any]:
    """What is gathered when an error comes after so many blocks."""
    real = rounds.measure

    def broken(*given: Any) -> Iterator[list[Sample]]:
        for number, block in enumerate(real(*given)):
            if number == whole:
                raise error
            yield block

    monkeypatch.setattr(rounds, "measure", broken)
    engines: Any = {name: Scripted(name, [], 0) for name in (PLAIN, MLX_LM)}
    taken = [Arm(name=PLAIN, engine="switchboard"), Arm(name=MLX_LM, engine="mlx_lm")]
    texts = {(block, 16): [block] * 16 for block in (1, 2, 3)}
    try:
        return bench.gather(taken, engines, texts, 2)
    finally:
        monkeypatch.setattr(rounds, "measure", real)


def test_whole_blocks_outlive_an_interruption(monkeypatch: pytest.MonkeyPatch) -> None:
    for error, said in ((KeyboardInterrupt(), "interrupted"), (Failed("it died"), "it died")):
        found = cut_short(monkeypatch, error, 2)
        assert (found["blocks"], found["planned"], found["stopped"]) == (2, 3, said)
        assert {one["block"] for one in found["samples"]} == {1, 2}
        assert {one["facts"]["asked"] for one in found["arms"]} == {2}, "asked after each block"
        with pytest.raises(type(error)):
            cut_short(monkeypatch, error, 0)
    assert cut_short(monkeypatch, error, 3)["stopped"] is None


def test_a_turn_is_timed_between_tokens_and_leaves_nothing_running(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    events: list[str] = []

    class Probe(worker.Stream):
        def settle(self) -> None:
            events.append("settled")

    def clock() -> float:
        events.append("clock")
        return float(len(events))

    def tokens() -> Iterator[list[int]]:
        for number in range(9):
            events.append("token")
            yield [number]

    probe = Probe()
    probe._tokens = tokens()
    monkeypatch.setattr(worker.time, "perf_counter", clock)
    told = probe.go(2)
    assert events == ["token", "clock", "token", "token", "clock", "settled"]
    assert (told["lead"], told["tokens"], told["passes"]) == ([0], [1, 2], 2)


def test_each_mlx_engine_waits_for_the_stream_it_computes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waited: list[tuple[Any, ...]] = []
    monkeypatch.setattr(mx, "synchronize", lambda *streams: waited.append(streams))
    for kind in (worker.Switchboard, worker.MlxLm):
        kind.settle(object.__new__(kind))
    assert waited == [(), (generation_stream,)]


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


def test_ctrl_c_ends_a_run_with_the_blocks_it_has(tmp_path: Path) -> None:
    words = ["--quick", "--model", "synthetic:tiny-llama", "--rungs", "16", "--blocks", "500"]
    command = [sys.executable, "-m", "benchmarks.engine", *words, "--arms", FUSED]
    told = []
    # a group of its own, signalled whole, as a terminal does
    with subprocess.Popen(
        [*command, "--out", str(tmp_path)], cwd=ROOT, stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE, text=True, start_new_session=True,
    ) as run:  # fmt: skip
        assert run.stderr is not None
        for line in run.stderr:
            told.append(line)
            if line.startswith("block 2 of 500"):
                os.killpg(run.pid, signal.SIGINT)
    assert run.returncode == 130, told
    assert any(line.startswith("about ") and "for 500 blocks" in line for line in told)
    kept = json.loads((tmp_path / "reports" / "engine.stopped.json").read_text())
    assert kept["stopped"] == "interrupted" and 2 <= kept["blocks"] < kept["planned"] == 500
    assert {one["block"] for one in kept["samples"]} == set(range(1, kept["blocks"] + 1))
    assert not (tmp_path / "reports" / "engine.json").exists()
