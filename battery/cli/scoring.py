"""The verb that grades saved answers, offline and as often as wanted."""

from __future__ import annotations

import contextlib
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from battery.cli import comparing
from battery.cli.comparing import CompareOption, LimitOption, PythonOption, sanitiser
from battery.cli.options import FleetOption, RootOption, app, out
from battery.ledger.errors import CellsFailed, InputError
from battery.ledger.sanitised import LIMIT_S

if TYPE_CHECKING:
    from battery.ledger.answers import Scores
    from battery.quality.evalplus import Sanitiser

CACHE = Path(".cache") / "quality"
BESIDE = (".", "data", "../data")
CasesOption = Annotated[
    Path | None, typer.Option(help="Instead: answers with known verdicts, one JSON object a line")
]
WorkersOption = Annotated[
    int | None,
    typer.Option(min=1, help="Programs at a time on a machine; default: as many as cores"),
]


@app.command(
    epilog="Examples: battery score my-pr --allow-code-execution · battery score my-pr --data sanitized-mbpp.json"
    " --allow-code-execution · battery score my-pr --fleet auto --allow-code-execution ·"
    " battery score my-pr --compare-evalplus --evalplus-python .peers/evalplus/bin/python ·"
    " battery score --cases cases.jsonl --allow-code-execution --json"
)
def score(
    campaign: Annotated[
        str | None, typer.Argument(help="Campaign by name or folder, whose answers are graded")
    ] = None,
    cases: CasesOption = None,
    data: Annotated[
        list[Path] | None,
        typer.Option("--data", help="A suite's data file, .gz or not; repeatable"),
    ] = None,
    allow: Annotated[
        bool,
        typer.Option(
            "--allow-code-execution",
            help="Run the programs that the models wrote, fenced, to grade them",
        ),
    ] = False,
    workers: WorkersOption = None,
    fleet: FleetOption = None,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Use no verdict and no expected result kept before")
    ] = False,
    compare: CompareOption = False,
    evalplus_python: PythonOption = None,
    evalplus_limit: LimitOption = LIMIT_S,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a line")] = False,
    root: RootOption = Path(),
) -> None:
    """Grade the saved answers of a campaign again, without a server.

    The grader tests itself first: canonical solutions must pass, planted wrong ones must fail.
    """
    if (campaign is None) == (cases is None):
        raise InputError("name a campaign, or --cases FILE")
    if cases is not None and fleet is not None:
        raise InputError("--cases are graded on this machine: leave out --fleet")
    if cases is not None:
        if compare:
            raise InputError(
                "--compare-evalplus is for the saved answers of a campaign, not for --cases"
            )
        _permitted(allow)
        _cases(cases, data, workers, as_json)
        return
    from battery.choices import asked_folder
    from battery.quality.score import permitted

    folder = asked_folder(campaign or "", root)
    _permitted(allow or permitted(folder))
    beside = sanitiser(compare, evalplus_python, evalplus_limit, workers, fleet)
    with beside or contextlib.nullcontext():
        _campaign(folder, data, None if fresh else root / CACHE, workers, fleet, as_json, beside)


def _campaign(
    folder: Path,
    data: list[Path] | None,
    cache: Path | None,
    workers: int | None,
    fleet: str | None,
    as_json: bool,
    beside: Sanitiser | None,
) -> None:
    """Grade a campaign's answers and print each suite's figures; CellsFailed where requests brought none."""
    from battery.quality.fleet import cluster
    from battery.quality.score import score_campaign

    console = Console(stderr=True, highlight=False) if as_json else out()

    def say(text: str) -> None:
        console.print(text, markup=False)

    errors = 0
    with cluster.opened(fleet, cache=cache, workers=workers, say=say) as graders:
        for scores in score_campaign(
            folder, data or (), cache=cache, workers=workers, fleet=graders, say=say, sanitiser=beside
        ):  # fmt: skip
            figures = told(scores)
            if beside is not None:
                figures["evalplus"] = comparing.told(folder, scores)
            errors += figures["errors"]
            if as_json:
                sys.stdout.write(json.dumps(figures) + "\n")
            else:
                say("\n".join(lines(figures)))
    if errors:
        raise CellsFailed(f"{errors} requests brought no answer; battery quality asks them again")


def _permitted(allow: bool) -> None:
    """InputError where nobody has said that programs may run."""
    if not allow:
        raise InputError(
            "grading runs programs that a model wrote, in fenced processes of this machine: say --allow-code-execution"
            " (or allow_code_execution = true in the plan's [quality])"
        )


def _cases(path: Path, data: list[Path] | None, workers: int | None, as_json: bool) -> None:
    """Print the verdict on every case of a file."""
    from battery.quality.cases import graded, read_cases

    found = read_cases(path)
    for case, row in graded(found, data or _beside(path), workers):
        told = {
            "id": case.id,
            "passed": row.passed,
            "truncated": row.truncated,
            "status": row.status,
        }
        if as_json:
            sys.stdout.write(json.dumps(told) + "\n")
        else:
            noted = f" ({row.suspicious})" if row.suspicious else ""
            out().print(f"{case.id}: {row.status}{noted}; {row.rule}", markup=False)


def _beside(path: Path) -> list[Path]:
    """Data files that lie with the cases, or in a folder `data` there or next to it; a known release comes first."""
    from battery.quality import sources, tasks

    found: dict[str, tuple[bool, Path]] = {}
    for place in BESIDE:
        for file in sorted((path.parent / place).glob("*.json*")):
            try:
                source = sources.from_file(file)
                suite = tasks.recognise(source.data, source.name)
                known = tasks.read(suite, source.data, source.name).dataset.known or ""
            except InputError:
                continue
            # the suite mbpp is the sanitized set, whose tests are not those of the full one
            rank = not known or "full" in known
            found[suite] = min(found.get(suite, (True, file)), (rank, file))
    return [found[suite][1] for suite in ("humaneval", "mbpp", "humaneval+") if suite in found]


def told(scores: Scores) -> dict[str, Any]:
    """A suite's scores in figures."""
    from battery.quality.grade import summary

    rows = scores.graded
    return {
        "campaign": scores.campaign,
        "arm": scores.arm.name,
        "suite": scores.dataset.suite,
        "answers": len(rows),
        "passed": sum(row.passed for row in rows),
        "truncated": sum(row.truncated for row in rows),
        "errors": sum(row.status == "request_error" for row in rows),
        "suspicious": sum(row.suspicious is not None for row in rows),
        "statuses": summary(rows),
    }


def lines(figures: dict[str, Any]) -> list[str]:
    """The same for a reader, with EvalPlus's verdicts behind it where they were asked for."""
    one = figures
    told = (
        f"{one['arm']} {one['suite']}: {one['passed']} of {one['answers']} pass, {one['truncated']} cut off,"
        f" {one['errors']} request errors, {one['suspicious']} suspicious"
    )
    return [told, *(comparing.lines(one["evalplus"]) if "evalplus" in one else ())]
