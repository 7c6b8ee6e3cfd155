"""Verbs of the measuring wing: what would run, running it, how far it is, and looking at arms, servers and machine."""

from __future__ import annotations

import contextlib
import json
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.console import Console
from rich.table import Table

from battery.bench import schedule
from battery.bench.progress import Progress
from battery.bench.run import Conductor
from battery.choices import campaign_folder, chosen, chosen_arms, expected_time, screen_of
from battery.cli.options import (
    ArmsOption,
    CampaignsArgument,
    IsolateOption,
    KnockoutOption,
    PlanOption,
    RootOption,
    app,
    out,
)
from battery.ledger import store
from battery.ledger.arm import difference, known_arms, load_arm
from battery.ledger.errors import CellsFailed, ReceiptError
from battery.ledger.plan import load_plan
from battery.ledger.store import Campaign
from battery.terminal import Grid, Lines, failed_cells


@app.command(epilog="Examples: battery plan --arms A,C --plan quick · battery plan --knockout C")
def plan(
    arms: ArmsOption = None,
    knockout: KnockoutOption = None,
    isolate: IsolateOption = None,
    plan: PlanOption = "quick",
    root: RootOption = Path(),
) -> None:
    """Show the order in which a campaign would run. Touches nothing, starts nothing."""
    to_run, _ = chosen_arms(arms, knockout, isolate, root)
    chosen_plan, console = load_plan(plan, root / "plans"), out()
    rungs = ", ".join(f"{rung:,}" for rung in chosen_plan.ladder)
    total = schedule.expected_cells(chosen_plan, len(to_run))
    console.print(f"plan {chosen_plan.name}: {chosen_plan.why}", markup=False)
    console.print(
        f"{chosen_plan.blocks} blocks x {len(to_run)} arms, rungs {rungs} tokens, {chosen_plan.seeds} seeds a rung"
        f"{', one sentinel a window' if chosen_plan.sentinel else ''}: {total} receipts"
    )
    names = [arm.name for arm in to_run]
    for coin, name in enumerate(names):
        order = schedule.orders(names, chosen_plan.blocks, coin)
        console.print(f"if the coin says {name}: " + " | ".join(" ".join(row) for row in order))
    if odd := schedule.unbalanced(len(names), chosen_plan.blocks):
        console.print(odd)
    metric = chosen_plan.primary.metric
    margin = chosen_plan.margins.of(metric)
    console.print(
        f"primary endpoint: {metric} at {chosen_plan.anchor:,} tokens, margin {margin:.0%}"
    )
    console.print(expected_time(chosen_plan, total, root))
    for arm in to_run[1:]:
        found = difference(to_run[0], arm)
        nothing = "" if found else " nothing but its name"
        console.print(f"{arm.name} differs from {names[0]} in:{nothing}")
        for path, one, other in found:
            console.print(f"  {path}: {one!r} -> {other!r}", markup=False)


@app.command(
    epilog="Examples: battery run --arms A,C · battery run --arms A,B,C --plan pr --campaign my-pr --json ·"
    " battery run --knockout C · battery run --isolate C:fused_qkv,prompt_lookup"
)
def run(
    arms: ArmsOption = None,
    knockout: KnockoutOption = None,
    isolate: IsolateOption = None,
    plan: PlanOption = "quick",
    campaign: Annotated[
        str, typer.Option(help="Name; the same name goes on where it stopped")
    ] = "",
    seed: Annotated[
        int | None,
        typer.Option(min=0, max=99_999, help="Of coin flip and prompts; default: random"),
    ] = None,
    port: Annotated[
        int | None, typer.Option(min=1, max=65_535, help="Of the servers; default: a free one")
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="End with one JSON line, and be silent before")
    ] = False,
    root: RootOption = Path(),
) -> None:
    """Measure arms against each other, write receipts, then charts and report. Ctrl-C stops it resumable."""
    to_run, words = chosen_arms(arms, knockout, isolate, root)
    chosen_plan = load_plan(plan, root / "plans")
    console = Console(stderr=True, highlight=False) if as_json else out()
    folder = campaign_folder(campaign, chosen_plan, to_run, words, root, console)
    with display(as_json, console) as progress:
        counts = Conductor(
            chosen_plan, to_run, folder, progress, seed, port, screen=screen_of(knockout, isolate)
        ).run()
    report, headline = publish(folder, root)
    if as_json:
        facts = {
            "campaign": folder.name, "cells": sum(counts.values()), "outcomes": dict(counts), "report": str(report),
        }  # fmt: skip
        sys.stdout.write(json.dumps(facts) + "\n")
    else:
        console.print(headline, markup=False)
        console.print(
            f"receipts: {folder}\ncharts:   {root / 'charts' / folder.name}\nreport:   {report}",
            markup=False,
        )
    failed = sum(counts.values()) - counts["ok"]
    if failed > chosen_plan.limits.failed_share * sum(counts.values()):
        rest = ", ".join(
            f"{count} {name}" for name, count in sorted(counts.items()) if name != "ok"
        )
        raise CellsFailed(
            f"{failed} of {sum(counts.values())} cells did not end ok ({rest}), more than the"
            f" {chosen_plan.limits.failed_share:.0%} that the plan allows:\n{failed_cells(folder)}"
        )


@contextlib.contextmanager
def display(quiet: bool, console: Console) -> Iterator[Progress]:
    """The display that fits where we print: a live grid in a terminal, plain lines elsewhere, none for machines."""
    if quiet:
        yield Progress()
    elif console.is_terminal:
        with Grid(console) as grid:
            yield grid
    else:
        yield Lines(console)


def publish(folder: Path, root: Path) -> tuple[Path, str]:
    """Draw the charts and write the report of a campaign; the path of the Markdown, and the headline."""
    from battery.analyse import findings as analysis
    from battery.render import charts as drawing
    from battery.render import report as reporting
    from battery.render import tables

    found = analysis.analyse(folder)
    drawing.render_charts(found, root / "charts" / folder.name)
    written = reporting.write_report(found, root / "reports")
    page = next(path for path in written if path.suffix == ".md")
    return page, tables.headline(found)


@app.command(epilog="Examples: battery status · battery status quick-A-C")
def status(campaigns: CampaignsArgument = None, root: RootOption = Path()) -> None:
    """Say how far campaigns are, running or stopped."""
    table = Table(box=None)
    for column in ("campaign", "arms", "blocks", "cells", "outcomes", "state"):
        table.add_column(column)
    complaints: list[str] = []
    for folder in chosen(campaigns, root):
        try:
            row, unreadable = _state(Campaign(folder))
        except ReceiptError as broken:  # one campaign's damage must not hide the others
            row, unreadable = [folder.name, "", "", "", "", "damaged"], [str(broken)]
        table.add_row(*row)
        complaints += unreadable
    out().print(table)
    for complaint in complaints:
        typer.echo(f"battery: {complaint}", err=True)


def _state(kept: Campaign) -> tuple[list[str], list[str]]:
    """How far a campaign is, as a row of `status`, and its receipts that cannot be read."""
    header = kept.header()
    receipts, unreadable = kept.readable()
    complete = store.complete_blocks(receipts, header)
    counts = Counter(receipt.outcome for receipt in receipts)
    last = kept.journal()[-1] if kept.journal() else {"event": "created", "at": header.created}
    state = "sealed" if kept.sealed() else f"{last['event']} {last['at']}"
    total = schedule.expected_cells(header.plan, len(header.arms))
    words = ", ".join(f"{count} {name}" for name, count in counts.most_common())
    arms = ",".join(arm.name for arm in header.arms)
    pooled = sum(len(block) for block in complete.values())
    rest = len(receipts) - pooled
    blocks = f"{len(complete)}/{header.plan.blocks}"
    cells = f"{pooled}/{total}" + (f" (+{rest} of unfinished blocks)" if rest else "")
    return [kept.folder.name, arms, blocks, cells, words, state], unreadable


@app.command(epilog="Examples: battery arms · battery arms A C")
def arms(
    names: Annotated[
        list[str] | None, typer.Argument(help="Two or more: what differs between them")
    ] = None,
    root: RootOption = Path(),
) -> None:
    """List the arms, or say what differs between some."""
    known = [load_arm(name, root / "arms") for name in names or known_arms(root / "arms")]
    console = out()
    for arm in known:
        switches = ", ".join(
            f"{name} {options}" if options else name for name, options in arm.asked.items()
        )
        console.print(
            f"{arm.name}  {arm.backend}  {arm.model}  [{switches or 'plain'}]  {arm.why}",
            markup=False,
        )
    for other in known[1:] if names else []:
        found = difference(known[0], other)
        if not found:
            console.print(f"{known[0].name} -> {other.name}  nothing but the name", markup=False)
        for path, one, two in found:
            console.print(
                f"{known[0].name} -> {other.name}  {path}: {one!r} -> {two!r}", markup=False
            )


@app.command("probe", epilog="Example: battery probe http://127.0.0.1:8080/v1 --json")
def look(
    url: Annotated[
        str, typer.Argument(help="Base URL as for the openai client: http://host:port/v1")
    ],
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object")] = False,
    model: Annotated[str | None, typer.Option(help="Default: the first of URL/models")] = None,
    max_tokens: Annotated[int, typer.Option(min=1, help="Of the answer")] = 64,
    prompt: Annotated[str | None, typer.Option(help="Default: a new one each time")] = None,
    api_key_env: Annotated[
        str | None, typer.Option(help="Environment variable that holds the API key")
    ] = None,
    timeout: Annotated[
        float, typer.Option(min=0.001, max=86_400, help="Seconds for the request")
    ] = 600.0,
) -> None:
    """Send one streamed request to any OpenAI-compatible server and show that single cell.

    Exit 0: it is ok · 4: it is not, and the reason is told · 6: nobody took the request · 2: the URL is none.
    """
    from battery.bench import probe

    key = probe.key_of(api_key_env)
    seen = probe.look(
        url, model=model, max_tokens=max_tokens, prompt=prompt, key=key, timeout_s=timeout
    )
    told = json.dumps(msgspec.to_builtins(seen)) if as_json else "\n".join(probe.summary(seen))
    sys.stdout.write(told + "\n")
    raise typer.Exit(seen.exit_code)


@app.command("doctor", epilog="Example: battery doctor")
def examine(
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object")] = False,
    root: RootOption = Path(),
) -> None:
    """Look at this machine: what can be measured and gated here, what is missing, and how to get it."""
    from battery import doctor

    facts = doctor.examine(root)
    if as_json:
        sys.stdout.write(json.dumps(facts) + "\n")
        return
    for name, value in facts.items():
        out().print(f"{name:<22} {value}", markup=False)
