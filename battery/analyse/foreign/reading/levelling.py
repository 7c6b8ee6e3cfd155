"""Contexts of different runs that differ by counting alone, taken for one, so that their values can be compared.

Tools tell a context by the prompt tokens that a server or a tokenizer counted, in means over requests; one run may say
1,019 and another 1,024 of the same prompts. They are taken for one where they lie within 2 %, and no run has two of
them, for those are two rungs of its ladder.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

NEAR = 0.02
"""Share by which contexts may differ and be one."""


def levels(runs: Sequence[set[int]]) -> dict[int, int]:
    """For every context of the runs the one that it is taken for: the smallest within reach that shares no run with it.

    Going upwards, a context joins the one before it or begins a new level.
    """
    owners: dict[int, set[int]] = {}
    for place, contexts in enumerate(runs):
        for context in contexts:
            owners.setdefault(context, set()).add(place)
    found: dict[int, int] = {}
    level, members = -1, set[int]()
    for context in sorted(owners):
        if level < 0 or context > level * (1 + NEAR) or members & owners[context]:
            level, members = context, set()
        found[context] = level
        members |= owners[context]
    return found


def notes(found: Mapping[int, int]) -> list[str]:
    """What was taken for what."""
    return [
        f"contexts of {level:,} and {context:,} tokens are taken for one ({level:,}): they differ by no more than"
        " counting does"
        for context, level in found.items()
        if context != level
    ]
