"""One kernel for what follows the q, k and v products: bias, rotation, and the write into the KV cache.

The arithmetic is MLX's own, in MLX's order: the bias is added in the type of the product, the rotation is computed in
fp32 from the position, the frequency and the pair, and rounded once. So the results are bitwise those of the chain it
replaces, up to the choice of which product is fused into a multiply-add. `FORMS` spells the choices out; `first` is
tried first, because it is what MLX's compiled rotations do: in MLX 0.32.4 the machine code for sm_90a of all 24 forward
rotations (fp32, fp16, bf16; paired or halved; one row or several; frequencies given or not) fuses x·cos and x·sin.
`plain` leaves the choice to the run-time compiler, which takes `first` too in fp16 and bf16, and in fp32 fuses y·cos
instead (a difference in the last place; CUDA 13.0). Whoever uses the kernel holds it against the chain anyway
(switches/fused_epilogue.py does).

The source is one text; CUDA and Metal differ in the thread's index, the names of sine and cosine and the word for
device memory. q, k and v come in one to three buffers: the output of one joined product, in which they lie side by
side in every row, three outputs, or q and k joined beside a v of other bits.

With `into_cache` the rows of k and v are written into the cache's own buffers, which the kernel gets as inputs. MLX
does not know of that write: writes.py says what has to be done about it. Without, they are outputs like q.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from string import Template
from typing import Any, Literal

import mlx.core as mx
import numpy as np

Language = Literal["cuda", "metal"]
GROUP = 128
BUFFERS = ((0, 0, 0), (0, 0, 1), (0, 1, 1), (0, 1, 0), (0, 1, 2))
FORMS = {
    "first": ("fma(x, c, -(y * s))", "fma(x, s, y * c)"),
    "plain": ("x * c - y * s", "x * s + y * c"),
    "second": ("fma(-y, s, x * c)", "fma(y, c, x * s)"),
    "outer": ("fma(x, c, -(y * s))", "fma(y, c, x * s)"),
    "inner": ("fma(-y, s, x * c)", "fma(x, s, y * c)"),
}
WORDS = {
    "cuda": {
        "thread": "blockIdx.x * blockDim.x + threadIdx.x",
        "cos": "cos", "sin": "sin", "exp2": "exp2", "device": "",
    },
    "metal": {
        "thread": "thread_position_in_grid.x",
        "cos": "metal::fast::cos", "sin": "metal::fast::sin", "exp2": "metal::exp2", "device": "device ",
    },
}  # fmt: skip
BODY = Template("""
  constexpr int QUERIES = $queries, KEYS = $keys, SIZE = $size, HALF = $size / 2;
  constexpr int HEADS = QUERIES + 2 * KEYS;
  const int offset = place[0], rows = place[1], capacity = place[2];
  const int item = $thread;
  if (item >= rows * HEADS * HALF) return;
  const int pair = item % HALF, slot = (item / HALF) % HEADS, row = item / (HALF * HEADS);
  const int one = $one, two = $two;
  const bool is_query = slot < QUERIES, is_value = slot >= QUERIES + KEYS;
  const int head = is_query ? slot : (is_value ? slot - QUERIES - KEYS : slot - QUERIES);
$read
  T first = from[one], second = from[two];
$bias
  if (!is_value) {
    const float turns = $scale * static_cast<float>(row + offset);
    const float theta = turns * $frequency;
    const float c = $cos(theta), s = $sin(theta);
    const float x = static_cast<float>(first), y = static_cast<float>(second);
    first = static_cast<T>($turned_one);
    second = static_cast<T>($turned_two);
  }
$write
  to[one] = first;
  to[two] = second;
""")
READ = """  const ${device}T* from = is_query
      ? $q
      : (is_value ? $v : $k);"""
ADD = """  const ${device}T* add = is_query ? $q : (is_value ? $v : $k);
  first = first + add[one];
  second = second + add[two];"""
INTO_CACHE = """  ${device}T* to = is_query
      ? q_out + static_cast<size_t>(head * rows + row) * SIZE
      : (${device}T*)(is_value ? values : keys)
          + (static_cast<size_t>(head) * capacity + offset + row) * SIZE;"""
AS_ROWS = """  ${device}T* to = (is_query ? q_out : (is_value ? v_out : k_out))
      + static_cast<size_t>(head * rows + row) * SIZE;"""
POWER = """$exp2(-(static_cast<float>(pair) / static_cast<float>(HALF)) * $base)"""
GIVEN = "static_cast<float>(1.0 / freqs[pair])"


@dataclass(frozen=True)
class Geometry:
    """All that the kernel is compiled for; head counts and sizes in numbers, `base` None where frequencies are given.

    Raises ValueError where no such rotation exists, so that a wrong one is never compiled.
    """

    queries: int
    keys: int
    size: int
    traditional: bool
    base: float | None
    scale: float
    buffers: tuple[int, int, int]
    """In which input q, k and v lie: (0, 0, 0) is one joined output, (0, 1, 2) are three."""
    biased: bool
    into_cache: bool
    form: str = "first"

    def __post_init__(self) -> None:
        """Refuse what cannot be rotated in pairs."""
        if self.size < 2 or self.size % 2:
            raise ValueError(f"head size {self.size}: pairs are rotated, so it must be even")
        if self.queries < 1 or self.keys < 1 or self.queries % self.keys:
            raise ValueError(f"{self.queries} query heads do not share {self.keys} key heads")
        if self.form not in FORMS:
            raise ValueError(f"form {self.form}: known are {', '.join(FORMS)}")
        if self.buffers not in BUFFERS:
            raise ValueError(f"buffers {self.buffers}: known are {BUFFERS}")
        if self.base is not None and not self.base > 0:
            raise ValueError(f"base {self.base}: it must be positive")

    @property
    def inputs(self) -> list[str]:
        """Names of the kernel's inputs, in order."""
        count = max(self.buffers) + 1
        names = [f"part{buffer}" for buffer in range(count)]
        names += [f"bias{buffer}" for buffer in range(count)] if self.biased else []
        names += ["place"]
        if self.base is None:
            names += ["freqs"]
        return names + (["keys", "values"] if self.into_cache else [])

    @property
    def outputs(self) -> list[str]:
        """Names of the kernel's outputs, in order."""
        return ["q_out"] if self.into_cache else ["q_out", "k_out", "v_out"]

    def places(self) -> list[tuple[int, int, int]]:
        """For q, k and v: their buffer, where they begin in its row, and how long that row is."""
        heads = (self.queries, self.keys, self.keys)
        lengths, begins = [0, 0, 0], []
        for buffer, count in zip(self.buffers, heads, strict=True):
            begins.append(lengths[buffer])
            lengths[buffer] += count * self.size
        return [(b, begin, lengths[b]) for b, begin in zip(self.buffers, begins, strict=True)]

    def threads(self, rows: int) -> int:
        """One thread for each pair of numbers."""
        return rows * (self.queries + 2 * self.keys) * self.size // 2

    def shapes(self, rows: int) -> list[tuple[int, ...]]:
        """Shapes of the outputs for so many rows."""
        others = [] if self.into_cache else [(1, self.keys, rows, self.size)] * 2
        return [(1, self.queries, rows, self.size), *others]


def language() -> Language | None:
    """The language of kernels on the default device, or None where it runs none."""
    if mx.default_device() == mx.Device(mx.cpu):
        return None
    if mx.cuda.is_available():
        return "cuda"
    return "metal" if mx.metal.is_available() else None


def source(geometry: Geometry, words: Language) -> str:
    """The body of the kernel."""
    mine = WORDS[words]
    one, two = ("2 * pair", "2 * pair + 1") if geometry.traditional else ("pair", "pair + HALF")
    turned = FORMS[geometry.form]
    places = list(zip("qkv", geometry.places(), strict=True))
    read = {
        n: f"part{b} + static_cast<size_t>(row) * {length} + ({begin} + head * SIZE)"
        for n, (b, begin, length) in places
    }
    add = {n: f"bias{b} + ({begin} + head * SIZE)" for n, (b, begin, _) in places}
    base = None if geometry.base is None else literal(log2(geometry.base))
    parts = {
        "read": Template(READ).safe_substitute(read),
        "bias": Template(ADD).safe_substitute(add) if geometry.biased else "",
        "write": INTO_CACHE if geometry.into_cache else AS_ROWS,
        "frequency": GIVEN if base is None else Template(POWER).safe_substitute(base=base),
    }
    return BODY.substitute(
        queries=geometry.queries,
        keys=geometry.keys,
        size=geometry.size,
        one=one,
        two=two,
        scale=literal(geometry.scale),
        turned_one=turned[0],
        turned_two=turned[1],
        **{name: Template(part).substitute(mine) for name, part in parts.items()},
        **mine,
    )


def literal(number: float) -> str:
    """A C literal that reads back as the same fp32 number."""
    text = format(float(np.float32(number)), ".9g")
    return f"{text}f" if any(mark in text for mark in ".en") else f"{text}.0f"


def log2(base: float) -> float:
    """log2 of `base` in fp32 by the C library, as MLX's host code has it; correctly rounded where there is none."""
    name = ctypes.util.find_library("m")
    if name is None:
        return float(np.float32(math.log2(np.float32(base))))
    function = ctypes.CDLL(name).log2f
    function.argtypes, function.restype = [ctypes.c_float], ctypes.c_float
    return float(function(base))


@lru_cache(maxsize=64)
def kernel(geometry: Geometry, words: Language) -> Any:
    """The compiled kernel of one geometry; MLX keeps compiled code by name, so the name holds a hash of the source."""
    text = source(geometry, words)
    mark = hashlib.sha256(text.encode()).hexdigest()[:12]
    make = mx.fast.cuda_kernel if words == "cuda" else mx.fast.metal_kernel
    # A copy of a cache buffer would swallow what is written into it; every input is contiguous as it is.
    return make(
        name=f"switchboard_epilogue_{mark}",
        input_names=geometry.inputs,
        output_names=geometry.outputs,
        source=text,
        ensure_row_contiguous=False,
    )


def launch(geometry: Geometry, rows: int, inputs: Sequence[mx.array]) -> list[mx.array]:
    """Run the kernel once on the default device; `inputs` as `geometry.inputs` names them, products first."""
    words = language()
    if words is None:
        raise RuntimeError("no GPU kernel on this device")
    dtype = inputs[0].dtype
    made: list[mx.array] = kernel(geometry, words)(
        inputs=list(inputs),
        template=[("T", dtype)],
        grid=(geometry.threads(rows), 1, 1),
        threadgroup=(GROUP, 1, 1),
        output_shapes=geometry.shapes(rows),
        output_dtypes=[dtype] * len(geometry.outputs),
    )
    return made
