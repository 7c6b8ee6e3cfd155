"""Looks at a campaign that runs: the analysis is asked in a process of its own, whether the plan's rule ends it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import msgspec

from battery.ledger.errors import BatteryError

_LOOK = (
    "import pathlib, sys, msgspec; from battery.analyse.stopping import enough;"
    " sys.stdout.buffer.write(msgspec.json.encode(enough(pathlib.Path(sys.argv[1]), int(sys.argv[2]))))"
)


def enough(folder: Path, block: int) -> str | None:
    """Why the campaign in `folder` ends by its rule after `block` blocks, or None; BatteryError where it cannot look.

    In a process of its own, because what the analysis loads would otherwise stay in memory beside the engines of the
    blocks to come; in a session of its own, because Ctrl-C is the campaign's to hear.
    """
    done = subprocess.run(
        [sys.executable, "-c", _LOOK, str(folder), str(block)],
        capture_output=True, stdin=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    if done.returncode != 0:
        last = (done.stderr.decode(errors="replace").strip().splitlines() or ["it said nothing"])[
            -1
        ]
        raise BatteryError(
            f"{folder}: the look after block {block} failed ({last}); what was measured is kept: mend that, and the"
            " same command looks again before it measures on"
        )
    return msgspec.json.decode(done.stdout, type=str | None)
