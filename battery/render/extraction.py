"""The tables of two extractors over the same answers: how many pass under each, and which answers differ, with why."""

from __future__ import annotations

from collections.abc import Sequence

from battery.analyse.extraction import FORMS, Differing, Extraction
from battery.render.quality_tables import counted, share
from battery.render.words import table

_HOW = (
    "Every answer was graded twice, by one grader, against one set of tests, under one rule for answers that were cut"
    " off; only how code is taken out of an answer differs. battery takes the last fence that defines the entry point"
    " and runs it behind the prompt. EvalPlus's `sanitize` takes the longest run of lines that parses, keeps of it what"
    " the entry point reaches, the first of two definitions of a name, and runs that without the prompt, as EvalPlus"
    " grades chat models."
)
_UNJUDGED = "Answers without a verdict count as failed in `sanitize`'s column, so its figure is the least it can be:"
_CUT = "EvalPlus itself never looks at how an answer ended. Counted in no figure above, since they were cut off:"


def section(found: Sequence[Extraction]) -> list[str]:
    """The parts of the subsection; nothing where nobody compared."""
    if not found:
        return []
    parts = ["### 4.4 The figures under another extraction", _HOW, _rows(found), _differing(found)]
    if any(one.unjudged for one in found):
        parts += [_UNJUDGED, _unjudged(found)]
    if any(one.cut_off_passing for one in found):
        parts += [f"{_CUT}\n\n{_cut_off(found)}"]
    return parts


def _rows(found: Sequence[Extraction]) -> str:
    """Strict pass@1 under each, side by side."""
    head = [
        "suite", "arm", "strict pass@1 by battery's extraction [95 %]", "passed", "by EvalPlus's [95 %]",
        "passed by EvalPlus's", "battery's only", "EvalPlus's only", "no verdict", "EvalPlus's extraction ran as",
    ]  # fmt: skip
    return table(
        head,
        [
            (
                one.suite, one.arm, share(one.ours), counted(one.ours), share(one.theirs), counted(one.theirs),
                len(one.ours_only), len(one.theirs_only), len(one.unjudged),
                f"{one.their_name}, Python {one.python}, {one.limit_s:g} s an answer",
            )
            for one in found
        ],
    )  # fmt: skip


def _differing(found: Sequence[Extraction]) -> str:
    """Every answer that passes under one of the two only."""
    rows = [
        (
            one.suite, one.arm, _answer(answer.task, answer.sample), who, answer.ours, answer.rule or "not told",
            answer.theirs, reason(answer),
        )
        for one in found
        for who, own in (("battery", one.ours_only), ("EvalPlus", one.theirs_only))
        for answer in own
    ]  # fmt: skip
    if not rows:
        return "No answer passes under one of the two only."
    head = [
        "suite", "arm", "answer", "passes by", "battery's status", "battery found", "EvalPlus's status",
        "sanitised code",
    ]  # fmt: skip
    return table(head, rows)


def reason(answer: Differing) -> str:
    """What the sanitised code is, as far as it can be seen without running it."""
    return FORMS[answer.form]


def _unjudged(found: Sequence[Extraction]) -> str:
    rows = [
        (one.suite, one.arm, _answer(answer.task, answer.sample), answer.ours, answer.why)
        for one in found
        for answer in one.unjudged
    ]
    return table(["suite", "arm", "answer", "battery's status", "why there is none"], rows)


def _cut_off(found: Sequence[Extraction]) -> str:
    rows = [(one.suite, one.arm, one.cut_off, one.cut_off_passing) for one in found if one.cut_off]
    return table(["suite", "arm", "cut off", "of these, sanitised code passes"], rows)


def _answer(task: str, sample: int) -> str:
    """An answer by its task, and its number where there are several."""
    return f"`{task}`, answer {sample + 1}" if sample else f"`{task}`"
