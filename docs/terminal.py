"""The README's picture of the live display: the display itself, fed with the receipts of a committed campaign.

    python docs/terminal.py [CAMPAIGN] [SHARE]

Written is `terminal.svg` beside this file: what `battery run` showed when that share of the cells was done (three in
five, unless told otherwise). Text is text, in whatever monospaced font the reader has.
"""

from __future__ import annotations

import io
import re
import sys
import time
from datetime import datetime
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import DIMMED_MONOKAI

from battery.ledger import store
from battery.ledger.receipt import Receipt
from battery.ledger.store import Campaign
from battery.terminal import Grid

HERE = Path(__file__).parent
WIDTH = 96
FONT = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)
"""Fonts that would be fetched from the network."""


def shown(campaign: Campaign, share: float) -> Console:
    """A console that has drawn the display once, after this share of the campaign's cells."""
    header = campaign.header()
    kept = [
        one
        for block in store.complete_blocks(campaign.receipts(), header).values()
        for one in block
    ]
    done, (coming, *_) = kept[: int(share * len(kept))], kept[int(share * len(kept)) :]
    console = Console(record=True, width=WIDTH, file=io.StringIO(), color_system="truecolor")
    grid = Grid(console)
    grid.started(header, [], len(kept))
    for receipt in done:
        grid.cell(receipt)
    cell = coming.cell
    grid.window(cell.window, coming.attempt)
    grid.phase(cell, "request", "")
    # as long ago as it really was, so that the time left is that of the campaign
    grid._clock._start = time.monotonic() - _seconds(done)
    console.print(grid._draw())
    return console


def _seconds(receipts: list[Receipt]) -> float:
    """Between the first and the last of them."""
    first, last = (datetime.fromisoformat(one.started) for one in (receipts[0], receipts[-1]))
    return (last - first).total_seconds()


if __name__ == "__main__":
    name = sys.argv[1] if len(sys.argv) > 1 else "quality-cpu"
    share = float(sys.argv[2]) if len(sys.argv) > 2 else 0.6
    drawn = shown(Campaign(HERE.parent / "receipts" / name), share)
    svg = drawn.export_svg(
        title=f"battery run --campaign {name}", theme=DIMMED_MONOKAI, unique_id="terminal"
    )
    (HERE / "terminal.svg").write_text(FONT.sub("", svg), encoding="utf-8")
    print(f"docs/terminal.svg: {(HERE / 'terminal.svg').stat().st_size:,} bytes")
