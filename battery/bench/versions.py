"""Which battery measured: version, commit, and whether its code was changed."""

from __future__ import annotations

import platform
import subprocess
from pathlib import Path
from typing import Any

from battery import __version__


def versions() -> dict[str, Any]:
    """Version of battery, commit of its checkout and whether that was changed (None outside one)."""
    home = Path(__file__).parent

    def git(*words: str) -> str | None:
        try:
            done = subprocess.run(
                ["git", "-C", str(home), *words],
                capture_output=True,
                text=True,
                timeout=10,
                check=True,
            )
        except (OSError, subprocess.SubprocessError):
            return None
        return done.stdout.strip()

    # receipts are written while it measures, the log of campaigns at every start: they are no part of what measures
    code = (":/", ":(top,exclude)receipts")
    changed = git("status", "--porcelain", "--untracked-files=no", "--", *code)
    return {
        "version": __version__,
        "commit": git("rev-parse", "HEAD"),
        "dirty": None if changed is None else bool(changed),
        "python": platform.python_version(),
    }
