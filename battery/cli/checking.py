"""The verb that holds campaigns against bars: those of their plans, and those named on the command line."""

from __future__ import annotations

import contextlib
import json
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, get_args

import msgspec
import typer

from battery.choices import chosen
from battery.cli.options import CampaignsArgument, RootOption, app, out
from battery.ledger.claims import Bar, BarMetric, possible
from battery.ledger.errors import BarsFailed, InputError
from battery.ledger.store import Campaign

if TYPE_CHECKING:
    from battery.analyse.bars import BarResult
    from battery.analyse.findings import Findings

EXAMPLE = "decode@16384 C >= +3%"
_SPEED = re.compile(
    r"(\w+)(?:@(\d[\d,]*))?(?:\s+([^\s<>=]+))?\s*(>=|<=)\s*([+-]?\d+(?:\.\d+)?)\s*%"
)
_QUALITY = re.compile(r"(\S+?)(?:\s+(\S+))?\s+within\s+(\d+(?:\.\d+)?)\s+points?")


@app.command(
    epilog='Examples: battery check · battery check my-pr · battery check reference-cpu --bar "decode@512 C >= +3%"'
)
def check(
    campaigns: CampaignsArgument = None,
    bar: Annotated[
        list[str] | None,
        typer.Option(
            help=f'One more, such as "{EXAMPLE}" or "humaneval C within 5 points"; named afterwards, not sealed'
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object")] = False,
    root: RootOption = Path(),
) -> None:
    """Hold campaigns against the bars of their plans.

    Exit 0 only if every bar is met, 10 if one is not, 2 if there is none.
    """
    from battery.render.replaying import along, facts

    extra = [bar_of(words) for words in bar or ()]
    told, without = [], []
    for folder in chosen(campaigns, root):
        found, results = held(folder, extra)
        if not results:
            without.append(folder.name)
            continue
        head = {"campaign": found.campaign, "seal": found.seal, **facts(found)}
        told.append({**head, "bars": msgspec.to_builtins(results)})
        for one in results if not as_json else ():
            out().print(f"{found.campaign}{along(found)}: {line(one)}", markup=False)
    if without and (campaigns or not told):
        raise InputError(
            f"{', '.join(without)}: its plan declares no bars; declare some in the next plan ([[bars]]), or name one"
            f' now: --bar "{EXAMPLE}"'
        )
    outcomes = [one["outcome"] for campaign in told for one in campaign["bars"]]
    missed = len(outcomes) - outcomes.count("met")
    if as_json:
        sys.stdout.write(json.dumps({"met": not missed, "campaigns": told}) + "\n")
    if missed:
        raise BarsFailed(
            f"{missed} of {len(outcomes)} bars are not met ({outcomes.count('failed')} failed,"
            f" {outcomes.count('undecided')} undecided)"
        )


def held(folder: Path, extra: list[Bar]) -> tuple[Findings, list[BarResult]]:
    """The findings of a campaign, and what became of its own bars and of `extra` ones.

    Files that are not those that were sealed leave every bar undecided.
    """
    from battery.analyse import findings as analysis

    found = analysis.analyse(folder)
    for bar in extra:
        if bar.rung not in (0, *found.plan.ladder):
            known = ", ".join(map(str, found.plan.ladder))
            raise InputError(f"{folder.name}: {bar.rung} is not on the ladder; known: {known}")
        if bar.candidate and bar.candidate not in found.candidates:
            known = ", ".join(found.candidates) or "none"
            raise InputError(f"{folder.name}: {bar.candidate} is no candidate; known: {known}")
    results = [*found.bars, *found.held_against(extra)]
    kept = Campaign(folder)
    if found.seal is not None and kept.chain().seal != found.seal:
        why = "the files are not those that were sealed; battery verify names them"
        results = [
            msgspec.structs.replace(one, outcome="undecided", why=why, sealed=False)
            for one in results
        ]
    return found, results


def line(one: BarResult) -> str:
    """A bar's outcome in one line, with where the bar comes from."""
    unsealed = "in the plan, not sealed" if one.declared else "named afterwards, not sealed"
    return f"{one.outcome}: {one.what}: {one.why} [{'sealed' if one.sealed else unsealed}]"


def bar_of(words: str) -> Bar:
    """The bar that these words name; InputError with an example where they name none."""
    plain, named = words.strip().replace("−", "-"), None
    if speed := _SPEED.fullmatch(plain):
        metric, rung, candidate, sign, percent = speed.groups()
        bound = {"at_least" if sign == ">=" else "at_most": float(percent) / 100}
        at = int((rung or "0").replace(",", ""))
        named = {"candidate": candidate or "", "metric": metric, "rung": at, **bound}
    elif quality := _QUALITY.fullmatch(plain):
        suite, candidate, points = quality.groups()
        named = {"candidate": candidate or "", "suite": suite, "within": float(points) / 100}
    with contextlib.suppress(msgspec.ValidationError):
        bar = msgspec.convert(named, Bar)
        if possible(bar):
            return bar
    raise InputError(
        f'--bar "{words}": give metric@rung, candidate and bound, such as "{EXAMPLE}" (rung and candidate may be left'
        f' out; metrics: {", ".join(get_args(BarMetric))}), or a suite, such as "humaneval C within 5 points"'
    )
