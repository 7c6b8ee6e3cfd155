"""Bias, rotation and KV write of q, k and v in one kernel a layer, instead of up to seven.

For decode and verify passes of up to `widest` tokens, one sequence at a time; everything else takes the plain path.
Fits every model of mlx-lm whose attention has q_proj, k_proj and v_proj (joined by fused_qkv or not, in one
quantisation or several), rotates whole heads with mlx.nn.RoPE, Llama3RoPE or YarnRoPE right after the products, and
keeps a plain KVCache. Declined, with the layer: norms between products and rotation (qwen3, gemma3), partial or other
rotations, odd head sizes.

`kv=cache` (the default) writes k and v straight into the cache's buffers, which epilogue/writes.py keeps honest;
`kv=rows` leaves the write to the cache: two launches more, any kind of cache, nothing behind MLX's back.

Exact: the kernel does MLX's arithmetic in MLX's order, and each layer is checked bitwise against the plain chain on its
real weights at load, its output and both buffers. The bias of a plain (not quantised) projection stays in its product,
where MLX adds it inside the matrix kernel.

Costs no memory but for one copy of a request's cache buffers at its first decode step. Only where kernels run:
declines on a CPU. Metal: the kernel has been read, never run, so it stays off unless `metal=true` asks for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Literal

import msgspec

from switchboard import cache as kv
from switchboard.epilogue import fit, kernel, probe
from switchboard.epilogue.passes import Launch, Layer, Places, hook
from switchboard.errors import Declined
from switchboard.registry import Applied, Counter, switch

UNPROVED = "the Metal kernel has been read, never run"


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Options of this switch."""

    kv: Literal["cache", "rows"] = "cache"
    widest: int = 8
    metal: bool = False

    def __post_init__(self) -> None:
        """Refuse a width that would take prefill along."""
        if not 1 <= self.widest <= 64:
            raise ValueError("widest must be 1 to 64")


@switch(stage="step", exactness="exact", options=Options)
def fused_epilogue(model: Any, options: Options, counter: Counter) -> Applied:
    """Put the kernel into every attention that it fits."""
    words = kernel.language()
    if words is None:
        raise Declined("no GPU kernel on this device")
    if words == "metal" and not options.metal:
        raise Declined(f"{UNPROVED}: ask for it with fused_epilogue:metal=true")
    done = put_on(model, options, counter, kernel.launch)
    if words == "metal":
        note = (
            f"{UNPROVED} by its authors; {done.note}" if done.note else f"{UNPROVED} by its authors"
        )
        return replace(done, note=note)
    return done


def put_on(model: Any, options: Options, counter: Counter, launch: Launch) -> Applied:
    """Hook and prove each attention; Declined when not one is left."""
    places, backs, refused = Places(), [], []
    seen: dict[kernel.Geometry, str] = {}
    found = list(attentions(model))
    for path, attention, cache in found:
        fits = fit.structure(attention, cache, options.kv == "cache")
        if isinstance(fits, str):
            refused.append(f"{path}: {fits}")
            continue
        geometry, rotation = fits
        forms = (seen[geometry],) if geometry in seen else tuple(kernel.FORMS)
        layer = Layer(attention, geometry, rotation, options.widest, launch, counter, places)
        back = prove(layer, forms, full=geometry not in seen)
        if isinstance(back, str):
            refused.append(f"{path}: {back}")
            continue
        seen[geometry] = layer.geometry.form
        backs.append(back)
    if not backs:
        raise Declined(refused[0] if refused else "no layer has q_proj, k_proj and v_proj")
    note = None
    if refused:
        note = f"{len(refused)} of {len(found)} layers keep the chain; first: {refused[0]}"

    def undo() -> None:
        """Take every kernel out again."""
        for back in backs:
            back()

    return Applied(len(backs), len(found), len(model.layers), undo, note)


def attentions(model: Any) -> Iterator[tuple[str, Any, Any]]:
    """Path, module and cache of each attention with three projections of its own."""
    paths = {id(module): path for path, module in model.named_modules()}
    for layer, cache in zip(model.layers, kv.make(model), strict=True):
        for _, module in layer.named_modules():
            if all(name in module for name in fit.SIBLINGS):
                yield paths[id(module)], module, cache


def prove(layer: Layer, forms: tuple[str, ...], full: bool) -> Callable[[], None] | str:
    """Leave the kernel in the layer in the first form that gives the chain's bytes; otherwise say what differed."""
    cases = probe.FULL if full else probe.SHORT
    geometry, attention = layer.geometry, layer.attention
    plain = probe.passes(attention, geometry, cases)
    differs = None
    for form in forms:
        layer.geometry = replace(geometry, form=form)
        layer.variants.clear()
        back = hook(layer)
        wrong = probe.difference(plain, lambda: probe.passes(attention, geometry, cases), cases)
        if wrong is None:
            return back
        back()
        differs = differs or wrong
    return str(differs)
