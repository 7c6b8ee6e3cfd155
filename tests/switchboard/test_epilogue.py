"""A forward with the kernel in it is bitwise the plain one, or the switch says which layer keeps the chain and why."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import emulated
import mlx.core as mx
import pytest
from mlx.nn.layers.quantized import QuantizedLinear

from switchboard import cache as kv
from switchboard import lm
from switchboard.board import Board
from switchboard.config import parse_asked
from switchboard.epilogue import kernel, writes
from switchboard.errors import Declined, SwitchRefused
from switchboard.load import apply_switches, to_float32
from switchboard.registry import Counter
from switchboard.siblings import join
from switchboard.sources import synthetic, tiny
from switchboard.switches.fused_epilogue import Options, fused_epilogue, put_on

QKV = ("q_proj", "k_proj", "v_proj")
TINY = tiny.CONFIGS["llama"]
LLAMA3 = {
    "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 512,
}  # fmt: skip


def build(name: str, joined: bool = False) -> Any:
    model, _ = synthetic.build(name)
    if "-q4" in name or name.endswith("mixed"):
        chance = mx.random.key(5)
        for module in model.modules():
            if isinstance(module, QuantizedLinear) and "bias" in module:
                module.bias = mx.random.normal(module.bias.shape, key=chance)
    else:
        to_float32(model)
    if joined:
        join(model, (QKV,), Counter(), keep_originals=False)
    return model


def on(model: Any, launch: Any = emulated.launch, **options: Any) -> tuple[Any, Counter]:
    counter = Counter()
    done = put_on(model, Options(**options), counter, launch)
    counter.clear()
    return done, counter


def logits(model: Any, start: int = 250, steps: int = 12) -> list[mx.array]:
    """A prefill, then steps that cross the cache's growth, all composed before anything is computed."""
    cache = kv.make(model)
    out = [model(mx.arange(start)[None], cache=cache)]
    for step in range(steps):
        out.append(model(mx.array([[7 * step + 3]]), cache=cache))
    mx.eval(out)
    return [*out, *(array for one in cache for array in one.keys_and_values())]


def same(before: list[mx.array], after: list[mx.array]) -> bool:
    return all(mx.array_equal(old, new).item() for old, new in zip(before, after, strict=True))


@pytest.mark.parametrize("way", ["cache", "rows"])
@pytest.mark.parametrize(
    ("name", "joined"),
    [
        ("tiny-llama", False),
        ("tiny-llama", True),
        ("tiny-qwen2", False),
        ("tiny-qwen2-q4", False),
        ("tiny-qwen2-q4", True),
        ("tiny-qwen2-mixed", False),
        ("tiny-qwen2-mixed", True),
    ],
)
def test_bitwise_over_prefill_and_decode(name: str, joined: bool, way: str) -> None:
    model = build(name, joined)
    before = logits(model)
    done, counter = on(model, kv=way)
    assert (done.fused, done.eligible, done.layers, done.note) == (4, 4, 4, None)
    assert same(before, logits(model))
    assert counter.runs == 4 * 12
    done.undo()
    assert same(before, logits(model))
    assert counter.runs == 4 * 12


def test_traditional_and_given_frequencies() -> None:
    for more in ({"rope_traditional": True}, {"rope_scaling": LLAMA3}):
        model = lm.build({**TINY, **more})
        before = logits(model)
        _, counter = on(model)
        assert same(before, logits(model))
        assert counter.runs == 48


def verified(model: Any) -> list[mx.array]:
    """Passes of several widths with tokens taken back between them, as speculation does it."""
    cache = kv.make(model)
    out = [model(mx.arange(20)[None], cache=cache)]
    for width, back in ((1, 0), (5, 3), (1, 0), (8, 8), (3, 1), (9, 4), (2, 0), (1, 0)):
        out.append(model(mx.arange(width)[None] + 40, cache=cache))
        mx.eval(out[-1])
        kv.rewind(cache, back)
    return out


@pytest.mark.parametrize("way", ["cache", "rows"])
def test_verify_passes_and_rewinds(way: str) -> None:
    model = build("tiny-llama")
    before = verified(model)
    _, counter = on(model, kv=way)
    assert same(before, verified(model))
    assert counter.runs == 4 * 7, "the pass of nine is too wide and takes the plain path"


def test_rows_are_written_where_only_the_cache_is_evaluated() -> None:
    model = build("tiny-llama")

    def run() -> list[mx.array]:
        cache = kv.make(model)
        model(mx.arange(9)[None], cache=cache)
        model(mx.arange(4)[None], cache=cache)
        mx.eval(kv.arrays(cache))
        return [model(mx.array([[5]]), cache=cache)]

    before = run()
    on(model)
    assert same(before, run())


def test_nobody_elses_array_changes() -> None:
    model = build("tiny-llama")
    on(model)
    cache = kv.make(model)
    model(mx.arange(9)[None], cache=cache)
    mx.eval(kv.arrays(cache))
    held = [entry.keys for entry in cache]
    was = [mx.array(one.tolist()) for one in held]
    mx.eval(model(mx.array([[5]]), cache=cache))
    assert same(was, held)
    assert all(writes.owned(entry) for entry in cache)
    cache[0].state = (held[0], cache[0].values, 9)
    assert not writes.owned(cache[0]), "what was put in from outside is not the cache's alone"


def test_a_cpu_declines_and_a_required_switch_refuses() -> None:
    board = Board(parse_asked(["fused_epilogue"], []), {})
    apply_switches(build("tiny-llama"), board)
    told = board.positions["fused_epilogue"].told()
    assert (told["state"], told["reason"]) == ("declined", "no GPU kernel on this device")
    with pytest.raises(SwitchRefused, match="no GPU kernel"):
        apply_switches(build("tiny-llama"), Board(parse_asked([], ["fused_epilogue"]), {}))


def test_metal_is_off_unless_asked_for_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel, "language", lambda: "metal")
    monkeypatch.setattr(kernel, "launch", emulated.launch)
    model = build("tiny-llama")
    with pytest.raises(Declined, match="never run: ask for it with fused_epilogue:metal=true"):
        fused_epilogue(model, Options(), Counter())
    done = fused_epilogue(model, Options(metal=True), Counter())
    assert "never run" in str(done.note)


def test_after_fused_qkv_whatever_the_order_of_the_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel, "language", lambda: "cuda")
    geometries = set()

    def spy(geometry: kernel.Geometry, rows: int, inputs: Any) -> list[mx.array]:
        geometries.add(geometry)
        return emulated.launch(geometry, rows, inputs)

    monkeypatch.setattr(kernel, "launch", spy)
    board = Board(parse_asked(["fused_epilogue", "fused_qkv"], []), {})
    model = build("tiny-llama")
    before = logits(model)
    apply_switches(model, board)
    assert all(geometry.buffers == (0, 0, 0) for geometry in geometries)
    board.begin()
    assert same(before, logits(model))
    board.end()
    states = [board.positions[name].state for name in ("fused_epilogue", "fused_qkv")]
    assert states == ["engaged", "engaged"]


def fault(change: Callable[[kernel.Geometry, list[mx.array]], tuple[Any, list[mx.array]]]) -> Any:
    """The emulated kernel with a planted fault in what it is given."""

    def launch(geometry: kernel.Geometry, rows: int, inputs: Any) -> list[mx.array]:
        geometry, inputs = change(geometry, list(inputs))
        return emulated.launch(geometry, rows, inputs)

    return launch


def swapped(geometry: Any, inputs: list[mx.array]) -> Any:
    inputs[1], inputs[2] = inputs[2], inputs[1]
    inputs[4], inputs[5] = inputs[5], inputs[4]
    return geometry, inputs


def late(geometry: Any, inputs: list[mx.array]) -> Any:
    place = geometry.inputs.index("place")
    inputs[place] = inputs[place] + mx.array([1, 0, 0])
    return geometry, inputs


def unbiased(geometry: Any, inputs: list[mx.array]) -> Any:
    place = geometry.inputs.index("bias2")
    inputs[place] = mx.zeros_like(inputs[place])
    return geometry, inputs


def elsewhere(geometry: Any, inputs: list[mx.array]) -> Any:
    inputs[-2] = mx.array(inputs[-2].tolist())
    return geometry, inputs


@pytest.mark.parametrize("change", [swapped, late, unbiased, elsewhere])
def test_a_planted_fault_is_found_in_the_first_layer(change: Any) -> None:
    model = build("tiny-qwen2-q4")
    before = logits(model)
    with pytest.raises(
        Declined, match=r"model\.layers\.0\.self_attn: (output|keys|values) at offset 1, 1 rows"
    ):
        on(model, fault(change))
    assert same(before, logits(model))


def test_a_kernel_that_does_not_compile_declines_with_its_words() -> None:
    def broken(*_: Any) -> list[mx.array]:
        raise RuntimeError("Failed to compile kernel: line 3")

    with pytest.raises(
        Declined, match=r"layers\.0\.self_attn: RuntimeError: Failed to compile kernel"
    ):
        on(build("tiny-llama"), broken)


def test_another_form_is_taken_where_the_compiler_contracts_otherwise() -> None:
    forms = []

    def picky(geometry: kernel.Geometry, rows: int, inputs: Any) -> list[mx.array]:
        forms.append(geometry.form)
        made = emulated.launch(geometry, rows, inputs)
        return made if geometry.form == "second" else [made[0] * (1 + 1e-6), *made[1:]]

    model = build("tiny-llama")
    before = logits(model)
    done, _ = on(model, picky)
    assert done.fused == 4
    assert forms[-1] == "second"
    assert same(before, logits(model))


def odd_size(model: Any) -> None:
    for layer in model.layers:
        layer.self_attn.head_dim, layer.self_attn.rope.dims = 31, 31


def partial(model: Any) -> None:
    for layer in model.layers:
        layer.self_attn.rope.dims = 8


def one_bias(model: Any) -> None:
    for layer in model.layers:
        attention = layer.self_attn
        for name in QKV:
            attention[name] = attention[name].to_quantized(group_size=32, bits=4)
        attention.k_proj.bias = mx.zeros((64,))


def unrotated(model: Any) -> None:
    for layer in model.layers:
        del layer.self_attn["rope"]


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (odd_size, r"not whole heads of an even size \(31\)"),
        (partial, "rotates 8 numbers of a head of 32"),
        (one_bias, "some of q, k and v add a bias"),
        (unrotated, "it has no rope"),
    ],
)
def test_what_does_not_fit_is_declined_with_layer_and_reason(
    spoil: Callable[[Any], None], says: str
) -> None:
    model = build("tiny-llama")
    spoil(model)
    with pytest.raises(Declined, match=rf"model\.layers\.0\.self_attn: .*{says}"):
        on(model)


def test_norms_other_rotations_and_other_caches_are_declined() -> None:
    with pytest.raises(Declined, match="k_norm and q_norm between the products and the rotation"):
        on(build("tiny-qwen3"))
    scaled = {"rope_type": "longrope", "short_factor": 1.0, "long_factor": 2.0}
    scaled["original_max_position_embeddings"] = 512
    with pytest.raises(Declined, match="it rotates by SuScaledRoPE"):
        on(lm.build({**TINY, "rope_scaling": scaled}))
    yarn = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 512}
    with pytest.raises(Declined, match="YarnRoPE multiplies by"):
        on(lm.build({**TINY, "rope_scaling": yarn}))


def test_a_rolling_cache_writes_its_rows_itself() -> None:
    kinds = ["full_attention"] * 4
    kinds[2] = "sliding_attention"
    model = lm.build({**TINY, "layer_types": kinds, "sliding_window": 16})

    def run() -> list[mx.array]:
        cache = kv.make(model)
        out = [model(mx.arange(20)[None], cache=cache)]
        return [*out, *(model(mx.array([[step]]), cache=cache) for step in range(9))]

    before = run()
    done, counter = on(model)
    assert (done.fused, done.eligible) == (4, 4)
    assert same(before, run())
    assert (counter.runs, counter.more) == (36, {"left_to_the_cache": 9})


def test_a_quantised_cache_is_asked_for_its_bits() -> None:
    model = lm.build({**TINY, "hidden_size": 128})

    def run() -> list[mx.array]:
        cache = [entry.to_quantized(32, 8) for entry in kv.make(model)]
        return [model(mx.arange(4)[None], cache=cache) for _ in range(3)]

    before = run()
    on(model)
    assert same(before, run())


def test_a_forward_that_uses_q_itself_is_found() -> None:
    model = build("tiny-llama")
    attention = model.layers[0].self_attn
    plain = type(attention)

    class Gated(plain):  # type: ignore[valid-type,misc]
        def __call__(self, x: mx.array, mask: Any = None, cache: Any = None) -> mx.array:
            return super().__call__(x, mask, cache) * mx.sigmoid(self.q_proj(x)[..., :64])

    for layer in model.layers:
        layer.self_attn.__class__ = Gated
    with pytest.raises(
        Declined, match=r"plain chain beside it: 64 of 64 differ, first at .*, by up to inf"
    ):
        on(model)


def test_an_attention_that_cannot_be_probed_does_not_break_the_boot() -> None:
    model = build("tiny-llama")
    plain = type(model.layers[0].self_attn)

    class Other(plain):  # type: ignore[valid-type,misc]
        def __call__(self, x: mx.array, cache: Any = None, *, position: int) -> mx.array:
            return super().__call__(x, None, cache)

    model.layers[0].self_attn.__class__ = Other
    done, _ = on(model)
    assert done.fused == 3
    assert "its own forward cannot be probed: TypeError" in str(done.note)


@pytest.mark.parametrize("family", tiny.FAMILIES)
@pytest.mark.parametrize("quantisation", ["none", "mixed"])
def test_every_family_is_fused_or_says_why_not(family: str, quantisation: str) -> None:
    model, _ = synthetic.build(f"tiny-{family}-{quantisation}")
    reasons = {
        "qwen3": "k_norm and q_norm", "qwen3_moe": "k_norm and q_norm", "gemma3": "k_norm and q_norm",
        "qwen3_5": "k_norm and q_norm", "qwen3_5_moe": "k_norm and q_norm",
        "qwen3_vl": "k_norm and q_norm", "qwen3_vl_moe": "k_norm and q_norm",
    }  # fmt: skip
    if family in reasons:
        with pytest.raises(Declined, match=rf"layers\.\d\.self_attn: it has {reasons[family]}"):
            on(model)
        return
    before = logits(model)
    done, _ = on(model)
    assert done.fused == done.eligible == 4
    assert same(before, logits(model))
