"""The verb that holds two campaigns against each other."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from battery.choices import chosen
from battery.cli.options import RootOption, app, out
from battery.cli.reading import analysed
from battery.ledger.errors import InputError


@app.command(
    epilog="Examples: battery diff monday tuesday · battery diff here/receipts/pr-A-C there/receipts/pr-A-C --json"
)
def diff(
    one: Annotated[str, typer.Argument(help="A campaign by name or folder")],
    other: Annotated[str, typer.Argument(help="Another campaign of the same arms")],
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object")] = False,
    root: RootOption = Path(),
) -> None:
    """Compare two campaigns: what differs in how they were measured, both estimates, and whether they agree.

    Where the two may be one ratio it is told, too (battery combine takes more than two). Exit 2 where they may not be,
    with the reasons behind the comparison.
    """
    from battery.analyse import contrast as contrasting
    from battery.render import contrasting as telling

    folders = chosen([one, other], root)
    if folders[0].resolve() == folders[1].resolve():
        raise InputError(f"diff: {one} and {other} are one campaign; name two")
    same = folders[0].name == folders[1].name
    names = (
        (str(folders[0]), str(folders[1])) if same else (folders[0].name, folders[1].name)
    )  # fmt: skip
    found = contrasting.contrast(names, analysed(folders[0]), analysed(folders[1]))
    if as_json:
        sys.stdout.write(json.dumps(msgspec.to_builtins(found)) + "\n")
    else:
        for line in telling.lines(found):
            out().print(line, markup=False)
    if found.refused:
        raise InputError(
            f"diff: {names[0]} and {names[1]} may not be pooled: {'; '.join(found.refused)}; their estimates stand"
            " beside each other, not together"
        )
