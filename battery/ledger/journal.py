"""What a campaign's journal tells beside its receipts: looks of the stopping rule, and receipts that were set aside.

The journal is written while the campaign runs and only appended to. A line of another shape tells nothing here: a crash
may have cut it off.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

Events = Sequence[Mapping[str, Any]]
"""The lines of a journal, oldest first."""


class NotedLook(msgspec.Struct, frozen=True, kw_only=True):
    """A look as it was noted when it was taken: what it decided is what happened, whatever receipts say later."""

    block: int
    ends: bool
    why: str = ""
    after: int | None = None
    """Highest number of a receipt at that moment; None where that was not kept."""


class SetAside(msgspec.Struct, frozen=True, kw_only=True):
    """A receipt that was found unreadable while the campaign went on, and was moved to damaged/."""

    file: str
    reason: str = ""

    @property
    def number(self) -> int | None:
        """The number that the receipt was given; None where its name tells none."""
        return number(self.file)


def number(file: str) -> int | None:
    """The number in the name of a receipt's file; None where there is none."""
    found = re.match(r"([0-9]{4,12})-b", file)
    return int(found[1]) if found else None


def noted_looks(events: Events) -> dict[int, NotedLook]:
    """Per block the look that was noted after it; the first is binding, for by it the campaign went on or ended."""
    found: dict[int, NotedLook] = {}
    for event in events:
        if event.get("event") == "look":
            try:
                look = msgspec.convert(event, NotedLook)
            except msgspec.ValidationError:
                continue
            found.setdefault(look.block, look)
    return found


def set_aside(events: Events) -> tuple[SetAside, ...]:
    """Every receipt that was set aside, in the order of the journal."""
    found = []
    for event in events:
        if event.get("event") == "damaged":
            try:
                found.append(msgspec.convert(event, SetAside))
            except msgspec.ValidationError:
                continue
    return tuple(found)


def tally(events: Events) -> dict[str, int]:
    """Events by kind, unreadable ones too; an attempt is abandoned once, however often it is told."""
    told = [
        (str(line.get("event")), line.get("block"), line.get("attempt"), place)
        for place, line in enumerate(events)
    ]
    once = dict.fromkeys(event[:3] if event[0] == "abandoned" else event for event in told)
    return dict(sorted(Counter(event[0] for event in once).items()))
