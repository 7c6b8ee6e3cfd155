"""The verb that reads what other tools measured, and analyses it by the rules of this one."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from battery.cli.options import app, out
from battery.cli.reading import refuse, told_violations
from battery.ledger.disk import replace
from battery.ledger.errors import InputError

if TYPE_CHECKING:
    from battery.analyse.foreign.rows import Sheet


FilesArgument = Annotated[
    list[Path],
    typer.Argument(
        help="Results of llama-bench, vLLM, SGLang, guidellm, AIPerf, llama-benchy or mlx-chronos, told by their"
        " content; or one CSV with the columns arm,context,seed,round,metric,value,tokens"
    ),
]
ArmOption = Annotated[
    list[str] | None,
    typer.Option(
        help="What a file measured, once for each file; files of one arm are its rounds"
        " (default: the file's name, or the settings in which its tests differ)"
    ),
]
FormatOption = Annotated[
    str | None,
    typer.Option("--format", help="What the files are, where their content does not tell"),
]
ControlOption = Annotated[
    str | None, typer.Option(help="Arm that the others are held against; default: the first")
]
MarginOption = Annotated[
    str | None, typer.Option(help="Percent within which nothing matters; default: 2, for TTFT 5")
]
ClaimOption = Annotated[
    str | None, typer.Option(help="A published change in percent, to be held against the intervals")
]
ReportOption = Annotated[
    Path | None,
    typer.Option(help="Write a Markdown page, too; exit 8 where the linter finds something in it"),
]


@app.command(
    "import",
    epilog="Examples: battery import published.csv --claim 15.1 ·"
    " battery import a.json c.json --arm A --arm C --report import.md",
)
def import_(
    files: FilesArgument,
    arm: ArmOption = None,
    form: FormatOption = None,
    control: ControlOption = None,
    margin: MarginOption = None,
    claim: ClaimOption = None,
    report: ReportOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object")] = False,
) -> None:
    """Analyse what other tools measured: verdicts by the wider of seed and round intervals, weaknesses named."""
    from battery.analyse.foreign import findings as foreign
    from battery.render import foreign as told
    from battery.render import foreign_page as page

    if report is not None and report.resolve() in {file.resolve() for file in files}:
        raise InputError(f"--report {report}: that is one of the files to read; name another")
    found = foreign.analyse(
        sheet(files, arm or [], form),
        control=control,
        margin=None if margin is None else _percent(margin, "--margin", 0),
        claim=None if claim is None else 1 + _percent(claim, "--claim", -100),
    )
    if as_json:
        sys.stdout.write(msgspec.json.encode(found).decode() + "\n")
    else:
        out().print(told.table(found))
        for line in told.lines(found):
            out().print(line, markup=False)
    if report is not None:
        replace(report, page.page(found).encode())
        if not as_json:
            out().print(str(report), markup=False)
        refuse(told_violations(report, None))


def sheet(files: list[Path], arms: list[str], form: str | None) -> Sheet:
    """The values of all files: those of one CSV, or of any number of files of other tools."""
    from battery.analyse.foreign import plain_csv
    from battery.analyse.foreign.reading.joining import join
    from battery.analyse.foreign.reading.recognise import recognise

    if len({file.resolve() for file in files}) < len(files):
        raise InputError(
            "import: a file is named twice; each is one round, and a copy of it is none"
        )
    found = [recognise(file, form) for file in files]
    others = [one for one in found if one is not None]
    if len(others) == len(found):
        digests = [one.document.sha256 for one in others]
        if len(set(digests)) < len(digests):
            raise InputError(
                "import: two of the files are the same to the byte; a copy is no round"
            )
        return join(others, arms)
    csv = files[found.index(None)]
    if len(files) > 1:
        raise InputError(
            f"{csv}: a plain CSV names its arms and rounds itself and is imported alone; give its lines and those of"
            " the other files in one CSV"
        )
    if arms:
        raise InputError(f"{csv}: a plain CSV names its arms itself; leave --arm out")
    return plain_csv.read(csv)


def _percent(text: str, option: str, above: float) -> float:
    """A share from words such as `2`, `+15.1%` or `-3 %`; InputError for any other, and at or below `above` percent."""
    number = re.fullmatch(r"([+−-]?(?:\d+\.?\d*|\.\d+))\s*%?", text.strip(), re.ASCII)
    share = float(number[1].replace("−", "-")) / 100 if number else None
    if share is None or not above < 100 * share < 1e6:
        raise InputError(
            f"{option} {text!r}: give a number of percent above {above:g}, such as 2.5"
        )
    return share
