"""The command line as tests call it: in this process, or as one of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple


class Said(NamedTuple):
    """What one call of the command line did."""

    returncode: int
    stdout: str
    stderr: str


def battery(root: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run the command line in `root`; the machine's lock is kept apart so that tests can run beside a campaign."""
    environment = {**os.environ, "BATTERY_LOCK": str(root / "battery.lock"), "COLUMNS": "200"}
    line = [sys.executable, "-m", "battery", *words]
    return subprocess.run(
        line, cwd=root, capture_output=True, text=True, env=environment, timeout=120
    )
