"""What a campaign looks like while it runs: a grid that fills in a terminal, plain lines elsewhere."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text
from typing_extensions import override

from battery.bench.progress import Progress
from battery.ledger import store
from battery.ledger.cell import Cell, Window
from battery.ledger.receipt import Receipt
from battery.ledger.store import Campaign, Header
from battery.ledger.trace import METRICS

_STYLE = {"ok": "green", "refused": "yellow", "short": "yellow"}


class Clock:
    """Time left, from how long the receipts so far took."""

    def __init__(self, done: Sequence[Receipt], total: int) -> None:
        self._start, self._made = time.monotonic(), 0
        self.kept, self.total = list(done), total
        """Receipts that count so far: those of an attempt that was given up do not."""

    @property
    def done(self) -> int:
        """How many cells are done."""
        return len(self.kept)

    def count(self, receipt: Receipt) -> None:
        """One more, in place of those of an earlier attempt at its block."""
        block, attempt = receipt.cell.block, receipt.attempt
        self._made += 1
        self.kept = [r for r in self.kept if r.cell.block != block or r.attempt == attempt]
        self.kept.append(receipt)

    def left(self) -> str:
        """Such as `about 4 min left`; empty before the first receipt."""
        if not self._made:
            return ""
        seconds = (time.monotonic() - self._start) / self._made * (self.total - self.done)
        return (
            f"about {seconds / 60:.0f} min left" if seconds >= 90 else f"about {seconds:.0f} s left"
        )


def cell_line(receipt: Receipt) -> str:
    """One receipt in one line: coordinates, outcome, decode rate and time to first token."""
    cell, trace = receipt.cell, receipt.trace
    seed = "sentinel" if cell.sentinel else f"seed {cell.seed}"
    where = f"block {cell.block} {cell.arm} {cell.rung:,} tokens {seed}"
    if receipt.outcome != "ok":
        return f"{where}: {receipt.outcome}: {receipt.reason}"
    speed = f"decode {rate('decode', receipt)} tok/s, TTFT {rate('ttft', receipt)} s"
    return f"{where}: ok, {speed}, {trace.completion_tokens} tokens"


def failed_cells(folder: Path, most: int = 8) -> str:
    """Which cells of a campaign's complete blocks did not end ok and why: a line for each kind, `most` of them.

    Cells of one arm and rung that ended alike stand in one line, whatever numbers their reasons hold.
    """
    kept = Campaign(folder)
    complete = store.complete_blocks(kept.receipts(), kept.header())
    kinds: dict[tuple[str, int, str, str], list[Receipt]] = {}
    for receipt in (receipt for block in complete.values() for receipt in block):
        if receipt.outcome != "ok":
            alike = re.sub(r"[0-9]+", "#", receipt.reason or "")
            key = (receipt.cell.arm, receipt.cell.rung, receipt.outcome, alike)
            kinds.setdefault(key, []).append(receipt)
    lines = []
    for (arm, rung, outcome, _), cells in list(kinds.items())[:most]:
        places = [
            f"block {one.cell.block} {'sentinel' if one.cell.sentinel else f'seed {one.cell.seed}'}"
            for one in cells
        ]
        where = ", ".join(places[:3]) + (f" and {len(places) - 3} more" if len(places) > 3 else "")
        why = " ".join((cells[0].reason or "no reason given").split())
        why = why if len(why) <= 160 else f"{why[:160]}…"
        lines.append(f"  {arm} at {rung:,} tokens, {where}: {outcome}: {why}")
    if len(kinds) > most:
        rest = sum(len(cells) for cells in list(kinds.values())[most:])
        lines.append(f"  and {rest} more cells of {len(kinds) - most} more kinds")
    return "\n".join([*lines, f"  each receipt in {folder} says more"])


def rate(metric: str, receipt: Receipt) -> str:
    """A metric of one receipt for people; a dash where it could not be computed."""
    value = METRICS[metric].of(receipt.trace)
    return "–" if value is None else f"{value:.2f}"


class Lines(Progress):
    """One plain line per event, for logs and pipes."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._clock = Clock((), 0)

    def _say(self, text: str) -> None:
        self._console.print(text, highlight=False, markup=False, soft_wrap=True)

    @override
    def started(self, header: Header, done: Sequence[Receipt], total: int) -> None:
        self._clock = Clock(done, total)
        most = "at most " if header.plan.stopping.rule != "fixed" else ""
        going = (
            f", {len(done)} of {most}{total} cells are done" if done else f", {most}{total} cells"
        )
        self._say(f"campaign {header.campaign}: {header.coin}{going}")

    @override
    def window(self, window: Window, attempt: int) -> None:
        again = f" (attempt {attempt})" if attempt > 1 else ""
        self._say(f"block {window.block}, window {window.number}: arm {window.arm}{again}")

    @override
    def phase(self, cell: Cell | None, phase: str, detail: str) -> None:
        if cell is None:
            self._say(f"  {phase} {detail}".rstrip())

    @override
    def cell(self, receipt: Receipt) -> None:
        self._clock.count(receipt)
        left = self._clock.left()
        self._say(
            f"  [{self._clock.done}/{self._clock.total}] {cell_line(receipt)}{f' · {left}' if left else ''}"
        )

    @override
    def note(self, text: str) -> None:
        self._say(text)


class Grid(Progress):
    """The ladder as a grid that fills: arms down, rungs across, the cell in hand below it."""

    def __init__(self, console: Console) -> None:
        self._header: Header | None = None
        self._clock = Clock((), 0)
        self._window = self._phase = self._last = ""
        self._since = time.monotonic()
        # last, because it draws at once
        self._live = Live(console=console, refresh_per_second=4, get_renderable=self._draw)

    def __enter__(self) -> Grid:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    @override
    def started(self, header: Header, done: Sequence[Receipt], total: int) -> None:
        self._header = header
        self._clock = Clock(done, total)

    @override
    def window(self, window: Window, attempt: int) -> None:
        self._window = f"block {window.block} · window {window.number} · arm {window.arm}"

    @override
    def phase(self, cell: Cell | None, phase: str, detail: str) -> None:
        where = f"{cell.rung:,} tokens · seed {cell.seed} · " if cell else ""
        self._phase, self._since = f"{where}{phase} {detail}".rstrip(), time.monotonic()

    @override
    def cell(self, receipt: Receipt) -> None:
        self._clock.count(receipt)
        self._last = cell_line(receipt)

    @override
    def note(self, text: str) -> None:
        self._live.console.print(text, markup=False)

    def _draw(self) -> Group:
        """The grid, the cell in hand, the last receipt."""
        spent = time.monotonic() - self._since
        now = Text(f"{self._window}  {self._phase} {spent:.0f} s", style="bold")
        tail = f"{self._clock.done}/{self._clock.total} cells  {self._clock.left()}"
        return Group(self._grid(), now, Text(self._last, style="dim"), Text(tail))

    def _grid(self) -> Table:
        """Arms × rungs: the mean decode rate so far and how many cells are ok."""
        table = Table(
            title=self._header.campaign if self._header else "starting", title_justify="left"
        )
        table.add_column("arm")
        if self._header is None:
            return table
        plan = self._header.plan
        for rung in plan.ladder:
            table.add_column(f"{rung:,} tokens", justify="right")
        for arm in self._header.arms:
            row: list[Text] = [Text(arm.name)]
            for rung in plan.ladder:
                cells = [
                    r
                    for r in self._clock.kept
                    if r.cell.arm == arm.name and r.cell.rung == rung and not r.cell.sentinel
                ]
                row.append(_square(cells, plan.blocks * plan.seeds))
            table.add_row(*row)
        return table


def _square(cells: list[Receipt], of: int) -> Text:
    """One square of the grid."""
    if not cells:
        return Text(f"0/{of}", style="dim")
    counts = Counter(receipt.outcome for receipt in cells)
    rates = [
        value
        for receipt in cells
        if receipt.outcome == "ok" and (value := METRICS["decode"].of(receipt.trace))
    ]
    words = [f"{sum(rates) / len(rates):.2f} tok/s"] if rates else []
    words.append(f"{counts['ok']}/{of}")
    bad = {name: count for name, count in counts.items() if name != "ok"}
    words += [f"{count} {name}" for name, count in bad.items()]
    style = "green" if not bad else _STYLE.get(next(iter(bad)), "red")
    return Text("  ".join(words), style=style)
