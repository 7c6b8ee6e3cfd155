"""mlx-lm's model definitions and caches, without the rest of mlx-lm.

`import mlx_lm` loads its tokenizers and with them transformers, which takes two seconds of every start. The
definitions need none of that, so the package is entered by its path and its `__init__` is left out.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
import types
from typing import Any

from switchboard.errors import ModelError

SAME_AS = {"mistral": "llama"}


def architecture(model_type: str) -> Any:
    """The module of one architecture, with its `Model` and `ModelArgs`."""
    _enter()
    name = SAME_AS.get(model_type, model_type)
    try:
        return importlib.import_module(f"mlx_lm.models.{name}")
    except ModuleNotFoundError as error:
        raise ModelError(f"architecture '{model_type}': mlx-lm has no such model") from error


def caches() -> Any:
    """mlx-lm's cache module."""
    _enter()
    return importlib.import_module("mlx_lm.models.cache")


def experts() -> Any:
    """mlx-lm's module of routed projections."""
    _enter()
    return importlib.import_module("mlx_lm.models.switch_layers")


def build(config: dict[str, Any]) -> Any:
    """The model of a configuration, with weights that are not evaluated yet."""
    module = architecture(config["model_type"])
    return module.Model(module.ModelArgs.from_dict(config))


def _enter() -> None:
    if "mlx_lm" in sys.modules:
        return
    spec = importlib.util.find_spec("mlx_lm")
    if spec is None or spec.submodule_search_locations is None:
        raise ModelError("mlx-lm is not installed here: install the package with its mlx extra")
    package = types.ModuleType("mlx_lm")
    package.__path__ = list(spec.submodule_search_locations)
    package.__spec__ = spec
    sys.modules["mlx_lm"] = package
