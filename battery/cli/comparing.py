"""EvalPlus's verdicts beside ours on the command line: the options that two verbs share, and what they print."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from battery.ledger.errors import InputError
from battery.ledger.sanitised import VERSION

if TYPE_CHECKING:
    from battery.analyse.extraction import Extraction
    from battery.ledger.answers import Scores
    from battery.quality.evalplus import Sanitiser

CompareOption = Annotated[
    bool,
    typer.Option(
        "--compare-evalplus",
        help="Grade the code that EvalPlus's sanitize takes out of the answers, too; both verdicts are shown",
    ),
]
PythonOption = Annotated[
    Path | None,
    typer.Option(
        "--evalplus-python", help=f"An interpreter that has EvalPlus {VERSION}; default: this one"
    ),
]
LimitOption = Annotated[
    float,
    typer.Option(
        "--evalplus-limit", min=0.1, help="Seconds that EvalPlus's extraction has for one answer"
    ),
]


def sanitiser(
    compare: bool,
    python: Path | None,
    limit_s: float,
    workers: int | None = None,
    fleet: str | None = None,
) -> Sanitiser | None:
    """EvalPlus's extraction, tried; None where it is not asked for. InputError where it cannot be had."""
    if not compare:
        if python is not None:
            raise InputError("--evalplus-python is of use with --compare-evalplus only; say both")
        return None
    if fleet is not None:
        raise InputError(
            "--compare-evalplus grades on this machine: leave out --fleet, and grade there first"
        )
    from battery.quality.evalplus import Sanitiser

    return Sanitiser(python, limit_s, workers)


def told(folder: Path, scores: Scores) -> dict[str, Any]:
    """Both verdicts on the answers that were just graded, for machines."""
    import msgspec

    from battery.analyse.extraction import FORMS

    one = _extraction(folder, scores)
    figures: dict[str, Any] = msgspec.to_builtins(one)
    for side in ("ours_only", "theirs_only"):
        for answer in figures[side]:
            answer["sanitised_code"] = FORMS[answer["form"]]
    return figures


def _extraction(folder: Path, scores: Scores) -> Extraction:
    """What was just written, read again as a report will read it."""
    from battery.analyse.extraction import extraction, unfit
    from battery.ledger import sanitised
    from battery.ledger.errors import ReceiptError

    path = sanitised.path_of(folder, scores.arm.name, scores.dataset.suite)
    theirs = sanitised.read(path)
    if why := unfit(path.name, theirs, scores):
        raise ReceiptError(f"{path}: {why}")
    return extraction(scores, theirs)


def lines(figures: dict[str, Any]) -> list[str]:
    """The same for a reader."""
    one = figures
    ours, theirs = one["ours"], one["theirs"]
    least = "at least " if one["unjudged"] else ""
    found = [
        f"{one['arm']} {one['suite']}: strict pass@1 {_rate(ours)} as {one['our_name']} extracts code,"
        f" {least}{_rate(theirs)} as {one['their_name']} does"
    ]
    for who, side in ((one["our_name"], "ours_only"), (one["their_name"], "theirs_only")):
        found += _side(f"passed as {who} extracts it only", one[side])
    if one["unjudged"]:
        found.append(f"  no verdict by {one['their_name']}, {len(one['unjudged'])}:")
        found += [f"    {_answer(each)}: {each['why']}; ours: {each['ours']}" for each in one["unjudged"]]  # fmt: skip
    if one["cut_off_passing"]:
        found.append(
            f"  {one['cut_off_passing']} of {one['cut_off']} answers that were cut off have code that passes, and would"
            f" count for EvalPlus, which never looks at how an answer ended"
        )
    return found


def _side(title: str, answers: Sequence[dict[str, Any]]) -> list[str]:
    """The answers that pass under one extraction only."""
    rows = [
        f"    {_answer(one)}: ours {one['ours']} ({one['rule'] or 'rule not told'}), theirs {one['theirs']}: the"
        f" sanitised code {one['sanitised_code']}"
        for one in answers
    ]
    return [f"  {title}, {len(rows)}{':' if rows else ''}", *rows]


def _answer(one: dict[str, Any]) -> str:
    return f"{one['task']} answer {one['sample'] + 1}" if one["sample"] else str(one["task"])


def _rate(one: dict[str, Any]) -> str:
    if one["value"] is None:
        return "— (no answers)"
    return f"{one['value']:.4f} ({one['count']} of {one['of']})"
