"""A compiled pass is the plain pass within rounding, serves every place of its buffers, and says where it cannot."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest
from faults import planted

from switchboard import cache as kv
from switchboard import graphs as made
from switchboard import lm
from switchboard.bisect.compare import compare
from switchboard.bisect.ladder import climb
from switchboard.bisect.rungs import Plan, observe
from switchboard.bisect.subject import open_plain
from switchboard.board import Board
from switchboard.config import Asked, parse_asked
from switchboard.errors import ConfigError, Declined, SwitchRefused
from switchboard.load import apply_switches
from switchboard.registry import Counter, known
from switchboard.sources import tiny

HYBRID = {"qwen3_5": "ArraysCache", "qwen3_5_moe": "ArraysCache", "gemma3": "RotatingKVCache"}
SPARE = 64


needs_a_compiler = pytest.mark.skipif(
    shutil.which("g++") is None and mx.default_device() == mx.Device(mx.cpu),
    reason="MLX compiles nothing on a CPU without g++; that it is told is tested below",
)


def apply(model: Any, counter: Counter, **options: str) -> Any:
    switch = known()["compiled_step"]
    done = switch.apply(model, switch.parse({"step": str(SPARE), **options}), counter)
    counter.clear()
    return done


def text(model: Any, prompt: int = 50, steps: int = 30) -> dict[str, mx.array]:
    """Logits of a prefill, steps across a capacity, a verify pass with a rewind, a wide pass, and a step; the rows."""
    cache = kv.make(model)
    seen = {"prefill": model(mx.arange(prompt)[None], cache=cache)}
    for step in range(steps):
        seen[f"step {step}"] = model(mx.array([[7 * step + 3]]), cache=cache)
    seen["verify"] = model(mx.array([[5, 9, 2, 4]]), cache=cache)
    mx.eval(list(seen.values()), kv.arrays(cache))
    kv.rewind(cache, 3)
    seen["after it"] = model(mx.array([[8]]), cache=cache)
    seen["wide"] = model(mx.arange(20)[None], cache=cache)
    seen["last"] = model(mx.array([[1]]), cache=cache)
    for layer, entry in enumerate(cache):
        seen[f"keys {layer}"], seen[f"values {layer}"] = (
            one[..., : entry.offset, :] for one in (entry.keys, entry.values)
        )
    mx.eval(list(seen.values()))
    return seen


@pytest.fixture
def llama() -> Iterator[Any]:
    model, _ = tiny.build("llama", "none")
    yield model


@needs_a_compiler
@pytest.mark.parametrize("family", [one for one in tiny.FAMILIES if one not in HYBRID])
def test_the_same_within_rounding_and_undone_without_a_trace(family: str) -> None:
    model, _ = tiny.build(family, "none")
    wanted, own, counter = text(model), type(model), Counter()
    done = apply(model, counter)
    assert type(model) is not own and type(model).__name__ == own.__name__
    assert compare(wanted, text(model), exact=False).difference is None
    assert counter.runs == 30 + 1 + 1 + 1, "the prefill and the wide pass are plain"
    # mlx-lm's cache begins with 256 rows: one capacity, of which the probe left the graph of width 1.
    assert counter.more == {"graphs": 1}
    done.undo()
    assert type(model) is own
    assert compare(wanted, text(model), exact=True).difference is None


@pytest.mark.parametrize(("family", "kind"), HYBRID.items())
def test_another_cache_declines_with_its_layer(family: str, kind: str) -> None:
    model, _ = tiny.build(family, "none")
    with pytest.raises(Declined, match=f"layer 0 has a {kind}"):
        apply(model, Counter())


@needs_a_compiler
def test_one_graph_serves_all_places_of_a_capacity_and_few_serve_a_long_text(llama: Any) -> None:
    counter = Counter()
    done = apply(llama, counter)
    text(llama, prompt=200, steps=200)
    assert counter.runs == 203
    # 256 rows of the cache (from the probe), then 320, 384 and 448; and width 4 in one of them.
    assert counter.more["graphs"] == 3 + 1
    done.undo()


@pytest.mark.parametrize("step", [64, 512])
def test_a_capacity_holds_its_rows_wastes_little_and_is_its_own(step: int) -> None:
    sizes = [made.capacity(rows, step) for rows in range(1, 20_000)]
    for rows, size in enumerate(sizes, 1):
        assert rows <= size < rows + max(step, rows / 8 + 1)
        assert made.capacity(size, step) == size
    assert sizes == sorted(sizes)
    assert len({size for size in sizes if size > 10_000}) < 12


@needs_a_compiler
def test_no_more_graphs_are_kept_than_asked_for(llama: Any) -> None:
    counter = Counter()
    plain = text(llama)
    done = apply(llama, counter, graphs="2")
    for width in (2, 4, 5, 2, 4, 5):
        cache = kv.make(llama)
        mx.eval(llama(mx.arange(9)[None], cache=cache))
        mx.eval(llama(mx.arange(width)[None], cache=cache))
    assert counter.runs == 6 and counter.more["graphs"] == 6
    assert compare(plain, text(llama), exact=False).difference is None
    done.undo()


@needs_a_compiler
def test_a_change_of_the_model_is_seen_at_the_next_text(llama: Any) -> None:
    done = apply(llama, Counter())
    before = text(llama)
    attention = llama.layers[1].self_attn
    attention.o_proj.weight = 2 * attention.o_proj.weight
    after = text(llama)
    done.undo()
    assert compare(before, after, exact=False).difference is not None
    assert compare(text(llama), after, exact=False).difference is None


@needs_a_compiler
def test_nothing_but_the_new_rows_is_allocated_beside_the_buffers(llama: Any) -> None:
    done = apply(llama, Counter(), step="4096")
    cache = kv.make(llama)
    mx.eval(llama(mx.arange(9)[None], cache=cache))
    for _ in range(2):
        mx.eval(llama(mx.array([[3]]), cache=cache), kv.arrays(cache))
    buffers = sum(entry.nbytes for entry in cache)
    assert cache[0].keys.shape[2] == 4096
    before = mx.get_active_memory()
    mx.reset_peak_memory()
    mx.eval(llama(mx.array([[3]]), cache=cache), kv.arrays(cache))
    assert mx.get_peak_memory() - before < buffers / 8
    assert mx.get_active_memory() - before < buffers / 8
    done.undo()


@needs_a_compiler
def test_other_caches_and_batches_go_the_plain_way(llama: Any) -> None:
    counter = Counter()
    done = apply(llama, counter)
    other = [type("Other", (lm.caches().KVCache,), {})() for _ in llama.layers]
    for cache in (other, kv.make(llama)):
        batch = 1 if cache is other else 2
        tokens = mx.zeros((batch, 4), mx.int32)
        for _ in range(2):
            mx.eval(llama(tokens, cache=cache))
    assert counter.told() == {"runs": 0, "left": 1}
    done.undo()


@needs_a_compiler
def test_what_other_switches_count_in_a_graph_is_counted_with_each_replay(llama: Any) -> None:
    board = Board(parse_asked(["fused_qkv", "fused_gate_up", "compiled_step"], []), {})
    apply_switches(llama, board)
    states = {name: one.state for name, one in board.positions.items() if one.asked}
    assert set(states.values()) == {"armed"}, states
    cache = kv.make(llama)
    mx.eval(llama(mx.arange(9)[None], cache=cache))
    board.clear()
    for _ in range(5):
        mx.eval(llama(mx.array([[3]]), cache=cache))
    runs = {name: board.positions[name].counter.runs for name in states}
    assert runs == {"compiled_step": 5, "fused_qkv": 20, "fused_gate_up": 20}


@needs_a_compiler
@pytest.mark.parametrize("other", ["in_place_kv", "quantized_kv", "fused_epilogue"])
def test_what_it_does_not_go_together_with_is_named(llama: Any, other: str) -> None:
    board = Board(parse_asked([other, "compiled_step"], []), {})
    apply_switches(llama, board)
    told = board.positions["compiled_step"].told()
    assert told["state"] == "declined"
    assert told["reason"] == f"does not go together with {other}, asked for as well"
    killed = Board(parse_asked([other, "compiled_step"], []), {f"SWITCHBOARD_{other.upper()}": "0"})
    apply_switches(llama, killed)
    assert killed.positions["compiled_step"].state == "armed"
    with pytest.raises(SwitchRefused, match="does not go together"):
        apply_switches(llama, Board(parse_asked([other], ["compiled_step"]), {}))


@needs_a_compiler
@pytest.mark.parametrize("fault", ["sees ahead", "a row too early", "values for keys"])
def test_a_planted_fault_is_found_and_the_plain_model_stays(
    fault: str, llama: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Broken(made.Fixed):
        def update_and_fetch(self, keys: mx.array, values: mx.array) -> tuple[mx.array, mx.array]:
            if fault == "a row too early":
                self._start = self._start - 1
            pair = (values, keys) if fault == "values for keys" else (keys, values)
            return super().update_and_fetch(*pair)

        def make_mask(self, rows: int, *more: Any, **named: Any) -> mx.array:
            mask = super().make_mask(rows, *more, **named)
            return mx.ones_like(mask) if fault == "sees ahead" else mask

    monkeypatch.setattr(made, "Fixed", Broken)
    own, board = type(llama), Board(parse_asked(["compiled_step"], []), {})
    apply_switches(llama, board)
    told = board.positions["compiled_step"].told()
    assert told["state"] == "declined" and "parity probe failed" in told["reason"]
    assert type(llama) is own


@needs_a_compiler
def test_the_bisect_finds_a_place_that_is_wrong_after_the_probe(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plain = open_plain("synthetic:tiny-llama-none", "auto")
    honest = made.Graph.run

    def late(self: Any, tokens: Any, start: int, buffers: Any) -> Any:
        return honest(self, tokens, start + (start > 248), buffers)

    fault = planted(lambda _: monkeypatch.setattr(made.Graph, "run", late))
    found = climb(plain, observe(plain, Plan(1, 4)), Asked("compiled_step"), fault)
    assert found.failed[:1] == ["decode"], found.outcomes


@needs_a_compiler
def test_a_forward_that_reads_the_place_as_a_number_declines_with_what_was_said(
    llama: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    attention = type(llama.layers[0].self_attn)
    honest = attention.__call__

    def counting(self: Any, x: Any, mask: Any = None, cache: Any = None) -> Any:
        return honest(self, x, mask, cache) * (1.0 if int(cache.offset) >= 0 else 0.0)

    monkeypatch.setattr(attention, "__call__", counting)
    with pytest.raises(Declined, match="the forward cannot be compiled"):
        apply(llama, Counter())


@pytest.mark.skipif(mx.default_device() != mx.Device(mx.cpu), reason="a GPU needs no g++")
def test_without_a_compiler_it_declines_and_says_so(tmp_path: Path) -> None:
    code = (
        "from switchboard.bisect.subject import open_plain, put_on\n"
        "from switchboard.config import Asked\n"
        "print(put_on(open_plain('synthetic:tiny-llama', 'auto'), Asked('compiled_step')).off)"
    )
    # In a process of its own: MLX looks for the compiler once.
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=Path(__file__).parents[2], env={"PATH": str(tmp_path)},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.startswith("mx.compile does nothing on this CPU: it found no C++ compiler")


def test_a_window_hides_what_lies_before_it() -> None:
    entry = made.Fixed(mx.zeros((1, 1, 12, 4)), mx.zeros((1, 1, 12, 4)), mx.array(5))
    assert mx.sum(entry.make_mask(2), axis=1).tolist() == [6, 7]
    mask = entry.make_mask(2, window_size=3)
    assert [[at for at, one in enumerate(row) if one] for row in mask.tolist()] == [
        [3, 4, 5],
        [4, 5, 6],
    ]  # type: ignore[union-attr]
    wanted = lm.caches().create_attention_mask(2, 5, True, 3)
    assert mx.array_equal(mask[:, :7], wanted).item()


@pytest.mark.parametrize("option", ["widest=0", "step=8", "graphs=1"])
def test_a_bad_option_is_an_error(option: str) -> None:
    with pytest.raises(ConfigError, match=option.partition("=")[0]):
        Board(parse_asked([f"compiled_step:{option}"], []), {})
