"""Section 4 and the quality line of the head: three numbers per suite and arm, and what changed against the control.

Nothing is computed here but units. Where no arm was asked, the section says so; a gain of an arm whose switches may
change answers is then not printed as one.
"""

from __future__ import annotations

from battery.analyse.findings import Findings
from battery.analyse.numerals import points
from battery.analyse.quality import Change, Quality, loose
from battery.analyse.shares import Share
from battery.analyse.speed import Comparison
from battery.analyse.tasks_changed import Paired
from battery.ledger.claims import POOL
from battery.render import extraction, sources
from battery.render import quality_tables as tables
from battery.render.marks import cited

NOT_RUN = "quality: not run"
GAINS = ("faster", "smaller")
"""Verdicts that a reader takes for a win."""
_HOW = (
    "Strict pass@1 counts an answer that was cut off as failed, completed-task pass@1 leaves it out; intervals are"
    " 95 % (Wilson's with one answer a task, else t over tasks). Truth lies between strict and the most that could"
    " pass, what was cut off or never came counted as passed. That it lies below completed-task, too, needs the"
    " assumption that answers that were cut off would not have passed more often than the others."
)
_PAIRED = (
    "Paired by task: mean change of the pass rate over tasks, arm minus control, t over tasks; variants of one task are"
    " a cluster of the pool. Non-inferior: the lower end of the 90 % interval is above minus the margin, and the p of"
    " the margin is below .05. Verdicts are not corrected for their number. A change that was not found is undecided,"
    " never shown to be none."
)


def lines(findings: Findings, mark: str = "") -> list[str]:
    """The quality lines of the head, one per candidate; one line where no arm was asked, or where there is one arm."""
    quality = findings.graded
    if quality is None:
        return ["Quality: not run (section 4)."]
    if not findings.candidates:
        return [_alone(findings, quality)]
    return [_line(quality, candidate, mark) for candidate in findings.candidates]


def _alone(findings: Findings, quality: Quality) -> str:
    """The line of a campaign of one arm."""
    told = [
        f"{row.suite} strict pass@1 {tables.share(row.strict)}, completed-task {tables.rate(row.completed.value)}"
        for row in quality.rows
    ]
    return (
        f"Quality: {findings.control}: {'; '.join(told) or 'no receipt can be used'} (section 4)."
    )


def _line(quality: Quality, candidate: str, mark: str) -> str:
    """A candidate's line."""
    one = quality.deciding(candidate)
    if one is None or one.paired is None:
        refused = [x for x in quality.changes if x.candidate == candidate]
        why = f"not compared: {refused[0].refused}" if refused else "not run"
        return f"Quality: {candidate}: {why} (section 4)."
    pair = one.paired
    where = f"all suites ({', '.join(one.suites)})" if one.suite == POOL else one.suite
    changed = len(pair.lost) + len(pair.gained)
    verdict = f"{mark}{one.verdict.word}{mark} {one.verdict.qualifier}".strip()
    why = f": {one.verdict.why}" if one.verdict.why else ""
    verdict = cited(verdict, sources.change(quality, one, tables.change(pair)))
    return (
        f"Quality: {candidate} against {one.control}, pass@1 over the {pair.tasks} tasks of {where}:"
        f" {tables.rate(pair.candidate)} against {tables.rate(pair.control)}, {tables.change(pair)} (95 % interval;"
        f" {changed} task{'' if changed == 1 else 's'} changed; margin {100 * one.margin:g} points): {verdict}{why}"
        " (section 4)."
    )


def beside(findings: Findings, one: Comparison, told: str, mark: str) -> str:
    """A headline's verdict, or what stands in its place where a gain was bought with answers that nobody looked at.

    That is: the arm asks for a switch that may change answers (`rounding`, `lossy`), and no quality was compared.
    """
    switches = loose(findings.switches, one.candidate)
    if one.verdict.word not in GAINS or not switches:
        return told
    quality = findings.graded
    decided = quality.deciding(one.candidate) if quality else None
    if decided is not None:
        verdict = f"{decided.verdict.word} {decided.verdict.qualifier}".strip()
        return f"{told}; quality: {verdict}"
    names = ", ".join(f"{switch.name} ({switch.exactness})" for switch in switches)
    found = f"{one.verdict.word} {one.verdict.qualifier}".strip()
    return f"{mark}{NOT_RUN}{mark} with {names}, which may change answers; measured: {found}"


def section(findings: Findings) -> str:
    """Section 4 without its charts."""
    quality = findings.graded
    unseen = tables.unseen(findings)
    if quality is None:
        parts = [
            "Not run: the campaign holds no quality receipts. Nothing here says that an arm answers as well as the"
            " control.",
            unseen,
        ]
        return "\n\n".join(part for part in parts if part)
    parts = [unseen, tables.left_out(quality)]
    if quality.rows:
        parts += [
            "### 4.1 The three numbers", _HOW, tables.rows(quality), tables.ended(quality), tables.several(quality),
        ]  # fmt: skip
    if quality.changes:
        parts += ["### 4.2 Change against the control", *_changes(quality)]
    if quality.rows:
        parts += [
            "### 4.3 What the figures rest on",
            tables.basis(quality),
            tables.suspicious(quality),
            *extraction.section(quality.extractions),
        ]
    return "\n\n".join(part for part in parts if part)


def _changes(quality: Quality) -> list[str]:
    """Section 4.2."""
    compared = [one for one in quality.changes if one.paired is not None]
    parts = [tables.refused(quality)]
    if not compared:
        return parts
    cut = any(_any_open(one.paired) for one in compared if one.paired)
    parts += [
        _PAIRED,
        tables.changes(quality, compared),
        tables.whys(compared),
        tables.changed_tasks(compared),
    ]
    if cut:
        how = "The same, with answers that were cut off counted otherwise; a verdict must hold in all of them:"
        parts += [how, tables.scenarios(compared), tables.both(compared)]
    return [*parts, tables.together(quality)]


def _any_open(pair: Paired) -> bool:
    """Whether any answer was cut off or never came, so that the ways to count it differ."""
    return len({(one.difference, one.se) for one in pair.scenarios}) > 1 or (
        pair.both is None or pair.both.tasks < pair.tasks
    )


def share_of(one: Share) -> str:
    """A share in words for pictures: per cent, or what there is none of."""
    return "none" if one.value is None else f"{100 * one.value:.1f} %"


def change_of(one: Change) -> str:
    """A change in words for pictures."""
    if one.paired is None:
        return f"not compared: {one.refused}"
    return f"{points(one.paired.strict.difference)} points, {one.verdict.word}"
