"""The application that verbs register with, and the options that several of them share."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="Evidence for inference-performance claims: measure in interleaved windows, seal, report, verify.",
)

ArmsOption = Annotated[
    str | None, typer.Option("--arms", help="Arms by name, the control first; default: A,C")
]
KnockoutOption = Annotated[
    str | None,
    typer.Option(help="Instead of --arms: this arm against itself without each of its switches"),
]
IsolateOption = Annotated[
    str | None,
    typer.Option(help="Instead of --arms: each switch of this arm alone, against none of them"),
]
PlanOption = Annotated[
    str, typer.Option("--plan", help="A plan by name or by the path of its TOML file")
]
ReplayOption = Annotated[
    str | None,
    typer.Option(
        "--replay",
        help="Make every arm follow what the control of this campaign wrote; NAME:BLOCK: all blocks one block's texts",
    ),
]
RootOption = Annotated[
    Path, typer.Option("--root", help="Folder that holds arms/, receipts/, charts/ and reports/")
]
FleetOption = Annotated[
    str | None,
    typer.Option(
        "--fleet",
        metavar="ADDRESS",
        help="Grade on the machines of a Ray cluster: auto or HOST:PORT joins one, local starts one here",
    ),
]
CampaignsArgument = Annotated[
    list[str] | None, typer.Argument(help="Campaigns by name or folder; none: all in receipts/")
]


def out() -> Console:
    """Standard output, without colours and with room for a table's rows where it is no terminal."""
    return Console(highlight=False, soft_wrap=True, width=None if sys.stdout.isatty() else 200)


def printable(text: str) -> str:
    """Text of somebody else's files for a terminal: what would move its cursor or turn its letters is spelt out."""
    return "".join(
        one if one.isprintable() or one in "\n\t" else one.encode("unicode_escape").decode()
        for one in text
    )
