"""The verb that checks evidence, from wherever it comes."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from battery.cli.options import RootOption, app, out, printable
from battery.ledger.errors import ReceiptError, VerifyFailed
from battery.ledger.store import Campaign


@app.command(
    epilog="Examples: battery verify · battery verify reference-cpu · battery verify ../their-checkout ·"
    " battery verify evidence.zip · battery verify HEAD~1 reference-cpu · battery verify origin/pr-12 my-pr --json"
)
def verify(
    sources: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[NAME|DIR|ZIP|REVISION]...",
            help="Campaigns by name; or a folder, an archive of battery pack or a git revision, with names of campaigns"
            " in it behind it (none: all). A name goes before a revision; write refs/heads/NAME for a branch",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON list")] = False,
    root: RootOption = Path(),
) -> None:
    """Re-derive every figure from the receipts; exit 0 only if everything holds, 8 if not.

    Checked are the seal, every file's schema, the plan's cells, that arms were sent the same requests, the analysis
    made again, pages and charts to the byte. Exit 7: an archive or a revision holds what no evidence has.
    """
    from battery.evidence import opened
    from battery.render import verify as verification

    broken, rows = 0, []
    with opened(sources or [], root) as every:
        for one in every:
            problems = verification.verify(one.root, one.campaign)
            broken += len(problems)
            seal = _seal(Campaign(one.root / "receipts" / one.campaign))
            rows.append(
                {
                    "source": one.source, "campaign": one.campaign, "holds": not problems, "seal": seal,
                    "problems": [msgspec.to_builtins(problem) for problem in problems],
                }
            )  # fmt: skip
            for problem in problems if not as_json else ():
                typer.echo(printable(f"{one.told}: {problem}"), err=True)
            if not problems and not as_json:
                here = one.root / "reports" / f"{one.campaign}.html"
                pages = "report, page" if here.is_file() else "report"
                checked = f"seal, receipts, requests, findings, {pages}, charts"
                out().print(f"{one.told}: holds ({checked}); seal {seal}", markup=False)
    if as_json:
        sys.stdout.write(json.dumps(rows, ensure_ascii=False) + "\n")
    if broken:
        raise VerifyFailed(
            f"{broken} things do not hold; each is named {'in the list' if as_json else 'above'}"
        )


def _seal(campaign: Campaign) -> str | None:
    """The seal as it is kept; None where there is none that can be read."""
    try:
        kept = campaign.sealed()
    except ReceiptError:
        return None
    return kept.seal if kept else None
