"""What the conductor tells while it works, and how it is asked to stop."""

from __future__ import annotations

import signal
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any

from battery.ledger.cell import Cell, Window
from battery.ledger.receipt import Receipt
from battery.ledger.store import Header


class Interrupted(KeyboardInterrupt):
    """Ctrl-C or SIGTERM: the receipt in hand is written, the server is stopped, the campaign can go on later."""


class Progress:
    """What the conductor tells while it works; the terminal overrides these, tests listen."""

    def started(self, header: Header, done: Sequence[Receipt], total: int) -> None:
        """The campaign begins or goes on, with `done` receipts of complete blocks out of `total`."""

    def window(self, window: Window, attempt: int) -> None:
        """A window begins."""

    def phase(self, cell: Cell | None, phase: str, detail: str) -> None:
        """Something takes a while: launch, sizing prompts, warm-up, gate, request."""

    def cell(self, receipt: Receipt) -> None:
        """A receipt was written."""

    def note(self, text: str) -> None:
        """Something that the user should read."""


class Stopper:
    """Turns the first Ctrl-C or SIGTERM into a wish and the second into an end at once."""

    def __init__(self, note: Callable[[str], None]) -> None:
        self.asked = False
        self._note = note
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Stopper:
        for number in (signal.SIGINT, signal.SIGTERM):
            self._before[number] = signal.signal(number, self._hear)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _hear(self, _number: int, _frame: FrameType | None) -> None:
        if self.asked:
            raise Interrupted
        self.asked = True
        self._note("stopping after the cell in hand; once more stops at once and loses that cell")

    def check(self) -> None:
        """Interrupted if a stop was asked for."""
        if self.asked:
            raise Interrupted
