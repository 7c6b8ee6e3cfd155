"""The verb that asks arms coding tasks."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, get_args

import msgspec
import typer
from rich.console import Console

from battery.choices import asked_campaign, load_arms
from battery.cli.options import ArmsOption, RootOption, app, out
from battery.ledger import strict
from battery.ledger.answers import SUITES, SuiteName
from battery.ledger.asked import Quality, settings
from battery.ledger.errors import CellsFailed, InputError


@app.command(
    "quality",
    epilog="Examples: battery quality --arms A,C --suites humaneval --allow-code-execution ·"
    " battery quality --arms A,C --suites humaneval,mbpp --data sanitized-mbpp.json --cap 512 --ask-only ·"
    " battery quality --arms A --suites humaneval --limit 10 --samples 5 --campaign first-look --allow-code-execution",
)
def ask(
    arms: ArmsOption = None,
    suites: Annotated[
        str, typer.Option("--suites", help=f"Of {', '.join(SUITES)}; several with commas")
    ] = "humaneval",
    plan: Annotated[
        str | None, typer.Option("--plan", help="A plan by name or path; default: the campaign's")
    ] = None,
    campaign: Annotated[
        str, typer.Option(help="Name; default: the newest whose speed was measured with these arms")
    ] = "",
    data: Annotated[
        list[Path] | None,
        typer.Option("--data", help="A suite's data file, .gz or not; repeatable"),
    ] = None,
    limit: Annotated[
        int | None, typer.Option(min=1, help="Only the first so many tasks of each suite")
    ] = None,
    samples: Annotated[
        int | None, typer.Option(help="Answers to each task; default: the plan's, 1")
    ] = None,
    concurrency: Annotated[
        int | None, typer.Option(help="Requests in flight; default: the plan's, 1")
    ] = None,
    cap: Annotated[
        int | None, typer.Option(help="Tokens an answer may have; default: the plan's, 1024")
    ] = None,
    allow: Annotated[
        bool,
        typer.Option(
            "--allow-code-execution",
            help="Run the programs that the models wrote, fenced, to grade them",
        ),
    ] = False,
    ask_only: Annotated[
        bool,
        typer.Option(
            "--ask-only", help="Keep the answers and run nothing: battery score grades later"
        ),
    ] = False,
    port: Annotated[
        int | None, typer.Option(min=1, max=65_535, help="Of the servers; default: a free one")
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="End with one JSON line, and be silent before")
    ] = False,
    root: RootOption = Path(),
) -> None:
    """Ask arms coding tasks at the sampler their speed is measured at, keep every answer, and grade them.

    Ctrl-C stops it resumable: the same command goes on where it stopped. Answers lie in the campaign's quality/.
    """
    from battery.quality import sources
    from battery.quality.run import Questioner
    from battery.quality.telling import shown

    to_ask = load_arms("A,C" if arms is None else arms, root)
    names = suites_of(suites)
    folder, chosen = asked_campaign(campaign, plan, to_ask, root)
    asking = _settled(
        chosen.asking, samples=samples, concurrency=concurrency, max_tokens=cap,
        allow_code_execution=allow or None,
    )  # fmt: skip
    if not (asking.allow_code_execution or ask_only):
        raise InputError(
            "grading runs programs that a model wrote, in fenced processes of this machine: say"
            " --allow-code-execution (or allow_code_execution = true in the plan's [quality]), or --ask-only to keep"
            " the answers and grade them elsewhere"
        )
    loaded = sources.load(names, data or ())
    console = Console(stderr=True, highlight=False) if as_json else out()
    with shown(as_json, console) as telling:
        for one in loaded:
            known = one.dataset.known or "unknown data, by its digest"
            telling.note(
                f"{one.dataset.suite}: {one.dataset.tasks} tasks, {known} ({one.dataset.source},"
                f" sha256 {one.dataset.digest[:16]}…)"
            )
        counts = Questioner(
            chosen, to_ask, loaded, folder, telling, asking=asking, limit=limit, port=port
        ).run()
    if as_json:
        told = {"campaign": folder.name, "answers": counts["answers"], "errors": counts["errors"]}
        sys.stdout.write(json.dumps(told) + "\n")
    else:
        console.print(f"{counts['answers']} answers in {folder / 'quality'}", markup=False)
    if counts["errors"]:
        raise CellsFailed(
            f"{counts['errors']} of {counts['answers']} requests brought no answer; {folder / 'quality'} says why, and"
            " the same command asks them again"
        )


def suites_of(text: str) -> list[SuiteName]:
    """The suites of a comma-separated list, each once; InputError with the nearest known one."""
    words = list(dict.fromkeys(word.strip() for word in text.split(",") if word.strip()))
    for word in words:
        if word not in SUITES:
            raise InputError(f"no suite '{word}'{strict.nearest(word, SUITES)}")
    if not words:
        raise InputError(f"no suite was named; known: {', '.join(SUITES)}")
    return [suite for word in words for suite in get_args(SuiteName) if suite == word]


def _settled(asking: Quality, **changes: int | bool | None) -> Quality:
    """The plan's table with what the command line says; InputError for what cannot be."""
    told = {name: value for name, value in changes.items() if value is not None}
    found = msgspec.structs.replace(asking, **told)
    for holds, complaint in settings(found):
        if not holds:
            raise InputError(complaint)
    return found
