"""What a reader takes out of one file: runs with values, in our metrics and units, and what the file cannot show."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta, timezone

import msgspec

from battery.ledger.errors import InputError


class Load(msgspec.Struct, frozen=True, order=True):
    """How many requests ran at a time, and how often one was sent."""

    streams: float
    """Most requests at a time; infinite where nothing limited them."""
    rate: float = math.inf
    """Requests sent a second; infinite: the next as soon as there is room."""

    @property
    def alone(self) -> bool:
        """Whether every request had the engine for itself: only then is its rate that of a decode."""
        return self.streams == 1

    @property
    def words(self) -> str:
        """Such as `8 requests at a time`."""
        many = "all requests" if math.isinf(self.streams) else f"{self.streams:g} requests"
        told = "1 request at a time" if self.alone else f"{many} at a time"
        return told if math.isinf(self.rate) else f"{told}, {self.rate:g} a second"


ALONE = Load(1)
UNTOLD = timezone(timedelta(0), "untold")
"""The zone of stamps whose files tell none: such stamps are put in order, and shown without one."""


class Value(msgspec.Struct, frozen=True, kw_only=True):
    """One value of one metric, in the metric's own unit."""

    metric: str
    value: float
    context: int | None
    """Tokens of context; None: the file does not say."""
    seed: str | None = None
    """Label of the prompt, where it may be looked for in other files; None: no single prompts are told."""
    tokens: int | None = None
    """Tokens that were generated, where they were counted; of the mean of several requests their mean, rounded."""
    asked: int | None = None
    """Tokens that were asked for, where only that is told: it tells tests of one context apart."""
    n: int = 1
    low: float | None = None
    high: float | None = None


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """One pass of a tool over its contexts, of one thing measured and under one load."""

    label: str = ""
    """What tells it from the other things that the file measured; empty where there is one."""
    load: Load | None = None
    """None: no requests were sent, or nothing says how."""
    started: datetime | None = None
    values: tuple[Value, ...]
    requests: int | None = None
    failed: int | None = None
    lengths: tuple[int, ...] = ()
    """Prompt tokens of the single requests, where they are told."""
    notes: tuple[str, ...] = ()
    settings: dict[str, str] = {}
    """How it was made, by the file's own word: `settings.made_with`."""


class Taken(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that is used of a file."""

    runs: tuple[Run, ...]
    version: str = ""
    absent: dict[str, str] = {}
    """Metrics that no file of this format has, or this one has not, and why."""
    notes: tuple[str, ...] = ()
    """What the format cannot show, and how its figures differ from ours."""


def several(
    metric: str, values: list[float], context: int | None, tokens: int | None = None, asked: int | None = None
) -> Value:  # fmt: skip
    """The mean of repetitions, with their number and their ends."""
    return Value(
        metric=metric, value=math.fsum(values) / len(values), context=context, tokens=tokens, asked=asked,
        n=len(values), low=min(values), high=max(values),
    )  # fmt: skip


def moment(text: str, form: str = "") -> datetime | None:
    """A stamp as a moment, of the zone UNTOLD where it tells none; None where it is no stamp."""
    try:
        found = datetime.strptime(text, form) if form else datetime.fromisoformat(text)
    except ValueError:
        return None
    return found if found.tzinfo else found.replace(tzinfo=UNTOLD)


def epoch(seconds: float) -> datetime | None:
    """A moment from seconds since 1970; None outside what a calendar holds."""
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (OverflowError, OSError, ValueError):
        return None


def nothing(where: str, failed: int | None) -> InputError:
    """What is said where no request ended well."""
    told = f" ({failed} failed)" if failed else ""
    return InputError(
        f"{where}: no request ended well{told}, so there is nothing to compare; leave the file out and say that it"
        " failed"
    )
