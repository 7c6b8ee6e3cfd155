"""Every rule over one page: what a report may not say, with the line, the rule and the remedy.

A page is checked as it stands, generated or written by hand; with the Findings of its campaign headline, claims and
verdict cells are held against them, too. The rules look at words and figures only: they find the ways in which reports
mislead that can be seen on the page, and a page without a violation is not thereby true (`verify` is what compares it
with receipts).
"""

from __future__ import annotations

import msgspec

from battery.analyse.findings import Findings
from battery.render.lint import claims, counts, headline, quality, replays, wording
from battery.render.lint.page import read
from battery.render.lint.rule import RULES, Report

__all__ = ["RULES", "Violation", "lint", "listed"]
FAMILIES = (headline, replays, quality, counts, claims, wording)
"""The modules whose rules are applied; importing them declares the rules."""


class Violation(msgspec.Struct, frozen=True):
    """One thing that a page says and may not say."""

    line: int
    rule: str
    what: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.line}: {self.rule}: {self.what}; {self.remedy}"


def lint(markdown: str, findings: Findings | None = None) -> list[Violation]:
    """The violations of a page in the order of its lines; empty where every rule holds."""
    report = Report(read(markdown), findings)
    found = [
        Violation(line, rule.name, what, remedy)
        for rule in RULES.values()
        for line, what, remedy in rule.check(report)
    ]
    return sorted(dict.fromkeys(found), key=lambda one: one.line)


def listed() -> str:
    """The rules, one a line, for help texts."""
    return "\n".join(f"{rule.name}: {rule.why}" for rule in RULES.values())
