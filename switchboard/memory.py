"""Bytes in use, as MLX counts them, and the limit that was set.

MLX does not enforce its limit on the CPU, so it is held here, between passes: a request over it ends as out of memory
and the process lives on. What one pass needs beyond the limit is not caught.
"""

from __future__ import annotations

import mlx.core as mx

from switchboard.errors import OutOfMemory


def limit() -> int:
    """Bytes that may be in use: the limit that was set at start, else what MLX takes from the device."""
    # MLX tells its limit only in exchange for another.
    before = mx.set_memory_limit(1 << 62)
    mx.set_memory_limit(before)
    return before


def peak() -> int:
    """The high-water mark since the last reset; never below what is in use now."""
    # MLX starts again from zero at a reset, and only notices what is allocated after it.
    return max(mx.get_peak_memory(), mx.get_active_memory())


def reset_peak() -> int:
    """Start the high-water mark anew; the old one is returned."""
    before = peak()
    mx.reset_peak_memory()
    return before


def over(limit: int | None) -> bool:
    """Whether more is in use than the limit allows."""
    return limit is not None and mx.get_active_memory() > limit


def hold(limit: int | None) -> None:
    """Raise OutOfMemory when more is in use than the limit allows."""
    active = mx.get_active_memory()
    if limit is not None and active > limit:
        raise OutOfMemory(f"{active} bytes are in use, the limit is {limit}")
