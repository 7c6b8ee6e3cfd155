"""What a rule is: a name, one line of explanation, and a function from a report to what it finds."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec

from battery.analyse.findings import Findings
from battery.render.lint.page import Page

Found = tuple[int, str, str]
"""Line, what is wrong there, and the remedy."""


class Report(msgspec.Struct, frozen=True):
    """A page, and the findings of its campaign where they are known."""

    page: Page
    findings: Findings | None = None


class Rule(msgspec.Struct, frozen=True):
    """One rule of the linter."""

    name: str
    why: str
    check: Callable[[Report], Iterator[Found]]


RULES: dict[str, Rule] = {}
"""Every rule by name, in the order in which they were declared."""


def rule(
    name: str, why: str
) -> Callable[[Callable[[Report], Iterator[Found]]], Callable[[Report], Iterator[Found]]]:
    """Declare the function as the rule `name`; `why` is its line in every list of rules."""

    def declare(check: Callable[[Report], Iterator[Found]]) -> Callable[[Report], Iterator[Found]]:
        RULES[name] = Rule(name, why, check)
        return check

    return declare
