"""Verbs of the measuring wing: what would run, running it, how far it is, and looking at arms, servers and machine."""

from __future__ import annotations

import contextlib
import json
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer
from rich.console import Console
from rich.table import Table

from battery.bench import schedule, sensors
from battery.bench.progress import Progress
from battery.bench.run import Conductor
from battery.choices import (
    basis_for,
    campaign_folder,
    chosen,
    chosen_arms,
    expected_time,
    known_campaigns,
    plan_for,
    screen_of,
    seconds_of,
    texts_of,
)
from battery.cli import looking
from battery.cli.options import (
    ArmsOption,
    CampaignsArgument,
    IsolateOption,
    KnockoutOption,
    PlanOption,
    ReplayOption,
    RootOption,
    app,
    out,
)
from battery.cli.publishing import publish
from battery.ledger import history, store
from battery.ledger.arm import Arm, difference, known_arms, load_arm
from battery.ledger.claims import asked, rule
from battery.ledger.errors import InputError, ReceiptError
from battery.ledger.plan import Plan
from battery.ledger.store import Campaign
from battery.terminal import Grid, Lines

if TYPE_CHECKING:
    pass


@app.command(
    epilog="Examples: battery plan --arms A,C --plan quick · battery plan --knockout C ·"
    " battery plan --power --arms A,C --plan pr --budget 2h ·"
    " battery plan --power --arms A,B,C --plan reference --from reference-cpu --json"
)
def plan(
    arms: ArmsOption = None,
    knockout: KnockoutOption = None,
    isolate: IsolateOption = None,
    plan: PlanOption = "quick",
    power: Annotated[
        bool, typer.Option("--power", help="Blocks for the margin, their time, what they detect")
    ] = False,
    source: Annotated[
        str | None,
        typer.Option("--from", help="With --power: campaign to plan from; default: the newest"),
    ] = None,
    budget: Annotated[
        str | None, typer.Option(help="With --power: time there is, as 2h, 90m or 1h30m")
    ] = None,
    margin: Annotated[
        float | None,
        typer.Option(help="With --power: share to detect, as 0.03; default: the plan's"),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="With --power: one JSON object")] = False,
    root: RootOption = Path(),
) -> None:
    """Show the order in which a campaign would run, or with --power what it could tell. Starts nothing."""
    to_run, _ = chosen_arms(arms, knockout, isolate, root)
    chosen_plan = plan_for(plan, to_run, root)
    if power:
        _power(to_run, chosen_plan, source, budget, margin, as_json, root)
    elif source or budget or margin is not None or as_json:
        raise InputError("--from, --budget, --margin and --json belong to plan --power")
    else:
        _order(to_run, chosen_plan, root)


def _power(
    to_run: list[Arm], chosen_plan: Plan, source: str | None, budget: str | None,
    margin: float | None, as_json: bool, root: Path,
) -> None:  # fmt: skip
    """Print what the plan could tell, by an earlier campaign."""
    from battery.analyse import planning
    from battery.render import planning as telling

    if margin is not None and not 0 < margin < 1:
        raise InputError(f"--margin {margin:g}: give a share between 0 and 1 (0.03 is 3 %)")
    seconds = seconds_of(budget) if budget is not None else None
    basis = basis_for(source, to_run, sensors.fingerprint(), root)
    names = [arm.name for arm in to_run]
    found = planning.plan_from(
        basis.folder, chosen_plan, names, basis.how, basis.warnings, margin, seconds
    )
    if as_json:
        sys.stdout.write(json.dumps(msgspec.to_builtins(found)) + "\n")
        return
    for told in telling.lines(found):
        out().print(told, markup=False)


def _order(to_run: list[Arm], chosen_plan: Plan, root: Path) -> None:
    """Print the order in which a campaign would run."""
    console = out()
    rungs = ", ".join(f"{rung:,}" for rung in chosen_plan.ladder)
    total = schedule.expected_cells(chosen_plan, len(to_run))
    console.print(f"plan {chosen_plan.name}: {chosen_plan.why}", markup=False)
    console.print(
        f"{chosen_plan.blocks} blocks x {len(to_run)} arms, rungs {rungs} tokens, {chosen_plan.seeds} seeds a rung"
        f"{_shared(chosen_plan)}"
        f"{', one sentinel a window' if chosen_plan.sentinel else ''}: {total} receipts"
    )
    names = [arm.name for arm in to_run]
    for coin, name in enumerate(names):
        order = schedule.orders(names, chosen_plan.blocks, coin)
        console.print(f"if the coin says {name}: " + " | ".join(" ".join(row) for row in order))
    console.print(f"stopping rule: {rule(chosen_plan, len(names))}")
    if odd := schedule.unbalanced(len(names), chosen_plan.blocks):
        console.print(odd)
    metric = chosen_plan.primary.metric
    margin = chosen_plan.margins.of(metric)
    console.print(
        f"primary endpoint: {metric} at {chosen_plan.anchor:,} tokens, margin {100 * margin:g} %"
    )
    for bar in asked(chosen_plan, names):
        console.print(f"bar: {bar}")
    console.print(expected_time(chosen_plan, len(names), total, root, sensors.fingerprint()))
    for arm in to_run[1:]:
        found = difference(to_run[0], arm)
        nothing = "" if found else " nothing but its name"
        console.print(f"{arm.name} differs from {names[0]} in:{nothing}")
        for path, one, other in found:
            console.print(f"  {path}: {one!r} -> {other!r}", markup=False)


def _shared(chosen_plan: Plan) -> str:
    """How several workloads share the seeds; nothing for one."""
    mix = chosen_plan.mix
    return "" if len(mix) == 1 else f" ({chosen_plan.seeds // len(mix)} each of {', '.join(mix)})"


@app.command(
    epilog="Examples: battery run --arms A,C · battery run --arms A,B,C --plan pr --campaign my-pr --json ·"
    " battery run --knockout C · battery run --isolate C:fused_qkv,prompt_lookup · battery run --replay quick-A-C"
)
def run(
    arms: ArmsOption = None,
    knockout: KnockoutOption = None,
    isolate: IsolateOption = None,
    plan: Annotated[
        str | None,
        typer.Option(
            "--plan",
            help="A plan by name or path; default: quick, with --replay that campaign's own",
        ),
    ] = None,
    replay: ReplayOption = None,
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
    """Measure arms against each other, write receipts, then charts and report. Ctrl-C stops it resumable.

    Bars of the plan are told at the end and leave the exit code as it is: `battery check` is what fails on them.
    With --replay the arms are those of the campaign that is followed, unless others are named.
    """
    texts = texts_of(replay, seed, root)
    if texts and (arms, knockout, isolate) == (None, None, None):
        arms = ",".join(arm.name for arm in texts.header.arms)
    to_run, words = chosen_arms(arms, knockout, isolate, root)
    chosen_plan = plan_for(plan, to_run, root, texts)
    words += "-replay" if texts else ""
    console = Console(stderr=True, highlight=False) if as_json else out()
    folder = campaign_folder(campaign, chosen_plan, to_run, words, root, console)
    with display(as_json, console) as progress:
        counts = Conductor(
            chosen_plan, to_run, folder, progress, seed, port, screen=screen_of(knockout, isolate),
            enough=looking.enough, recorded=texts,
        ).run()  # fmt: skip
    publish(chosen_plan, folder, root, counts, console, as_json)


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


@app.command(epilog="Examples: battery status · battery status quick-A-C")
def status(campaigns: CampaignsArgument = None, root: RootOption = Path()) -> None:
    """Say how far campaigns are, running or stopped."""
    table = Table(box=None)
    for column in ("campaign", "arms", "blocks", "cells", "outcomes", "state"):
        table.add_column(column)
    complaints: list[str] = []
    logged = [] if campaigns else history.lives(root / "receipts")
    gone = [life for life in logged if life.header is None]
    for folder in chosen(campaigns, root) if campaigns or not gone or known_campaigns(root) else ():
        try:
            row, unreadable = _state(Campaign(folder))
        except ReceiptError as broken:  # one campaign's damage must not hide the others
            row, unreadable = [folder.name, "", "", "", "", "damaged"], [str(broken)]
        table.add_row(*row)
        complaints += unreadable
    for life in gone:
        first, state = life.first, f"started {life.first.at}, {history.gone(life)}"
        table.add_row(first.campaign, ",".join(first.arms), "", "", "", state)
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
    ended = store.ended_by_rule(kept)
    asked = ended or header.plan.blocks
    total = schedule.expected_cells(header.plan, len(header.arms)) * asked // header.plan.blocks
    if ended and ended < header.plan.blocks:
        state += f", ended by its rule after {ended} of at most {header.plan.blocks} blocks"
    words = ", ".join(f"{count} {name}" for name, count in counts.most_common())
    arms = ",".join(arm.name for arm in header.arms)
    pooled = sum(len(block) for block in complete.values())
    rest = len(receipts) - pooled
    blocks = f"{len(complete)}/{asked}"
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
