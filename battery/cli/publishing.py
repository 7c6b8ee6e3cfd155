"""The end of a run: charts, report, what the bars and the linter say, and the exit code that follows."""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path

from rich.console import Console

from battery import interruption
from battery.cli.checking import line
from battery.cli.reading import analysed, refuse, told_violations
from battery.ledger.errors import CellsFailed
from battery.ledger.plan import Plan
from battery.terminal import failed_cells


def publish(
    plan: Plan, folder: Path, root: Path, counts: Counter[str], console: Console, as_json: bool
) -> None:
    """Draw the charts and write the report of a campaign, and tell what came of it: lines, or one line of JSON.

    CellsFailed when more cells failed than the plan allows; VerifyFailed when the page breaks a rule of the linter.
    Both come last: everything is written by then.
    """
    from battery.render import charts as drawing
    from battery.render import replaying, tables
    from battery.render import report as reporting
    from battery.render.html.page import write_page

    found = analysed(folder)
    interruption.check()
    drawn = drawing.draw(found)
    drawing.render_charts(found, root / "charts" / folder.name, drawn)
    interruption.check()
    written = reporting.write_report(found, root / "reports")
    interruption.check()
    seen = write_page(folder, found, root / "reports", drawn)
    report = next(path for path in written if path.suffix == ".md")
    if as_json:
        facts = {
            "campaign": folder.name, "cells": sum(counts.values()), "outcomes": dict(counts),
            "bars": {one.what: one.outcome for one in found.bars}, "report": str(report),
            **replaying.facts(found),
        }  # fmt: skip
        sys.stdout.write(json.dumps(facts) + "\n")
    else:
        lines = [
            *replaying.head(found, mark=""),
            tables.headline(found),
            *(f"bar {line(one)}" for one in found.bars),
            f"receipts: {folder}",
            f"charts:   {root / 'charts' / folder.name}",
            f"report:   {report}",
            f"page:     {seen}",
        ]
        console.print("\n".join(lines), markup=False)
    violations = told_violations(report, found)
    _judge_failures(plan, counts, folder)
    refuse(violations)


def _judge_failures(plan: Plan, counts: Counter[str], folder: Path) -> None:
    """CellsFailed with the cells' names when more of them failed than the plan allows."""
    failed = sum(counts.values()) - counts["ok"]
    if failed > plan.limits.failed_share * sum(counts.values()):
        rest = ", ".join(
            f"{count} {name}" for name, count in sorted(counts.items()) if name != "ok"
        )
        raise CellsFailed(
            f"{failed} of {sum(counts.values())} cells did not end ok ({rest}), more than the"
            f" {100 * plan.limits.failed_share:g} % that the plan allows:\n{failed_cells(folder)}"
        )
