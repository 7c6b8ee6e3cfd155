"""The verb that begins a project."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from battery import starter
from battery.cli.options import app, out


@app.command(epilog="Examples: battery init · battery init my-evidence")
def init(
    folder: Annotated[Path, typer.Argument(help="Folder of the project; made if need be")] = Path(),
) -> None:
    """Write arms/, plans/ and a .gitignore to start from, and say what to do next; never overwrites a file."""
    engine = starter.engine()
    told = out()
    for one in starter.write(folder, engine):
        state = "wrote" if one.fresh else "kept "
        rest = "" if one.fresh else ", which is there already"
        told.print(f"{state} {folder / one.name}{rest}", markup=False)
    for line in _next(folder, engine):
        told.print(line, markup=False)


def _next(folder: Path, engine: bool) -> list[str]:
    """What to do now."""
    arms = "A,C" if engine else "mine,mine-fast"
    steps = [
        ("battery doctor", "what can be measured and gated on this machine"),
        (f"battery plan --arms {arms} --plan {starter.PLAN}", "the order in which it would run; starts nothing"),
        (f"battery run --arms {arms} --plan {starter.PLAN}", "measure, then charts and report; resumes after Ctrl-C"),
        ("battery verify", "re-derive every figure from the receipts"),
    ]  # fmt: skip
    if folder != Path():
        steps.insert(0, (f"cd {folder}", "arms/ and plans/ are looked for where battery runs"))
    if engine:
        steps.insert(-3, ("switchboard fetch smollm2-135m", "the small model of arms A and C, once"))  # fmt: skip
    width = max(len(command) for command, _ in steps)
    lines = ["", "next:", *(f"  {command:<{width}}  {why}" for command, why in steps)]
    if engine:
        own = "arms/mine.toml and arms/mine-fast.toml are for a server of your own: fill in their command first"
    else:
        own = (
            "fill in the command of arms/mine.toml first; switchboard, the engine of arms A and C, is not installed"
            " here (the extra mlx), so these were left out"
        )
    return [*lines, "", own]
