"""The coordinates of one measurement: which block, which window in it, which cell of the window."""

from __future__ import annotations

import msgspec


class Window(msgspec.Struct, frozen=True):
    """One launch of one arm, carrying one pass over the ladder."""

    block: int
    """1, 2, … Every block holds one window of every arm."""
    position: int
    """Place in the block's order, from 0."""
    number: int
    """1, 2, … in the order of the whole campaign."""
    arm: str


class Cell(msgspec.Struct, frozen=True):
    """One timed request: an arm at a rung with a seed, in a window."""

    window: Window
    place: int
    """Place in the window, from 0."""
    rung: int
    """Context length in tokens."""
    seed: int
    """Picks the prompt and the sampler's stream; the same for every arm of the block."""
    sentinel: bool = False
    """A prompt that returns in every window: determinism and drift only."""

    @property
    def arm(self) -> str:
        """The arm of the window."""
        return self.window.arm

    @property
    def block(self) -> int:
        """The block of the window."""
        return self.window.block
