"""Hold wide matrices column by column where that is the faster way to multiply one row with them.

A linear layer keeps its weights as (outputs, inputs), row by row, and a product of one token's row takes a dot
product for every output. MKL reads memory up to twice as fast when the numbers of one *input* stand together
(outputs side by side), where outputs are many and inputs few. The array stays the same matrix, only its order in
memory changes: `weight.T` is then what lies there in one piece. Sums are taken in another order, so logits round
differently from row-by-row weights, the same way in every arm. Products of four to eight rows take up to 5 % longer,
prefill as long as before.

Laid out are the output matrix (or the tied embedding) and projections that stand beside siblings of just their shape
(gate and up): those can still be read as one product, as a stack. reports/LOG.md has the rates.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import mlx.core as mx
from mlx.nn.layers.base import Module
from mlx.nn.layers.embedding import Embedding
from mlx.nn.layers.linear import Linear

from switchboard import blas

WIDE = 1.5
"""Outputs for each input from which columns pay: at 1 they gain little, at 0.4 they lose."""
LEAST_BYTES = 1 << 20
"""Smaller matrices stay in the processor's caches, where the order makes no difference."""
_MARK = "columns_together"


@dataclass(frozen=True)
class Laid:
    """How many matrices were laid out, and their bytes."""

    matrices: int = 0
    bytes: int = 0

    def told(self) -> str:
        """`rows`, or how much stands in columns, as /health says it."""
        if not self.matrices:
            return "rows"
        return f"columns in {self.matrices} matrices ({self.bytes} bytes), else rows"


NOTHING = Laid()


def pays() -> bool:
    """Whether products here are MKL's on a CPU: the only ones for which this was measured."""
    return mx.default_device() == mx.Device(mx.cpu) and "mkl" in (blas.loaded() or "")


def lay(model: Any, least_bytes: int = LEAST_BYTES) -> Laid:
    """Lay out the fp32 matrices of a model that gain by it, one at a time, so that the peak is one copy above it."""
    count = size = 0
    for module in _wide(model, least_bytes):
        together = mx.contiguous(module.weight.T)
        mx.eval(together)
        module.weight = together.T
        mx.eval(module.weight)
        setattr(module, _MARK, True)
        count, size = count + 1, size + module.weight.nbytes
        del together
    mx.clear_cache()
    return Laid(count, size)


def laid(module: Any) -> bool:
    """Whether the columns of a projection's weights stand together in memory."""
    return getattr(module, _MARK, False)


def _wide(model: Any, least_bytes: int) -> list[Any]:
    """The matrices to lay out, from the last layer to the first."""
    named = model.named_modules()
    apart = any(path.endswith("lm_head") for path, _ in named)
    found = []
    for _, parent in named:
        alike: dict[int, list[Any]] = {}
        for child in parent.children().values():
            if type(child) is Linear:
                alike.setdefault(int(child.weight.shape[1]), []).append(child)
            elif type(child) is Embedding and not apart and _gains(child, least_bytes):
                found.append(child)
        for siblings in alike.values():
            shapes = {one.weight.shape for one in siblings}
            if len(shapes) == 1 and _gains(siblings[0], least_bytes):
                found += siblings
    return found


def _gains(module: Any, least_bytes: int) -> bool:
    weight = module.weight
    outputs, inputs = weight.shape
    return bool(
        weight.dtype == mx.float32 and outputs >= WIDE * inputs and weight.nbytes >= least_bytes
    )


class Stack(Module):
    """Projections of one shape as one batched product: weights (projections, inputs, outputs), columns together.

    A row is multiplied with each projection by the same call of the BLAS as when it stands alone, so the results are
    its bit by bit; a projection of the stack is a view of it in one piece.
    """

    def __init__(self, parts: list[Any]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.weight = mx.stack([part.weight.T for part in parts])
        if "bias" in parts[0]:
            self.bias = mx.stack([part.bias for part in parts])
        mx.eval(self.weight, self.get("bias"))

    def parts(self, x: mx.array) -> list[mx.array]:
        """The product of `x` (…, inputs) with each projection, (…, outputs) each."""
        count, inputs, outputs = self.weight.shape
        flat = x.reshape(1, -1, inputs)
        # As the linear layer does: the product is added to the bias within the call, which rounds once less.
        biased = "bias" in self
        made = mx.addmm(self.bias[:, None], flat, self.weight) if biased else flat @ self.weight
        return [one.reshape(*x.shape[:-1], outputs) for one in mx.split(made, count)]

    def cut(self, place: int) -> Any:
        """One projection again, its arrays views of the stack's."""
        part: Any = Linear(1, 1, bias=False)
        # A slice is a view; an index would be a copy.
        part.weight = self.weight[place : place + 1].squeeze(0).T
        if "bias" in self:
            part.bias = self.bias[place : place + 1].squeeze(0)
        setattr(part, _MARK, True)
        return part
