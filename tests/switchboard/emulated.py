"""The epilogue's kernel without a GPU: once as operations of MLX, once as its own source, compiled for the CPU.

The first has the arithmetic of the CPU's own chain, so a forward through it must be bitwise the plain one: it tests
everything around the kernel. The second tests the kernel's text: sections, offsets, pairs, strides.
"""

from __future__ import annotations

import ctypes
import hashlib
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import mlx.core as mx
import numpy as np

from switchboard.epilogue.kernel import Geometry, Language, source

SHIM = """
#include <cmath>
#include <cstddef>
using std::fma;
#define device
typedef float T;
struct Index { int x; };
static Index blockIdx{0}, blockDim{1}, threadIdx{0}, thread_position_in_grid{0};
namespace metal { using std::exp2; namespace fast { using std::cos; using std::sin; } }
static float cos(float x) { return std::cos(x); }
static float sin(float x) { return std::sin(x); }
static float exp2(float x) { return std::exp2(x); }
"""


def launch(geometry: Geometry, rows: int, inputs: Sequence[mx.array]) -> list[mx.array]:
    """What the kernel does, by MLX's operations; the write into the cache is as unseen by MLX as the kernel's."""
    given = dict(zip(geometry.inputs, inputs, strict=True))
    offset, told, capacity = given["place"].tolist()
    assert told == rows
    sizes = [geometry.queries, geometry.keys, geometry.keys]
    parts, biases = [], []
    for (buffer, begin, length), count in zip(geometry.places(), sizes, strict=True):
        assert given[f"part{buffer}"].shape == (1, rows, length)
        end = begin + count * geometry.size
        parts.append(given[f"part{buffer}"][..., begin:end])
        if geometry.biased:
            biases.append(given[f"bias{buffer}"][begin:end])
    if biases:
        parts = [part + bias for part, bias in zip(parts, biases, strict=True)]
    heads = [
        part.reshape(1, rows, count, geometry.size).transpose(0, 2, 1, 3)
        for part, count in zip(parts, sizes, strict=True)
    ]
    q, k = (
        mx.fast.rope(
            one, geometry.size, traditional=geometry.traditional, base=geometry.base,
            scale=geometry.scale, offset=offset, freqs=given.get("freqs"),
        )
        for one in heads[:2]
    )  # fmt: skip
    if not geometry.into_cache:
        return [q, k, mx.contiguous(heads[2])]
    assert given["keys"].shape[2] == capacity
    mx.eval(given["keys"], given["values"])
    for name, rows_of in (("keys", k), ("values", heads[2])):
        np.array(given[name], copy=False)[:, :, offset : offset + rows] = np.array(rows_of)
    return [q]


def compiler() -> str | None:
    """A C++ compiler of this machine."""
    return shutil.which("g++") or shutil.which("clang++") or shutil.which("c++")


def compiled(
    geometry: Geometry, words: Language, rows: int, given: dict[str, np.ndarray], folder: Path
) -> list[np.ndarray]:
    """Run the kernel's own source over all its threads; `keys` and `values` in `given` are written in place."""
    names = [*geometry.inputs, *geometry.outputs]
    kinds = ["const int*" if name == "place" else "const float*" for name in geometry.inputs]
    kinds += ["float*"] * len(geometry.outputs)
    wanted = ", ".join(f"{kind} {name}" for kind, name in zip(kinds, names, strict=True))
    text = (
        f"{SHIM}\nstatic void one({wanted}) {{ {source(geometry, words)} }}\n"
        f'extern "C" void all(int threads, {wanted}) {{ for (int i = 0; i < threads; i++) {{\n'
        f"threadIdx.x = i; thread_position_in_grid.x = i; one({', '.join(names)}); }} }}\n"
    )
    mark = hashlib.sha256(text.encode()).hexdigest()[:12]
    file, library = folder / f"{mark}.cpp", folder / f"{mark}.so"
    file.write_text(text)
    subprocess.run(
        [str(compiler()), "-std=c++17", "-O1", "-shared", "-fPIC", str(file), "-o", str(library)],
        check=True,
    )
    made = [np.full(shape, np.nan, np.float32) for shape in geometry.shapes(rows)]
    arrays = [*(given[name] for name in geometry.inputs), *made]
    pointers = [array.ctypes.data_as(ctypes.c_void_p) for array in arrays]
    # Threads beyond the last pair must do nothing, as the last group of a launch has them.
    ctypes.CDLL(str(library)).all(geometry.threads(rows) + 77, *pointers)
    return made
