"""Attend in tiles in long passes: the causal flag where a mask is causal, and each tile only with the keys it can see.

A prefill pass of more than `tile` rows is cut into so many queries at a time; tiles.py says what each of them sees.
Decode passes are shorter and stay as they are, and so do verify passes of no more rows than a tile.

What it is for is the peak of a long chunk: where MLX has no fused kernel the scores of a chunk are heads × chunk ×
keys numbers; with tiles about `ahead_mb` MB of them are held at once, and the half that the mask hides is never
computed. On a CPU 2,048 tokens through SmolLM2 in one chunk took 238 MB beside the cache without tiles and 74 MB with
them, and 0.63 of the processor time; in the engine's own chunks of 128 rows there nothing changed (15 MB, the same
time). `python -m benchmarks.prefill_tiles` measures it.

mlx-lm's models pass the flag already, so there the part about the mask has nothing to do. Windowed layers (gemma3)
pass an array, of which a tile keeps the window's keys, and the flag where it is causal. `masks_replaced` counts those
tiles, `tiles` all, `runs` the passes of a layer.

Fits every attention that calls mlx-lm's scaled_dot_product_attention, whatever its model: the name is answered by the
tiled one for the length of that one call, and nothing of a model is copied. Declined, with the layer: those that
attend in another way, and on a GPU heads that have a fused kernel (on an H200 tiles took other kernels than the whole
chunk, and SmolLM2 in fp16 left the bound of `rounding`: reports/gpu-h200.json). Rounding: MLX may take another kernel
for another number of rows, so sums may be taken in another order; probed on the real weights, over an empty and a
filled cache, and in the real tile on numbers of the same shape.

Costs no memory. Turned off by not asking for it, or by SWITCHBOARD_MASKED_PREFILL=0.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import mlx.core as mx
import msgspec

from switchboard import lm, parity
from switchboard.bisect.compare import Observation, compare
from switchboard.errors import Declined
from switchboard.registry import Applied, Counter, switch
from switchboard.tiles import Cutter

NAME = "scaled_dot_product_attention"
LEAST = 8
TRIED = 16
"""Rows of a tile in the probe of the whole model, which keeps it short."""
CHUNKS = (TRIED + 3, 2 * TRIED + 2)
FUSED_UP_TO = 128
"""Numbers of a head for which MLX's GPU backends have a fused attention kernel."""
LOCK = threading.RLock()
"""Held while a module's name is answered by the tiled one."""


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Options of this switch."""

    tile: int = 64
    ahead_mb: int = 16

    def __post_init__(self) -> None:
        """Refuse a tile so short that usual verify passes would be cut."""
        if self.tile < LEAST:
            raise ValueError(f"tile must be {LEAST} rows or more")
        if self.ahead_mb < 1:
            raise ValueError("ahead_mb must be 1 or more")


@switch(stage="step", exactness="rounding", options=Options)
def masked_prefill(model: Any, options: Options, counter: Counter) -> Applied:
    """Hook every attention that goes through mlx-lm's function, and probe them together."""
    found = list(attentions(model))
    stay = {path: why for path, module, scope in found if (why := unfit(module, scope))}
    taken = [(module, scope) for path, module, scope in found if scope and path not in stay]
    refused = [f"{path} {why}" for path, why in stay.items()]
    if not taken:
        raise Declined(refused[0] if refused else f"no layer of the model calls {NAME}")
    cutter = Cutter(TRIED, options.ahead_mb << 20, counter)
    plain = parity.attempted(partial(passes, model))
    if isinstance(plain, parity.Broken):
        raise Declined(f"a pass of {CHUNKS[0]} tokens broke off without it: {plain}")
    # Nobody reads what the last layer attends to in a prefill, so there nothing may be waited for.
    last = taken[-1][0]
    backs = [hook(module, scope, cutter, module is last) for module, scope in taken]

    def undo() -> None:
        """Give every attention its own class back."""
        for back in backs:
            back()

    wrong = prove(model, cutter, plain, len(taken))
    cutter.rows = options.tile
    wrong = wrong or prove_tile(cutter)
    cutter.seen.clear()
    cutter.forget()
    if wrong:
        undo()
        raise Declined(f"parity probe failed: {wrong}")
    note = f"{len(refused)} of {len(found)} stay; first: {refused[0]}" if refused else None
    return Applied(len(taken), len(found), len(model.layers), undo, note=note, forget=cutter.forget)


def attentions(model: Any) -> Iterator[tuple[str, Any, dict[str, Any] | None]]:
    """Path, module and the names its forward looks up, of everything that attends; None for another way than ours."""
    layers = {id(module) for layer in model.layers for module in layer.modules()}
    for path, module in reversed(model.named_modules()):
        if id(module) not in layers:
            continue
        forwards = [base.__dict__.get("__call__") for base in type(module).__mro__]
        codes = [
            one
            for one in forwards
            if NAME in getattr(getattr(one, "__code__", None), "co_names", ())
        ]
        if codes:
            scope: dict[str, Any] = codes[0].__globals__  # type: ignore[union-attr]
            yield path, module, scope if callable(scope.get(NAME)) else None


def unfit(module: Any, scope: dict[str, Any] | None) -> str | None:
    """Why an attention stays as it is, or None."""
    if scope is None:
        return "attends in another way"
    width = getattr(module, "head_dim", None)
    if width is None and hasattr(module, "scale"):
        width = round(module.scale**-2)
    if width is not None and width <= FUSED_UP_TO and not on_cpu():
        return f"has heads of {width} numbers: a fused kernel of this device, which holds no scores"
    return None


def on_cpu() -> bool:
    """Whether attention is made of matrix products here, whatever the size of a head."""
    return bool(mx.default_device() == mx.Device(mx.cpu))


def hook(module: Any, scope: dict[str, Any], cutter: Cutter, lazy: bool) -> Callable[[], None]:
    """Let long passes of one attention go through the cutter; the way back."""
    original: Any = type(module)

    class Tiled(original):  # type: ignore[misc]
        """The attention's own class, whose call to the attention function is cut for one long pass."""

        def __call__(self, x: mx.array, *rest: Any, **named: Any) -> Any:
            if x.ndim != 3 or x.shape[1] <= cutter.rows:
                return super().__call__(x, *rest, **named)
            mine = threading.get_ident()
            with LOCK:
                honest = scope[NAME]

                def attend(queries: Any, keys: Any, values: Any, *more: Any, **how: Any) -> Any:
                    # Another thread's model of the same family finds this name, too.
                    if more or threading.get_ident() != mine:
                        return honest(queries, keys, values, *more, **how)
                    return cutter.attend(honest, queries, keys, values, lazy, **how)

                scope[NAME] = attend
                try:
                    return super().__call__(x, *rest, **named)
                finally:
                    scope[NAME] = honest

    Tiled.__name__ = original.__name__
    module.__class__ = Tiled

    def undo() -> None:
        """Take the hook out."""
        module.__class__ = original

    return undo


def passes(model: Any) -> Observation:
    """Logits of two chunks, one over an empty cache and one after it."""
    cache, seen, start = lm.caches().make_prompt_cache(model), Observation(), 5
    for count in CHUNKS:
        logits = model(mx.arange(start, start + count)[None] % 97, cache=cache)
        seen[f"logits of {count} tokens"] = logits
        start += count
    mx.eval(list(seen.values()))
    return seen


def prove(model: Any, cutter: Cutter, plain: Observation, count: int) -> str | None:
    """What is wrong with the tiled passes beside the plain ones, or that not all attentions were cut."""
    cutter.noting = True
    tiled = parity.attempted(partial(passes, model))
    cutter.noting = False
    if isinstance(tiled, parity.Broken):
        return f"a pass broke off: {tiled}"
    found = compare(plain, tiled, exact=False)
    if found.difference is not None:
        return found.difference.told()
    ran, wanted = cutter.counter.runs, count * len(CHUNKS)
    return None if ran == wanted else f"{ran} of {wanted} passes of an attention were cut"


def prove_tile(cutter: Cutter) -> str | None:
    """The real tile against one whole pass, on random heads of each form that the probe has seen."""
    forms = {(q.shape[1], k.shape[1], q.shape[3], k.dtype) for q, k in cutter.seen}
    fast: Any = mx.fast
    for heads, shared, width, dtype in sorted(forms, key=str):
        rows, before = cutter.rows + 3, 5
        key = mx.random.split(mx.random.key(7), 3)
        q = mx.random.normal((1, heads, rows, width), key=key[0]).astype(dtype)
        k, v = (
            mx.random.normal((1, shared, before + rows, width), key=one).astype(dtype)
            for one in key[1:]
        )
        how = {"scale": width**-0.5, "mask": "causal"}
        old, new = (
            fast.scaled_dot_product_attention(q, k, v, **how),
            cutter.attend(fast.scaled_dot_product_attention, q, k, v, **how),
        )
        name = f"attention of {rows} rows"
        found = compare({name: old}, {name: new}, exact=False)
        if found.difference is not None:
            return found.difference.told()
    return None
