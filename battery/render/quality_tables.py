"""The tables of section 4, one function each. Every number comes from Findings; nothing is computed here but units."""

from __future__ import annotations

from collections.abc import Sequence

from battery.analyse.findings import Findings
from battery.analyse.numerals import points
from battery.analyse.quality import Change, Quality, Row, loose
from battery.analyse.shares import Share
from battery.analyse.tasks_changed import Paired, clears, margin_p
from battery.render import sources, words
from battery.render.marks import cited
from battery.render.words import table


def rate(value: float | None) -> str:
    """A pass rate, four decimals."""
    return "—" if value is None else f"{value:.4f}"


def share(one: Share) -> str:
    """A pass rate with its interval."""
    if one.value is None:
        return "— (nothing was completed)"
    return f"{rate(one.value)} [{rate(one.low)}, {rate(one.high)}]"


def counted(one: Share) -> str:
    """The answers behind a share."""
    return f"{one.count:,} of {one.of:,}"


def percent(one: Share) -> str:
    """A share in per cent with what was counted."""
    return "—" if one.value is None else f"{100 * one.value:.1f} % ({counted(one)})"


def change(pair: Paired) -> str:
    """The strict change with its 95 % interval, in points; finer where one decimal would blur it."""
    return _between(pair.strict.difference, pair.low, pair.high)


def _between(difference: float, low: float, high: float) -> str:
    """A difference and its interval, in points."""
    told = [points(x, True, _decimals(low, high)) for x in (difference, low, high)]
    return f"{told[0]} points [{told[1]}, {told[2]}]"


def _ends(low: float, high: float) -> str:
    """An interval in points, without an estimate before it."""
    told = [points(x, True, _decimals(low, high)) for x in (low, high)]
    return f"{told[0]} to {told[1]}"


def _decimals(low: float, high: float) -> int:
    """Decimals that a narrow interval needs."""
    return 2 if high - low < 0.015 else 1


def rows(quality: Quality) -> str:
    """The three numbers of every suite and arm, the most that could pass, and what answers were cut off."""
    with_base = any(row.base for row in quality.rows)
    head = [
        "suite", "arm", "tasks", "strict pass@1 [95 %]", "passed", "completed-task pass@1 [95 %]", "of completed",
        "cut off", "could pass at most", *(["base tests alone"] if with_base else []),
    ]  # fmt: skip
    found = []
    for row in quality.rows:
        base = [share(row.base) if row.base else "—"] if with_base else []
        found.append(
            (
                row.suite, row.arm, _tasks(row), cited(share(row.strict), sources.answers(row)), counted(row.strict),
                cited(share(row.completed), sources.answers(row)),
                counted(row.completed), percent(row.truncation),
                rate(row.upper.value), *base,
            )
        )  # fmt: skip
    return table(head, found)


def _tasks(row: Row) -> str:
    """How many tasks were asked, of how many; and how many answers to each."""
    asked = f"{row.tasks}" if row.tasks == row.basis.of else f"{row.tasks} of {row.basis.of}"
    return f"{asked} × {row.samples}" if row.samples > 1 else asked


def ended(quality: Quality) -> str:
    """How answers ended, and how long they were."""
    found = [
        (
            row.suite, row.arm, words.counts(row.statuses), percent(row.empty), row.errors,
            words.figure(row.tokens_mean) if row.tokens_mean is not None else "not counted",
            f"{row.tokens_most:,}" if row.tokens_most is not None else "not counted",
        )
        for row in quality.rows
    ]  # fmt: skip
    head = [
        "suite", "arm", "answers ended", "empty", "requests without an answer", "completion tokens, mean", "longest",
    ]  # fmt: skip
    return table(head, found)


def several(quality: Quality) -> str:
    """Pass@k of suites with more than one answer a task; nothing where there is none."""
    found = [
        (
            row.suite, row.arm, row.samples, one.k,
            rate(one.value) + (f" [{rate(one.low)}, {rate(one.high)}]" if one.low is not None else ""),
        )
        for row in quality.rows
        for one in row.pass_at
    ]  # fmt: skip
    return table(["suite", "arm", "answers a task", "k", "pass@k [95 %]"], found) if found else ""


def changes(quality: Quality, compared: Sequence[Change]) -> str:
    """Every comparison with its interval, its margin and its verdict."""
    found = []
    for one in compared:
        pair = one.paired
        if pair is None:
            continue
        strict = pair.strict
        found.append(
            (
                one.suite, one.candidate, pair.tasks, rate(pair.control), rate(pair.candidate),
                cited(change(pair), sources.change(quality, one, change(pair))),
                len(pair.lost) + len(pair.gained), _ends(strict.low, strict.high), f"{100 * one.margin:g} points",
                words.pvalue(margin_p(strict, pair, one.margin)), words.pvalue(pair.mcnemar_p),
                f"{one.verdict.word} {one.verdict.qualifier}".strip(),
            )
        )  # fmt: skip
    head = [
        "suite", "arm", "tasks", "control's pass@1", "arm's pass@1", "change [95 %]", "tasks changed",
        "90 % interval, points", "margin", "p of the margin", "McNemar p", "quality verdict",
    ]  # fmt: skip
    return table(head, found)


def whys(compared: Sequence[Change]) -> str:
    """Why verdicts are no stronger, how intervals were made, and in what else two runs differ, as a list."""
    told = []
    for one in compared:
        at = f"{one.candidate}, {one.suite}"
        if one.verdict.why:
            told.append(f"- {at}: {one.verdict.word}: {one.verdict.why}.")
        if one.paired and one.paired.method != "t over tasks":
            told.append(f"- {at}: interval: {one.paired.method}.")
        told += [f"- {at}: {note}." for note in one.notes]
    return "\n".join(told)


def changed_tasks(compared: Sequence[Change]) -> str:
    """The ids of the tasks that changed, in each direction."""
    found = [
        (one.suite, one.candidate, _ids(one.paired.lost), _ids(one.paired.gained))
        for one in compared
        if one.paired is not None and len(one.suites) == 1
    ]
    return table(["suite", "arm", "passed by the control only", "passed by the arm only"], found)


def _ids(tasks: Sequence[str]) -> str:
    """Task ids with their number before them."""
    return f"{len(tasks)}: {', '.join(f'`{task}`' for task in tasks)}" if tasks else "none"


def scenarios(compared: Sequence[Change]) -> str:
    """The change with answers that were cut off counted in each way."""
    found = [
        (
            one.suite, one.candidate, scenario.name,
            _between(scenario.difference, scenario.low, scenario.high).partition(" [")[0],
            _ends(scenario.low, scenario.high),
            "yes" if clears(scenario, one.paired, one.margin) else "no",
        )
        for one in compared
        if one.paired is not None
        for scenario in one.paired.scenarios
    ]  # fmt: skip
    head = [
        "suite",
        "arm",
        "cut-off answers",
        "change",
        "90 % interval, points",
        "clears the margin",
    ]
    return table(head, found)


def both(compared: Sequence[Change]) -> str:
    """The comparison over tasks that both arms completed; no verdict rests on it, since answers chose the tasks."""
    found = []
    for one in compared:
        if one.paired is None:
            continue
        both = one.paired.both
        if both is None:
            found.append((one.suite, one.candidate, "none", "—", "—", "—", "—", "—"))
            continue
        found.append(
            (
                one.suite, one.candidate, f"{both.tasks} of {one.paired.tasks}", rate(both.control),
                rate(both.candidate), _between(both.difference, both.low, both.high), str(len(both.lost)),
                str(len(both.gained)),
            )
        )  # fmt: skip
    head = [
        "suite", "arm", "tasks completed by both", "control's pass@1", "arm's pass@1", "change [95 %]",
        "passed by the control only", "passed by the arm only",
    ]  # fmt: skip
    how = "Over the tasks that both arms completed; the answers themselves chose them, so no verdict rests on it:"
    return f"{how}\n\n{table(head, found)}"


def together(quality: Quality) -> str:
    """Cochran's Q where more than two arms were asked; nothing else."""
    found = [
        (
            one.suite,
            ", ".join(one.arms),
            one.tasks,
            words.figure(one.q),
            words.pvalue(one.p),
            one.why,
        )
        for one in quality.together
    ]
    if not found:
        return ""
    head = ["suite", "arms", "tasks", "Cochran's Q", "p", "no value because"]
    return f"All arms together, whether their pass rates are one:\n\n{table(head, found)}"


def basis(quality: Quality) -> str:
    """Tasks, grader, limits, fences and asking behind every row; the digests of what was read."""
    found = []
    for row in quality.rows:
        on = row.basis
        lacking = "; ".join(f"{name} ({why})" for name, why in on.missing.items())
        found.append(
            (
                row.suite, row.arm, f"{on.dataset}, {on.known or 'unknown file'}, sha256 {on.digest[:16]}", on.grader,
                _flat(on.limits), ", ".join(on.fences) or "none", lacking or "none", _flat(on.self_test),
                _flat(on.sampler), on.prompt_style, on.concurrency, on.engagement or "not told",
                f"receipt {on.receipt[:16]}, answers {on.answers[:16]}", on.ended,
            )
        )  # fmt: skip
    head = [
        "suite", "arm", "tasks from", "grader", "limits", "fences", "fences missing", "grader's own test", "asked with",
        "wording", "at once", "switches while asked", "sha256", "ended",
    ]  # fmt: skip
    return table(head, found)


def _flat(found: dict[str, object]) -> str:
    """A table of facts on one line."""
    return "; ".join(f"{path} {value}" for path, value in words.flat(found)) or "not told"


def refused(quality: Quality) -> str:
    """Comparisons that may not be made, as a list."""
    return "\n".join(
        f"- {one.candidate} against {one.control}, {one.suite}: not compared: {one.refused}."
        for one in quality.changes
        if one.refused
    )


def left_out(quality: Quality) -> str:
    """Receipts that no figure comes from, as a table; nothing where there is none."""
    found = [(f"`{one.file}`", one.why) for one in quality.left_out]
    if not found:
        return ""
    return f"No figure comes from these receipts:\n\n{table(['receipt', 'reason'], found)}"


def suspicious(quality: Quality) -> str:
    """Passes that want a look, as a list."""
    return "\n".join(
        f"- {row.arm}, {row.suite}: passes that want a look: {_ids(row.suspicious)}."
        for row in quality.rows
        if row.suspicious
    )


def unseen(findings: Findings) -> str:
    """Arms whose switches may change answers and that have no comparison of quality, as a list."""
    quality, told = findings.graded, []
    for arm in findings.candidates:
        switches = loose(findings.switches, arm)
        if switches and (quality is None or quality.deciding(arm) is None):
            names = ", ".join(f"`{one.name}` ({one.exactness})" for one in switches)
            told.append(f"- {arm} asks for {names}, which may change answers; quality: not run.")
    return "\n".join(told)
