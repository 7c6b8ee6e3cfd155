"""Verbs of the reading wing: charts, reports and checks, from receipts alone.

What they call is imported inside them: pandas and matplotlib take seconds that `run --help` and a wrong option need not
wait for, and they would stand in memory while an engine is measured.
"""

from __future__ import annotations

from pathlib import Path

import typer

from battery.choices import chosen
from battery.cli.options import CampaignsArgument, RootOption, app, out
from battery.ledger.errors import VerifyFailed


@app.command(epilog="Examples: battery charts · battery charts reference-cpu")
def charts(campaigns: CampaignsArgument = None, root: RootOption = Path()) -> None:
    """Draw the charts of campaigns from their receipts: SVG, the same bytes every time."""
    from battery.analyse import findings as analysis
    from battery.render import charts as drawing

    for folder in chosen(campaigns, root):
        written = drawing.render_charts(analysis.analyse(folder), root / "charts" / folder.name)
        out().print(f"{root / 'charts' / folder.name}: {len(written)} files", markup=False)


@app.command(epilog="Examples: battery report · battery report reference-cpu")
def report(campaigns: CampaignsArgument = None, root: RootOption = Path()) -> None:
    """Write the Markdown evidence and the findings (JSON) of campaigns from their receipts."""
    from battery.analyse import findings as analysis
    from battery.render import report as reporting

    for folder in chosen(campaigns, root):
        for path in reporting.write_report(analysis.analyse(folder), root / "reports"):
            out().print(str(path), markup=False)


@app.command(epilog="Example: battery verify reference-cpu")
def verify(campaigns: CampaignsArgument = None, root: RootOption = Path()) -> None:
    """Re-derive every committed figure from the receipts; exit 0 only if everything holds."""
    from battery.render import verify as verification

    broken = 0
    for folder in chosen(campaigns, root):
        problems = verification.verify(root, folder.name)
        broken += len(problems)
        for problem in problems:
            typer.echo(f"{folder.name}: {problem}", err=True)
        if not problems:
            out().print(f"{folder.name}: holds (seal, findings, report, charts)", markup=False)
    if broken:
        raise VerifyFailed(f"{broken} things do not hold; each is named above")
