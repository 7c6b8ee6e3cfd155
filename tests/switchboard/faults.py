"""Faults to plant in a model whose switch is on: each as a change of the subject, made after the load's own probes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mlx.core as mx
from mlx.nn.layers.base import Module

from switchboard import lm
from switchboard.bisect.subject import Subject, put_on
from switchboard.config import Asked
from switchboard.registry import Counter
from switchboard.switches.fast_norm import ReadyNorm

Fault = Callable[[Subject], None]
LAYER = 1


def planted(fault: Fault) -> Callable[[Subject, Asked], Subject]:
    """A way to put a switch on that leaves the fault behind."""

    def put(subject: Subject, asked: Asked) -> Subject:
        on = put_on(subject, asked)
        assert on.position is not None and on.position.on, on.position
        fault(on)
        return on

    return put


def attention(subject: Subject) -> Any:
    return subject.model.layers[LAYER].self_attn


def swapped_siblings(subject: Subject) -> None:
    one = attention(subject)
    one.k_proj, one.v_proj = one.v_proj, one.k_proj


def split_off_by_one(subject: Subject) -> None:
    joint = attention(subject).k_proj._joint

    def read(part: int, x: mx.array) -> mx.array:
        joint.counter.runs += 1
        return mx.roll(joint.product(x), -1, axis=-1)[..., joint.rows[part]]

    joint.read = read


def row_of_another(subject: Subject) -> None:
    """Row 3 of the joined matrix is row 4."""
    product = attention(subject).k_proj._joint.product
    weight = product.weight
    product.weight = mx.concatenate([weight[:3], weight[4:5], weight[4:]])


class Stale(Module):
    """Gives what it gave the last time."""

    def __init__(self, honest: Any) -> None:
        super().__init__()
        self.honest = honest
        self._last: mx.array | None = None

    def __call__(self, x: mx.array) -> mx.array:
        before, self._last = self._last, self.honest(x)
        return before if before is not None and before.shape == self._last.shape else self._last


def stale_part(subject: Subject) -> None:
    one = attention(subject)
    one.v_proj = Stale(one.v_proj)


class Late(Module):
    """A rotary position that is one too far, everywhere or only where there is something before it."""

    def __init__(self, honest: Any, first: bool) -> None:
        super().__init__()
        self.honest = honest
        self._first = first

    def __call__(self, x: mx.array, offset: int = 0) -> mx.array:
        return self.honest(x, offset=offset + (self._first or offset > 0))


def late_everywhere(subject: Subject) -> None:
    one = attention(subject)
    one.rope = Late(one.rope, first=True)


def late_behind_others(subject: Subject) -> None:
    one = attention(subject)
    one.rope = Late(one.rope, first=False)


def stretched_positions(subject: Subject) -> None:
    """The same rotary module counts its positions in wider steps; at position 0 that is the same."""
    attention(subject).rope.scale *= 1.5


def faulty_cache(subject: Subject, **methods: Any) -> None:
    """Every entry of the cache is of a class that differs in these methods."""
    plain = lm.caches().KVCache
    kind = type("Faulty", (plain,), {"_last": None, **methods})
    count = len(subject.model.layers)
    subject.model.make_cache = lambda: [kind() for _ in range(count)]


def stale_values(subject: Subject) -> None:
    """A step writes the values of the step before it."""

    def update_and_fetch(self: Any, keys: mx.array, values: mx.array) -> Any:
        single = values.shape[2] == 1
        before, self._last = self._last, values if single else None
        return super(type(self), self).update_and_fetch(
            keys, values if before is None or not single else before
        )

    faulty_cache(subject, update_and_fetch=update_and_fetch)


def row_lost_at_growth(subject: Subject) -> None:
    """Where the cache grows, its last row stays behind."""

    def update_and_fetch(self: Any, keys: mx.array, values: mx.array) -> Any:
        if self.offset == self.step:
            self.keys[..., -1:, :] = 0
        return super(type(self), self).update_and_fetch(keys, values)

    faulty_cache(subject, update_and_fetch=update_and_fetch)


def row_lost_after_prefill(subject: Subject) -> None:
    """A prefill answers rightly and keeps its last row wrong."""

    def update_and_fetch(self: Any, keys: mx.array, values: mx.array) -> Any:
        found = super(type(self), self).update_and_fetch(keys, values)
        if keys.shape[2] > 1:
            self.values[..., self.offset - 1 : self.offset, :] = 0
        return found

    faulty_cache(subject, update_and_fetch=update_and_fetch)


def sees_ahead(subject: Subject) -> None:
    """A pass of several rows over a filled cache lets every row see those after it."""

    def make_mask(self: Any, *sizes: Any, **how: Any) -> Any:
        return None if self.offset else super(type(self), self).make_mask(*sizes, **how)

    faulty_cache(subject, make_mask=make_mask)


def prompt_cut_short(subject: Subject) -> None:
    """The session loses the first token of every prompt."""
    honest: Any = subject.session._tokens

    def cut(work: Any, *rest: Any) -> Any:
        work.prompt = list(work.prompt)[1:]
        return honest(work, *rest)

    subject.session.__dict__["_tokens"] = cut


def swapped_experts(subject: Subject) -> None:
    one = subject.model.layers[LAYER].mlp.switch_mlp
    one.gate_proj, one.up_proj = one.up_proj, one.gate_proj


def grown_without_the_old(subject: Subject) -> None:
    """A buffer of a fixed size grows into an empty one."""
    honest = subject.session._cache

    def make(room: Any) -> list[Any]:
        entries = honest(room)
        for entry in entries:
            entry._grow = lambda entry=entry: lose(entry)
        return entries

    def lose(entry: Any) -> None:
        for name in ("keys", "values"):
            rows = getattr(entry, name)
            setattr(entry, name, mx.zeros((*rows.shape[:2], entry.capacity, rows.shape[3])))

    subject.session._cache = make


def noisy(size: float) -> Fault:
    """The joined matrix of one layer is off by a share of its largest number."""

    def fault(subject: Subject) -> None:
        product = attention(subject).k_proj._joint.product
        noise = mx.random.normal(product.weight.shape, key=mx.random.key(1))
        product.weight = product.weight + size * mx.max(mx.abs(product.weight)) * noise

    return fault


def half_dead(subject: Subject) -> None:
    """One layer is back on its originals, with the same results; the coverage does not know."""
    one = attention(subject)
    for name in ("q_proj", "k_proj", "v_proj"):
        setattr(one, name, one[name]._original[0])


def norms_back(subject: Subject, layers: slice, share: slice) -> None:
    """Some of the fast norms of some layers are the plain ones again; the coverage does not know."""
    for layer in subject.model.layers[layers]:
        held = [
            (parent, name, child)
            for parent in layer.modules()
            for name, child in parent.children().items()
            if isinstance(child, ReadyNorm)
        ]
        for parent, name, child in held[share]:
            setattr(parent, name, child._original[0])


def two_layers_without_fast_norms(subject: Subject) -> None:
    norms_back(subject, slice(2), slice(None))


def half_of_each_layers_fast_norms(subject: Subject) -> None:
    norms_back(subject, slice(None), slice(0, None, 2))


def half_the_cache_is_plain(subject: Subject) -> None:
    """Every second entry is the plain one again."""
    honest = subject.session._cache

    def make(room: Any) -> list[Any]:
        plain = lm.caches().KVCache
        return [plain() if place % 2 else entry for place, entry in enumerate(honest(room))]

    subject.session._cache = make


def without_a_norm(subject: Subject) -> None:
    """One layer loses a norm, and its forward gets along without it."""
    layer = subject.model.layers[LAYER]
    plain = type(layer)

    class Shorter(plain):  # type: ignore[valid-type,misc]
        def __getattr__(self, name: str) -> Any:
            return (lambda x: x) if name == "input_layernorm" else super().__getattr__(name)

    layer.pop("input_layernorm")
    layer.__class__ = Shorter


def without_a_block(subject: Subject) -> None:
    """The MLP of one layer hangs under another name, and works as before."""
    layer = subject.model.layers[LAYER]
    layer.moved = layer.pop("mlp")
    plain = type(layer)

    class Moved(plain):  # type: ignore[valid-type,misc]
        def __getattr__(self, name: str) -> Any:
            return self.moved if name == "mlp" else super().__getattr__(name)

    layer.__class__ = Moved


def uncounted(subject: Subject) -> None:
    """The joints run and count somewhere else."""
    for layer in subject.model.layers:
        layer.self_attn.q_proj._joint.counter = Counter()
