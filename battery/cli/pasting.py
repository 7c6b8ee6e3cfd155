"""The verb that gives the evidence of a campaign as the body of a pull request."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from battery.choices import chosen
from battery.cli.options import RootOption, app, out
from battery.cli.reading import analysed, refuse
from battery.ledger.disk import replace


@app.command(
    epilog="Examples: battery pr my-pr · battery pr my-pr --output body.md"
    " --base https://raw.githubusercontent.com/OWNER/REPOSITORY/BRANCH"
)
def pr(
    campaign: Annotated[str, typer.Argument(help="A campaign by name or folder")],
    base: Annotated[
        str,
        typer.Option(
            help="Where the folder charts/ will lie: a path, or the address of a branch's files; a pull request's own"
            " text shows pictures by whole addresses only"
        ),
    ] = ".",
    output: Annotated[Path | None, typer.Option(help="A file; default: standard output")] = None,
    root: RootOption = Path(),
) -> None:  # fmt: skip
    """Write the evidence as the body of a pull request: verdicts first, then the report's sections, folded.

    It stays below 60,000 characters (GitHub takes 65,536). What does not fit is left out in this order, and named:
    estimates by other methods, 1.5 windows, 1.6 speculation, 2 method, 1.4 long contexts, 3 switches. Exit 8 where the
    linter finds something in it; it is written all the same.
    """
    from battery.render import pull_request
    from battery.render.lint.check import lint

    found = analysed(chosen([campaign], root)[0])
    text = pull_request.body(found, base)
    if output is None:
        sys.stdout.write(text)
    else:
        replace(output, text.encode())
        out().print(f"{output}: {len(text):,} characters", markup=False)
    violations = lint(text, found)
    for one in violations:
        typer.echo(f"{output or 'the text'}:{one}", err=True)
    refuse(len(violations))
