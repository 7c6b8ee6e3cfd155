"""Normalise with one `mx.fast.rms_norm` where a model spells more than that.

mlx-lm's own RMSNorm and the gated norm of linear attention already are that one call; a model that has no others
declines and says so. gemma3 adds one to the weights in every call: here the sum is made once at load, which spares
an operation for each of its six norms a layer in every step. A norm that is written out by hand is replaced as well
when the fast one is bitwise the same. Found by what a module does, not by its name: a norm is looked at while it
runs on an example, and replaced when the fast call on ready weights gives the same bytes.

Exact: each norm is compared bitwise on its own weights. Costs one vector for each norm that is replaced.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import mlx.core as mx
from mlx.nn.layers.base import Module

from switchboard import parity
from switchboard.errors import Declined
from switchboard.registry import Applied, Counter, NoOptions, switch

LENGTHS = (1, 7)
MAGNITUDES = (1.0, 30.0)


class ReadyNorm(Module):
    """One fast call on weights that are ready."""

    def __init__(self, weight: mx.array, eps: float, counter: Counter, original: Module) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.weight = weight
        self._eps = eps
        self._counter = counter
        # A tuple, so that MLX does not count the original among the parameters.
        self._original = (original,)

    def __call__(self, x: mx.array) -> mx.array:
        """The normalised input."""
        self._counter.runs += 1
        return mx.fast.rms_norm(x, self.weight, self._eps)


@switch(stage="weights", exactness="exact")
def fast_norm(model: Any, options: NoOptions, counter: Counter) -> Applied:
    """Replace every norm that is more than one fast call."""
    norms = [
        Norm(parent, name, module)
        for parent in model.modules()
        for name, module in parent.children().items()
        if looks_like_a_norm(module)
    ]
    if not norms:
        raise Declined("the model has no norm that scales by one vector")
    slow = [norm for norm in norms if not is_fast(norm.module)]
    refused = [norm for norm in slow if norm.make_ready(counter) is not None]
    ready = [norm for norm in slow if norm.ready is not None]
    if refused:
        told = f"{len(refused)} norms stay; first: {refused[0].kind}: {refused[0].refused}"
    else:
        kinds = ", ".join(sorted({norm.kind for norm in norms}))
        told = f"each of the {len(norms)} norms ({kinds}) already is one mx.fast.rms_norm"
    if not ready:
        raise Declined(told)
    layers = [[norm for norm in slow if norm.within(layer)] for layer in model.layers]
    classes: dict[str, dict[str, int]] = {}
    for norm in slow:
        counts = classes.setdefault(norm.kind, {"eligible": 0, "fused": 0})
        counts["eligible"] += 1
        counts["fused"] += norm.ready is not None
    for norm in ready:
        setattr(norm.parent, norm.name, norm.ready)

    def undo() -> None:
        """Put the model's own norms back."""
        for norm in ready:
            setattr(norm.parent, norm.name, norm.module)

    whole = sum(1 for here in layers if here and all(norm.ready is not None for norm in here))
    return Applied(
        fused=whole,
        eligible=sum(1 for here in layers if here),
        layers=len(layers),
        undo=undo,
        note=told if refused else None,
        partly=sum(1 for here in layers if any(norm.ready is not None for norm in here)) - whole,
        classes=classes,
        unit="layers",
        modules=sum(norm.ready is not None for here in layers for norm in here),
    )


@dataclass
class Norm:
    """A norm, where it hangs, and what may take its place."""

    parent: Any
    name: str
    module: Any
    ready: ReadyNorm | None = None
    refused: str | None = None

    @property
    def kind(self) -> str:
        """Its class, for the coverage."""
        return type(self.module).__name__

    def within(self, layer: Any) -> bool:
        """Whether it belongs to a layer."""
        return any(self.parent is module for module in layer.modules())

    def make_ready(self, counter: Counter) -> str | None:
        """Make the fast norm, and keep it when it is bitwise this one; otherwise why not."""
        found = parity.attempted(partial(self._make_ready, counter))
        self.refused = f"it broke off: {found}" if isinstance(found, parity.Broken) else found
        return self.refused

    def _make_ready(self, counter: Counter) -> str | None:
        weight, eps = self.module.weight, self.module.eps
        calls = seen(self.module)
        other = None
        for handed, epsilon in calls[:1] or [(weight, eps), (1.0 + weight, eps)]:
            mx.eval(handed)
            made = ReadyNorm(handed, epsilon, counter, self.module)
            found = (parity.difference(self.module(x), made(x)) for x in examples(weight))
            wrong = next((one for one in found if one is not None), None)
            if wrong is None:
                self.ready = made
                return None
            other = other or f"other bytes than mx.fast.rms_norm: {wrong}"
        return other


def looks_like_a_norm(module: Any) -> bool:
    """Whether a module holds one vector of weights and an epsilon, and nothing else."""
    if not isinstance(module, Module) or not isinstance(getattr(module, "eps", None), float):
        return False
    arrays = [value for value in module.values() if isinstance(value, mx.array)]
    return len(arrays) == 1 and "weight" in module and module.weight.ndim == 1


def is_fast(norm: Any) -> bool:
    """Whether a norm hands its own weights, as they are, to the fast call; one that cannot be tried does not."""
    calls = parity.attempted(partial(seen, norm))
    return not isinstance(calls, parity.Broken) and len(calls) == 1 and calls[0][0] is norm.weight


def seen(norm: Any) -> list[tuple[mx.array, float]]:
    """The weights and the epsilon of every fast call that a norm makes on an example."""
    calls: list[tuple[mx.array, float]] = []
    fast: Any = mx.fast
    honest = fast.rms_norm

    def watched(x: mx.array, weight: mx.array, eps: float, **more: Any) -> Any:
        calls.append((weight, eps))
        return honest(x, weight, eps, **more)

    fast.rms_norm = watched
    try:
        norm(examples(norm.weight)[0])
    finally:
        fast.rms_norm = honest
    return calls


def examples(weight: mx.array) -> list[mx.array]:
    """Random inputs of the width and type of a norm's weights, of several lengths and magnitudes."""
    return [
        (magnitude * mx.random.normal((1, length, weight.size), key=mx.random.key(length))).astype(
            weight.dtype
        )
        for length in LENGTHS
        for magnitude in MAGNITUDES
    ]
