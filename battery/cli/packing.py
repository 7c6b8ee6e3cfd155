"""The verb that makes one archive of campaigns, for a pull request."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from battery.choices import chosen
from battery.cli.options import RootOption, app, out
from battery.ledger import parcel
from battery.ledger.disk import replace
from battery.ledger.errors import InputError
from battery.ledger.store import Campaign

MOST = 20
"""Places told one by one; the rest is counted."""


@app.command(
    epilog="Examples: battery pack my-pr · battery pack my-pr reference-cpu --output evidence.zip ·"
    " battery pack my-pr --allow receipts/my-pr/0007-b1-A-r512-s38620103.json:14"
)
def pack(
    campaigns: Annotated[list[str], typer.Argument(help="Campaigns by name or folder")],
    output: Annotated[
        Path | None, typer.Option(help="The archive; default: CAMPAIGN.zip of the first")
    ] = None,
    allow: Annotated[
        list[str] | None,
        typer.Option(
            help="FILE:LINE that was looked at and may be shown, as the refusal names it; repeatable"
        ),
    ] = None,
    root: RootOption = Path(),
) -> None:
    """Make one archive of finished campaigns: receipts, answers, charts, reports; the same bytes every time.

    Every file is searched for secrets, home folders and paths of this machine first; where there are any, nothing is
    written (exit 2), and they are named. Receipts are never changed. Who gets it checks it: battery verify FILE.zip
    """
    folders = chosen(campaigns, root)
    if strange := [
        folder for folder in folders if folder.resolve().parent != (root / "receipts").resolve()
    ]:
        raise InputError(
            f"{strange[0]}: lies outside {root / 'receipts'}; name the folder that holds it with --root"
        )
    names = sorted({folder.resolve().name for folder in folders})
    named = {name: path for one in names for name, path in parcel.members(root, one).items()}
    _refuse(list(parcel.private(named)), set(allow or ()))
    path = output or Path(f"{folders[0].resolve().name}.zip")
    data = parcel.packed(named)
    replace(path, data)
    out().print(f"{path}: {len(named)} files, {len(data):,} bytes", markup=False)
    for one in names:
        seal = Campaign(root / "receipts" / one).sealed()
        out().print(f"  {one}: seal {seal.seal if seal else None}", markup=False)
    out().print(f"check it anywhere: battery verify {path}", markup=False)


def _refuse(found: list[parcel.Found], allowed: set[str]) -> None:
    """InputError that names what is private and was not allowed, or what was allowed and is not there."""
    if unknown := sorted(allowed - {one.place for one in found}):
        raise InputError(f"--allow {unknown[0]}: nothing private was found there; leave it out")
    left = [one for one in found if one.place not in allowed]
    if not left:
        return
    lines = [f"{one.place}: {one.kind}" for one in left[:MOST]]
    if len(left) > MOST:
        lines.append(f"and {len(left) - MOST} more")
    told = "\n".join(lines)
    raise InputError(
        f"nothing was packed; {len(left)} finds of what may be private:\n{told}\n"
        "A sealed receipt is never rewritten: hide it where it comes from and measure again, or, if it is none, say"
        " --allow FILE:LINE"
    )
