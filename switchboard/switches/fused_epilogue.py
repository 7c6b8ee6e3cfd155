"""Bias, rotation and KV write of q, k and v in one kernel a layer, instead of up to seven.

For decode and verify passes of up to `widest` tokens, one sequence at a time; everything else takes the plain path.
Fits every model of mlx-lm whose attention has q_proj, k_proj and v_proj (joined by fused_qkv, in part or not at all,
in one quantisation or several) and rotates whole heads with mlx.nn.RoPE, Llama3RoPE or YarnRoPE right after the
products. Declined, with the layer: norms between products and rotation (qwen3, gemma3), partial or other rotations,
odd head sizes.

`kv=cache` (the default) writes k and v straight into the buffers of mlx-lm's plain KVCache, which epilogue/writes.py
keeps honest. `kv=rows`, and every other kind of cache (rotating, quantised, in place),
leaves the write to the cache: two launches more, nothing behind MLX's back; `left_to_the_cache` counts them.

Exact: the kernel does MLX's arithmetic in MLX's order, and each layer is checked bitwise against the plain chain on its
real weights at load, its output and both buffers. The bias of a plain (not quantised) projection stays in its product,
where MLX adds it inside the matrix kernel.

Of the nine families of tiny models two fit, llama and qwen2; the other seven have norms in between. It does not pay
where it was measured: on an H200 it saves 90 of 517 launches a decode step of SmolLM2, and the step takes 4.03 ms
instead of 3.65 (`kv=rows` 4.47), though every array is bitwise the chain's (reports/gpu-h200.json, reports/LOG.md).
Above 256 tokens in half precision MLX itself does not repeat there unless MLX_CUDA_USE_CUDNN_SDPA=0.

Costs no memory but for one copy of a request's cache buffers at its first decode step. Only where kernels run:
declines on a CPU. Metal: the kernel has been read, never run, so it stays off unless `metal=true` asks for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any, Literal

import msgspec

from switchboard import parity
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
    for path, attention in found:
        fits = fit.structure(attention, options.kv == "cache")
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


def attentions(model: Any) -> Iterator[tuple[str, Any]]:
    """Path and module of each attention with three projections of its own, from the first layer on."""
    for path, module in reversed(model.named_modules()):
        if all(name in module for name in fit.SIBLINGS):
            yield path, module


def prove(layer: Layer, forms: tuple[str, ...], full: bool) -> Callable[[], None] | str:
    """Leave the kernel in the layer in the first form that gives the chain's bytes; otherwise say what differed.

    In the first layer of its geometry the way over another cache than the plain one is held against the chain too.
    The chain runs twice first: where it does not repeat itself, bytes prove nothing.
    """
    geometry, attention = layer.geometry, layer.attention
    plans = [(probe.FULL if full else probe.SHORT, True)]
    if full and geometry.into_cache:
        plans.append((probe.SHORT, False))
    attempts = [partial(probe.passes, attention, geometry, *plan) for plan in plans]
    plain = []
    for attempt, (cases, _) in zip(attempts, plans, strict=True):
        wanted = parity.attempted(attempt)
        if isinstance(wanted, parity.Broken):
            return f"its own forward cannot be probed: {wanted}"
        again = probe.difference(wanted, parity.attempted(attempt), cases)
        if again is not None:
            return f"plain attention does not repeat here: {again}"
        plain.append(wanted)
    differs = None
    for form in forms:
        layer.geometry = replace(geometry, form=form)
        layer.variants.clear()
        back = hook(layer)
        wrong = None
        for wanted, attempt, (cases, _) in zip(plain, attempts, plans, strict=True):
            wrong = wrong or probe.difference(wanted, parity.attempted(attempt), cases)
        if wrong is None:
            return back
        back()
        differs = differs or wrong
    return str(differs)
