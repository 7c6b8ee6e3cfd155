"""The command line: one verb per stage. It parses, calls and prints; it decides nothing.

Exit codes: 0 all well · 1 any other error · 2 wrong input · 3 refused by a gate · 4 too many cells failed, or a request
of a quality run · 5 lock or port held by someone else · 6 a server did not start · 7 corrupt receipts, or
a campaign of another plan, arm or machine · 8 verification failed, or a page breaks a rule of the linter · 9 a file
could not be written · 10 a bar failed or is undecided · 130 interrupted.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from battery import __version__, interruption
from battery.cli import (
    asking,
    checking,
    differing,
    importing,
    measuring,
    packing,
    pasting,
    reading,
    scoring,
    starting,
    verifying,
)
from battery.cli.options import app
from battery.ledger.errors import BatteryError, DiskError

__all__ = [
    "app", "asking", "checking", "differing", "importing", "main", "measuring", "packing", "pasting",
    "reading", "scoring", "starting", "verifying",
]  # fmt: skip

INTERRUPTED = 130
_DISK = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EFBIG, errno.EACCES, errno.EPERM, errno.EIO}


def _version(wanted: bool) -> None:
    """Print the version and stop."""
    if wanted:
        typer.echo(f"battery {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print it and stop")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show a traceback with an error")] = False,
) -> None:
    """Options that hold for every verb."""


def main(words: Sequence[str] | None = None) -> None:
    """Run the command line and exit with a code that scripts can rely on."""
    given = list(sys.argv[1:] if words is None else words)
    try:
        code: Any = app(given, standalone_mode=False)
        if code == INTERRUPTED:  # how typer tells of Ctrl-C
            raise KeyboardInterrupt
        interruption.check()
    except BatteryError as refused:
        if "--debug" in given:
            raise
        typer.echo(f"battery: {refused}", err=True)
        sys.exit(refused.exit_code)
    except BrokenPipeError:
        # nobody reads any more; and the interpreter must not stumble over it once more at its end
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(BatteryError.exit_code)
    except OSError as refused:
        if "--debug" in given:
            raise
        typer.echo(f"battery: {refused}; nothing that was written before is lost", err=True)
        disk = refused.errno in _DISK
        sys.exit(DiskError.exit_code if disk else BatteryError.exit_code)
    except (typer.Abort, KeyboardInterrupt):
        typer.echo(
            "battery: interrupted; give the same command again (run goes on where it stopped)",
            err=True,
        )
        sys.exit(INTERRUPTED)
    except typer.TyperException as wrong:
        message = wrong.format_message() if hasattr(wrong, "format_message") else str(wrong)
        typer.echo(f"battery: {message} (battery --help, battery VERB --help)", err=True)
        sys.exit(2)
    sys.exit(code if isinstance(code, int) else 0)
