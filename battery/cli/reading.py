"""Verbs of the reading wing: charts, reports and checks, from receipts alone.

What they call is imported inside them: pandas and matplotlib take seconds that `run --help` and a wrong option need not
wait for, and they would stand in memory while an engine is measured.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from battery.choices import chosen
from battery.cli.options import CampaignsArgument, RootOption, app, out, printable
from battery.ledger.errors import InputError, VerifyFailed
from battery.ledger.store import HEADER

if TYPE_CHECKING:
    from battery.analyse.findings import Findings


@app.command(epilog="Examples: battery charts · battery charts reference-cpu")
def charts(campaigns: CampaignsArgument = None, root: RootOption = Path()) -> None:
    """Draw the charts of campaigns from their receipts: SVG, the same bytes every time."""
    from battery.render import charts as drawing

    for folder in chosen(campaigns, root):
        written = drawing.render_charts(analysed(folder), root / "charts" / folder.name)
        out().print(f"{root / 'charts' / folder.name}: {len(written)} files", markup=False)


@app.command(epilog="Examples: battery report · battery report reference-cpu")
def report(campaigns: CampaignsArgument = None, root: RootOption = Path()) -> None:
    """Write the evidence of campaigns from their receipts: Markdown, the findings (JSON), and one HTML page.

    Exit 8 where the linter finds something in a page; it is written all the same, so that it can be read.
    """
    from battery.render import report as reporting
    from battery.render.html.page import write_page

    violations = 0
    for folder in chosen(campaigns, root):
        found = analysed(folder)
        page, figures = reporting.write_report(found, root / "reports")
        for path in (page, figures, write_page(folder, found, root / "reports")):
            out().print(str(path), markup=False)
        violations += told_violations(page, found)
    refuse(violations)


def analysed(folder: Path) -> Findings:
    """The findings of a campaign, from its index where it is large; a line on standard error where none can be kept."""
    from battery.analyse import indexed

    if why := indexed.slowed(folder):
        typer.echo(f"{folder.name}: {why}", err=True)
    return indexed.analyse(folder)


def told_violations(page: Path, found: Findings | None) -> int:
    """Say on standard error what the linter finds in a page, one violation a line; how many there are."""
    from battery.render.lint.check import lint as linted

    violations = linted(_text(page), found)
    for violation in violations:
        typer.echo(printable(f"{page}:{violation}"), err=True)
    return len(violations)


def refuse(violations: int) -> None:
    """VerifyFailed where the linter found anything."""
    if violations:
        raise VerifyFailed(
            f"{violations} violations of the report's rules; each is named above (battery lint --rules)"
        )


def _text(page: Path) -> str:
    """The text of a page; InputError where it cannot be read."""
    try:
        return page.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as broken:
        raise InputError(f"{page} cannot be read ({broken}); name a Markdown file") from broken


@app.command(
    epilog="Examples: battery lint pull-request.md · battery lint page.md --campaign reference-cpu --json"
)
def lint(
    pages: Annotated[
        list[Path] | None, typer.Argument(help="Markdown files, generated or not")
    ] = None,
    campaign: Annotated[
        str | None,
        typer.Option(
            help="Hold headline, claims and verdict cells against this campaign's receipts, too"
        ),
    ] = None,
    rules: Annotated[bool, typer.Option("--rules", help="List the rules and stop")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON list on standard output")
    ] = False,
    root: RootOption = Path(),
) -> None:
    """Check pages for what a report may not say; exit 0 only if they are clean, 8 if not."""
    from battery.analyse.findings import analyse
    from battery.render.lint import check

    if rules:
        typer.echo(check.listed())
        return
    if not pages:
        raise InputError("no page is named; give the Markdown files to check, or --rules")
    found = analyse(chosen([campaign], root)[0]) if campaign else None
    if not as_json:
        refuse(sum(told_violations(page, found) for page in pages))
        return
    every = [(page, one) for page in pages for one in check.lint(_text(page), found)]
    rows = [{"file": str(page), **msgspec.to_builtins(one)} for page, one in every]
    sys.stdout.write(json.dumps(rows, ensure_ascii=False) + "\n")
    refuse(len(every))


@app.command(
    epilog="Examples: battery beside quick-A-C-replay · battery beside quick-A-C-replay --json"
)
def beside(
    campaign: Annotated[str, typer.Argument(help="A campaign of battery run --replay")],
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object")] = False,
    root: RootOption = Path(),
) -> None:
    """Set a replay's intervals beside those of the campaign whose texts it follows, over equally many blocks."""
    from battery.analyse import beside as comparing
    from battery.render import replaying

    folder = chosen([campaign], root)[0]
    replayed = analysed(folder)
    source = replayed.plan.replayed
    if source is None:
        raise InputError(
            f"{folder.name} is no replay; make one with: battery run --replay {folder.name}"
        )
    beside_it = folder.parent / source.campaign
    free = beside_it if (beside_it / HEADER).is_file() else chosen([source.campaign], root)[0]
    found = comparing.beside(replayed, analysed(free))
    if as_json:
        sys.stdout.write(json.dumps(msgspec.to_builtins(found)) + "\n")
        return
    for line in replaying.lines(found):
        out().print(line, markup=False)


@app.command(
    epilog="Examples: battery combine monday tuesday ·"
    " battery combine here/receipts/pr-A-C there/receipts/pr-A-C --json"
)
def combine(
    campaigns: Annotated[
        list[str], typer.Argument(help="Two campaigns or more, by name or folder")
    ],
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object")] = False,
    root: RootOption = Path(),
) -> None:
    """Combine campaigns of the same arms, from several machines or days, into one ratio by random effects."""
    from battery.analyse import combine as combining
    from battery.render import combining as telling

    folders = chosen(campaigns, root)
    if len(folders) < 2 or len({folder.resolve() for folder in folders}) < len(folders):
        raise InputError("combine: name two campaigns or more, each once")
    names = [folder.name for folder in folders]
    shown = [
        name if names.count(name) == 1 else str(folder)
        for name, folder in zip(names, folders, strict=True)
    ]
    found = combining.combine(
        {name: analysed(folder) for name, folder in zip(shown, folders, strict=True)}
    )
    if not found.comparisons:
        why = "; ".join(f"{name} is left out: {why}" for name, why in found.left_out)
        raise InputError(
            f"combine: no comparison is in two of these campaigns{f' ({why})' if why else ''};"
            " name campaigns of one control and candidate with a rung in common"
        )
    if as_json:
        sys.stdout.write(json.dumps(msgspec.to_builtins(found)) + "\n")
        return
    for line in telling.lines(found):
        out().print(line, markup=False)
