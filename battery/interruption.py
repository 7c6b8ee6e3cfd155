"""Ctrl-C and SIGTERM, remembered: an interruption that C code swallows still ends the program.

An exception out of a signal handler can be lost where it cannot pass: in a callback of a drawing library, in a
`__del__`. What was asked for is therefore kept here too, and looked at between stages. While a campaign is measured,
`bench.progress.Stopper` hears them instead and keeps its own word.
"""

from __future__ import annotations

import signal
from types import FrameType

STOPS = (signal.SIGINT, signal.SIGTERM)


class Interrupted(KeyboardInterrupt):
    """Ctrl-C or SIGTERM: what is in hand is written, servers are stopped, the same command goes on later.

    Not KeyboardInterrupt itself: where exactly that leaves an `exec` (named tuples and dataclasses are made by one),
    CPython ends the process by SIGINT even if it is caught further out.
    """


class _Heard:
    """Whether a stop was asked for; one for the process, as its signals are."""

    ever = False


def listen() -> None:
    """From now on both signals raise Interrupted wherever the main thread is, and are remembered."""
    for number in STOPS:
        signal.signal(number, _hear)


def deafen() -> None:
    """From now on neither signal does anything: the end has begun, and its exit code stands."""
    for number in STOPS:
        signal.signal(number, signal.SIG_IGN)


def check() -> None:
    """Interrupted if a stop was asked for, even if that exception was swallowed on its way."""
    if _Heard.ever:
        raise Interrupted


def _hear(_number: int, _frame: FrameType | None) -> None:
    _Heard.ever = True
    raise Interrupted
