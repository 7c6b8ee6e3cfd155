"""The kernel against the chain of MLX's own operations, bitwise, over geometries, types and offsets."""

from __future__ import annotations

import time
from collections import Counter as Counts
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import mlx.core as mx

from switchboard.epilogue import kernel
from switchboard.epilogue.kernel import FORMS, Geometry

TYPES = (mx.float16, mx.bfloat16, mx.float32)
PLACES = ((1, 1), (37, 1), (255, 2), (4093, 1), (1000, 5), (131071, 1))
FAILED = 6
"""Cases on which the other forms are tried as well: each costs five compilations."""


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


def kernels(told: dict[str, Any], late: Callable[[], bool]) -> None:
    """Part one; where the plain form differs, the others are tried on the same case."""
    cases: list[dict[str, Any]] = []
    told["cases"] = cases
    for dtype, geometry in product(TYPES, geometries()):
        if late():
            told["left_out"] = "out of time"
            break
        started = time.perf_counter()
        results = {"plain": differs(geometry, dtype)}
        if (
            results["plain"] is not None
            and sum(len(case["differs"]) > 1 for case in cases) < FAILED
        ):
            for form in list(FORMS)[1:]:
                shape = {**geometry.__dict__, "form": form}
                results[form] = differs(Geometry(**shape), dtype)
        case = {"type": str(dtype), **geometry.__dict__, "differs": results}
        cases.append({**case, "seconds": round(time.perf_counter() - started, 2)})
    told["same"] = sum(case["differs"]["plain"] is None for case in cases)
    told["all"] = len(cases)
    told["forms"] = Counts(
        form for case in cases for form, wrong in case["differs"].items() if wrong is None
    )
    print(
        f"kernel: {told['same']} of {told['all']} cases bitwise the chain's; by form {dict(told['forms'])}",
        flush=True,
    )
    for case in cases:
        if case["differs"]["plain"] is not None:
            print(f"  {case['type']} {case['size']} buffers={case['buffers']} traditional={case['traditional']} "
                  f"into_cache={case['into_cache']}: {case['differs']}", flush=True)  # fmt: skip
