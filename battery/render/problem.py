"""One thing that does not hold, and how many of them are told."""

from __future__ import annotations

import msgspec

MOST = 10
"""Differences named per file; the rest is counted."""


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that does not hold."""

    place: str
    what: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.place}: {self.what}; {self.remedy}"


def limited(problems: list[Problem], place: str) -> list[Problem]:
    """The first few, and how many more there are."""
    if len(problems) <= MOST:
        return problems
    more = Problem(
        place=place, what=f"{len(problems) - MOST} more differences", remedy=problems[0].remedy
    )
    return [*problems[:MOST], more]
