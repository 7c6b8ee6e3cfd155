"""The verb that asks arms coding tasks, and has the answers graded."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args

import msgspec
import typer
from rich.console import Console

from battery.choices import asked_campaign, load_arms
from battery.cli import comparing, scoring
from battery.cli.comparing import CompareOption, PythonOption
from battery.cli.options import ArmsOption, FleetOption, RootOption, app, out
from battery.ledger import saved, strict
from battery.ledger.answers import SUITES, SuiteName
from battery.ledger.arm import Arm
from battery.ledger.asked import Quality, settings
from battery.ledger.errors import CellsFailed, InputError
from battery.ledger.sanitised import LIMIT_S

if TYPE_CHECKING:
    from battery.quality.evalplus import Sanitiser
    from battery.quality.tasks import Loaded
    from battery.quality.telling import Telling


SuitesOption = Annotated[
    str, typer.Option("--suites", help=f"Of {', '.join(SUITES)}; several with commas")
]
PlanOption = Annotated[
    str | None, typer.Option("--plan", help="A plan by name or path; default: the campaign's")
]
CampaignOption = Annotated[
    str, typer.Option(help="Name; default: the newest whose speed was measured with these arms")
]
DataOption = Annotated[
    list[Path] | None, typer.Option("--data", help="A suite's data file, .gz or not; repeatable")
]
LimitOption = Annotated[
    int | None, typer.Option(min=1, help="Only the first so many tasks of each suite")
]
SamplesOption = Annotated[
    int | None, typer.Option(help="Answers to each task; default: the plan's, 1")
]
ConcurrencyOption = Annotated[
    int | None, typer.Option(help="Requests in flight; default: the plan's, 1")
]
CapOption = Annotated[
    int | None, typer.Option(help="Tokens an answer may have; default: the plan's, 1024")
]
AllowOption = Annotated[
    bool,
    typer.Option(
        "--allow-code-execution",
        help="Run the programs that the models wrote, fenced, to grade them",
    ),
]
AskOnlyOption = Annotated[
    bool,
    typer.Option("--ask-only", help="Keep the answers and run nothing: battery score grades later"),
]
PortOption = Annotated[
    int | None, typer.Option(min=1, max=65_535, help="Of the servers; default: a free one")
]
JsonOption = Annotated[
    bool, typer.Option("--json", help="End with one JSON line, and be silent before")
]


@app.command(
    "quality",
    epilog="Examples: battery quality --arms A,C --suites humaneval --allow-code-execution ·"
    " battery quality --arms A,C --suites humaneval,mbpp --data sanitized-mbpp.json --cap 512 --ask-only ·"
    " battery quality --arms A --suites humaneval --limit 10 --samples 5 --campaign first-look --allow-code-execution",
)
def ask(
    arms: ArmsOption = None,
    suites: SuitesOption = "humaneval",
    plan: PlanOption = None,
    campaign: CampaignOption = "",
    data: DataOption = None,
    limit: LimitOption = None,
    samples: SamplesOption = None,
    concurrency: ConcurrencyOption = None,
    cap: CapOption = None,
    allow: AllowOption = False,
    ask_only: AskOnlyOption = False,
    fleet: FleetOption = None,
    compare: CompareOption = False,
    evalplus_python: PythonOption = None,
    evalplus_limit: comparing.LimitOption = LIMIT_S,
    port: PortOption = None,
    as_json: JsonOption = False,
    root: RootOption = Path(),
) -> None:
    """Ask arms coding tasks at the sampler their speed is measured at, keep every answer, and grade them.

    Ctrl-C stops it resumable: the same command goes on where it stopped. Answers lie in the campaign's quality/.
    """
    from battery.quality import sources
    from battery.quality.fleet import cluster
    from battery.quality.run import Questioner
    from battery.quality.telling import shown

    if compare and ask_only:
        raise InputError(
            "--ask-only grades nothing that could be compared; battery score --compare-evalplus does it later"
        )
    cluster.possible(fleet)
    to_ask = load_arms("A,C" if arms is None else arms, root)
    names = suites_of(suites)
    folder, chosen = asked_campaign(campaign, plan, to_ask, root)
    allowed = {"allow_code_execution": True} if allow else {}
    counts = {"samples": samples, "concurrency": concurrency, "max_tokens": cap}
    asking = _settled(chosen.asking, counts | allowed, ask_only)
    beside = comparing.sanitiser(compare, evalplus_python, evalplus_limit, fleet=fleet)
    loaded = sources.load(names, data or ())
    console = Console(stderr=True, highlight=False) if as_json else out()
    with shown(as_json, console) as telling:
        _introduce(loaded, telling)
        came = Questioner(
            chosen, to_ask, loaded, folder, telling, asking=asking, limit=limit, port=port
        ).run()
        figures = [] if ask_only else _graded(folder, loaded, to_ask, root, telling, beside, fleet)
    _end(folder, came, figures, console, as_json)


def _introduce(loaded: Sequence[Loaded], telling: Telling) -> None:
    """Say which data are asked, by their digest."""
    for one in loaded:
        known = one.dataset.known or "unknown data, by its digest"
        telling.note(
            f"{one.dataset.suite}: {one.dataset.tasks} tasks, {known} ({one.dataset.source},"
            f" sha256 {one.dataset.digest[:16]}…)"
        )


def _graded(
    folder: Path,
    suites: Sequence[Loaded],
    arms: Sequence[Arm],
    root: Path,
    telling: Telling,
    beside: Sanitiser | None,
    fleet: str | None,
) -> list[dict[str, Any]]:
    """Grade what these arms answered, write their scores and tell them; the figures of each."""
    from battery.quality.fleet import cluster
    from battery.quality.score import score_suite

    found: list[dict[str, Any]] = []
    cache = root / scoring.CACHE
    names = [arm.name for arm in arms]
    opened = cluster.opened(fleet, cache=cache, say=telling.note)
    with beside or contextlib.nullcontext(), opened as graders:
        for loaded in suites:
            for scores in score_suite(
                folder, loaded, names, cache=cache, fleet=graders, say=telling.note, sanitiser=beside
            ):  # fmt: skip
                found.append(scoring.told(scores))
                if beside is not None:
                    found[-1]["evalplus"] = comparing.told(folder, scores)
                for line in scoring.lines(found[-1]):
                    telling.note(line)
    return found


def _end(
    folder: Path,
    came: Mapping[str, int],
    scores: list[dict[str, Any]],
    console: Console,
    as_json: bool,
) -> None:
    """Say what came; CellsFailed where a request brought no answer."""
    if as_json:
        told = {"campaign": folder.name, "answers": came["answers"], "errors": came["errors"]}
        sys.stdout.write(json.dumps({**told, "scores": scores}) + "\n")
    else:
        console.print(f"{came['answers']} answers in {folder / saved.FOLDER}", markup=False)
    if came["errors"]:
        raise CellsFailed(
            f"{came['errors']} of {came['answers']} requests brought no answer; {folder / saved.FOLDER} says why, and"
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


def _settled(asking: Quality, changes: Mapping[str, int | None], ask_only: bool) -> Quality:
    """The plan's table with what the command line says; InputError for what cannot be, or may not."""
    told = {name: value for name, value in changes.items() if value is not None}
    found = msgspec.structs.replace(asking, **told)
    for holds, complaint in settings(found):
        if not holds:
            raise InputError(complaint)
    if not (found.allow_code_execution or ask_only):
        raise InputError(
            "grading runs programs that a model wrote, in fenced processes of this machine: say"
            " --allow-code-execution (or allow_code_execution = true in the plan's [quality]), or --ask-only to keep"
            " the answers and grade them elsewhere"
        )
    return found
