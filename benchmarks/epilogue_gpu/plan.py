"""What the epilogue's proof on a GPU has to measure: the list against which its verdict counts.

Every case has a name of its own; a verdict divides by all of them, whatever ran.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

ARMS = ("chain", "rows", "cache")
TYPES = ("float16", "bfloat16", "float32")
PROMPTS = (24, 250, 1500)
"""Tokens of prose before a text: one within the first step of the cache, one that crosses its growth, one long."""
CONTEXTS = (64, 4096)
TOKENS = 128
VARIANTS = ("without cuDNN", "as it is")
DISTINCT = 16
"""A text of TOKENS tokens with fewer different ones than this is a loop: that it is the same says next to nothing."""


@dataclass(frozen=True)
class Subject:
    """A model of the plan: whether its products are joined, the variants of its texts, and whether it is timed."""

    joined: bool
    variants: tuple[str, ...]
    speed: bool


MODELS = {
    "smollm2-135m": Subject(joined=True, variants=VARIANTS, speed=True),
    "synthetic:qwen2.5-0.5b-q4": Subject(joined=True, variants=VARIANTS[:1], speed=False),
    "synthetic:qwen2.5-0.5b-mixed": Subject(joined=False, variants=VARIANTS[:1], speed=False),
}


@dataclass(frozen=True)
class Plan:
    """Names of all that is to be measured, by part."""

    kernel: tuple[str, ...]
    text: tuple[str, ...]
    speed: tuple[str, ...]


def variant() -> str:
    """Whether this process leaves one row's attention to MLX's own kernel or lets MLX pick (`VARIANTS`)."""
    return VARIANTS[0] if os.environ.get("MLX_CUDA_USE_CUDNN_SDPA") == "0" else VARIANTS[1]


def text(model: str, arm: str, length: int, variant: str) -> str:
    """The name of one text."""
    return f"{model} {arm} after {length}, {variant}"


def speed(model: str, arm: str, context: int) -> str:
    """The name of one comparison of speed."""
    return f"{model} {arm} at {context}"


def plan(geometries: tuple[str, ...]) -> Plan:
    """The whole plan, given the names of the kernel's geometries."""
    pairs = [(name, arm) for name in MODELS for arm in ARMS[1:]]
    return Plan(
        kernel=tuple(f"{kind} {name}" for kind in TYPES for name in geometries),
        text=tuple(
            text(name, arm, length, one)
            for name, arm in pairs
            for one in MODELS[name].variants
            for length in PROMPTS
        ),
        speed=tuple(
            speed(name, arm, context)
            for name, arm in pairs
            if MODELS[name].speed
            for context in CONTEXTS
        ),
    )
