"""switchboard, the MLX engine of this repository: `python -m switchboard serve`."""

from __future__ import annotations

import sys

from battery.bench.backends import Backend
from battery.ledger.arm import Arm, Scalar
from battery.ledger.errors import ArmError


def command(arm: Arm, host: str, port: int) -> list[str]:
    """The command line of a server that carries the arm's switches and flags."""
    if arm.command:
        raise ArmError(
            f"arm {arm.name}: 'command' belongs to the backend 'command', not to 'switchboard'"
        )
    line = [sys.executable, "-m", "switchboard", "serve", "--model", arm.model]
    line += ["--host", host, "--port", str(port)]
    for name, options in arm.asked.items():
        settings = ",".join(f"{key}={_text(value)}" for key, value in sorted(options.items()))
        line += ["--switch", f"{name}:{settings}" if settings else name]
    for flag, value in sorted(arm.flags.items()):
        line += [f"--{flag.replace('_', '-')}", _text(value)]
    return line


def _text(value: Scalar) -> str:
    """A value as a command line spells it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


BACKEND = Backend(command=command, reset_peak="/admin/memory/reset_peak")
