"""Verbs of the reading wing: charts, reports and checks, from receipts alone.

What they call is imported inside them: pandas and matplotlib take seconds that `run --help` and a wrong option need not
wait for, and they would stand in memory while an engine is measured.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from battery.choices import chosen
from battery.cli.options import CampaignsArgument, RootOption, app, out
from battery.ledger.errors import InputError, VerifyFailed


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


@app.command(
    "import",
    epilog="Examples: battery import published.csv · battery import published.csv --control A --claim 15.1 --json",
)
def import_(
    file: Annotated[
        Path,
        typer.Argument(help="CSV with the columns arm,context,seed,round,metric,value,tokens"),
    ],
    control: Annotated[
        str | None, typer.Option(help="Arm that the others are held against; default: the first")
    ] = None,
    margin: Annotated[
        str | None,
        typer.Option(help="Percent within which nothing matters; default: 2, for TTFT 5"),
    ] = None,
    claim: Annotated[
        str | None,
        typer.Option(help="A published change in percent, to be held against the intervals"),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object")] = False,
) -> None:
    """Analyse values that others published: verdicts by the wider of seed and round intervals, weaknesses named."""
    from battery.analyse.foreign import findings as foreign
    from battery.analyse.foreign import plain_csv
    from battery.render import foreign as told

    found = foreign.analyse(
        plain_csv.read(file),
        control=control,
        margin=None if margin is None else _percent(margin, "--margin", 0),
        claim=None if claim is None else 1 + _percent(claim, "--claim", -100),
    )
    if as_json:
        sys.stdout.write(msgspec.json.encode(found).decode() + "\n")
        return
    out().print(told.table(found))
    for line in told.lines(found):
        out().print(line, markup=False)


def _percent(text: str, option: str, above: float) -> float:
    """A share from words such as `2`, `+15.1%` or `-3 %`; InputError for any other, and at or below `above` percent."""
    number = re.fullmatch(r"([+−-]?(?:\d+\.?\d*|\.\d+))\s*%?", text.strip(), re.ASCII)
    share = float(number[1].replace("−", "-")) / 100 if number else None
    if share is None or not above < 100 * share < 1e6:
        raise InputError(
            f"{option} {text!r}: give a number of percent above {above:g}, such as 2.5"
        )
    return share
