"""switchboard, the MLX engine of this repository: `python -m switchboard serve`."""

from __future__ import annotations

import sys

from battery.bench.backends import Backend, spelled, switch_words
from battery.ledger.arm import Arm
from battery.ledger.errors import ArmError


def command(arm: Arm, host: str, port: int) -> list[str]:
    """The command line of a server that carries the arm's switches and flags."""
    if arm.command:
        raise ArmError(
            f"arm {arm.name}: 'command' belongs to the backend 'command', not to 'switchboard'"
        )
    line = [sys.executable, "-m", "switchboard", "serve", "--model", arm.model]
    line += ["--host", host, "--port", str(port)]
    line += switch_words(arm)
    for flag, value in sorted(arm.flags.items()):
        line += [f"--{flag.replace('_', '-')}", spelled(value)]
    return line


BACKEND = Backend(command=command, reset_peak="/admin/memory/reset_peak")
