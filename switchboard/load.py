"""A model of mlx-lm with its tokenizer, in the format that this machine runs best, with its `weights` switches on.

On the CPU the 4-bit and half-precision kernels of MLX are several times slower than fp32 through a BLAS, so
`auto` there means float32; elsewhere it means as stored. Everything is evaluated layer by layer and the source
released, to keep the peak low.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import mlx.core as mx
from mlx.nn.layers.embedding import Embedding
from mlx.nn.layers.linear import Linear
from mlx.nn.layers.quantized import QuantizedEmbedding, QuantizedLinear, quantize
from mlx.utils import tree_flatten, tree_map_with_path

from switchboard import layout, lm, parity, vision
from switchboard.bisect.compare import compare
from switchboard.board import Board
from switchboard.errors import ModelError
from switchboard.layout import NOTHING, Laid
from switchboard.models import Source
from switchboard.registry import Exactness
from switchboard.text import Text, bytes_only, without_images

PROBE = (5, 11, 3, 250, 7, 42)


@dataclass(frozen=True)
class Loaded:
    """One model with its text side and the facts that /health tells about it."""

    model: Any
    text: Text
    family: str
    parameters: int
    format: str
    bits: float
    stored: str
    context: int
    layout: Laid = NOTHING
    """Which matrices stand column by column."""


def load(source: Source, wanted: str, board: Board, order: str = "auto") -> Loaded:
    """Read, convert, lay out, and put the `weights` switches on."""
    model, config, text = _read(source, board)
    model.eval()
    stored = _format(model)
    on_cpu = mx.default_device() == mx.Device(mx.cpu)
    if wanted == "float32" or (wanted == "auto" and on_cpu):
        to_float32(model)
    elif wanted == "quantized" and not stored.startswith("q"):
        raise ModelError(f"model {source.name}: --format quantized, but it is stored as {stored}")
    elif on_cpu:
        # Half-precision scales would pull every activation into fp16, which the CPU emulates.
        _cast(model, mx.float32)
    else:
        _cast(model, mx.bfloat16 if source.synthetic else mx.float16)
    laid = layout.lay(model) if order == "auto" and layout.pays() else NOTHING
    parameters = count_parameters(model)
    apply_switches(model, board)
    mx.clear_cache()
    return Loaded(
        model=model,
        text=text,
        family=config["model_type"],
        parameters=parameters,
        format=_format(model),
        bits=round(8 * sum(array.nbytes for array in _arrays(model)) / parameters, 2),
        stored=stored,
        context=int(_shape(config).get("max_position_embeddings") or 2048),
        layout=laid,
    )


def _shape(config: dict[str, Any]) -> dict[str, Any]:
    """The sizes of the language model, which some checkpoints nest."""
    nested = config.get("text_config")
    return nested if isinstance(nested, dict) else config


def _read(source: Source, board: Board) -> tuple[Any, dict[str, Any], Text]:
    if source.shape is not None:
        from switchboard.sources import synthetic

        board.apply_load({}, {})
        model, config = synthetic.build(source.shape)
        return model, config, bytes_only(_shape(config)["vocab_size"])
    if source.place is None:
        raise ModelError(f"model {source.name}: no place to read it from")
    if source.kind == "gguf":
        from switchboard.sources import gguf

        weights, config, metadata = gguf.read(source.place)
        weights = board.apply_load(weights, config)
        text = gguf.text(metadata, source.place)
        return _fill(lm.build(config), weights, gguf.quantisation), config, text
    from switchboard.sources import folder

    weights, config = folder.read(source.place)
    text = folder.text(source.place, {**_shape(config), **config})
    found = vision.parts(weights)
    weights = board.apply_load(weights, config)
    if found and not vision.parts(weights):
        text = without_images(text, "text_only left its vision parts out")
    elif found:
        raise ModelError(
            f"model {source.name}: a vision-language checkpoint ({len(found)} tensors such as "
            f"{found[0]}); serve its text half with --switch text_only"
        )
    model = lm.build(config)
    if hasattr(model, "sanitize"):
        weights = model.sanitize(weights)

    def stored_as(weights: dict[str, mx.array], module: str) -> dict[str, Any] | None:
        return folder.quantisation(config, module) if f"{module}.scales" in weights else None

    return _fill(model, weights, stored_as), config, text


def _fill(model: Any, weights: dict[str, mx.array], stored_as: Any) -> Any:
    """Give the model its weights; modules that are stored quantised become quantised ones."""

    def choose(path: str, module: Any) -> bool | dict[str, Any]:
        if not hasattr(module, "to_quantized"):
            return False
        return stored_as(weights, path) or False

    quantize(model, class_predicate=choose)
    try:
        model.load_weights(list(weights.items()), strict=True)
    except ValueError as error:
        raise ModelError(f"the weights do not fit the architecture: {error}") from error
    return model


def to_float32(model: Any) -> None:
    """Dequantise every matrix in place and make every other number fp32, one layer at a time.

    MLX's CPU kernels run on one thread a stream, so the matrices are dealt out to two.
    """
    streams = [mx.new_stream(mx.default_device()) for _ in range(2)]
    for layer in model.layers:
        _plain(layer, streams)
    _plain(model, streams)


def _plain(module: Any, streams: list[mx.Stream]) -> None:
    made: list[mx.array] = []
    for parent in module.modules():
        for name, child in parent.children().items():
            if isinstance(child, _packed()):
                plain = _dequantised(child, streams[len(made) % len(streams)])
                setattr(parent, name, plain)
                made.append(plain.weight)
    mx.eval(made)
    _cast(module, mx.float32)


def _packed() -> tuple[type, ...]:
    """The kinds of modules that hold a quantised matrix."""
    return (QuantizedLinear, QuantizedEmbedding, lm.experts().QuantizedSwitchLinear)


def _dequantised(module: Any, stream: mx.Stream) -> Any:
    """The plain twin of a quantised module, its weight not evaluated yet."""
    biases = module.get("biases")
    weight = mx.dequantize(
        module.weight,
        module.scales.astype(mx.float32, stream=stream),
        None if biases is None else biases.astype(mx.float32, stream=stream),
        group_size=module.group_size,
        bits=module.bits,
        mode=module.mode,
        stream=stream,
    )
    # Built on one number, so that no full matrix of random initial weights is ever made.
    plain: Any = Linear(1, 1, bias=False)
    if isinstance(module, QuantizedEmbedding):
        plain = Embedding(1, 1)
    elif not isinstance(module, QuantizedLinear):
        plain = lm.experts().SwitchLinear(1, 1, 1, bias=False)
    plain.weight = weight
    if "bias" in module:
        plain.bias = module.bias
    return plain


def _cast(module: Any, dtype: mx.Dtype) -> None:
    """Make every number of this type, but for those that the model keeps as they are (a decay in fp32)."""
    may = getattr(module, "cast_predicate", None) or (lambda path: True)

    def cast(path: str, array: mx.array) -> mx.array:
        return (
            array.astype(dtype) if mx.issubdtype(array.dtype, mx.floating) and may(path) else array
        )

    module.update(tree_map_with_path(cast, module.parameters()))
    mx.eval(module.parameters())


def apply_switches(model: Any, board: Board) -> None:
    """Put on the `weights` and `step` switches, and hold the whole model against itself before and after each."""
    if not board.asks("weights", "step"):
        return
    before = parity.attempted(partial(probe, model))
    if isinstance(before, parity.Broken):
        raise ModelError(f"a pass through the plain model broke off: {before}")

    reference = before

    def check(exactness: Exactness) -> str | None:
        nonlocal reference
        after = parity.attempted(partial(probe, model))
        if isinstance(after, parity.Broken):
            return f"a pass broke off: {after}"
        named = "logits of pass {}, plain model beside it".format
        if exactness == "exact":
            return parity.first(reference, after, named)
        old, new = ({named(at): one for at, one in enumerate(of)} for of in (reference, after))
        found = compare(old, new, exact=False)
        if found.difference is not None:
            return found.difference.told()
        # The next one is held against what this one leaves, or its rounding would be taken for the next one's.
        reference = after
        return None

    board.apply_weights(model, check)
    board.clear()


def probe(model: Any) -> list[mx.array]:
    """Logits of a short prefill and of two steps after it, on the real weights."""
    cache = lm.caches().make_prompt_cache(model)
    passes = (PROBE[:4], PROBE[4:5], PROBE[5:6])
    logits = [model(mx.array([ids]), cache=cache) for ids in passes]
    mx.eval(logits)
    return logits


def count_parameters(model: Any) -> int:
    """Numbers in the model, packed ones counted as what they stand for."""
    total = 0
    for _, module in model.named_modules():
        for name, value in module.items():
            if not isinstance(value, mx.array) or name in ("scales", "biases"):
                continue
            packed = hasattr(module, "bits") and name == "weight"
            total += value.size * 32 // module.bits if packed else value.size
    return total


def _arrays(model: Any) -> list[mx.array]:
    flat: Any = tree_flatten(model.parameters())
    return [array for _, array in flat]


def _format(model: Any) -> str:
    """How the matrices are held: `q4-g32` (bits and group), or the type of plain numbers."""
    matrices = (QuantizedLinear, lm.experts().QuantizedSwitchLinear)
    kinds = {
        f"q{module.bits}-g{module.group_size}"
        for module in model.modules()
        if isinstance(module, matrices)
    }
    if not kinds:
        kinds = {str(array.dtype).rpartition(".")[2] for array in _arrays(model)}
    return "+".join(sorted(kinds))
