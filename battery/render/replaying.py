"""What a page and the command line say of a replay: that the texts were given, by whom, and what follows from it."""

from __future__ import annotations

from battery.analyse.beside import Beside, Side
from battery.analyse.findings import Findings
from battery.analyse.rows import MEASURES
from battery.ledger.plan import Replay
from battery.render import words

STANDS_FOR = (
    "This is a statement on speed along given texts, not on texts that the arms would write"
)
"""What no page of a replay may leave out."""


def head(findings: Findings, mark: str = "**") -> list[str]:
    """A note for the top of the page, its first word within `mark`s; without them plain text. None for a free one."""
    source, code = findings.plan.replayed, "`" if mark else ""
    if source is None:
        return []
    return [
        f"{mark}Replayed:{mark} every arm was made to follow, token by token, what arm {source.arm} wrote in the"
        f" campaign {code}{source.campaign}{code} (seal {code}{source.seal[:16]}{code}), {_which(source)}."
        f" {STANDS_FOR}."
    ]


def _which(source: Replay) -> str:
    """Which texts a block follows."""
    if source.block is None:
        return "each block the texts of its own prompts"
    return f"all blocks the texts of its block {source.block}, so that blocks differ by the machine alone"


def method(findings: Findings) -> list[tuple[str, str]]:
    """A row of the settings; none in a free campaign."""
    source = findings.plan.replayed
    if source is None:
        return []
    told = (
        f"forced_tokens: what arm {source.arm} wrote in {source.campaign}, seal {source.seal}; texts' digest"
        f" {source.digest[:16]}; {_which(source)}. Drafts, verify passes and sampling are done; only the token that"
        " comes of them is the recorded one. Every answer's ids were held against the recorded ones"
    )
    return [("replay", told)]


def facts(findings: Findings) -> dict[str, str]:
    """For a program that reads the end of a run: whose texts were followed; nothing in a free campaign."""
    source = findings.plan.replayed
    return {} if source is None else {"replay_of": source.campaign}


def along(findings: Findings) -> str:
    """Words behind a campaign's name on one line; nothing in a free campaign."""
    source = findings.plan.replayed
    return "" if source is None else f" (along texts of {source.campaign})"


def plan(findings: Findings) -> str:
    """The option of the plan, with a space behind it; nothing for a replay under its source's own plan.

    That has as many blocks as the source came to, and the file of its name may have more.
    """
    source = findings.plan.replayed
    if source is not None and not isinstance(source.plan, str):
        return ""
    return f"--plan {findings.plan.name} "


def option(findings: Findings) -> str:
    """The option that makes this campaign again; nothing for a free one."""
    source = findings.plan.replayed
    if source is None:
        return ""
    block = "" if source.block is None else f":{source.block}"
    return f" --replay {source.campaign}{block}"


def again(findings: Findings) -> list[str]:
    """The command that sets the replay beside its source; none for a free campaign."""
    return [f"battery beside {findings.campaign}"] if findings.plan.replayed else []


def lines(found: Beside) -> list[str]:
    """Both intervals of every comparison, a line each, the primary endpoint first."""
    source, level = found.source, f"{100 * (1 - found.alpha):.3g} %"
    told = [
        f"{found.campaign} follows what arm {source.arm} wrote in {source.campaign}, {_which(source)}.",
        f"Ratios to {found.control} with {level} intervals over equally many blocks. {STANDS_FOR}.",
    ]
    told.append(
        "Prefill and TTFT do not follow the text: as far as they are narrower, too, the machine was calmer then."
    )
    if not found.same_seal:
        told.append(f"note: {source.campaign} is not sealed as it was when it was replayed")
    told += [f"note: {one}" for one in found.unlike]
    rows = [
        ["candidate", "metric", "context", "blocks", "free", "replayed", "free is wider"],
        *(_row(one) for one in sorted(found.sides, key=lambda one: not one.primary)),
    ]
    widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]
    table = [
        "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True))
        for row in rows
    ]
    return [*told, *(line.rstrip() for line in table)]


def _row(one: Side) -> list[str]:
    """One comparison."""
    title = MEASURES[one.metric].title
    return [
        one.candidate, f"{title} (primary)" if one.primary else title, f"{one.rung:,}", str(one.blocks),
        words.interval(one.free), words.interval(one.replayed),
        "—" if one.narrower is None else f"{words.figure(one.narrower, 2)} times",
    ]  # fmt: skip
