"""The kernel against the chain of MLX's own operations, bitwise, over geometries, types and offsets.

Each case costs a compilation of about two seconds, so the cases are dealt out to shares, each a process of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import mlx.core as mx

from benchmarks.epilogue_gpu.plan import TYPES
from benchmarks.gpu.sheet import Sheet
from switchboard.epilogue import kernel
from switchboard.epilogue.kernel import FORMS, Geometry

PLACES = ((1, 1), (37, 1), (255, 2), (4093, 1), (1000, 5), (131071, 1))
FAILED = 2
"""Cases of a share on which the other forms are tried as well: each costs five compilations."""


def geometries() -> Iterator[Geometry]:
    """Head sizes × rotations × input forms × ways of writing; then given frequencies, and no bias."""
    apart, joined = (0, 1, 2), (0, 0, 0)
    flags = (False, True)
    for size, traditional, buffers, into in product((64, 128), flags, (apart, joined), flags):
        yield Geometry(8, 2, size, traditional, 1e6, 1.0, buffers, True, into)
    for size in (64, 128):
        yield Geometry(8, 2, size, False, None, 1.0, joined, True, True)
        yield Geometry(9, 3, size, True, 1e5, 1.0, apart, False, True)
        yield Geometry(8, 2, size, False, 1e6, 1.0, (0, 0, 1), True, True)


def chain(
    geometry: Geometry,
    parts: list[mx.array],
    biases: list[mx.array],
    freqs: mx.array | None,
    offset: int,
) -> list[mx.array]:
    """q, k and v as MLX's operations give them, heads first."""
    rows = parts[0].shape[1]
    if biases:
        parts = [part + bias for part, bias in zip(parts, biases, strict=True)]
    heads = [part.reshape(1, rows, -1, geometry.size).transpose(0, 2, 1, 3) for part in parts]
    turned = [
        mx.fast.rope(
            one, geometry.size, traditional=geometry.traditional, base=geometry.base,
            scale=geometry.scale, offset=offset, freqs=freqs,
        )
        for one in heads[:2]
    ]  # fmt: skip
    return [*turned, heads[2]]


def pick(all_three: list[mx.array], geometry: Geometry, wanted: int) -> list[mx.array]:
    """Those of q, k and v that lie in one buffer."""
    return [
        one for one, buffer in zip(all_three, geometry.buffers, strict=True) if buffer == wanted
    ]


def differs(geometry: Geometry, dtype: mx.Dtype) -> str | None:
    """Where the kernel's bytes are not the chain's, or None."""
    widths = [count * geometry.size for count in (geometry.queries, geometry.keys, geometry.keys)]
    key = mx.random.split(mx.random.key(11), 12)
    for offset, rows in PLACES:
        parts = [
            (3 * mx.random.normal((1, rows, w), key=key[n])).astype(dtype)
            for n, w in enumerate(widths)
        ]
        biases = [
            mx.random.normal((w,), key=key[3 + n]).astype(dtype) for n, w in enumerate(widths)
        ]
        biases = biases if geometry.biased else []
        freqs = None
        if geometry.base is None:
            freqs = mx.abs(mx.random.normal((geometry.size // 2,), key=key[8])) * 100 + 1
        capacity = offset + rows + 3
        shape = (1, geometry.keys, capacity, geometry.size)
        old = [mx.random.normal(shape, key=key[9 + n]).astype(dtype) for n in range(2)]
        mine = [one * 1 for one in old]
        mx.eval(parts, biases, old, mine)
        wanted = chain(geometry, parts, biases, freqs, offset)
        inputs = [
            mx.concatenate(pick(parts, geometry, b), axis=-1)
            for b in range(max(geometry.buffers) + 1)
        ]
        if biases:
            inputs += [
                mx.concatenate(pick(biases, geometry, b)) for b in range(max(geometry.buffers) + 1)
            ]
        inputs.append(mx.array([offset, rows, capacity], dtype=mx.int32))
        inputs += [] if freqs is None else [freqs]
        inputs += mine if geometry.into_cache else []
        mx.eval(inputs)
        got = kernel.launch(geometry, rows, inputs)
        mx.eval(got)
        mx.synchronize()
        names = ["q", "k", "v"]
        if geometry.into_cache:
            for one, fresh in zip(old, wanted[1:], strict=True):
                one[..., offset : offset + rows, :] = fresh
            wanted, got, names = [wanted[0], *old], [*got, *mine], ["q", "keys", "values"]
        for name, one, two in zip(names, wanted, got, strict=True):
            if not mx.array_equal(one, two).item():
                gap = mx.abs(one.astype(mx.float32) - two.astype(mx.float32))
                count = int((gap > 0).sum().item())
                worst = f"{count} of {one.size} differ, by up to {gap.max().item():.3g}"
                return f"{name} at {offset} with {rows} rows: {worst}"
    return None


def name(geometry: Geometry) -> str:
    """What a geometry is called in the plan and in the results."""
    words = [
        f"d{geometry.size}",
        "paired" if geometry.traditional else "halved",
        f"inputs {''.join(map(str, geometry.buffers))}",
        "into the cache" if geometry.into_cache else "as rows",
    ]
    words += [] if geometry.biased else ["no bias"]
    words += [] if geometry.base is not None else ["frequencies given"]
    return ", ".join(words)


def names() -> tuple[str, ...]:
    """The names of all geometries."""
    return tuple(name(one) for one in geometries())


def kernels(sheet: Sheet, share: int, shares: int) -> None:
    """The cases of one share; where the first form differs, the others are tried on the same case."""
    everything = list(product(TYPES, geometries()))
    tried = 0
    for kind, geometry in everything[share::shares]:
        dtype = getattr(mx, kind)

        def run(dtype: mx.Dtype = dtype, geometry: Geometry = geometry) -> dict[str, Any]:
            nonlocal tried
            told: dict[str, Any] = {"differs": differs(geometry, dtype), "form": geometry.form}
            if told["differs"] is not None and tried < FAILED:
                tried += 1
                others = [form for form in FORMS if form != geometry.form]
                told["other_forms"] = {
                    form: differs(Geometry(**{**geometry.__dict__, "form": form}), dtype)
                    for form in others
                }
            return told

        sheet.take(f"{kind} {name(geometry)}", run)


def dealt(share: int, shares: int) -> list[str]:
    """The names of the cases of one share."""
    return [
        f"{kind} {name(one)}" for kind, one in list(product(TYPES, geometries()))[share::shares]
    ]
