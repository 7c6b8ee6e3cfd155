"""The arms: what is measured beside what, and how each is started."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec

from benchmarks.engine.pipes import ROOT, Remote
from switchboard.errors import ConfigError
from switchboard.registry import known

PLAIN, FUSED, ALL, MLX_LM, SHIPPED = "plain", "fused", "all", "mlx_lm", "mlx_lm as shipped"
LLAMA = "llama.cpp"
SHIPPED_UPTO = 64
"""Largest rung of mlx_lm as shipped, which reads seven tokens a second."""
SLICES, SLOW_SLICES = 4, 2
"""How often an arm has its turn in a round; an arm at five tokens a second less often."""
DRAFT = "prompt_lookup"
"""The draft switch that `all` has, since there can be one only."""


class Arm(msgspec.Struct, frozen=True, kw_only=True):
    """One engine with its settings."""

    name: str
    engine: Literal["switchboard", "mlx_lm", "llama.cpp"]
    format: str = "float32"
    threads: int = 1
    blas: bool = True
    """Whether a BLAS is preloaded where there is one."""
    switches: tuple[str, ...] = ()
    middle: bool = False
    """Asked at the middle rung only: a single switch, since a prompt of 1,024 tokens takes ten seconds to read here."""
    upto: int | None = None
    """The largest rung that it is asked at; None: all."""
    slices: int = SLICES
    twin: bool = False
    """Whether it computes the same as `plain` and so must choose the same first token."""


def usable() -> tuple[dict[str, str], dict[str, str]]:
    """Switches that work without options, with their stages; and why each other one is left out."""
    stages: dict[str, str] = {}
    out: dict[str, str] = {}
    for name, switch in known().items():
        try:
            switch.parse({})
        except ConfigError as error:
            out[name] = str(error)
            continue
        if switch.exactness == "lossy":
            out[name] = "lossy: another text, so another amount of work"
        else:
            stages[name] = str(switch.stage)
    return stages, out


def standard(threads: int, cores: int) -> list[Arm]:
    """Every arm of a full run, `plain` first."""
    stages, _ = usable()
    fused = tuple(name for name in stages if name.startswith("fused_"))
    every = tuple(name for name, stage in stages.items() if stage != "draft" or name == DRAFT)
    ours = [Arm(name=PLAIN, engine="switchboard", threads=threads, twin=True)]
    ours += [
        Arm(name=name, engine="switchboard", threads=threads, switches=(name,), middle=True, twin=True)
        for name in stages
    ]  # fmt: skip
    ours += [
        Arm(name=name, engine="switchboard", threads=threads, switches=switches, twin=True)
        for name, switches in ((FUSED, fused), (ALL, every))
    ]
    return [
        *ours,
        Arm(name=MLX_LM, engine="mlx_lm", threads=threads, twin=True),
        Arm(name=SHIPPED, engine="mlx_lm", format="quantized", blas=False, upto=SHIPPED_UPTO, slices=SLOW_SLICES),
        *(
            Arm(name=f"{LLAMA}, {count} thread{'s' if count > 1 else ''}", engine="llama.cpp", format="gguf",
                threads=count, blas=False)
            for count in sorted({1, cores})
        ),
    ]  # fmt: skip


def routes(cores: int) -> list[Arm]:
    """mlx_lm's loop in every format, as shipped and with a BLAS on one thread and on all."""
    settings = [(False, 1), *((True, count) for count in sorted({1, cores}))]
    return [
        Arm(name=f"{kind}, {f'BLAS, {count} thread' if blas else 'as shipped'}{'s' if count > 1 else ''}",
            engine="mlx_lm", format=kind, threads=count, blas=blas, slices=SLOW_SLICES)
        for kind in ("quantized", "float32", "bfloat16")
        for blas, count in settings
    ]  # fmt: skip


def start(arm: Arm, model: str, place: Path | None, longest: int, python: str) -> Remote:
    """Start an arm; `place` is the folder or file of its weights where it does not find them by the model's name."""
    told = {
        **msgspec.to_builtins(arm),
        "model": model,
        "place": str(place or ""),
        "longest": longest,
    }
    module = "llama" if arm.engine == "llama.cpp" else "worker"
    command = [python, "-m", f"benchmarks.engine.{module}", json.dumps(told)]
    return Remote(command, environment(arm, os.environ))


def environment(arm: Arm, given: Mapping[str, str]) -> dict[str, str]:
    """What the process sees: no thread count or BLAS setting of ours, only the arm's."""
    dropped = ("OMP_", "MKL_", "OPENBLAS_", "LD_PRELOAD", "SWITCHBOARD_", "PYTHONPATH")
    kept: dict[str, Any] = {
        name: value for name, value in given.items() if not name.startswith(dropped)
    }
    kept |= {"PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}
    if not arm.blas:
        kept["SWITCHBOARD_BLAS"] = "0"
    return kept
