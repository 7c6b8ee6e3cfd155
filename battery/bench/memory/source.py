"""What every way of knowing a server's peak memory has in common: name, how it knows, reset before a cell, read after.

A counter that cannot be set back to the present would show an earlier cell's peak for every later one (a monitor that
was never reset did that to a published table); such a counter is believed only where it rose during the cell.
"""

from __future__ import annotations

from collections.abc import Set
from typing import NamedTuple, Protocol

from battery.ledger.receipt import How


class Value(NamedTuple):
    """What a source read, or why it read nothing."""

    bytes: int | None
    reason: str | None = None
    """Why there is no value."""
    note: str | None = None
    """What the reader of a value must know: an upper bound, what it holds besides, when it was read."""


class Source(Protocol):
    """One way of knowing the peak memory of a server over one cell."""

    @property
    def name(self) -> str:
        """As receipts and reports write it."""

    @property
    def how(self) -> How:
        """Whether the system keeps the true peak, or we looked from time to time and may have missed it."""

    @property
    def includes_file_cache(self) -> bool | None:
        """Whether pages of files (mapped weights) are in it; None where that depends."""

    def reset(self, pids: Set[int]) -> str | None:
        """Begin a cell for these processes; why the counter could not be set back, None where it was."""

    def look(self) -> None:
        """Called now and then while the cell runs; must take well under a millisecond."""

    def read(self) -> Value:
        """The peak since `reset`."""


def risen(before: int | None, after: int | None, refusal: str | None, gone: str) -> Value:
    """The value of a high-water mark: as it is where it was reset, else only if it rose in between."""
    if after is None:
        return Value(None, gone)
    if refusal is None:
        return Value(after)
    if before is not None and after > before:
        return Value(after, None, f"not reset ({refusal}), but it rose during the cell")
    return Value(
        None, f"{refusal}, and it did not rise during the cell, whose peak is at most {after} bytes"
    )
