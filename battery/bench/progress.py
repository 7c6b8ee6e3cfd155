"""What the conductor tells while it works, and how it is asked to stop."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Iterator, Sequence
from types import FrameType
from typing import Any

from battery import interruption
from battery.interruption import STOPS, Interrupted
from battery.ledger.cell import Cell, Window
from battery.ledger.receipt import Receipt
from battery.ledger.store import Header


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
    """Turns the first Ctrl-C or SIGTERM into a wish, and the second into an end at once where that is safe.

    Safe is where `at_once` says so: while an answer is awaited, which may take long and leaves nothing behind when it
    is cut off. Everywhere else (a server that starts or stops, a receipt that is written) the wish is looked at soon,
    and an exception out of a signal handler would leave half a thing.
    """

    def __init__(self, note: Callable[[str], None], hand: str = "the cell in hand") -> None:
        """`hand`: what is finished first, in words."""
        self.asked = False
        self._note, self._hand, self._untold = note, hand, False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Stopper:
        interruption.check()  # asked for on the way here, and swallowed
        _Open.now = _Open.due = False
        self._before[signal.SIGCONT] = signal.signal(signal.SIGCONT, _Suspended.hear)
        for number in STOPS:
            self._before[number] = signal.signal(number, self._hear)
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        if kind is None:
            self.check()  # heard when there was nothing left to stop: the caller's next stage does not begin

    def _hear(self, _number: int, _frame: FrameType | None) -> None:
        if self.asked:
            if _Open.now:
                _Open.now = False
                raise Interrupted
            _Open.due = True
            return
        self.asked = True
        self._tell()

    def _tell(self) -> None:
        """Say that the wish was heard; later, if the signal came in the midst of another line."""
        try:
            self._note(f"stopping after {self._hand}; once more stops at once and loses it")
        except RuntimeError:  # a print inside a print
            self._untold = True

    def check(self) -> None:
        """Interrupted if a stop was asked for."""
        if self.asked:
            if self._untold:
                self._untold = False
                self._tell()
            raise Interrupted


class _Suspended:
    """How often this process was stopped (Ctrl-Z, SIGSTOP) and went on."""

    times = 0

    @classmethod
    def hear(cls, _number: int, _frame: FrameType | None) -> None:
        """SIGCONT came."""
        cls.times += 1


def suspensions() -> int:
    """How often this process was suspended so far: what it timed across a suspension is no measurement."""
    return _Suspended.times


class _Open:
    """Whether the second press may end what runs now; one for the process, as its signals are."""

    now = False
    due = False
    """The second press came before the wait."""


@contextlib.contextmanager
def at_once() -> Iterator[None]:
    """Around a wait that the second press may cut off."""
    _Open.now = True
    try:
        if _Open.due:
            raise Interrupted
        yield
    finally:
        _Open.now = False
