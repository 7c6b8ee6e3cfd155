"""A model as it hung together, so that it can be plain again after a switch without being read anew.

What is kept are references: which modules stood where, of which class, with which arrays and attributes. Arrays of MLX
are values, so the ones that are put back are the ones that were observed; no weight is copied and none computed. A
switch that changes a whole class is not undone by this, and was not undone by reading the model again either.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mlx.nn.layers.base import Module


@dataclass(frozen=True)
class _Held:
    """One module: its class, what MLX finds in it, and its other attributes."""

    module: Any
    kind: type
    items: dict[str, Any]
    attributes: dict[str, Any]


class Kept:
    """The modules of a model as they are now."""

    def __init__(self, model: Any) -> None:
        self._held = [
            _Held(one, type(one), _opened(dict(one)), dict(vars(one))) for one in model.modules()
        ]

    def put_back(self) -> None:
        """Make every module what it was."""
        for held in self._held:
            held.module.__class__ = held.kind
            dict.clear(held.module)
            dict.update(held.module, _opened(held.items))
            vars(held.module).clear()
            vars(held.module).update(held.attributes)


def _opened(value: Any) -> Any:
    """The same arrays and modules in lists and tables of its own, as a switch may write into those of the model."""
    if isinstance(value, list | tuple):
        return type(value)(_opened(one) for one in value)
    if isinstance(value, dict) and not isinstance(value, Module):
        return {name: _opened(one) for name, one in value.items()}
    return value
