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

PLAIN, ROWS, FUSED, ALL, MLX_LM, LLAMA = (
    "plain",
    "plain, rows",
    "fused",
    "all",
    "mlx_lm",
    "llama.cpp",
)
SLICES, ROUTE_SLICES = 4, 2
"""How often an arm has its turn in a round; less often among the routes, most of which are slow."""
AS_SHIPPED = "as shipped"
LARGE = ", large pages"
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
    pages: bool = True
    """Whether memory in large pages is asked for where that helps."""
    layout: str = "auto"
    """Of switchboard's weights: `rows` keeps them as stored, `auto` puts wide ones column by column."""
    switches: tuple[str, ...] = ()
    lowest: bool = False
    """Asked at the lowest rung only: a single switch, so that reading long prompts leaves time for more blocks."""
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
    ours = [
        Arm(name=PLAIN, engine="switchboard", threads=threads, twin=True),
        Arm(name=ROWS, engine="switchboard", threads=threads, layout="rows", twin=True),
    ]
    ours += [
        Arm(name=name, engine="switchboard", threads=threads, switches=(name,), lowest=True, twin=True)
        for name in stages
    ]  # fmt: skip
    ours += [
        Arm(name=name, engine="switchboard", threads=threads, switches=switches, twin=True)
        for name, switches in ((FUSED, fused), (ALL, every))
    ]
    return [
        *ours,
        Arm(name=MLX_LM, engine="mlx_lm", threads=threads, twin=True),
        *(
            Arm(name=f"{LLAMA}, {count} thread{'s' if count > 1 else ''}", engine="llama.cpp", format="gguf",
                threads=count, blas=False)
            for count in sorted({1, cores})
        ),
    ]  # fmt: skip


def routes(cores: int) -> list[Arm]:
    """mlx_lm's loop in every format, as shipped and with a BLAS on one thread; as shipped first.

    fp32 also on all threads, and in large pages.

    More threads are given to fp32 alone: in the other formats no matrix product reaches the BLAS.
    """
    made = []
    for kind in ("quantized", "float32", "bfloat16"):
        counts = sorted({1, cores}) if kind == "float32" else [1]
        tried = [(False, 1, False), *((True, count, False) for count in counts)]
        for blas, count, pages in [*tried, (True, 1, True)] if len(counts) > 1 else tried:
            ways = f"BLAS, {count} thread{'s' if count > 1 else ''}" if blas else AS_SHIPPED
            made.append(Arm(name=f"{kind}, {ways}{LARGE if pages else ''}", engine="mlx_lm", format=kind,
                            threads=count, blas=blas, pages=pages, slices=ROUTE_SLICES))  # fmt: skip
    return made


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
    dropped = (
        "OMP_", "MKL_", "OPENBLAS_", "LD_PRELOAD", "GLIBC_TUNABLES", "SWITCHBOARD_", "PYTHONPATH",
    )  # fmt: skip
    kept: dict[str, Any] = {
        name: value for name, value in given.items() if not name.startswith(dropped)
    }
    kept |= {"PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}
    if not arm.blas:
        kept["SWITCHBOARD_BLAS"] = "0"
    if not arm.pages:
        kept["SWITCHBOARD_HUGE_PAGES"] = "0"
    return kept
